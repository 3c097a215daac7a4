#include "search.h"

#include <algorithm>
#include <atomic>
#include <memory>
#include <vector>

#include "best_of_threads.h"
#include "panels.h"

namespace railsearch {

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

}  // namespace railsearch
