// The arithmetic of a panel, written once over a Vector and compiled once for each instruction set.
//
// Nothing of the standard library is used here: an inline function of it that is compiled for AVX-512 could be the one
// that the linker keeps, and would then run on CPUs without AVX-512.

#include "functions.h"

namespace railsearch {
namespace {

constexpr int LANES = Vector::LANES;
constexpr int VECTORS = 3;  // of one panel: with tiles of 4 rows, 12 sums in 16 registers
constexpr int WIDTH = VECTORS * LANES;
constexpr int64_t DEPTH_PER_BLOCK = 256;  // values of a panel that stay in L1: 24 KiB with AVX2

static_assert(WIDTH <= MOST_ITEMS_PER_PANEL, "a panel has one bit of a uint64_t for each item");

inline float scalar(Number number, const void* row, int64_t at) {
    if (number == Number::fp32) return static_cast<const float*>(row)[at];
    const uint16_t bits = static_cast<const uint16_t*>(row)[at];
    if (number == Number::fp16) return widen_fp16(bits);
    const uint32_t wide = static_cast<uint32_t>(bits) << 16;
    float value;
    __builtin_memcpy(&value, &wide, sizeof(value));
    return value;
}

void pack(Number number, const void* const* rows, int count, int64_t length, float* panel) {
    const void* lanes[WIDTH];
    for (int lane = 0; lane < WIDTH; ++lane) lanes[lane] = rows[lane < count ? lane : 0];
    int64_t done = 0;
    transpose_bulk(number, lanes, length, WIDTH, panel, done);
    for (int lane = 0; lane < WIDTH; ++lane) {
        for (int64_t at = done; at < length; ++at) panel[at * WIDTH + lane] = scalar(number, lanes[lane], at);
    }
}

// How the sums of a tile begin.
enum class Start { zero, bias, sums };

// Sums [ROWS][WIDTH] over the depth of tile[k][row] * panel[k][item], in ascending order of k, one fused
// multiply-add each. Every score of railsearch rests on this order.
template <int ROWS, Start START>
inline void multiply_tile(const float* tile, const float* panel, int64_t depth, const float* bias, float* out,
                          int64_t stride) {
    Vector sums[ROWS][VECTORS];
    for (int row = 0; row < ROWS; ++row) {
        for (int v = 0; v < VECTORS; ++v) {
            if (START == Start::zero) sums[row][v] = fill(0.0f);
            if (START == Start::bias) sums[row][v] = fill(bias[row]);
            if (START == Start::sums) sums[row][v] = load(out + row * stride + v * LANES);
        }
    }
    for (int64_t k = 0; k < depth; ++k) {
        const Vector p0 = load(panel), p1 = load(panel + LANES), p2 = load(panel + 2 * LANES);
        for (int row = 0; row < ROWS; ++row) {
            const Vector factor = fill(tile[row]);
            sums[row][0] = fused(factor, p0, sums[row][0]);
            sums[row][1] = fused(factor, p1, sums[row][1]);
            sums[row][2] = fused(factor, p2, sums[row][2]);
        }
        tile += ROWS_PER_TILE;
        panel += WIDTH;
    }
    for (int row = 0; row < ROWS; ++row) {
        for (int v = 0; v < VECTORS; ++v) store(out + row * stride + v * LANES, sums[row][v]);
    }
}

template <Start START>
inline void multiply_rows(int64_t rows, const float* tile, const float* panel, int64_t depth, const float* bias,
                          float* out, int64_t stride) {
    switch (rows) {
        case 1: return multiply_tile<1, START>(tile, panel, depth, bias, out, stride);
        case 2: return multiply_tile<2, START>(tile, panel, depth, bias, out, stride);
        case 3: return multiply_tile<3, START>(tile, panel, depth, bias, out, stride);
        default: return multiply_tile<4, START>(tile, panel, depth, bias, out, stride);
    }
}

// Rows in tiles times a panel: out row r starts at out + r * stride.
inline void multiply_panel(const float* tiles, int64_t num_rows, int64_t depth, const float* panel, float* out,
                           int64_t stride) {
    for (int64_t first = 0; first < depth; first += DEPTH_PER_BLOCK) {
        const int64_t part = depth - first < DEPTH_PER_BLOCK ? depth - first : DEPTH_PER_BLOCK;
        for (int64_t row = 0; row < num_rows; row += ROWS_PER_TILE) {
            const float* tile = tiles + row * depth + first * ROWS_PER_TILE;
            if (first == 0) {
                multiply_rows<Start::zero>(num_rows - row, tile, panel, part, nullptr, out + row * stride, stride);
            } else {
                multiply_rows<Start::sums>(num_rows - row, tile, panel + first * WIDTH, part, nullptr,
                                           out + row * stride, stride);
            }
        }
    }
}

// Component scores [query][pair][WIDTH] of a chunk of queries.
inline void component_scores(const Mixture& mixture, const float* tiles, int64_t num_queries, const float* panel,
                             float* out) {
    const int64_t num_rows = num_queries * mixture.num_query_components;
    for (int64_t j = 0; j < mixture.num_item_components; ++j) {
        multiply_panel(tiles, num_rows, mixture.dim, panel + j * mixture.dim * WIDTH, out + j * WIDTH,
                       mixture.num_item_components * WIDTH);
    }
}

inline int64_t tile_floats(int64_t rows, int64_t depth) {
    return (rows + ROWS_PER_TILE - 1) / ROWS_PER_TILE * ROWS_PER_TILE * depth;
}

// The gate's network on the component scores of one query: logits = W2 silu(W1 l + b1) + b2.
inline void pair_logits(const Mixture& mixture, const float* products, float* hidden, float* logits) {
    for (int64_t row = 0; row < mixture.hidden_dim; row += ROWS_PER_TILE) {
        float* out = hidden + row * WIDTH;
        multiply_rows<Start::bias>(mixture.hidden_dim - row, mixture.hidden_tiles + row * mixture.num_pairs, products,
                                   mixture.num_pairs, mixture.hidden_bias + row, out, WIDTH);
        const int64_t left = mixture.hidden_dim - row;
        const int vectors = static_cast<int>(left < ROWS_PER_TILE ? left : ROWS_PER_TILE) * VECTORS;
        for (int v = 0; v < vectors; ++v) store(out + v * LANES, silu(load(out + v * LANES)));
    }
    for (int64_t row = 0; row < mixture.num_pairs; row += ROWS_PER_TILE) {
        multiply_rows<Start::bias>(mixture.num_pairs - row, mixture.output_tiles + row * mixture.hidden_dim, hidden,
                                   mixture.hidden_dim, mixture.output_bias + row, logits + row * WIDTH, WIDTH);
    }
}

// phi = sum_p e_p l_p / sum_p e_p with e_p = exp(z_p - max z), never above the best l_p. Returns 0 if it is finite.
inline Vector mixed(const Mixture& mixture, const float* query_gate, const float* gate_panel, const float* products,
                    float* logits, float* out, Vector defects) {
    const int64_t num_pairs = mixture.num_pairs;
    Vector peaks[VECTORS];
    for (int v = 0; v < VECTORS; ++v) peaks[v] = fill(-__builtin_inff());
    for (int64_t p = 0; p < num_pairs; ++p) {
        for (int v = 0; v < VECTORS; ++v) {
            const int64_t at = p * WIDTH + v * LANES;
            Vector z = mixture.hidden_dim ? load(logits + at) : fill(0.0f);
            if (mixture.has_query_gate && mixture.has_item_gate) {
                z = fused(fill(query_gate[p]), load(gate_panel + at), z);
            } else if (mixture.has_query_gate) {
                z = add(z, fill(query_gate[p]));
            } else if (mixture.has_item_gate) {
                z = add(z, load(gate_panel + at));
            }
            if (mixture.has_silu) z = silu(z);
            store(logits + at, z);
            peaks[v] = larger(peaks[v], z);
        }
    }
    Vector totals[VECTORS], sums[VECTORS], best[VECTORS];
    for (int v = 0; v < VECTORS; ++v) {
        totals[v] = sums[v] = fill(0.0f);
        best[v] = fill(-__builtin_inff());
    }
    for (int64_t p = 0; p < num_pairs; ++p) {
        for (int v = 0; v < VECTORS; ++v) {
            const int64_t at = p * WIDTH + v * LANES;
            const Vector product = load(products + at);
            const Vector weight = exponential(subtract(load(logits + at), peaks[v]));
            totals[v] = add(totals[v], weight);
            sums[v] = fused(weight, product, sums[v]);
            best[v] = larger(best[v], product);
        }
    }
    for (int v = 0; v < VECTORS; ++v) {
        Vector score = smaller(best[v], divide(sums[v], totals[v]));
        score = add(score, fill(0.0f));  // -0 becomes 0, so that equal scores have equal bits
        store(out + v * LANES, score);
        defects = fused(score, fill(0.0f), defects);  // 0 unless a score is infinite or NaN
    }
    return defects;
}

}  // namespace
}  // namespace railsearch

