// Searches that look at component scores first, and know the best component score of every item: its bound.
#include <algorithm>
#include <atomic>
#include <memory>
#include <vector>

#include "best_of_threads.h"
#include "panels.h"
#include "search.h"

namespace railsearch {

namespace {

// The component scores and bounds of one panel of items with one chunk of queries.
struct Chunk {
    int64_t first;  // query of the block
    int64_t count;
    const float* products;  // [count][num_pairs][width]
    const float* bounds;    // [count][width]
};

// Call use(panel, chunk, row, lanes, slot) for every panel of items and every chunk of a block of queries.
template <typename Use>
bool for_each_chunk(const Context& context, const Form& form, const PackedQueries& packed, const Items& items,
                    const Filter& filter, const Shares& shares, Use use) {
    const Operations& operations = context.operations;
    const Mixture& m = form.mixture;
    const int width = operations.width;
    const int64_t num_items = items.count(), per_chunk = packed.block.queries_per_chunk;
    const int64_t floats_per_chunk = tiles_size(per_chunk * m.num_query_components, m.dim);
    const int64_t panel_size = m.num_item_components * m.dim * width, products_size = per_chunk * m.num_pairs * width;
    std::atomic<bool> is_finite{true};
    Pool::instance().run(
        shares.num_tasks, shares.num_threads,
        [&](int64_t task, int slot) {
            float* panel = scratch_floats(panel_size + products_size + per_chunk * width);
            float* products = panel + panel_size;
            float* bounds = products + products_size;
            const int64_t begin = task * shares.steps_per_task * width;
            const int64_t end = std::min(num_items, begin + shares.steps_per_task * width);
            for (int64_t row = begin; row < end; row += width) {
                const int lanes = static_cast<int>(std::min<int64_t>(width, end - row));
                if (!filter.allows_any(row, lanes)) continue;
                const void* lines[MOST_ITEMS_PER_PANEL];
                items.point(row, lanes, lines, nullptr);
                operations.pack(items.number, lines, lanes, m.num_item_components * m.dim, panel);
                const float* tiles = packed.block.tiles;
                for (int64_t first = 0; first < packed.block.num_queries; first += per_chunk) {
                    const int64_t count = std::min(per_chunk, packed.block.num_queries - first);
                    if (!operations.products(m, tiles, count, panel, products, bounds)) is_finite = false;
                    use(Chunk{first, count, products, bounds}, row, lanes, slot);
                    tiles += floats_per_chunk;
                }
            }
        },
        context.poll);
    return is_finite;
}

Shares shares_of(const Context& context, const Items& items, int64_t num_queries, double per_pair) {
    const double work = per_pair * static_cast<double>(num_queries * context.operations.width);
    return {divided_up(items.count(), context.operations.width), work, context.num_threads};
}

int64_t chunk_size(const Context& context, const Form& form, int64_t num_queries) {
    return std::min(queries_per_chunk(form, context.operations.width), num_queries);
}

// Items of one query that wait until they fill a panel, lane by lane: with few items in each panel, the gate would
// otherwise be computed mostly for lanes that nobody needs.
struct Waiting {
    float* products;  // [num_pairs][width]
    float* gate;      // [item_gate_size][width]
    int count = 0;
    int64_t rows[MOST_ITEMS_PER_PANEL];
};

// What one thread knows of a block of queries in `top_k_above`.
class AboveOfThread {
public:
    AboveOfThread(const Context& context, const Form& form, const Items& items, const PackedQueries& packed,
                  BestOfThreads& best, int slot)
        : num_scored(static_cast<size_t>(packed.block.num_queries), 0),
          best_skipped(static_cast<size_t>(packed.block.num_queries), NOTHING),
          operations_(context.operations),
          form_(form),
          items_(items),
          block_(packed.block),
          best_(best),
          slot_(slot),
          width_(context.operations.width),
          waiting_(static_cast<size_t>(packed.block.num_queries)) {
        const int64_t size = form.mixture.num_pairs * width_, gate_size = item_gate_size(form.mixture) * width_;
        memory_.reserve((size + gate_size) * block_.num_queries + gate_size +
                        scratch_size(form.mixture, 0, operations_.width) + width_);
        float* next = memory_.data();
        for (Waiting& each : waiting_) {
            each.products = next;
            each.gate = next + size;
            next += size + gate_size;
        }
        gate_panel_ = next;
        scratch_ = next + gate_size;
        scores_ = scratch_ + scratch_size(form.mixture, 0, operations_.width);
        // Lanes that no item has used yet are computed too.
        std::fill(memory_.data(), next + gate_size, 0.0f);
    }

