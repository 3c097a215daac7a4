// A vector of floats in plain C++: what every CPU can run, and the definition of what the others must return.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>

namespace railsearch {
namespace {

struct Vector {
    static constexpr int LANES = 4;
    float lanes[LANES];
};

#define RAILSEARCH_EACH_LANE(expression)            \
    Vector result;                                  \
    for (int i = 0; i < Vector::LANES; ++i) {       \
        result.lanes[i] = (expression);             \
    }                                               \
    return result;

inline Vector load(const float* from) { RAILSEARCH_EACH_LANE(from[i]) }
inline void store(float* to, Vector a) { std::memcpy(to, a.lanes, sizeof(a.lanes)); }
inline Vector fill(float value) { RAILSEARCH_EACH_LANE(value) }
// The first `count` lanes, from 1 to LANES - 1; lanes after them are zero.
inline Vector load_first(const float* from, int64_t count) { RAILSEARCH_EACH_LANE(i < count ? from[i] : 0.0f) }
inline void store_first(float* to, Vector a, int64_t count) {
    for (int64_t i = 0; i < count; ++i) to[i] = a.lanes[i];
}
inline float sum_of_lanes(Vector a) { return (a.lanes[0] + a.lanes[1]) + (a.lanes[2] + a.lanes[3]); }
// table[place] for the next LANES places.
inline Vector look_up(const float* table, const uint8_t* places) { RAILSEARCH_EACH_LANE(table[places[i]]) }
inline Vector add(Vector a, Vector b) { RAILSEARCH_EACH_LANE(a.lanes[i] + b.lanes[i]) }
inline Vector subtract(Vector a, Vector b) { RAILSEARCH_EACH_LANE(a.lanes[i] - b.lanes[i]) }
inline Vector multiply(Vector a, Vector b) { RAILSEARCH_EACH_LANE(a.lanes[i] * b.lanes[i]) }
inline Vector divide(Vector a, Vector b) { RAILSEARCH_EACH_LANE(a.lanes[i] / b.lanes[i]) }
// 1 / a, off by a few ulp at most; its bits differ between instruction sets.
inline Vector inverse(Vector a) { RAILSEARCH_EACH_LANE(1.0f / a.lanes[i]) }
// a * b + c, rounded once.
inline Vector fused(Vector a, Vector b, Vector c) { RAILSEARCH_EACH_LANE(__builtin_fmaf(a.lanes[i], b.lanes[i], c.lanes[i])) }
// If either is NaN, the second argument: a NaN passes through if it stands second.
inline Vector larger(Vector a, Vector b) { RAILSEARCH_EACH_LANE(a.lanes[i] > b.lanes[i] ? a.lanes[i] : b.lanes[i]) }
inline Vector smaller(Vector a, Vector b) { RAILSEARCH_EACH_LANE(a.lanes[i] < b.lanes[i] ? a.lanes[i] : b.lanes[i]) }
// a >= b ? then : otherwise.
inline Vector choose_at_least(Vector a, Vector b, Vector then, Vector otherwise) {
    RAILSEARCH_EACH_LANE(a.lanes[i] >= b.lanes[i] ? then.lanes[i] : otherwise.lanes[i])
}

// 2 to the power of n, where t = n + 1.5 * 2^23 and n is a whole number from -126 to 127.
inline Vector power_of_two(Vector t) {
    Vector result;
    for (int i = 0; i < Vector::LANES; ++i) {
        uint32_t bits;
        std::memcpy(&bits, &t.lanes[i], sizeof(bits));
        bits = (bits << 23) + (127u << 23);
        std::memcpy(&result.lanes[i], &bits, sizeof(bits));
    }
    return result;
}

inline uint64_t lanes_greater(Vector a, Vector b) {
    uint64_t found = 0;
    for (int i = 0; i < Vector::LANES; ++i) found |= static_cast<uint64_t>(a.lanes[i] > b.lanes[i]) << i;
    return found;
}

inline uint64_t lanes_at_least(Vector a, Vector b) {
    uint64_t found = 0;
    for (int i = 0; i < Vector::LANES; ++i) found |= static_cast<uint64_t>(a.lanes[i] >= b.lanes[i]) << i;
    return found;
}

#undef RAILSEARCH_EACH_LANE

// Add the sum of each of four vectors' lanes to one of four floats.
inline void add_sums_of_4(const Vector* vectors, float* sums) {
    for (int i = 0; i < 4; ++i) {
        const float* own = vectors[i].lanes;
        sums[i] += (own[0] + own[1]) + (own[2] + own[3]);
    }
}

inline float widen_fp16(uint16_t half) {
    uint32_t sign = static_cast<uint32_t>(half & 0x8000u) << 16;
    uint32_t exponent = (half >> 10) & 0x1fu;
    uint32_t fraction = half & 0x3ffu;
    uint32_t bits;
    if (exponent == 0x1fu) {
        bits = sign | 0x7f800000u | (fraction << 13);
    } else if (exponent != 0) {
        bits = sign | ((exponent + 112u) << 23) | (fraction << 13);
    } else {
        float tiny = static_cast<float>(fraction) * 0x1p-24f;  // a subnormal is fraction * 2^-24, exactly
        std::memcpy(&bits, &tiny, sizeof(bits));
        bits |= sign;
    }
    float value;
    std::memcpy(&value, &bits, sizeof(value));
    return value;
}

// Whole numbers, the 4 digits of each row, and 4 digits of a query for all lanes.
struct Whole {
    int32_t lanes[Vector::LANES];
};
struct Bytes {
    uint8_t bytes[4 * Vector::LANES];
};
struct Digits {
    int8_t digits[4];
};

constexpr int MOST_DIGIT = 127;

inline Whole fill_whole(int32_t value) {
    Whole result;
    for (int i = 0; i < Vector::LANES; ++i) result.lanes[i] = value;
    return result;
}
inline void store_whole(int32_t* to, Whole a) { std::memcpy(to, a.lanes, sizeof(a.lanes)); }
inline Bytes load_bytes(const uint8_t* from) {
    Bytes result;
    std::memcpy(result.bytes, from, sizeof(result.bytes));
    return result;
}
inline Digits load_digits(const int8_t* from) {
    Digits result;
    std::memcpy(result.digits, from, sizeof(result.digits));
    return result;
}
// Add the 4 products of each lane to its sum.
inline Whole add_products(Whole sums, Bytes bytes, Digits digits) {
    for (int i = 0; i < Vector::LANES; ++i) {
        for (int j = 0; j < 4; ++j) sums.lanes[i] += bytes.bytes[4 * i + j] * digits.digits[j];
    }
    return sums;
}
inline Vector to_floats(Whole a) {
    Vector result;
    for (int i = 0; i < Vector::LANES; ++i) result.lanes[i] = static_cast<float>(a.lanes[i]);
    return result;
}

// Nothing is transposed in groups here.
inline void transpose_bulk(Number, const void* const*, int64_t, int, float*, int64_t& done) { done = 0; }
inline void transpose_back_bulk(const float*, int, int, int64_t, float*, int64_t& done) { done = 0; }

}  // namespace
}  // namespace railsearch
