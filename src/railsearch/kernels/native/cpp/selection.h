// The k best of many scores: by score, then by smaller tie value.
#pragma once

#include <cstdint>
#include <cstring>
#include <limits>
#include <vector>

namespace railsearch {

// A score and a tie value in one number: a better pair is larger. Scores must not be NaN or -0.
inline uint64_t key_of(float score, uint32_t tie) {
    uint32_t bits;
    std::memcpy(&bits, &score, sizeof(bits));
    bits = (bits & 0x80000000u) ? ~bits : bits | 0x80000000u;
    return static_cast<uint64_t>(bits) << 32 | static_cast<uint32_t>(~tie);
}

inline float score_of(uint64_t key) {
    uint32_t bits = static_cast<uint32_t>(key >> 32);
    bits = (bits & 0x80000000u) ? bits & 0x7fffffffu : ~bits;
    float score;
    std::memcpy(&score, &bits, sizeof(score));
    return score;
}

inline uint32_t tie_of(uint64_t key) { return ~static_cast<uint32_t>(key); }

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
