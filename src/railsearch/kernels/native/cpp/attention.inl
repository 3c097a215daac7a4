// The gated attention of HSTU and its gradient, one history at a time; scores are recomputed in the backward pass.
//
// A tile is a few consecutive queries of one head, with all keys that the last of them sees. Keys lie in lanes while
// scores are computed, and the values of a head while sums over keys or queries are. Lanes beyond a head's last value
// hold neighbours; their sums are never used.

namespace railsearch {
namespace {

constexpr int TILE_QUERIES = LANES >= 16 ? 8 : 4;  // with 3 vectors of keys, 24 of 32 registers or 12 of 16
constexpr int64_t TIME_TABLES = 4;                 // sums of neighbouring keys do not wait for each other
constexpr int64_t SPARE = 2 * LANES;               // floats that may be read or written beyond a row

// Memory of one thread for histories of up to `longest` events.
struct AttentionScratch {
    int64_t queries, keys;   // of the longest history, rounded up to tiles and panels
    int64_t width;           // values of all heads
    int64_t row;             // values of one event: gates, values, queries and keys
    int64_t wide_row;        // `width` and `head_dim`, rounded up to vectors
    int64_t wide_head;
    float *active, *slopes, *key_panels, *value_panels, *bias, *weights, *to_scores, *to_bias, *attended, *to_attended,
        *value_rows, *key_rows, *to_rows, *to_values, *to_keys, *to_distances, *to_times, *distances, *ones, *kept, *normal, *to_normal;
    int64_t size;

