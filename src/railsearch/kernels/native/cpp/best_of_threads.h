// The best rows of many lists that several threads fill.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "search.h"
#include "selection.h"
#include "sharing.h"

namespace railsearch {

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

    // What a score of a list must exceed to be worth taking.
    const float* threshold(int64_t list, int slot) const {
        return threads_[static_cast<size_t>(slot)]->thresholds.data() + list;
    }

    // Take one score of a list. A late row comes after greater ones, so that it may win a tie with the k-th score.
    void take_late(int64_t list, float score, int64_t row, int slot) {
        Own& own = *threads_[static_cast<size_t>(slot)];
        Best& best = own.best[static_cast<size_t>(list)];
        if (!(score >= best.threshold())) return;
        best.add(score + 0.0f, static_cast<uint32_t>(row));
        own.thresholds[static_cast<size_t>(list)] = best.threshold();
    }

    // Take one score of a list, of a row that is greater than those before it.
    void take_one(int64_t list, float score, int64_t row, int slot) {
        Own& own = *threads_[static_cast<size_t>(slot)];
        Best& best = own.best[static_cast<size_t>(list)];
        if (!(score > best.threshold())) return;
        best.add(score + 0.0f, static_cast<uint32_t>(row));
        own.thresholds[static_cast<size_t>(list)] = best.threshold();
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
                const float score = scores[i * width_ + lane] + 0.0f;  // -0 becomes 0
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

}  // namespace railsearch