    // Score the lanes in `chosen` of one query.
    void take(int64_t query, const float* products, const float* bounds, uint64_t chosen, int64_t row, int lanes) {
        const int count = __builtin_popcountll(chosen);
        num_scored[static_cast<size_t>(query)] += count;
        if (!form_.is_mixture) {
            for (; chosen != 0; chosen &= chosen - 1) {
                const int lane = __builtin_ctzll(chosen);
                best_.take_one(query, bounds[lane], row + lane, slot_);
            }
            return;
        }
        if (form_.mixture.has_item_gate && gate_row_ != row) {
            const void* lines[MOST_ITEMS_PER_PANEL];
            const void* gates[MOST_ITEMS_PER_PANEL];
            items_.point(row, lanes, lines, gates);
            operations_.pack(items_.number, gates, lanes, item_gate_size(form_.mixture), gate_panel_);
            gate_row_ = row;
        }
        if (2 * count >= width_) {  // copying them would cost more than the idle lanes
            mix(query, gate_panel_, products);
            uint64_t better = 0;
            operations_.reach(scores_, best_.threshold(query, slot_), 1, false, &better);
            for (chosen &= better; chosen != 0; chosen &= chosen - 1) {
                const int lane = __builtin_ctzll(chosen);
                best_.take_one(query, scores_[lane], row + lane, slot_);
            }
            return;
        }
        Waiting& own = waiting_[static_cast<size_t>(query)];
        for (; chosen != 0; chosen &= chosen - 1) {
            const int lane = __builtin_ctzll(chosen);
            for (int64_t p = 0; p < form_.mixture.num_pairs; ++p) {
                own.products[p * width_ + own.count] = products[p * width_ + lane];
            }
            if (form_.mixture.has_item_gate) {
                for (int64_t p = 0; p < item_gate_size(form_.mixture); ++p) {
                    own.gate[p * width_ + own.count] = gate_panel_[p * width_ + lane];
                }
            }
            own.rows[own.count++] = row + lane;
            if (own.count == width_) score_waiting(query);
        }
    }

    // Score what still waits. Return false if any score of this thread was not finite.
    bool finish() {
        for (int64_t query = 0; query < block_.num_queries; ++query) score_waiting(query);
        return is_finite_;
    }

    std::vector<int64_t> num_scored;
    std::vector<float> best_skipped;

private:
    void score_waiting(int64_t query) {
        Waiting& own = waiting_[static_cast<size_t>(query)];
        if (own.count == 0) return;
        mix(query, own.gate, own.products);
        for (int i = 0; i < own.count; ++i) best_.take_late(query, scores_[i], own.rows[i], slot_);
        own.count = 0;
    }

    void mix(int64_t query, const float* gate_panel, const float* products) {
        const float* gate = block_.gate == nullptr ? nullptr : block_.gate + query * query_gate_size(form_.mixture);
        if (!operations_.mix_products(form_.mixture, gate, gate_panel, products, scratch_, scores_)) is_finite_ = false;
    }

