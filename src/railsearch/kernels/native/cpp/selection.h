// The k best of many scores: by score, then by smaller tie value.
#pragma once

#include <array>
#include <cstdint>
#include <cstring>
#include <limits>
#include <vector>

namespace railsearch {

// A score as a number that is larger if the score is better. Scores must not be NaN or -0.
inline uint32_t rank_of(float score) {
    uint32_t bits;
    std::memcpy(&bits, &score, sizeof(bits));
    return (bits & 0x80000000u) ? ~bits : bits | 0x80000000u;
}

// A score and a tie value in one number: a better pair is larger.
inline uint64_t key_of(float score, uint32_t tie) {
    return static_cast<uint64_t>(rank_of(score)) << 32 | static_cast<uint32_t>(~tie);
}

inline float score_of(uint64_t key) {
    uint32_t bits = static_cast<uint32_t>(key >> 32);
    bits = (bits & 0x80000000u) ? bits & 0x7fffffffu : ~bits;
    float score;
    std::memcpy(&score, &bits, sizeof(score));
    return score;
}

inline uint32_t tie_of(uint64_t key) { return ~static_cast<uint32_t>(key); }

// Return a rank that at least k of the values reach, and few more: the ranks are counted in equal intervals, and it is
// the least one of the interval of the k-th best. There are at least k values.
template <typename Values, typename Rank>
uint32_t rank_of_best(const Values& values, int64_t k, Rank rank) {
    uint32_t low = ~uint32_t{0}, high = 0;
    for (const auto& value : values) {
        low = rank(value) < low ? rank(value) : low;
        high = rank(value) > high ? rank(value) : high;
    }
    constexpr int BITS = 9;
    int shift = 0;
    while (((high - low) >> shift) >> BITS != 0) ++shift;
    std::array<uint32_t, 1 << BITS> counts{};
    for (const auto& value : values) ++counts[(rank(value) - low) >> shift];
    int64_t num_kept = 0;
    uint32_t interval = 1 << BITS;
    while (num_kept < k) num_kept += counts[--interval];
    return low + (interval << shift);
}

// The k best of keys that come one by one. Keys are gathered until there are twice as many as needed; then most of the
// worse half is dropped, which costs a few steps for each key, whatever k is.
class Best {
public:
    explicit Best(int64_t k = 0);

    // What a score must exceed to be worth adding.
    float threshold() const { return threshold_; }

    void add(float score, uint32_t tie) {
        keys_.push_back(key_of(score, tie));
        if (static_cast<int64_t>(keys_.size()) == capacity_) shrink();
    }

    const std::vector<uint64_t>& keys() const { return keys_; }

private:
    void shrink();

    int64_t k_;
    int64_t capacity_;
    float threshold_ = -std::numeric_limits<float>::infinity();
    std::vector<uint64_t> keys_;
};

// Order keys best first and drop all but k.
void keep_best(std::vector<uint64_t>& keys, int64_t k);

}  // namespace railsearch
