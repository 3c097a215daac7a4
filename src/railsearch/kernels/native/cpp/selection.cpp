#include "selection.h"

#include <algorithm>
#include <array>
#include <functional>

namespace railsearch {

namespace {

constexpr size_t LEAST_FOR_RADIX = 256;  // fewer keys are sorted by comparing them

// Drop keys that cannot be among the k best, and keep the order of the others. Return the least rank that is kept.
uint32_t drop_worse(std::vector<uint64_t>& keys, int64_t k) {
    const auto rank = [](uint64_t key) { return static_cast<uint32_t>(key >> 32); };
    const uint32_t edge = rank_of_best(keys, k, rank);
    size_t end = 0;
    for (const uint64_t key : keys) {
        keys[end] = key;
        end += rank(key) >= edge;
    }
    keys.resize(end);
    return edge;
}

// Sort keys best first, digit by digit, from the last to the first.
void radix_sort(std::vector<uint64_t>& keys) {
    std::array<std::array<uint32_t, 256>, 8> counts{};
    for (const uint64_t key : keys) {
        for (size_t digit = 0; digit < 8; ++digit) ++counts[digit][(key >> (8 * digit)) & 0xff];
    }
    std::vector<uint64_t> other(keys.size());
    for (size_t digit = 0; digit < 8; ++digit) {
        const int shift = static_cast<int>(8 * digit);
        if (counts[digit][(keys[0] >> shift) & 0xff] == keys.size()) continue;  // all have the same digit
        uint32_t place = 0;
        for (size_t value = 256; value-- > 0;) {
            const uint32_t count = counts[digit][value];
            counts[digit][value] = place;
            place += count;
        }
        for (const uint64_t key : keys) other[counts[digit][(key >> shift) & 0xff]++] = key;
        keys.swap(other);
    }
}

}  // namespace

Best::Best(int64_t k) : k_(k), capacity_(2 * k + 64) {}

void Best::shrink() {
    threshold_ = score_of(static_cast<uint64_t>(drop_worse(keys_, k_)) << 32);
    if (static_cast<int64_t>(keys_.size()) <= k_ + (capacity_ - k_) / 2) return;
    // Many scores are nearly the same.
    const auto last = keys_.begin() + (k_ - 1);
    std::nth_element(keys_.begin(), last, keys_.end(), std::greater<uint64_t>());
    threshold_ = score_of(*last);
    keys_.resize(static_cast<size_t>(k_));
}

void keep_best(std::vector<uint64_t>& keys, int64_t k) {
    if (static_cast<int64_t>(keys.size()) > k) drop_worse(keys, k);
    if (keys.size() < LEAST_FOR_RADIX) {
        std::sort(keys.begin(), keys.end(), std::greater<uint64_t>());
    } else {
        radix_sort(keys);
    }
    if (static_cast<int64_t>(keys.size()) > k) keys.resize(static_cast<size_t>(k));
}

}  // namespace railsearch
