#include <algorithm>

#include "best_of_threads.h"
#include "search.h"
#include "sharing.h"
#include "tiles.h"

namespace railsearch {

namespace {

constexpr int64_t VECTORS_PER_BLOCK = 64;

// Ask for the rows of the next panel while this one is computed; longer rows the CPU fetches ahead by itself.
constexpr int64_t MOST_PREFETCHED_BYTES = 512;

void prefetch(const void* const* rows, int count, int64_t bytes) {
    for (int i = 0; i < count; ++i) {
        for (int64_t at = 0; at < bytes; at += 64) __builtin_prefetch(static_cast<const char*>(rows[i]) + at, 0, 2);
    }
}

}  // namespace

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
