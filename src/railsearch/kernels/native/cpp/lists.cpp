// Lists of rows and scores: united, and the best of each list.
#include "lists.h"

#include <algorithm>
#include <functional>
#include <vector>

#include "selection.h"
#include "sharing.h"

namespace railsearch {

namespace {

constexpr double WORK_PER_VALUE = 50.0;  // of sorting, in multiply-adds

// A score and a tie value as one number, and the column that they come from.
struct Place {
    uint64_t key;
    uint32_t column;
};

bool is_better(const Place& a, const Place& b) { return a.key != b.key ? a.key > b.key : a.column < b.column; }

void select_one(const float* scores, const int64_t* ties, int64_t width, int64_t k, float* best, int64_t* columns) {
    if (ties == nullptr) {
        std::vector<uint64_t> keys(static_cast<size_t>(width));
        for (int64_t i = 0; i < width; ++i) {
            keys[static_cast<size_t>(i)] = key_of(scores[i] + 0.0f, static_cast<uint32_t>(i));
        }
        keep_best(keys, k);
        for (int64_t i = 0; i < k; ++i) {
            columns[i] = tie_of(keys[static_cast<size_t>(i)]);
            best[i] = scores[columns[i]];
        }
        return;
    }
    std::vector<Place> places(static_cast<size_t>(width));
    for (int64_t i = 0; i < width; ++i) {
        places[static_cast<size_t>(i)] = {key_of(scores[i] + 0.0f, static_cast<uint32_t>(ties[i])),
                                          static_cast<uint32_t>(i)};
    }
    const auto end = places.begin() + k;
    if (k < width) std::nth_element(places.begin(), end, places.end(), is_better);
    std::sort(places.begin(), end, is_better);
    for (int64_t i = 0; i < k; ++i) {
        columns[i] = places[static_cast<size_t>(i)].column;
        best[i] = scores[columns[i]];
    }
}

}  // namespace

void select_best(const Context& context, const float* scores, const int64_t* ties, int64_t count, int64_t width,
                 int64_t k, float* best, int64_t* columns) {
    const Shares shares(count, static_cast<double>(width) * WORK_PER_VALUE, context.num_threads);
    Pool::instance().run(
        count, shares.num_threads,
        [&](int64_t list, int) {
            select_one(scores + list * width, ties == nullptr ? nullptr : ties + list * width, width, k,
                       best + list * k, columns + list * k);
        },
        context.poll);
}

void unite(const Context& context, const int64_t* rows, int64_t count, int64_t width, int64_t* united, bool* is_real,
           int64_t* counts) {
    const Shares shares(count, static_cast<double>(width) * WORK_PER_VALUE, context.num_threads);
    Pool::instance().run(
        count, shares.num_threads,
        [&](int64_t list, int) {
            int64_t* own = united + list * width;
            int64_t* end = std::copy_if(rows + list * width, rows + (list + 1) * width, own,
                                        [](int64_t row) { return row >= 0; });
            std::sort(own, end);
            end = std::unique(own, end);
            std::fill(end, own + width, int64_t{0});
            bool* own_real = is_real + list * width;
            counts[list] = end - own;
            std::fill(own_real, own_real + counts[list], true);
            std::fill(own_real + counts[list], own_real + width, false);
        },
        context.poll);
}

}  // namespace railsearch
