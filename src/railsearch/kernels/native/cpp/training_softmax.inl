// The sampled softmax of examples that share their negatives, and its gradient, for a dot product.
//
// Queries come in blocks of SOFTMAX_ROWS. Their scores, and then the weights of the softmax, lie in panels
// [panel][SOFTMAX_ROWS][WIDTH], so that all three matrix products read them as they are.

namespace railsearch {
namespace {

constexpr int SOFTMAX_ROWS = 16;
constexpr int64_t SOFTMAX_PANELS = 8;  // the weights of so many panels stay in L1 while products are summed
constexpr float LEAST_WEIGHT = 1e-25f;  // of the largest one; less counts as 0, so that no product is subnormal

static_assert(SOFTMAX_ROWS % LANES == 0 && SOFTMAX_ROWS % ROWS_PER_TILE == 0, "a block is whole tiles");

inline int64_t softmax_panels(const SoftmaxStep& step) { return (step.num_items + WIDTH - 1) / WIDTH; }

int64_t softmax_scratch_size(const SoftmaxStep& step) {
    return SOFTMAX_ROWS * (2 * step.dim + rounded_up(step.dim, ROWS_PER_TILE) + softmax_panels(step) * WIDTH);
}

// Set the scores of negatives that do not count to minus infinity.
inline void mask_panel(const SoftmaxStep& step, int64_t first, int count, int64_t panel, float* scores) {
    const int64_t item = panel * WIDTH;
    const int64_t left = step.num_items - item, lanes = left < WIDTH ? left : WIDTH;
    for (int r = 0; r < count; ++r) {
        if (step.own != nullptr) {
            const int64_t lane = step.own[first + r] - item;
            if (lane >= 0 && lane < WIDTH) scores[r * WIDTH + lane] = -__builtin_inff();
        }
        if (step.excluded == nullptr) continue;
        const int64_t place = step.excluded_rows == nullptr ? first + r : step.excluded_rows[first + r];
        const unsigned char* row = step.excluded + place * step.num_items + item;
        for (int64_t i = 0; i < lanes; ++i) {
            uint64_t eight = 0;
            if (i % 8 == 0 && i + 8 <= lanes) {
                __builtin_memcpy(&eight, row + i, sizeof(eight));
                if (eight == 0) {
                    i += 7;
                    continue;
                }
            }
            if (row[i]) scores[r * WIDTH + i] = -__builtin_inff();
        }
    }
}

// Scores of a block, with offsets and masks, and the largest of each row.
inline void softmax_scores(const SoftmaxStep& step, int64_t first, int count, const float* tiles, float* scores,
                           float* peaks) {
    Vector largest[SOFTMAX_ROWS];
    for (int r = 0; r < SOFTMAX_ROWS; ++r) largest[r] = fill(-__builtin_inff());
    for (int64_t panel = 0; panel < softmax_panels(step); ++panel) {
        float* own = scores + panel * SOFTMAX_ROWS * WIDTH;
        multiply_panel(tiles, SOFTMAX_ROWS, step.dim, step.panels + panel * step.panel_rows * WIDTH, own, WIDTH);
        for (int r = 0; r < SOFTMAX_ROWS; ++r) {
            for (int v = 0; v < VECTORS; ++v) {
                float* at = own + r * WIDTH + v * LANES;
                store(at, add(load(at), load(step.offsets + panel * WIDTH + v * LANES)));
            }
        }
        if (step.own != nullptr || step.excluded != nullptr) mask_panel(step, first, count, panel, own);
        for (int r = 0; r < SOFTMAX_ROWS; ++r) {
            for (int v = 0; v < VECTORS; ++v) largest[r] = larger(largest[r], load(own + r * WIDTH + v * LANES));
        }
    }
    for (int r = 0; r < SOFTMAX_ROWS; ++r) {
        float lanes[LANES];
        store(lanes, largest[r]);
        for (int i = 0; i < LANES; ++i) {
            if (!(lanes[i] <= peaks[r])) peaks[r] = lanes[i];  // a NaN becomes the peak
        }
    }
}

// e^(score - peak) in place of the scores, and the sum of each row.
inline void softmax_weights(const SoftmaxStep& step, const float* peaks, float* scores, float* totals) {
    Vector sums[SOFTMAX_ROWS];
    const Vector least = fill(LEAST_WEIGHT);
    for (int r = 0; r < SOFTMAX_ROWS; ++r) sums[r] = fill(0.0f);
    for (int64_t panel = 0; panel < softmax_panels(step); ++panel) {
        float* own = scores + panel * SOFTMAX_ROWS * WIDTH;
        for (int r = 0; r < SOFTMAX_ROWS; ++r) {
            const Vector peak = fill(peaks[r]);
            for (int v = 0; v < VECTORS; ++v) {
                float* at = own + r * WIDTH + v * LANES;
                const Vector weight = subtract(larger(least, exponential(subtract(load(at), peak))), least);
                store(at, weight);
                sums[r] = add(sums[r], weight);
            }
        }
    }
    for (int r = 0; r < SOFTMAX_ROWS; ++r) {
        float lanes[LANES];
        store(lanes, sums[r]);
        totals[r] = 0.0f;
        for (int i = 0; i < LANES; ++i) totals[r] += lanes[i];
    }
}

void softmax_backward(const SoftmaxStep& step, int64_t first, int64_t last, float* scratch, float* item_sums) {
    const int64_t dim = step.dim, num_panels = softmax_panels(step);
    float* tiles = scratch;                                                        // [query tile][dim][ROWS_PER_TILE]
    float* weighted = tiles + SOFTMAX_ROWS * dim;                                  // [tile of dim][query][ROWS_PER_TILE]
    float* to_queries = weighted + SOFTMAX_ROWS * rounded_up(dim, ROWS_PER_TILE);  // [query][dim]
    float* scores = to_queries + SOFTMAX_ROWS * dim;
    for (int64_t row = first; row < last; row += SOFTMAX_ROWS) {
        const int count = static_cast<int>(last - row < SOFTMAX_ROWS ? last - row : SOFTMAX_ROWS);
        const float* queries = step.queries + row * dim;
        float peaks[SOFTMAX_ROWS], rights[SOFTMAX_ROWS], totals[SOFTMAX_ROWS], shares[SOFTMAX_ROWS];
        for (int r = 0; r < SOFTMAX_ROWS; ++r) {
            float* tile = tiles + r / ROWS_PER_TILE * ROWS_PER_TILE * dim + r % ROWS_PER_TILE;
            for (int64_t k = 0; k < dim; ++k) tile[k * ROWS_PER_TILE] = r < count ? queries[r * dim + k] : 0.0f;
            peaks[r] = rights[r] = r < count ? step.rights[row + r] : 0.0f;
        }
        softmax_scores(step, row, count, tiles, scores, peaks);
        softmax_weights(step, peaks, scores, totals);
        for (int r = 0; r < SOFTMAX_ROWS; r += LANES) {
            store(rights + r, exponential(subtract(load(rights + r), load(peaks + r))));
        }
        for (int r = 0; r < SOFTMAX_ROWS; ++r) {
            totals[r] += rights[r];
            shares[r] = r < count ? step.weight / totals[r] : 0.0f;
            if (r >= count) continue;
            step.to_rights[row + r] = shares[r] * rights[r] - step.weight;
            step.peaks[row + r] = peaks[r];
            step.totals[row + r] = totals[r];
        }
        for (int64_t k = 0; k < rounded_up(dim, ROWS_PER_TILE); ++k) {
            float* tile = weighted + k / ROWS_PER_TILE * ROWS_PER_TILE * SOFTMAX_ROWS + k % ROWS_PER_TILE;
            for (int r = 0; r < SOFTMAX_ROWS; ++r) {
                tile[r * ROWS_PER_TILE] = k < dim && r < count ? queries[r * dim + k] * shares[r] : 0.0f;
            }
        }
        for (int64_t i = 0; i < SOFTMAX_ROWS * dim; ++i) to_queries[i] = 0.0f;
        for (int64_t begin = 0; begin < num_panels; begin += SOFTMAX_PANELS) {
            const int64_t end = begin + SOFTMAX_PANELS < num_panels ? begin + SOFTMAX_PANELS : num_panels;
            add_products(scores + begin * SOFTMAX_ROWS * WIDTH, SOFTMAX_ROWS, SOFTMAX_ROWS,
                         step.panels + begin * step.panel_rows * WIDTH, dim, step.panel_rows, end - begin, to_queries);
            for (int64_t panel = begin; panel < end; ++panel) {
                multiply_all<Start::sums>(weighted, dim, SOFTMAX_ROWS, nullptr, scores + panel * SOFTMAX_ROWS * WIDTH,
                                          item_sums + panel * dim * WIDTH);
            }
        }
        for (int r = 0; r < count; ++r) {
            for (int64_t k = 0; k < dim; ++k) {
                step.to_queries[(row + r) * dim + k] = to_queries[r * dim + k] * shares[r];
            }
        }
    }
}

}  // namespace
}  // namespace railsearch