    AttentionScratch(const AttentionStep& step, bool has_gradient, float* memory) {
        const int64_t heads = step.num_heads, dim = step.head_dim;
        queries = rounded_up(step.longest, TILE_QUERIES);
        keys = rounded_up(step.longest, WIDTH);
        width = heads * dim;
        row = 4 * width;
        wide_row = rounded_up(width, LANES);
        wide_head = rounded_up(dim, LANES);
        size = 0;
        const auto take = [&](int64_t count) {
            float* own = memory == nullptr ? nullptr : memory + size;
            size += rounded_up(count + SPARE, 16);
            return own;
        };
        active = take(queries * row);
        key_panels = take(heads * dim * keys);
        bias = take(TILE_QUERIES * keys);
        weights = take(TILE_QUERIES * keys);
        attended = take(has_gradient ? 0 : queries * wide_row);
        distances = take(keys + queries);
        ones = take(width);
        kept = take(width);
        slopes = take(has_gradient ? queries * row : 0);
        value_rows = take(has_gradient ? 0 : heads * queries * wide_head);
        key_rows = take(has_gradient ? heads * queries * wide_head : 0);
        value_panels = take(has_gradient ? heads * dim * keys : 0);
        to_scores = take(has_gradient ? TILE_QUERIES * keys : 0);
        to_bias = take(has_gradient ? TILE_QUERIES * keys : 0);
        to_attended = take(has_gradient ? queries * width : 0);
        to_rows = take(has_gradient ? queries * row : 0);
        to_values = take(has_gradient ? heads * queries * wide_head : 0);
        to_keys = take(has_gradient ? heads * queries * wide_head : 0);
        to_distances = take(has_gradient ? keys + queries : 0);
        to_times = take(has_gradient ? TIME_TABLES * MOST_TIME_BUCKETS : 0);
        normal = take(has_gradient ? width : 0);
        to_normal = take(has_gradient ? width : 0);
        if (memory == nullptr) return;
        // The values after a row of all heads are zero; all else is written before it is read.
        for (int64_t i = 0; i < wide_row; ++i) ones[i] = i < width ? 1.0f : 0.0f;
        for (int64_t i = 0; i < width + SPARE; ++i) kept[i] = 0.0f;
        for (int64_t i = 0; i < queries && !has_gradient; ++i) {
            for (int64_t at = width; at < wide_row; ++at) attended[i * wide_row + at] = 0.0f;
        }
    }
};

int64_t attention_scratch_size(const AttentionStep& step, bool has_gradient) {
    return AttentionScratch(step, has_gradient, nullptr).size;
}

inline Vector sigmoid_of(Vector x) {
    const Vector one = fill(1.0f);
    return inverse(add(one, exponential(subtract(fill(0.0f), x))));
}

inline void store_up_to(int64_t count, float* to, Vector a) {
    if (count >= LANES) {
        store(to, a);
    } else {
        store_first(to, a, count);
    }
}

inline Vector load_up_to(int64_t count, const float* from) {
    return count >= LANES ? load(from) : load_first(from, count);
}

inline void set_zero(float* values, int64_t count) {
    for (int64_t i = 0; i < count; ++i) values[i] = 0.0f;
}

// SiLU of all inputs of a history, and its slope; the rows that fill up the last tile are zero.
template <bool HAS_SLOPES>
inline void activate_rows(const AttentionStep& step, int64_t first, int64_t length, const AttentionScratch& own) {
    const int64_t count = length * own.row;
    const float* inputs = step.inputs + first * own.row;
    const Vector one = fill(1.0f);
    const auto one_vector = [&](Vector x, float* to, float* slopes) {
        const Vector sigmoid = sigmoid_of(x);
        const Vector y = multiply(x, sigmoid);
        store(to, y);
        if (HAS_SLOPES) store(slopes, fused(y, subtract(one, sigmoid), sigmoid));
    };
    int64_t at = 0;
    for (; at + LANES <= count; at += LANES) one_vector(load(inputs + at), own.active + at, own.slopes + at);
    if (at < count) one_vector(load_first(inputs + at, count - at), own.active + at, own.slopes + at);
    set_zero(own.active + count, rounded_up(length, TILE_QUERIES) * own.row - count + SPARE);
}

// Columns of one head of all keys (or values), transposed: panels [head][panel][dim][WIDTH].
inline void pack_heads(const AttentionStep& step, const float* rows, int64_t length, const AttentionScratch& own,
                       float* panels) {
    const void* lanes[WIDTH];
    for (int64_t head = 0; head < step.num_heads; ++head) {
        for (int64_t key = 0; key < length; key += WIDTH) {
            const int count = static_cast<int>(length - key < WIDTH ? length - key : WIDTH);
            for (int i = 0; i < count; ++i) lanes[i] = rows + (key + i) * own.row + head * step.head_dim;
            pack(Number::fp32, lanes, count, step.head_dim, panels + (head * own.keys + key) * step.head_dim);
        }
    }
}

// Columns of one head of all keys (or values), one row after the other: [head][row][wide_head].
inline void pack_rows(const AttentionStep& step, const float* rows, int64_t length, const AttentionScratch& own,
                      float* packed) {
    for (int64_t head = 0; head < step.num_heads; ++head) {
        const float* from = rows + head * step.head_dim;
        float* to = packed + head * own.queries * own.wide_head;
        for (int64_t i = 0; i < length; ++i, from += own.row, to += own.wide_head) {
            for (int64_t at = 0; at < own.wide_head; at += LANES) store(to + at, load(from + at));
        }
    }
}

// out[query][key] = start[query][key] + <left[query], panel[.][key]> for all queries of a tile, COUNT vectors of keys.
template <int COUNT>
inline void multiply_keys(const float* left, int64_t left_stride, const float* panel, int64_t dim, const float* start,
                          float* out, int64_t stride) {
    Vector sums[TILE_QUERIES][COUNT];
    for (int q = 0; q < TILE_QUERIES; ++q) {
        for (int v = 0; v < COUNT; ++v) sums[q][v] = start == nullptr ? fill(0.0f) : load(start + q * stride + v * LANES);
    }
    for (int64_t k = 0; k < dim; ++k) {
        Vector right[COUNT];
        for (int v = 0; v < COUNT; ++v) right[v] = load(panel + k * WIDTH + v * LANES);
        for (int q = 0; q < TILE_QUERIES; ++q) {
            const Vector factor = fill(left[q * left_stride + k]);
            for (int v = 0; v < COUNT; ++v) sums[q][v] = fused(factor, right[v], sums[q][v]);
        }
    }
    for (int q = 0; q < TILE_QUERIES; ++q) {
        for (int v = 0; v < COUNT; ++v) store(out + q * stride + v * LANES, sums[q][v]);
    }
}

inline void multiply_all_keys(const float* left, int64_t left_stride, const float* panels, int64_t dim, int64_t seen,
                              const float* start, float* out, int64_t stride) {
    for (int64_t key = 0; key < seen; key += WIDTH) {
        const float* panel = panels + key * dim;
        const float* from = start == nullptr ? nullptr : start + key;
        const int64_t left_keys = seen - key;
        if (left_keys > 2 * LANES) {
            multiply_keys<3>(left, left_stride, panel, dim, from, out + key, stride);
        } else if (left_keys > LANES) {
            multiply_keys<2>(left, left_stride, panel, dim, from, out + key, stride);
        } else {
            multiply_keys<1>(left, left_stride, panel, dim, from, out + key, stride);
        }
    }
}

// out[query] = sum over keys of weights[query][key] rows[key], COUNT vectors of a head.
template <int COUNT>
inline void sum_over_keys(const float* weights, int64_t stride, const float* rows, int64_t row_stride, int64_t seen,
                          float* out, int64_t out_stride, int64_t dim) {
    Vector sums[TILE_QUERIES][COUNT];
    for (int q = 0; q < TILE_QUERIES; ++q) {
        for (int v = 0; v < COUNT; ++v) sums[q][v] = fill(0.0f);
    }
    for (int64_t key = 0; key < seen; ++key) {
        Vector right[COUNT];
        for (int v = 0; v < COUNT; ++v) right[v] = load(rows + key * row_stride + v * LANES);
        for (int q = 0; q < TILE_QUERIES; ++q) {
            const Vector factor = fill(weights[q * stride + key]);
            for (int v = 0; v < COUNT; ++v) sums[q][v] = fused(factor, right[v], sums[q][v]);
        }
    }
    for (int q = 0; q < TILE_QUERIES; ++q) {
        for (int v = 0; v < COUNT; ++v) store_up_to(dim - v * LANES, out + q * out_stride + v * LANES, sums[q][v]);
    }
}

inline void sum_all_keys(const float* weights, int64_t stride, const float* rows, int64_t row_stride, int64_t seen,
                         float* out, int64_t out_stride, int64_t dim) {
    for (int64_t at = 0; at < dim; at += 2 * LANES) {
        if (dim - at > LANES) {
            const int64_t part = dim - at < 2 * LANES ? dim - at : 2 * LANES;
            sum_over_keys<2>(weights, stride, rows + at, row_stride, seen, out + at, out_stride, part);
        } else {
            sum_over_keys<1>(weights, stride, rows + at, row_stride, seen, out + at, out_stride, dim - at);
        }
    }
}

// sums[key] += sum over the queries of a tile of weights[query][key] rows[query], COUNT vectors of a head.
template <int COUNT>
inline void add_over_queries(const float* weights, int64_t stride, const float* rows, int64_t row_stride, int64_t seen,
                             float* sums, int64_t sums_stride) {
    Vector right[TILE_QUERIES][COUNT];
    for (int q = 0; q < TILE_QUERIES; ++q) {
        for (int v = 0; v < COUNT; ++v) right[q][v] = load(rows + q * row_stride + v * LANES);
    }
    for (int64_t key = 0; key < seen; ++key) {
        float* own = sums + key * sums_stride;
        Vector found[COUNT];
        for (int v = 0; v < COUNT; ++v) found[v] = load(own + v * LANES);
        for (int q = 0; q < TILE_QUERIES; ++q) {
            const Vector factor = fill(weights[q * stride + key]);
            for (int v = 0; v < COUNT; ++v) found[v] = fused(factor, right[q][v], found[v]);
        }
        for (int v = 0; v < COUNT; ++v) store(own + v * LANES, found[v]);
    }
}

inline void add_all_queries(const float* weights, int64_t stride, const float* rows, int64_t row_stride, int64_t seen,
                            float* sums, int64_t sums_stride, int64_t dim) {
    for (int64_t at = 0; at < dim; at += 2 * LANES) {
        if (dim - at > LANES) {
            add_over_queries<2>(weights, stride, rows + at, row_stride, seen, sums + at, sums_stride);
        } else {
            add_over_queries<1>(weights, stride, rows + at, row_stride, seen, sums + at, sums_stride);
        }
    }
}

// distances[length - 1 - d] is the bias of a key that precedes the query by d events: a row of biases lies in one piece.
inline void turn_distances(const AttentionStep& step, int64_t length, const AttentionScratch& own) {
    for (int64_t i = 0; i < length; ++i) own.distances[length - 1 - i] = step.distance_bias[i];
    set_zero(own.distances + length, SPARE);
}

// The bias of each query of a tile with each key, for all heads.
inline void fill_bias(const AttentionStep& step, const uint8_t* buckets, int64_t first, int64_t length,
                      const AttentionScratch& own) {
    for (int q = 0; q < TILE_QUERIES; ++q) {
        const int64_t query = first + q;
        float* row = own.bias + q * own.keys;
        if (query >= length) {
            set_zero(row, own.keys);
            continue;
        }
        const uint8_t* times = buckets + query * (query + 1) / 2;
        const float* distances = own.distances + length - 1 - query;
        for (int64_t key = 0; key <= query; key += LANES) {
            store(row + key, add(load(distances + key), look_up(step.time_bias, times + key)));
        }
    }
}

// Scores of a tile become SiLU of them; in the backward pass, the gradient of weights becomes that of scores. Keys after
// a query, and queries after the history, get zeros.
template <bool HAS_GRADIENT>
inline void weigh_keys(int64_t first, int64_t length, int64_t seen, const AttentionScratch& own) {
    const Vector one = fill(1.0f);
    for (int q = 0; q < TILE_QUERIES; ++q) {
        const int64_t query = first + q, visible = query < length ? query + 1 : 0;
        float *weights = own.weights + q * own.keys, *to_scores = own.to_scores + q * own.keys;
        for (int64_t key = 0; key < visible; key += LANES) {
            const Vector x = load(weights + key);
            const Vector sigmoid = sigmoid_of(x);
            const Vector y = multiply(x, sigmoid);
            store(weights + key, y);
            if (HAS_GRADIENT) {
                const Vector slope = fused(y, subtract(one, sigmoid), sigmoid);
                store(to_scores + key, multiply(load(to_scores + key), slope));
            }
        }
        const int64_t end = rounded_up(seen, LANES);
        set_zero(weights + visible, end - visible);
        if (HAS_GRADIENT) set_zero(to_scores + visible, end - visible);
    }
}

// 1 / (1 - share) for the values of an event that stay, and 0 for those that are dropped: 16 random bits each, which
// depend on the seed, the event and the value alone. `dropped` of 2^16 draws are dropped.
inline void draw_kept_values(uint64_t seed, uint32_t share, int64_t event, int64_t count, float* kept) {
    const int32_t dropped = static_cast<int32_t>(share);
    const float scale = 65536.0f / static_cast<float>(65536 - dropped);
    const uint32_t low = static_cast<uint32_t>(seed), high = static_cast<uint32_t>(seed >> 32);
    const uint32_t key = scramble(scramble(static_cast<uint32_t>(event) + low) ^ high);
    const int64_t half = (count + 1) / 2;
    for (int64_t i = 0; i < half; ++i) {
        const uint32_t bits = scramble(key + static_cast<uint32_t>(i + 1) * 0x9e3779b9u);
        kept[i] = static_cast<int32_t>(bits & 0xffffu) >= dropped ? scale : 0.0f;
        kept[half + i] = static_cast<int32_t>(bits >> 16) >= dropped ? scale : 0.0f;
    }
}

void drop(const float* values, int64_t first, int64_t last, uint64_t seed, uint32_t dropped, float* results) {
    float kept[DROPPED_TOGETHER];
    for (int64_t at = first; at < last; at += DROPPED_TOGETHER) {
        draw_kept_values(seed, dropped, at / DROPPED_TOGETHER, DROPPED_TOGETHER, kept);
        const int64_t count = last - at < DROPPED_TOGETHER ? last - at : DROPPED_TOGETHER;
        for (int64_t i = 0; i < count; i += LANES) {
            const Vector value = multiply(load_up_to(count - i, values + at + i), load(kept + i));
            store_up_to(count - i, results + at + i, value);
        }
    }
}

// Mean and inverse deviation of a row that ends with zeros; `ones` is 1 for its values and 0 after them.
struct Moments {
    Vector mean, inverse;
};

inline Moments moments_of(const float* row, int64_t count, float scale, float epsilon, const float* ones) {
    Vector sum = fill(0.0f), squares = fill(0.0f);
    for (int64_t at = 0; at < count; at += LANES) sum = add(sum, load(row + at));
    const Vector mean = fill(sum_of_lanes(sum) / static_cast<float>(count));
    for (int64_t at = 0; at < count; at += LANES) {
        const Vector off = multiply(subtract(load(row + at), mean), load(ones + at));
        squares = fused(off, off, squares);
    }
    const float variance = sum_of_lanes(squares) / static_cast<float>(count) * scale * scale;
    return {mean, fill(scale / __builtin_sqrtf(variance + epsilon))};
}

void attend_forward(const AttentionStep& step, int64_t first_history, int64_t last_history, float* scratch,
                    float* attended, float* outputs) {
    const AttentionScratch own(step, false, scratch);
    const int64_t dim = step.head_dim, size = own.width, head_size = own.queries * own.wide_head;
    const float *gates = own.active, *values = gates + size, *queries = values + size, *keys = queries + size;
    for (int64_t history = first_history; history < last_history; ++history) {
        const int64_t start = step.starts[history], length = step.starts[history + 1] - start;
        const uint8_t* buckets = step.buckets + step.bucket_starts[history];
        activate_rows<false>(step, start, length, own);
        pack_heads(step, keys, length, own, own.key_panels);
        pack_rows(step, values, length, own, own.value_rows);
        turn_distances(step, length, own);
        for (int64_t first = 0; first < length; first += TILE_QUERIES) {
            const int64_t seen = first + TILE_QUERIES < length ? first + TILE_QUERIES : length;
            fill_bias(step, buckets, first, length, own);
            for (int64_t head = 0; head < step.num_heads; ++head) {
                multiply_all_keys(queries + first * own.row + head * dim, own.row,
                                  own.key_panels + head * own.keys * dim, dim, seen, own.bias, own.weights, own.keys);
                weigh_keys<false>(first, length, seen, own);
                sum_all_keys(own.weights, own.keys, own.value_rows + head * head_size, own.wide_head, seen,
                             own.attended + first * own.wide_row + head * dim, own.wide_row, dim);
            }
        }
        for (int64_t i = 0; i < length; ++i) {
            const float *row = own.attended + i * own.wide_row, *gate = gates + i * own.row;
            const Moments moments = moments_of(row, size, step.scale, step.epsilon, own.ones);
            if (step.dropped) draw_kept_values(step.seed, step.dropped, start + i, size, own.kept);
            float *out = outputs + (start + i) * size, *kept_row = attended + (start + i) * size;
            for (int64_t at = 0; at < size; at += LANES) {
                const Vector a = load(row + at);
                Vector y = multiply(load(gate + at), multiply(subtract(a, moments.mean), moments.inverse));
                if (step.dropped) y = multiply(y, load(own.kept + at));
                store_up_to(size - at, out + at, y);
                if (attended != nullptr) store_up_to(size - at, kept_row + at, a);
            }
        }
    }
}

// The gradient of a row of outputs: of its gates, into to_rows, and of what was attended to, into to_attended.
inline void gate_backward(const AttentionStep& step, int64_t event, int64_t i, const float* attended,
                          const float* upstream, const AttentionScratch& own) {
    const int64_t size = own.width;
    const float *row = attended + event * size, *gate = own.active + i * own.row, *to_out = upstream + event * size;
    float *to_gate = own.to_rows + i * own.row, *to_attended = own.to_attended + i * size;
    if (step.dropped) draw_kept_values(step.seed, step.dropped, event, size, own.kept);
    const float* kept = step.dropped ? own.kept : own.ones;
    for (int64_t at = 0; at < size; at += LANES) store(own.normal + at, load_up_to(size - at, row + at));
    const Moments moments = moments_of(own.normal, size, step.scale, step.epsilon, own.ones);
    Vector sum = fill(0.0f), products = fill(0.0f);
    for (int64_t at = 0; at < size; at += LANES) {
        const Vector inverse = multiply(moments.inverse, load(own.ones + at));
        const Vector y = multiply(subtract(load(own.normal + at), moments.mean), inverse);
        const Vector to_z = multiply(load_up_to(size - at, to_out + at), load(kept + at));
        store(to_gate + at, multiply(to_z, y));  // what is written beyond the gates is written again later
        const Vector to_y = multiply(to_z, load(gate + at));
        store(own.normal + at, y);
        store(own.to_normal + at, to_y);
        sum = add(sum, to_y);
        products = fused(to_y, y, products);
    }
    const Vector mean = fill(sum_of_lanes(sum) / static_cast<float>(size));
    const Vector product = fill(sum_of_lanes(products) / static_cast<float>(size));
    for (int64_t at = 0; at < size; at += LANES) {
        const Vector y = load(own.normal + at);
        const Vector centered = subtract(subtract(load(own.to_normal + at), mean), multiply(y, product));
        store(to_attended + at, multiply(centered, moments.inverse));
    }
}

// Add the gradient of the biases of a tile to that of distances and times.
inline void add_to_biases(const uint8_t* buckets, int64_t first, int64_t length, const AttentionScratch& own) {
    for (int q = 0; q < TILE_QUERIES && first + q < length; ++q) {
        const int64_t query = first + q;
        const float* row = own.to_bias + q * own.keys;
        float* to_distances = own.to_distances + length - 1 - query;
        for (int64_t key = 0; key <= query; key += LANES) {
            store(to_distances + key, add(load(to_distances + key), load(row + key)));
        }
        const uint8_t* times = buckets + query * (query + 1) / 2;
        int64_t key = 0;
        for (; key + 4 <= query + 1; key += 4) {
            own.to_times[times[key]] += row[key];
            own.to_times[MOST_TIME_BUCKETS + times[key + 1]] += row[key + 1];
            own.to_times[2 * MOST_TIME_BUCKETS + times[key + 2]] += row[key + 2];
            own.to_times[3 * MOST_TIME_BUCKETS + times[key + 3]] += row[key + 3];
        }
        for (; key <= query; ++key) own.to_times[times[key]] += row[key];
    }
}

void attend_backward(const AttentionStep& step, int64_t first_history, int64_t last_history, float* scratch,
                     const float* attended, const float* upstream, float* to_inputs, double* to_distances,
                     double* to_times) {
    const AttentionScratch own(step, true, scratch);
    const int64_t dim = step.head_dim, size = own.width, head_size = own.queries * own.wide_head;
    const float *values = own.active + size, *queries = values + size, *keys = queries + size;
    for (int64_t history = first_history; history < last_history; ++history) {
        const int64_t start = step.starts[history], length = step.starts[history + 1] - start;
        const uint8_t* buckets = step.buckets + step.bucket_starts[history];
        const int64_t padded = rounded_up(length, TILE_QUERIES);
        activate_rows<true>(step, start, length, own);
        pack_heads(step, keys, length, own, own.key_panels);
        pack_heads(step, values, length, own, own.value_panels);
        pack_rows(step, keys, length, own, own.key_rows);
        turn_distances(step, length, own);
        for (int64_t i = 0; i < length; ++i) gate_backward(step, start + i, i, attended, upstream, own);
        set_zero(own.to_attended + length * size, (padded - length) * size + SPARE);
        for (int64_t head = 0; head < step.num_heads; ++head) {
            set_zero(own.to_values + head * head_size, length * own.wide_head);
            set_zero(own.to_keys + head * head_size, length * own.wide_head);
        }
        set_zero(own.to_distances, length + SPARE);
        set_zero(own.to_times, TIME_TABLES * MOST_TIME_BUCKETS);
        for (int64_t first = 0; first < length; first += TILE_QUERIES) {
            const int64_t seen = first + TILE_QUERIES < length ? first + TILE_QUERIES : length;
            const int64_t end = rounded_up(seen, LANES);
            fill_bias(step, buckets, first, length, own);
            for (int64_t head = 0; head < step.num_heads; ++head) {
                const float* query_rows = queries + first * own.row + head * dim;
                const float* to_rows = own.to_attended + first * size + head * dim;
                multiply_all_keys(query_rows, own.row, own.key_panels + head * own.keys * dim, dim, seen, own.bias,
                                  own.weights, own.keys);
                multiply_all_keys(to_rows, size, own.value_panels + head * own.keys * dim, dim, seen, nullptr,
                                  own.to_scores, own.keys);
                weigh_keys<true>(first, length, seen, own);
                for (int q = 0; q < TILE_QUERIES; ++q) {
                    float* sums = own.to_bias + q * own.keys;
                    const float* found = own.to_scores + q * own.keys;
                    for (int64_t key = 0; key < end; key += LANES) {
                        store(sums + key, head == 0 ? load(found + key) : add(load(sums + key), load(found + key)));
                    }
                }
                sum_all_keys(own.to_scores, own.keys, own.key_rows + head * head_size, own.wide_head, seen,
                             own.to_rows + first * own.row + 2 * size + head * dim, own.row, dim);
                add_all_queries(own.weights, own.keys, to_rows, size, seen, own.to_values + head * head_size,
                                own.wide_head, dim);
                add_all_queries(own.to_scores, own.keys, query_rows, own.row, seen, own.to_keys + head * head_size,
                                own.wide_head, dim);
            }
            add_to_biases(buckets, first, length, own);
        }
        for (int64_t i = 0; i < length; ++i) {
            float* row = own.to_rows + i * own.row;
            for (int64_t head = 0; head < step.num_heads; ++head) {
                const float *to_value = own.to_values + head * head_size + i * own.wide_head;
                const float *to_key = own.to_keys + head * head_size + i * own.wide_head;
                for (int64_t at = 0; at < dim; at += LANES) {
                    store_up_to(dim - at, row + size + head * dim + at, load(to_value + at));
                    store_up_to(dim - at, row + 3 * size + head * dim + at, load(to_key + at));
                }
            }
        }
        float* to = to_inputs + start * own.row;
        const int64_t count = length * own.row;
        int64_t at = 0;
        for (; at + LANES <= count; at += LANES) {
            store(to + at, multiply(load(own.to_rows + at), load(own.slopes + at)));
        }
        for (; at < count; ++at) to[at] = own.to_rows[at] * own.slopes[at];
        for (int64_t i = 0; i < length; ++i) to_distances[i] += static_cast<double>(own.to_distances[length - 1 - i]);
        for (int64_t bucket = 0; bucket < MOST_TIME_BUCKETS; ++bucket) {
            for (int64_t table = 0; table < TIME_TABLES; ++table) {
                to_times[bucket] += static_cast<double>(own.to_times[table * MOST_TIME_BUCKETS + bucket]);
            }
        }
    }
}

}  // namespace
}  // namespace railsearch
