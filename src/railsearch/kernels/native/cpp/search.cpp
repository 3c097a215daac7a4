#include "search.h"

#include <algorithm>
#include <atomic>
#include <limits>
#include <memory>

#include "selection.h"
#include "tiles.h"

namespace railsearch {

namespace {

constexpr int64_t BYTES_OF_QUERIES = 192 * 1024;   // of a block: they stay in L2
constexpr int64_t BYTES_OF_PRODUCTS = 32 * 1024;   // component scores of a chunk: they stay in L1 or near
constexpr int64_t MOST_QUERIES_PER_BLOCK = 64;
constexpr int64_t VECTORS_PER_BLOCK = 64;          // of a scan
constexpr double WORK_PER_TASK = 1e6;              // multiply-adds: some 20 us
constexpr double LEAST_SHARED_WORK = 4e6;          // less than this is done sooner than a thread is woken
constexpr float NOTHING = -std::numeric_limits<float>::infinity();

// Scratch of a thread, kept for the next search: memory that is new costs a page fault for each 4 KiB.
float* scratch_floats(int64_t count) {
    thread_local Buffer buffer;
    buffer.reserve(count);
    return buffer.data();
}

// Ask for the rows of the next panel while this one is computed; longer rows the CPU fetches ahead by itself.
constexpr int64_t MOST_PREFETCHED_BYTES = 512;

void prefetch(const void* const* rows, int count, int64_t bytes) {
    for (int i = 0; i < count; ++i) {
        for (int64_t at = 0; at < bytes; at += 64) __builtin_prefetch(static_cast<const char*>(rows[i]) + at);
    }
}

int64_t divided_up(int64_t count, int64_t size) { return (count + size - 1) / size; }

// Multiply-adds of one query-item pair; an exponential counts as 10.
double work_per_pair(const Form& form) {
    const Mixture& m = form.mixture;
    const double dots = static_cast<double>(m.num_pairs) * static_cast<double>(m.dim);
    const double gate = 2.0 * static_cast<double>(m.num_pairs) * static_cast<double>(m.hidden_dim);
    return dots + gate + 10.0 * static_cast<double>(m.hidden_dim + 2 * m.num_pairs);
}

// How `count` equal steps are shared out: as tasks that are worth handing over, several for each thread.
struct Shares {
    int64_t steps_per_task;
    int64_t num_tasks;
    int num_threads;

    Shares(int64_t count, double work_per_step, int most_threads) {
        num_threads = static_cast<double>(count) * work_per_step < LEAST_SHARED_WORK ? 1 : most_threads;
        steps_per_task = std::max<int64_t>(1, static_cast<int64_t>(WORK_PER_TASK / std::max(1.0, work_per_step)));
        num_tasks = divided_up(count, steps_per_task);
    }
};

// Queries of a block in tiles.
struct PackedQueries {
    Buffer tiles;
    QueryBlock block;

    PackedQueries(const Form& form, const Queries& queries, int64_t first, int64_t count, int64_t per_chunk) {
        const Mixture& m = form.mixture;
        const int64_t rows_per_chunk = per_chunk * m.num_query_components;
        const int64_t floats_per_chunk = tiles_size(rows_per_chunk, m.dim);
        tiles.reserve(divided_up(count, per_chunk) * floats_per_chunk);
        float* out = tiles.data();
        for (int64_t begin = 0; begin < count; begin += per_chunk, out += floats_per_chunk) {
            const int64_t num_rows = std::min(per_chunk, count - begin) * m.num_query_components;
            const float* rows = queries.components + (first + begin) * m.num_query_components * m.dim;
            cut_into_tiles(rows, num_rows, m.dim, form.temperature, out);
        }
        block.tiles = tiles.data();
        block.gate = queries.gate == nullptr ? nullptr : queries.gate + first * m.num_pairs;
        block.num_queries = count;
        block.queries_per_chunk = per_chunk;
    }
};

// Pack the components and the gate of some rows, and score them.
class PanelScorer {
public:
    PanelScorer(const Context& context, const Form& form, const Items& items, const QueryBlock& queries, bool is_bound)
        : operations_(context.operations), form_(form), items_(items), queries_(queries), is_bound_(is_bound) {
        const Mixture& m = form.mixture;
        const int64_t width = operations_.width;
        panel_size_ = m.num_item_components * m.dim * width;
        gate_size_ = m.has_item_gate ? m.num_pairs * width : 0;
        scratch_size_ = scratch_size(m, queries.queries_per_chunk, operations_.width);
        const int64_t scores = queries.num_queries * width;
        panel_ = scratch_floats(panel_size_ + gate_size_ + scratch_size_ + scores);
        scores_ = panel_ + panel_size_ + gate_size_ + scratch_size_;
    }