    const Operations& operations_;
    const Form& form_;
    const Items& items_;
    const QueryBlock& block_;
    BestOfThreads& best_;
    int slot_;
    int width_;
    Buffer memory_;
    std::vector<Waiting> waiting_;
    float* gate_panel_;
    int64_t gate_row_ = -1;
    float* scratch_;
    float* scores_;
    bool is_finite_ = true;
};

}  // namespace

bool top_k_above(const Context& context, const Form& form, const Queries& queries, const Items& items,
                 const Filter& filter, int64_t k, const float* thresholds, const Above& out) {
    const int width = context.operations.width;
    for (int64_t first = 0; first < queries.count; first += queries_per_block(form)) {
        const int64_t count = std::min(queries_per_block(form), queries.count - first);
        const PackedQueries packed(form, queries, first, count, chunk_size(context, form, count));
        const Shares shares = shares_of(context, items, count, work_per_pair(form));
        BestOfThreads best(count, k, shares.num_threads, width);
        std::vector<std::unique_ptr<AboveOfThread>> threads(static_cast<size_t>(shares.num_threads));
        const bool has_products = for_each_chunk(
            context, form, packed, items, filter, shares, [&](const Chunk& chunk, int64_t row, int lanes, int slot) {
                auto& own = threads[static_cast<size_t>(slot)];
                if (own == nullptr) own = std::make_unique<AboveOfThread>(context, form, items, packed, best, slot);
                const uint64_t are_real = (uint64_t{1} << lanes) - 1;
                uint64_t reached[MOST_QUERIES_PER_BLOCK];
                context.operations.reach(chunk.bounds, thresholds + first + chunk.first, chunk.count, true, reached);
                for (int64_t q = 0; q < chunk.count; ++q) {
                    const int64_t query = chunk.first + q;
                    const float* bounds = chunk.bounds + q * width;
                    const uint64_t seen = are_real & ~filter.hidden(first + query, row, lanes);
                    float& best_skipped = own->best_skipped[static_cast<size_t>(query)];
                    for (uint64_t skipped = seen & ~reached[q]; skipped != 0; skipped &= skipped - 1) {
                        best_skipped = std::max(best_skipped, bounds[__builtin_ctzll(skipped)]);
                    }
                    const uint64_t chosen = seen & reached[q];
                    if (chosen == 0) continue;
                    own->take(query, chunk.products + q * form.mixture.num_pairs * width, bounds, chosen, row, lanes);
                }
            });
        std::atomic<bool> is_finite{has_products};
        Pool::instance().run(
            shares.num_threads, shares.num_threads,
            [&](int64_t slot, int) {
                auto& own = threads[static_cast<size_t>(slot)];
                if (own != nullptr && !own->finish()) is_finite = false;
            },
            context.poll);
        if (!is_finite) return false;
        best.write(context, shares.num_threads, out.scores + first * k, out.rows + first * k);
        for (int64_t query = 0; query < count; ++query) {
            out.num_scored[first + query] = 0;
            out.best_skipped[first + query] = NOTHING;
            for (const auto& own : threads) {
                if (own == nullptr) continue;
                out.num_scored[first + query] += own->num_scored[static_cast<size_t>(query)];
                out.best_skipped[first + query] =
                    std::max(out.best_skipped[first + query], own->best_skipped[static_cast<size_t>(query)]);
            }
        }
    }
    return true;
}

bool best_by_component(const Context& context, const Form& form, const Queries& queries, const Items& items,
                       const Filter& filter, int64_t n, int64_t m, const ByComponent& out) {
    const int width = context.operations.width;
    const int64_t num_pairs = form.mixture.num_pairs;
    for (int64_t first = 0; first < queries.count; first += queries_per_block(form)) {
        const int64_t count = std::min(queries_per_block(form), queries.count - first);
        const PackedQueries packed(form, queries, first, count, chunk_size(context, form, count));
        const Shares shares =
            shares_of(context, items, count, static_cast<double>(num_pairs * form.mixture.dim));
        BestOfThreads pairs(count * num_pairs, n, shares.num_threads, width);
        BestOfThreads bounds(count, m, shares.num_threads, width);
        const bool is_finite = for_each_chunk(
            context, form, packed, items, filter, shares, [&](const Chunk& chunk, int64_t row, int lanes, int slot) {
                pairs.take(context.operations, filter, num_pairs, first, chunk.first * num_pairs,
                           chunk.count * num_pairs, chunk.products, row, lanes, slot);
                bounds.take(context.operations, filter, 1, first, chunk.first, chunk.count, chunk.bounds, row, lanes,
                            slot);
            });
        if (!is_finite) return false;
        pairs.write(context, shares.num_threads, out.scores + first * num_pairs * n, out.rows + first * num_pairs * n);
        bounds.write(context, shares.num_threads, out.bounds + first * m, out.bound_rows + first * m);
    }
    return true;
}

}  // namespace railsearch
