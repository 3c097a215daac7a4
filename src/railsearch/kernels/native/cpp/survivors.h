// Rows that may be among the k best, of which only bounds of the scores are known at first.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "selection.h"

namespace railsearch {

// A row whose score is not below `low` and not above `high`; both are the score once it has been computed.
struct Survivor {
    float low, high;
    uint32_t row;

    bool is_known() const { return low == high; }
};

// Drop survivors that k others are better than. Return a score that k of them have at least.
inline float drop_beaten(std::vector<Survivor>& survivors, int64_t k) {
    const uint32_t edge = rank_of_best(survivors, k, [](const Survivor& each) { return rank_of(each.low); });
    size_t end = 0;
    for (const Survivor& each : survivors) {
        survivors[end] = each;
        end += rank_of(each.high) >= edge;
    }
    survivors.resize(end);
    return score_of(static_cast<uint64_t>(edge) << 32);
}

// The survivors of rows that come one by one. As in `Best`, they are gathered until there are twice as many as needed.
// If their bounds are too wide to drop enough of them, their scores are computed.
class Survivors {
public:
    // Rows whose score is not above `threshold` are not needed.
    Survivors(int64_t k, float threshold) : k_(k), capacity_(2 * k + 64), threshold_(threshold) {}

    // A row whose score is not greater, and which comes later, need not be added.
    float threshold() const { return threshold_; }

    // Return true if it is time to shrink.
    bool add(float low, float high, uint32_t row) {
        survivors_.push_back({low + 0.0f, high + 0.0f, row});  // -0 becomes 0
        return static_cast<int64_t>(survivors_.size()) == capacity_;
    }

    // know(survivors) computes the scores of those that are not known. Return how many survivors it was given.
    template <typename Know>
    int64_t shrink(Know know) {
        threshold_ = std::max(threshold_, drop_beaten(survivors_, k_));
        const int64_t count = static_cast<int64_t>(survivors_.size());
        if (count <= k_ + (capacity_ - k_) / 4 * 3) return 0;
        know(survivors_);
        const auto is_better = [](const Survivor& left, const Survivor& right) {
            return key_of(left.low, left.row) > key_of(right.low, right.row);
        };
        const auto last = survivors_.begin() + (k_ - 1);
        std::nth_element(survivors_.begin(), last, survivors_.end(), is_better);
        threshold_ = std::max(threshold_, last->low);
        survivors_.resize(static_cast<size_t>(k_));
        std::sort(survivors_.begin(), survivors_.end(),
                  [](const Survivor& left, const Survivor& right) { return left.row < right.row; });
        return count;
    }

    const std::vector<Survivor>& all() const { return survivors_; }

private:
    int64_t k_;
    int64_t capacity_;
    float threshold_;
    std::vector<Survivor> survivors_;
};

}  // namespace railsearch