    // Scores [num_queries][width] of rows that lie together.
    bool score_rows(int64_t first, int count) {
        const void* components[MOST_ITEMS_PER_PANEL];
        const void* gates[MOST_ITEMS_PER_PANEL];
        items_.point(first, count, components, form_.mixture.has_item_gate ? gates : nullptr);
        return compute(components, gates, count);
    }

    // Scores of rows that lie anywhere; a negative one counts as row 0.
    bool score_listed(const int64_t* rows, int count) {
        const void* components[MOST_ITEMS_PER_PANEL];
        const void* gates[MOST_ITEMS_PER_PANEL];
        for (int lane = 0; lane < count; ++lane) {
            point(std::max<int64_t>(0, rows[lane]), components[lane], gates[lane]);
        }
        return compute(components, gates, count);
    }

    const float* scores() const { return scores_; }

private:
    void point(int64_t row, const void*& components, const void*& gate) const {
        int64_t own_row = 0;
        const Segment& segment = items_.find(row, own_row);
        components = segment.components + own_row * segment.stride;
        gate = segment.gate == nullptr ? nullptr : segment.gate + own_row * segment.gate_stride;
    }

    bool compute(const void* const* components, const void* const* gates, int count) {
        const Mixture& m = form_.mixture;
        float* gate_panel = panel_ + panel_size_;
        float* scratch = gate_panel + gate_size_;
        operations_.pack(items_.number, components, count, m.num_item_components * m.dim, panel_);
        if (is_bound_) return operations_.bound(m, queries_, panel_, scratch, scores_);
        if (!form_.is_mixture) return operations_.bound(m, queries_, panel_, scratch, scores_);
        if (m.has_item_gate) operations_.pack(items_.number, gates, count, m.num_pairs, gate_panel);
        return operations_.mix(m, queries_, panel_, gate_panel, scratch, scores_);
    }

    const Operations& operations_;
    const Form& form_;
    const Items& items_;
    const QueryBlock& queries_;
    bool is_bound_;
    int64_t panel_size_, gate_size_, scratch_size_;
    float* panel_;
    float* scores_;
};

int64_t queries_per_block(const Form& form) {
    const int64_t bytes = form.mixture.num_query_components * form.mixture.dim * static_cast<int64_t>(sizeof(float));
    return std::clamp<int64_t>(BYTES_OF_QUERIES / bytes, 4, MOST_QUERIES_PER_BLOCK);
}

int64_t queries_per_chunk(const Form& form, int width) {
    const int64_t bytes = form.mixture.num_pairs * width * static_cast<int64_t>(sizeof(float));
    return std::clamp<int64_t>(BYTES_OF_PRODUCTS / bytes, 1, MOST_QUERIES_PER_BLOCK);
}

// Call use(block's first query, scorer, first row, count, slot) for every block of queries and every panel of items;
// skip(first row, count) says which panels need not be scored.
template <typename Before, typename Skip, typename Use, typename After>
bool for_each_panel(const Context& context, const Form& form, const Queries& queries, const Items& items,
                    bool is_bound, Before before, Skip skip, Use use, After after) {
    const int width = context.operations.width;
    const int64_t num_items = items.count();
    const int64_t per_chunk = std::min(queries_per_chunk(form, width), std::max<int64_t>(1, queries.count));
    std::atomic<bool> is_finite{true};
    for (int64_t first = 0; first < queries.count; first += queries_per_block(form)) {
        const int64_t count = std::min(queries_per_block(form), queries.count - first);
        const PackedQueries packed(form, queries, first, count, std::min(per_chunk, count));
        const Shares shares(divided_up(num_items, width), work_per_pair(form) * static_cast<double>(count * width),
                            context.num_threads);
        before(first, count, shares.num_threads);
        Pool::instance().run(
            shares.num_tasks, shares.num_threads,
            [&](int64_t task, int slot) {
                PanelScorer scorer(context, form, items, packed.block, is_bound);
                const int64_t begin = task * shares.steps_per_task * width;
                const int64_t end = std::min(num_items, begin + shares.steps_per_task * width);
                for (int64_t row = begin; row < end; row += width) {
                    const int lanes = static_cast<int>(std::min<int64_t>(width, end - row));
                    if (skip(row, lanes)) continue;
                    if (!scorer.score_rows(row, lanes)) is_finite = false;
                    use(first, count, scorer.scores(), row, lanes, slot);
                }
            },
            context.poll);
        if (!is_finite) return false;
        after(first, count, shares.num_threads);
    }
    return true;
}

// The best rows of some lists that several threads fill, each its own.
class BestOfThreads {
public:
    BestOfThreads(int64_t num_lists, int64_t k, int num_threads, int64_t width)
        : num_lists_(num_lists), k_(k), width_(width) {
        for (int i = 0; i < num_threads; ++i) threads_.push_back(std::make_unique<Own>(num_lists, k));
    }

