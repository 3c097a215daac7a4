// The mixture of training and its gradient, panel by panel; the activations are recomputed in the backward pass.

namespace railsearch {
namespace {

constexpr int LEFT_ROWS = 4;   // of a block of a sum of outer products: with 3 columns, 12 sums in 16 registers
constexpr int RIGHT_ROWS = 3;
constexpr int64_t MOST_SUMMED_PANELS = 16;
constexpr int64_t SUMMED_FLOATS = 48 * 1024;  // of the panels that wait for their outer products: they stay in L2

inline int64_t rounded_up(int64_t count, int64_t step) { return (count + step - 1) / step * step; }

// Memory of one thread. The panels of scores, hidden values and their gradients wait until there are enough of them.
struct TrainingScratch {
    int64_t score_rows, hidden_rows, to_logit_rows, to_hidden_rows;  // of a panel; the rows that are added are 0
    int64_t most_panels;
    float *scores, *hidden, *to_logits, *to_hidden;
    float *logits, *slopes, *hidden_slopes, *kept, *to_scores, *gate, *to_gate, *to_query_gate;
    int64_t size;

    TrainingScratch(const TrainingStep& step, float* memory) {
        const int64_t pairs = step.num_pairs, units = step.hidden_dim;
        score_rows = rounded_up(pairs + 1, RIGHT_ROWS);  // one row of ones: its products are the gradient of the bias
        hidden_rows = rounded_up(units + 1, RIGHT_ROWS);
        to_logit_rows = rounded_up(pairs, LEFT_ROWS);
        to_hidden_rows = rounded_up(units, LEFT_ROWS);
        const int64_t floats = (score_rows + hidden_rows + to_logit_rows + to_hidden_rows) * WIDTH;
        most_panels = SUMMED_FLOATS / floats;
        if (most_panels > MOST_SUMMED_PANELS) most_panels = MOST_SUMMED_PANELS;
        if (most_panels < 1) most_panels = 1;
        size = 0;
        const auto take = [&](int64_t rows) {
            float* own = memory == nullptr ? nullptr : memory + size;
            size += rows * WIDTH;
            return own;
        };
        scores = take(most_panels * score_rows);
        hidden = take(most_panels * hidden_rows);
        to_logits = take(most_panels * to_logit_rows);
        to_hidden = take(most_panels * to_hidden_rows);
        logits = take(pairs);
        slopes = take(pairs);
        hidden_slopes = take(units);
        kept = take(pairs + 1);
        to_scores = take(pairs);
        gate = take(pairs);
        to_gate = take(pairs);
        to_query_gate = take(pairs);
        if (memory == nullptr) return;
        for (int64_t i = 0; i < size; ++i) memory[i] = 0.0f;
        for (int64_t panel = 0; panel < most_panels; ++panel) {
            for (int i = 0; i < WIDTH; ++i) {
                scores[(panel * score_rows + pairs) * WIDTH + i] = 1.0f;
                hidden[(panel * hidden_rows + units) * WIDTH + i] = 1.0f;
            }
        }
    }
};

int64_t training_scratch_size(const TrainingStep& step) { return TrainingScratch(step, nullptr).size; }

// Every bit of the result depends on every bit of x.
inline uint32_t scramble(uint32_t x) {
    x ^= x >> 16;
    x *= 0x7feb352du;
    x ^= x >> 15;
    x *= 0x846ca68bu;
    return x ^ (x >> 16);
}

// 1 for the component pairs [p][WIDTH] that stay and 0 for those that are dropped: 16 random bits each, which depend on
// the seed, the query-item pair and p alone.
inline void draw_kept(const TrainingStep& step, int64_t first_row, float* kept) {
    const int32_t dropped = static_cast<int32_t>(step.dropped);
    const uint32_t low = static_cast<uint32_t>(step.seed), high = static_cast<uint32_t>(step.seed >> 32);
    uint32_t keys[WIDTH];
    for (int i = 0; i < WIDTH; ++i) {
        keys[i] = scramble(scramble(static_cast<uint32_t>(first_row) + static_cast<uint32_t>(i) + low) ^ high);
    }
    for (int64_t p = 0; p < step.num_pairs; p += 2) {
        const uint32_t offset = static_cast<uint32_t>(p / 2 + 1) * 0x9e3779b9u;
        float* own = kept + p * WIDTH;
        for (int i = 0; i < WIDTH; ++i) {
            const uint32_t bits = scramble(keys[i] + offset);
            own[i] = static_cast<int32_t>(bits & 0xffffu) >= dropped ? 1.0f : 0.0f;
            own[WIDTH + i] = static_cast<int32_t>(bits >> 16) >= dropped ? 1.0f : 0.0f;
        }
    }
}

// values *= sigmoid(values), and the slope of that.
template <bool HAS_SLOPES>
inline void activate(float* values, float* slopes, int64_t count) {
    const Vector one = fill(1.0f);
    for (int64_t at = 0; at < count; at += LANES) {
        const Vector x = load(values + at);
        const Vector sigmoid = divide(one, add(one, exponential(subtract(fill(0.0f), x))));
        const Vector y = multiply(x, sigmoid);
        store(values + at, y);
        if (HAS_SLOPES) store(slopes + at, fused(y, subtract(one, sigmoid), sigmoid));
    }
}

template <Start START>
inline void multiply_all(const float* tiles, int64_t num_rows, int64_t depth, const float* bias, const float* panel,
                         float* out) {
    for (int64_t row = 0; row < num_rows; row += ROWS_PER_TILE) {
        multiply_rows<START>(num_rows - row, tiles + row * depth, panel, depth, bias == nullptr ? nullptr : bias + row,
                             out + row * WIDTH, WIDTH);
    }
}

// Weights of the component pairs, not yet divided by their totals, into `logits`; their totals, and the scores.
template <bool HAS_SLOPES>
inline void weigh(const TrainingStep& step, const float* query_gate, const float* gate, const float* scores,
                  const TrainingScratch& own, Vector* totals, Vector* mixed) {
    const int64_t num_pairs = step.num_pairs;
    float* logits = own.logits;
    const Vector one = fill(1.0f);
    for (int64_t p = 0; p < num_pairs; ++p) {
        for (int v = 0; v < VECTORS; ++v) {
            const int64_t at = p * WIDTH + v * LANES;
            if (query_gate != nullptr && gate != nullptr) {
                store(logits + at, fused(fill(query_gate[p]), load(gate + at), load(logits + at)));
            } else if (query_gate != nullptr) {
                store(logits + at, add(load(logits + at), fill(query_gate[p])));
            } else if (gate != nullptr) {
                store(logits + at, add(load(logits + at), load(gate + at)));
            }
        }
    }
    if (step.has_silu) activate<HAS_SLOPES>(logits, own.slopes, num_pairs * WIDTH);
    for (int v = 0; v < VECTORS; ++v) {
        Vector peak = fill(-__builtin_inff());
        for (int64_t p = 0; p < num_pairs; ++p) {
            const int64_t at = p * WIDTH + v * LANES;
            Vector z = load(logits + at);
            if (step.dropped) {
                const Vector kept = load(own.kept + at);
                z = fused(kept, z, fused(kept, fill(1e4f), fill(-1e4f)));  // z, or -10^4 if it is dropped
                store(logits + at, z);
            }
            peak = larger(peak, z);
        }
        Vector total = fill(0.0f), sum = fill(0.0f), plain_sum = fill(0.0f);
        for (int64_t p = 0; p < num_pairs; ++p) {
            const int64_t at = p * WIDTH + v * LANES;
            Vector weight = exponential(subtract(load(logits + at), peak));
            if (step.dropped) weight = multiply(weight, load(own.kept + at));
            store(logits + at, weight);
            total = add(total, weight);
            sum = fused(weight, load(scores + at), sum);
            if (step.dropped) plain_sum = add(plain_sum, load(scores + at));
        }
        if (step.dropped) {  // if all are dropped, all have the same weight; otherwise the largest weight is 1
            const Vector is_none = subtract(one, smaller(one, total));
            total = fused(is_none, fill(static_cast<float>(num_pairs)), total);
            sum = fused(is_none, plain_sum, sum);
            if (HAS_SLOPES) {
                for (int64_t p = 0; p < num_pairs; ++p) {
                    const int64_t at = p * WIDTH + v * LANES;
                    store(logits + at, add(load(logits + at), is_none));
                }
            }
        }
        totals[v] = total;
        mixed[v] = divide(sum, total);
    }
}

// One panel forward, up to its scores. Its component scores and its item gates are packed already.
template <bool HAS_SLOPES>
inline void forward_panel(const TrainingStep& step, int64_t query, int64_t item, const float* gate,
                          const TrainingScratch& own, const float* scores, float* hidden, float* slopes, Vector* totals,
                          Vector* mixed) {
    const int64_t num_pairs = step.num_pairs;
    if (step.dropped) draw_kept(step, query * step.num_items + item, own.kept);
    multiply_all<Start::bias>(step.hidden_tiles, step.hidden_dim, num_pairs, step.hidden_bias, scores, hidden);
    activate<HAS_SLOPES>(hidden, slopes, step.hidden_dim * WIDTH);
    multiply_all<Start::bias>(step.output_tiles, num_pairs, step.hidden_dim, step.output_bias, hidden, own.logits);
    const float* query_gate = step.query_gate == nullptr ? nullptr : step.query_gate + query * num_pairs;
    weigh<HAS_SLOPES>(step, query_gate, gate, scores, own, totals, mixed);
}

inline void pack_rows(const float* rows, int count, int64_t length, float* panel) {
    const void* lanes[WIDTH];
    for (int i = 0; i < count; ++i) lanes[i] = rows + i * length;
    pack(Number::fp32, lanes, count, length, panel);
}

// Rows of LENGTH values that lie side by side, into a full panel and back; the compiler knows how to shuffle them.
template <int LENGTH>
inline void pack_short_rows(const float* rows, float* panel) {
    for (int i = 0; i < WIDTH; ++i) {
        for (int at = 0; at < LENGTH; ++at) panel[at * WIDTH + i] = rows[i * LENGTH + at];
    }
}

template <int LENGTH>
inline void unpack_short_rows(const float* panel, float* rows) {
    for (int i = 0; i < WIDTH; ++i) {
        for (int at = 0; at < LENGTH; ++at) rows[i * LENGTH + at] = panel[at * WIDTH + i];
    }
}

inline void unpack_rows(const float* panel, int count, int64_t length, float* rows) {
    int64_t done = 0;
    transpose_back_bulk(panel, WIDTH, count, length, rows, done);
    for (int i = 0; i < count; ++i) {
        for (int64_t at = done; at < length; ++at) rows[i * length + at] = panel[at * WIDTH + i];
    }
}

// The component scores of a panel; those of one query component lie together.
inline void pack_scores(const TrainingStep& step, int64_t query, int64_t item, int count, float* panel) {
    const int64_t length = step.num_item_components;
    for (int64_t i = 0; i < step.num_query_components; ++i) {
        const float* rows = step.scores + ((query * step.num_query_components + i) * step.num_items + item) * length;
        float* own = panel + i * length * WIDTH;
        switch (count == WIDTH ? length : 0) {
            case 1: pack_short_rows<1>(rows, own); break;
            case 2: pack_short_rows<2>(rows, own); break;
            case 4: pack_short_rows<4>(rows, own); break;
            default: pack_rows(rows, count, length, own);
        }
    }
}

inline void unpack_scores(const TrainingStep& step, int64_t query, int64_t item, int count, const float* panel,
                          float* scores) {
    const int64_t length = step.num_item_components;
    for (int64_t i = 0; i < step.num_query_components; ++i) {
        float* rows = scores + ((query * step.num_query_components + i) * step.num_items + item) * length;
        const float* own = panel + i * length * WIDTH;
        switch (count == WIDTH ? length : 0) {
            case 1: unpack_short_rows<1>(own, rows); break;
            case 2: unpack_short_rows<2>(own, rows); break;
            case 4: unpack_short_rows<4>(own, rows); break;
            default: unpack_rows(own, count, length, rows);
        }
    }
}

// The item gates of a panel, or null.
inline const float* find_gate(const TrainingStep& step, int64_t query, int64_t item, int count, float* room) {
    if (step.item_gate == nullptr) return nullptr;
    if (!step.has_own_items) return step.item_panels + item * step.num_pairs;
    pack_rows(step.item_gate + (query * step.num_items + item) * step.num_pairs, count, step.num_pairs, room);
    return room;
}

void train_forward(const TrainingStep& step, int64_t first, int64_t last, float* scratch, float* mixed) {
    const TrainingScratch own(step, scratch);
    for (int64_t query = first; query < last; ++query) {
        for (int64_t item = 0; item < step.num_items; item += WIDTH) {
            const int64_t left = step.num_items - item, row = query * step.num_items + item;
            const int count = static_cast<int>(left < WIDTH ? left : WIDTH);
            pack_scores(step, query, item, count, own.scores);
            const float* gate = find_gate(step, query, item, count, own.gate);
            Vector totals[VECTORS], found[VECTORS];
            forward_panel<false>(step, query, item, gate, own, own.scores, own.hidden, own.hidden_slopes, totals, found);
            float lanes[WIDTH];
            for (int v = 0; v < VECTORS; ++v) store(lanes + v * LANES, found[v]);
            for (int i = 0; i < count; ++i) mixed[row + i] = lanes[i];
        }
    }
}

// out[i][j] += <left[i], right[j]> over the lanes of all panels; rows of 12 products are summed in registers.
inline void add_products(const float* left, int64_t left_count, int64_t left_rows, const float* right,
                         int64_t right_count, int64_t right_rows, int64_t num_panels, float* out) {
    const auto block = [&](int64_t i, int64_t j) {
        Vector sums[RIGHT_ROWS][LEFT_ROWS];
        for (int c = 0; c < RIGHT_ROWS; ++c) {
            for (int r = 0; r < LEFT_ROWS; ++r) sums[c][r] = fill(0.0f);
        }
        const float *a = left + i * WIDTH, *b = right + j * WIDTH;
        for (int64_t panel = 0; panel < num_panels; ++panel) {
            for (int v = 0; v < VECTORS; ++v) {
                const float *own_a = a + v * LANES, *own_b = b + v * LANES;
                const Vector b0 = load(own_b), b1 = load(own_b + WIDTH), b2 = load(own_b + 2 * WIDTH);
                for (int r = 0; r < LEFT_ROWS; ++r) {
                    const Vector factor = load(own_a + r * WIDTH);
                    sums[0][r] = fused(factor, b0, sums[0][r]);
                    sums[1][r] = fused(factor, b1, sums[1][r]);
                    sums[2][r] = fused(factor, b2, sums[2][r]);
                }
            }
            a += left_rows * WIDTH;
            b += right_rows * WIDTH;
        }
        for (int c = 0; c < RIGHT_ROWS && j + c < right_count; ++c) {
            float found[LEFT_ROWS] = {};
            add_sums_of_4(sums[c], found);
            for (int r = 0; r < LEFT_ROWS && i + r < left_count; ++r) out[(i + r) * right_count + j + c] += found[r];
        }
    };
    if (left_count > right_count) {  // the longer side is read once
        for (int64_t i = 0; i < left_count; i += LEFT_ROWS) {
            for (int64_t j = 0; j < right_count; j += RIGHT_ROWS) block(i, j);
        }
    } else {
        for (int64_t j = 0; j < right_count; j += RIGHT_ROWS) {
            for (int64_t i = 0; i < left_count; i += LEFT_ROWS) block(i, j);
        }
    }
}

// From the gradient of the scores of a panel to those of component scores and logits.
inline void backward_weights(const TrainingStep& step, const TrainingScratch& own, const float* scores,
                             const float* upstream, const Vector* totals, const Vector* mixed, float* to_logits) {
    for (int v = 0; v < VECTORS; ++v) {
        const Vector scale = divide(load(upstream + v * LANES), totals[v]);
        for (int64_t p = 0; p < step.num_pairs; ++p) {
            const int64_t at = p * WIDTH + v * LANES;
            const Vector to_score = multiply(load(own.logits + at), scale);
            store(own.to_scores + at, to_score);
            Vector to_logit = multiply(to_score, subtract(load(scores + at), mixed[v]));
            if (step.has_silu) to_logit = multiply(to_logit, load(own.slopes + at));
            if (step.dropped) to_logit = multiply(to_logit, load(own.kept + at));
            store(to_logits + at, to_logit);
        }
    }
}

// Gradients of the gates of both sides. The sum of the query's stays in lanes until all panels have come.
inline void backward_gates(const TrainingStep& step, const TrainingScratch& own, const float* query_gate,
                           const float* gate, const float* to_logits, float* item_panel, bool is_sum) {
    for (int64_t p = 0; p < step.num_pairs; ++p) {
        Vector total = query_gate == nullptr ? fill(0.0f) : load(own.to_query_gate + p * LANES);
        for (int v = 0; v < VECTORS; ++v) {
            const int64_t at = p * WIDTH + v * LANES;
            const Vector to_logit = load(to_logits + at);
            if (query_gate != nullptr) {
                total = gate == nullptr ? add(total, to_logit) : fused(to_logit, load(gate + at), total);
            }
            if (gate != nullptr) {
                const Vector before = is_sum ? load(item_panel + at) : fill(0.0f);
                const Vector factor = query_gate == nullptr ? fill(1.0f) : fill(query_gate[p]);
                store(item_panel + at, fused(to_logit, factor, before));
            }
        }
        if (query_gate != nullptr) store(own.to_query_gate + p * LANES, total);
    }
}

void train_backward(const TrainingStep& step, int64_t first, int64_t last, const float* upstream, float* scratch,
                    float* to_scores, float* to_query_gate, float* to_item_gate, const TrainingSums& sums) {
    const TrainingScratch own(step, scratch);
    const int64_t num_pairs = step.num_pairs, units = step.hidden_dim;
    int64_t waiting = 0;
    const auto add_weights = [&] {
        add_products(own.to_hidden, units, own.to_hidden_rows, own.scores, num_pairs + 1, own.score_rows, waiting,
                     sums.hidden_weight);
        add_products(own.to_logits, num_pairs, own.to_logit_rows, own.hidden, units + 1, own.hidden_rows, waiting,
                     sums.output_weight);
        waiting = 0;
    };
    for (int64_t query = first; query < last; ++query) {
        const float* query_gate = step.query_gate == nullptr ? nullptr : step.query_gate + query * num_pairs;
        for (int64_t i = 0; i < num_pairs * LANES; ++i) own.to_query_gate[i] = 0.0f;
        for (int64_t item = 0; item < step.num_items; item += WIDTH) {
            const int64_t left = step.num_items - item, row = query * step.num_items + item;
            const int count = static_cast<int>(left < WIDTH ? left : WIDTH);
            float* scores = own.scores + waiting * own.score_rows * WIDTH;
            float* hidden = own.hidden + waiting * own.hidden_rows * WIDTH;
            float* to_logits = own.to_logits + waiting * own.to_logit_rows * WIDTH;
            float* to_hidden = own.to_hidden + waiting * own.to_hidden_rows * WIDTH;
            pack_scores(step, query, item, count, scores);
            const float* gate = find_gate(step, query, item, count, own.gate);
            Vector totals[VECTORS], mixed[VECTORS];
            forward_panel<true>(step, query, item, gate, own, scores, hidden, own.hidden_slopes, totals, mixed);

            float lanes[WIDTH] = {};  // lanes without an item have no gradient
            for (int i = 0; i < count; ++i) lanes[i] = upstream[row + i];
            backward_weights(step, own, scores, lanes, totals, mixed, to_logits);
            const bool is_sum = !step.has_own_items;
            float* item_panel = is_sum ? sums.item_panels + item * num_pairs : own.to_gate;
            backward_gates(step, own, query_gate, gate, to_logits, item_panel, is_sum);
            if (gate != nullptr && !is_sum) unpack_rows(item_panel, count, num_pairs, to_item_gate + row * num_pairs);

            multiply_all<Start::zero>(step.output_back_tiles, units, num_pairs, nullptr, to_logits, to_hidden);
            for (int64_t at = 0; at < units * WIDTH; at += LANES) {
                store(to_hidden + at, multiply(load(to_hidden + at), load(own.hidden_slopes + at)));
            }
            multiply_all<Start::sums>(step.hidden_back_tiles, num_pairs, units, nullptr, to_hidden, own.to_scores);
            unpack_scores(step, query, item, count, own.to_scores, to_scores);
            if (++waiting == own.most_panels) add_weights();
        }
        if (query_gate == nullptr) continue;
        for (int64_t p = 0; p < num_pairs; ++p) {
            float total = 0.0f;
            for (int i = 0; i < LANES; ++i) total += own.to_query_gate[p * LANES + i];
            to_query_gate[query * num_pairs + p] = total;
        }
    }
    if (waiting) add_weights();
}

}  // namespace
}  // namespace railsearch