#include "late_interaction.inl"

namespace railsearch {
namespace {

inline bool is_zero(Vector defects) {
    return lanes_at_least(defects, fill(0.0f)) == (uint64_t{1} << LANES) - 1;
}

bool mix_products(const Mixture& mixture, const float* query_gate, const float* gate_panel, const float* products,
                  float* scratch, float* scores) {
    if (mixture.is_late_interaction) {
        return is_zero(late_interaction(mixture, query_gate, gate_panel, products, scratch, scores));
    }
    float* logits = scratch + tile_floats(mixture.hidden_dim, 1) * WIDTH;
    if (mixture.hidden_dim) pair_logits(mixture, products, scratch, logits);
    return is_zero(mixed(mixture, query_gate, gate_panel, products, logits, scores, fill(0.0f)));
}

bool products(const Mixture& mixture, const float* tiles, int64_t num_queries, const float* panel, float* out,
              float* bounds) {
    component_scores(mixture, tiles, num_queries, panel, out);
    Vector defects = fill(0.0f);
    for (int64_t q = 0; q < num_queries; ++q) {
        const float* own = out + q * mixture.num_pairs * WIDTH;
        for (int v = 0; v < VECTORS; ++v) {
            Vector best = fill(-__builtin_inff());
            for (int64_t p = 0; p < mixture.num_pairs; ++p) {
                const Vector product = load(own + p * WIDTH + v * LANES);
                defects = fused(product, fill(0.0f), defects);
                best = larger(best, product);
            }
            store(bounds + q * WIDTH + v * LANES, add(best, fill(0.0f)));
        }
    }
    return is_zero(defects);
}

// Call use(first query, count, tiles) for every chunk of the queries.
template <typename Use>
inline bool for_each_chunk(const Mixture& mixture, const QueryBlock& queries, Use use) {
    const float* tiles = queries.tiles;
    bool is_finite = true;
    for (int64_t first = 0; first < queries.num_queries; first += queries.queries_per_chunk) {
        const int64_t left = queries.num_queries - first;
        if (!use(first, left < queries.queries_per_chunk ? left : queries.queries_per_chunk, tiles)) is_finite = false;
        tiles += tile_floats(queries.queries_per_chunk * mixture.num_query_components, mixture.dim);
    }
    return is_finite;
}

bool mix(const Mixture& mixture, const QueryBlock& queries, const float* panel, const float* gate_panel,
         float* scratch, float* scores) {
    const int64_t num_pairs = mixture.num_pairs, gate_size = query_gate_size(mixture);
    float* hidden = scratch + queries.queries_per_chunk * num_pairs * WIDTH;
    return for_each_chunk(mixture, queries, [&](int64_t first, int64_t count, const float* tiles) {
        component_scores(mixture, tiles, count, panel, scratch);
        bool is_finite = true;
        for (int64_t q = 0; q < count; ++q) {
            const float* query_gate = queries.gate == nullptr ? nullptr : queries.gate + (first + q) * gate_size;
            if (!mix_products(mixture, query_gate, gate_panel, scratch + q * num_pairs * WIDTH, hidden,
                              scores + (first + q) * WIDTH)) {
                is_finite = false;
            }
        }
        return is_finite;
    });
}

bool bound(const Mixture& mixture, const QueryBlock& queries, const float* panel, float* scratch, float* scores) {
    return for_each_chunk(mixture, queries, [&](int64_t first, int64_t count, const float* tiles) {
        return products(mixture, tiles, count, panel, scratch, scores + first * WIDTH);
    });
}

bool dot(const float* tiles, int64_t num_rows, int64_t dim, const float* panel, float* scores) {
    multiply_panel(tiles, num_rows, dim, panel, scores, WIDTH);
    Vector defects = fill(0.0f);
    for (int64_t at = 0; at < num_rows * WIDTH; at += LANES) {
        const Vector score = add(load(scores + at), fill(0.0f));
        store(scores + at, score);
        defects = fused(score, fill(0.0f), defects);
    }
    return is_zero(defects);
}

// One tile of `dot_above`: the sums stay in registers unless one of them is greater than its row's threshold.
template <int ROWS>
inline uint64_t tile_above(const float* tile, int64_t dim, const float* panel, const float* thresholds, float* scores,
                           uint64_t* lanes) {
    Vector sums[ROWS][VECTORS];
    for (int row = 0; row < ROWS; ++row) {
        for (int v = 0; v < VECTORS; ++v) sums[row][v] = fill(0.0f);
    }
    for (int64_t k = 0; k < dim; ++k) {
        const Vector p0 = load(panel), p1 = load(panel + LANES), p2 = load(panel + 2 * LANES);
        for (int row = 0; row < ROWS; ++row) {
            const Vector factor = fill(tile[row]);
            sums[row][0] = fused(factor, p0, sums[row][0]);
            sums[row][1] = fused(factor, p1, sums[row][1]);
            sums[row][2] = fused(factor, p2, sums[row][2]);
        }
        tile += ROWS_PER_TILE;
        panel += WIDTH;
    }
    uint64_t any = 0;
    for (int row = 0; row < ROWS; ++row) {
        const Vector threshold = fill(thresholds[row]);
        uint64_t found = 0;
        for (int v = 0; v < VECTORS; ++v) found |= lanes_greater(sums[row][v], threshold) << (v * LANES);
        lanes[row] = found;
        any |= found;
        if (found == 0) continue;
        for (int v = 0; v < VECTORS; ++v) store(scores + row * WIDTH + v * LANES, add(sums[row][v], fill(0.0f)));
    }
    return any;
}

bool dot_above(const float* tiles, int64_t num_rows, int64_t dim, const float* panel, const float* thresholds,
               float* scores, uint64_t* lanes) {
    uint64_t any = 0;
    for (int64_t row = 0; row < num_rows; row += ROWS_PER_TILE) {
        const float* tile = tiles + row * dim;
        float* own = scores + row * WIDTH;
        switch (num_rows - row) {
            case 1: any |= tile_above<1>(tile, dim, panel, thresholds + row, own, lanes + row); break;
            case 2: any |= tile_above<2>(tile, dim, panel, thresholds + row, own, lanes + row); break;
            case 3: any |= tile_above<3>(tile, dim, panel, thresholds + row, own, lanes + row); break;
            default: any |= tile_above<4>(tile, dim, panel, thresholds + row, own, lanes + row); break;
        }
    }
    return any != 0;
}

bool reach(const float* scores, const float* thresholds, int64_t num_rows, bool or_equal, uint64_t* lanes) {
    uint64_t any = 0;
    for (int64_t row = 0; row < num_rows; ++row) {
        const Vector threshold = fill(thresholds[row]);
        uint64_t found = 0;
        for (int v = 0; v < VECTORS; ++v) {
            const Vector score = load(scores + row * WIDTH + v * LANES);
            const uint64_t part = or_equal ? lanes_at_least(score, threshold) : lanes_greater(score, threshold);
            found |= part << (v * LANES);
        }
        lanes[row] = found;
        any |= found;
    }
    return any != 0;
}

template <Vector (*FUNCTION)(Vector)>
void for_each(const float* values, int64_t count, float* results) {
    for (int64_t at = 0; at < count; at += LANES) {
        float lanes[LANES] = {};
        const int64_t part = count - at < LANES ? count - at : LANES;
        for (int64_t i = 0; i < part; ++i) lanes[i] = values[at + i];
        store(lanes, FUNCTION(load(lanes)));
        for (int64_t i = 0; i < part; ++i) results[at + i] = lanes[i];
    }
}

}  // namespace
}  // namespace railsearch

#include "reach_int8.inl"
#include "training.inl"
#include "training_softmax.inl"

#include "attention.inl"

namespace railsearch {
namespace {

constexpr Operations make_operations(const char* name) {
    return {name,      WIDTH,     pack,      mix,            bound,
            products,  mix_products,         dot,            dot_above,
            reach,     reach_int8,           MOST_DIGIT,     train_forward,
            train_backward,                  training_scratch_size,
            softmax_backward,                softmax_scratch_size,
            for_each<exponential>,           for_each<silu>,
            attend_forward,                  attend_backward,
            drop,                            attention_scratch_size};
}

}  // namespace
}  // namespace railsearch