    // Take the scores [count][width] of lists from `first` on, for `lanes` rows from `row` on.
    void take(const Operations& operations, const Filter& filter, int64_t group, int64_t first_query, int64_t first,
              int64_t count, const float* scores, int64_t row, int lanes, int slot) {
        Own& own = *threads_[static_cast<size_t>(slot)];
        if (operations.reach(scores, own.thresholds.data() + first, count, false, own.masks.data())) {
            add(own, filter, group, first_query, first, count, scores, row, lanes);
        }
    }

    // Take the dot products of rows in tiles, the lists from `first` on, with a panel, for `lanes` rows from `row` on.
    void take_products(const Operations& operations, const Filter& filter, int64_t group, int64_t first, int64_t count,
                       const float* tiles, int64_t dim, const float* panel, float* scores, int64_t row, int lanes,
                       int slot) {
        Own& own = *threads_[static_cast<size_t>(slot)];
        const float* thresholds = own.thresholds.data() + first;
        if (operations.dot_above(tiles, count, dim, panel, thresholds, scores, own.masks.data())) {
            add(own, filter, group, 0, first, count, scores, row, lanes);
        }
    }

    // Write the k best of each list, best first.
    void write(const Context& context, int num_threads, float* scores, int64_t* rows) {
        Pool::instance().run(
            num_lists_, num_lists_ * k_ < 4096 ? 1 : num_threads,
            [&](int64_t list, int) {
                std::vector<uint64_t> keys;
                for (const auto& own : threads_) {
                    const std::vector<uint64_t>& more = own->best[static_cast<size_t>(list)].keys();
                    keys.insert(keys.end(), more.begin(), more.end());
                }
                keep_best(keys, k_);
                for (int64_t i = 0; i < k_; ++i) {
                    const bool is_there = i < static_cast<int64_t>(keys.size());
                    scores[list * k_ + i] = is_there ? score_of(keys[static_cast<size_t>(i)]) : NOTHING;
                    rows[list * k_ + i] = is_there ? static_cast<int64_t>(tie_of(keys[static_cast<size_t>(i)])) : -1;
                }
            },
            context.poll);
    }

private:
    struct Own {
        Own(int64_t num_lists, int64_t k)
            : best(static_cast<size_t>(num_lists), Best(k)),
              thresholds(static_cast<size_t>(num_lists), NOTHING),
              masks(static_cast<size_t>(num_lists)) {}
        std::vector<Best> best;
        std::vector<float> thresholds;
        std::vector<uint64_t> masks;
    };

