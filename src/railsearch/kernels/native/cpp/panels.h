// Scores of blocks of queries with panels of items.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>

#include "search.h"
#include "sharing.h"
#include "tiles.h"

namespace railsearch {

constexpr int64_t BYTES_OF_QUERIES = 192 * 1024;   // of a block: they stay in L2
constexpr int64_t BYTES_OF_PRODUCTS = 32 * 1024;   // component scores of a chunk: they stay in L1 or near
constexpr int64_t MOST_QUERIES_PER_BLOCK = 64;

// Multiply-adds of one query-item pair; an exponential counts as 10.
inline double work_per_pair(const Form& form) {
    const Mixture& m = form.mixture;
    const double dots = static_cast<double>(m.num_pairs) * static_cast<double>(m.dim);
    const double gate = 2.0 * static_cast<double>(m.num_pairs) * static_cast<double>(m.hidden_dim);
    return dots + gate + 10.0 * static_cast<double>(m.hidden_dim + 2 * m.num_pairs);
}

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
        block.gate = queries.gate == nullptr ? nullptr : queries.gate + first * query_gate_size(m);
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
        gate_size_ = m.has_item_gate ? item_gate_size(m) * width : 0;
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
        if (m.has_item_gate) operations_.pack(items_.number, gates, count, item_gate_size(m), gate_panel);
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

inline int64_t queries_per_block(const Form& form) {
    const int64_t bytes = form.mixture.num_query_components * form.mixture.dim * static_cast<int64_t>(sizeof(float));
    return std::clamp<int64_t>(BYTES_OF_QUERIES / bytes, 4, MOST_QUERIES_PER_BLOCK);
}

inline int64_t queries_per_chunk(const Form& form, int width) {
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

}  // namespace railsearch