    // Add the scores whose lanes are marked in own.masks.
    void add(Own& own, const Filter& filter, int64_t group, int64_t first_query, int64_t first, int64_t count,
             const float* scores, int64_t row, int lanes) {
        const uint64_t* masks = own.masks.data();
        const bool is_open = filter.is_empty();
        const uint64_t are_real = (uint64_t{1} << lanes) - 1;
        for (int64_t i = 0; i < count; ++i) {
            uint64_t mask = masks[i] & are_real;
            if (mask == 0) continue;
            const size_t list = static_cast<size_t>(first + i);
            Best& best = own.best[list];
            for (; mask != 0; mask &= mask - 1) {
                const int lane = __builtin_ctzll(mask);
                const float score = scores[i * width_ + lane];
                if (!(score > best.threshold())) continue;
                if (!is_open && filter.hides(first_query + (first + i) / group, row + lane)) continue;
                best.add(score, static_cast<uint32_t>(row + lane));
            }
            own.thresholds[list] = best.threshold();
        }
    }

    int64_t num_lists_, k_, width_;
    std::vector<std::unique_ptr<Own>> threads_;
};

}  // namespace

bool score(const Context& context, const Form& form, const Queries& queries, const Items& items, bool is_bound,
           float* out, int64_t stride) {
    const int width = context.operations.width;
    return for_each_panel(
        context, form, queries, items, is_bound, [](int64_t, int64_t, int) {}, [](int64_t, int) { return false; },
        [&](int64_t first, int64_t count, const float* scores, int64_t row, int lanes, int) {
            for (int64_t q = 0; q < count; ++q) {
                std::copy_n(scores + q * width, lanes, out + (first + q) * stride + row);
            }
        },
        [](int64_t, int64_t, int) {});
}

bool top_k(const Context& context, const Form& form, const Queries& queries, const Items& items, const Filter& filter,
           int64_t k, float* out_scores, int64_t* out_rows) {
    std::unique_ptr<BestOfThreads> best;
    return for_each_panel(
        context, form, queries, items, false,
        [&](int64_t, int64_t count, int num_threads) {
            best = std::make_unique<BestOfThreads>(count, k, num_threads, context.operations.width);
        },
        [&](int64_t row, int lanes) { return !filter.allows_any(row, lanes); },
        [&](int64_t first, int64_t count, const float* scores, int64_t row, int lanes, int slot) {
            best->take(context.operations, filter, 1, first, 0, count, scores, row, lanes, slot);
        },
        [&](int64_t first, int64_t, int num_threads) {
            best->write(context, num_threads, out_scores + first * k, out_rows + first * k);
        });
}

bool score_candidates(const Context& context, const Form& form, const Queries& queries, const Items& items,
                      const int64_t* rows, int64_t width, float* out) {
    const int lanes_per_panel = context.operations.width;
    const int64_t panels_per_query = divided_up(width, lanes_per_panel);
    const Shares shares(queries.count * panels_per_query,
                        work_per_pair(form) * static_cast<double>(lanes_per_panel), context.num_threads);
    std::vector<std::unique_ptr<PackedQueries>> packed(static_cast<size_t>(queries.count));
    for (int64_t q = 0; q < queries.count; ++q) {
        packed[static_cast<size_t>(q)] = std::make_unique<PackedQueries>(form, queries, q, 1, 1);
    }
    std::atomic<bool> is_finite{true};
    Pool::instance().run(
        shares.num_tasks, shares.num_threads,
        [&](int64_t task, int) {
            const int64_t end = std::min(queries.count * panels_per_query, (task + 1) * shares.steps_per_task);
            for (int64_t step = task * shares.steps_per_task; step < end; ++step) {
                const int64_t query = step / panels_per_query;
                const int64_t first = step % panels_per_query * lanes_per_panel;
                const int lanes = static_cast<int>(std::min<int64_t>(lanes_per_panel, width - first));
                const int64_t* own_rows = rows + query * width + first;
                PanelScorer scorer(context, form, items, packed[static_cast<size_t>(query)]->block, false);
                if (!scorer.score_listed(own_rows, lanes)) is_finite = false;
                for (int lane = 0; lane < lanes; ++lane) {
                    out[query * width + first + lane] = own_rows[lane] < 0 ? NOTHING : scorer.scores()[lane];
                }
            }
        },
        context.poll);
    return is_finite;
}

void scan(const Context& context, const float* vectors, int64_t num_vectors, int64_t group, int64_t dim,
          const Items& items, const Filter& filter, int64_t n, float* out_scores, int64_t* out_rows, float* bounds,
          int64_t stride) {
    const Operations& operations = context.operations;
    const int width = operations.width;
    const int64_t num_items = items.count();
    const int64_t per_block = std::min(num_vectors, std::max<int64_t>(1, VECTORS_PER_BLOCK / group) * group);
    const int64_t floats_per_block = tiles_size(per_block, dim);
    Buffer tiles(std::max<int64_t>(1, divided_up(num_vectors, per_block) * floats_per_block));
    for (int64_t first = 0; first < num_vectors; first += per_block) {
        cut_into_tiles(vectors + first * dim, std::min(per_block, num_vectors - first), dim, 1.0f,
                       tiles.data() + first / per_block * floats_per_block);
    }
    const int64_t bytes_per_row = dim * (items.number == Number::fp32 ? 4 : 2);
    const Shares shares(divided_up(num_items, width), static_cast<double>((num_vectors + 8) * dim * width),
                        context.num_threads);
    BestOfThreads best(num_vectors, n, shares.num_threads, width);
    // Raise the bounds of `lanes` rows from `row` on to the best of the scores [num_queries * group][width].
    const auto raise = [&](const float* scores, int64_t first_query, int64_t num_queries, int64_t row, int lanes) {
        for (int64_t q = 0; q < num_queries; ++q) {
            float best[MOST_ITEMS_PER_PANEL];
            std::copy_n(scores + q * group * width, width, best);
            for (int64_t i = q * group + 1; i < (q + 1) * group; ++i) {
                for (int lane = 0; lane < width; ++lane) best[lane] = std::max(best[lane], scores[i * width + lane]);
            }
            float* own = bounds + (first_query + q) * stride + row;
            for (int lane = 0; lane < lanes; ++lane) {
                if (best[lane] > own[lane] && !filter.hides(first_query + q, row + lane)) own[lane] = best[lane];
            }
        }
    };
    Pool::instance().run(
        shares.num_tasks, shares.num_threads,
        [&](int64_t task, int slot) {
            float* panel = scratch_floats((dim + per_block) * width);
            float* scores = panel + dim * width;
            const int64_t begin = task * shares.steps_per_task * width;
            const int64_t end = std::min(num_items, begin + shares.steps_per_task * width);
            for (int64_t row = begin; row < end; row += width) {
                const int lanes = static_cast<int>(std::min<int64_t>(width, end - row));
                if (!filter.allows_any(row, lanes)) continue;
                const void* lines[MOST_ITEMS_PER_PANEL];
                items.point(row, lanes, lines, nullptr);
                operations.pack(items.number, lines, lanes, dim, panel);
                if (row + width < end && bytes_per_row <= MOST_PREFETCHED_BYTES) {
                    const int more = static_cast<int>(std::min<int64_t>(width, end - row - width));
                    items.point(row + width, more, lines, nullptr);
                    prefetch(lines, more, bytes_per_row);
                }
                for (int64_t first = 0; first < num_vectors; first += per_block) {
                    const int64_t count = std::min(per_block, num_vectors - first);
                    const float* own_tiles = tiles.data() + first / per_block * floats_per_block;
                    if (bounds == nullptr && dim <= MOST_SCANNED_DIM) {
                        best.take_products(operations, filter, group, first, count, own_tiles, dim, panel, scores, row,
                                           lanes, slot);
                        continue;
                    }
                    operations.dot(own_tiles, count, dim, panel, scores);
                    if (n > 0) best.take(operations, filter, group, 0, first, count, scores, row, lanes, slot);
                    if (bounds != nullptr) raise(scores, first / group, count / group, row, lanes);
                }
            }
        },
        context.poll);
    if (n > 0) best.write(context, shares.num_threads, out_scores, out_rows);
}

}  // namespace railsearch
