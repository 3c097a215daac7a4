// Tables and vectors in int8, with proven bounds of their errors.
//
// A row x is kept as digits a from -127 to 127 and a rate r: x = a / r + e. A vector q becomes digits b and a rate w:
// q = b / w + f. Then, times w r,
//
//     <q, x> w r = <b, a> + <w f, a> + <w q, r e>,
//
// and the last two are at most |w f| |a| + |w q| |r e| (Cauchy-Schwarz). The lengths of the errors e and f are computed,
// not estimated, so the bound holds however the digits were rounded. A score in full precision is a sum of d fused
// multiply-adds: it is off from <q, x> by at most gamma |q| |x| + d 2^-149, where gamma = d 2^-24 / (1 - d 2^-24) and
// |x| r <= |a| + |r e|. So, times w r, a score is off from <b, a> by at most
//
//     margin = |w q| (1 + gamma) |r e| + (|w f| + gamma |w q|) |a| + d 2^-149 w r.
//
// All lengths are computed in fp64 and rounded up by a factor of 1 + 2^-20, which is more than any rounding here. A
// margin holds for a panel of rows: with their greatest |r e|, |a| and r.
#pragma once

#include <cmath>
#include <cstdint>
#include <vector>

#include "search.h"

namespace railsearch {

// Longer vectors, and greater numbers, are scanned in full precision: here no sum and no product overflows.
constexpr int64_t MOST_INT8_DIM = 16384;
constexpr float MOST_INT8_VALUE = 0x1p60f;

class Int8Table {
public:
    // Rows (N, dim) in int8; `is_usable` is false if some cannot be.
    Int8Table(const Context& context, const Items& items, int64_t dim);
    Int8Table(const Int8Table&) = delete;
    Int8Table& operator=(const Int8Table&) = delete;

    bool is_usable() const { return is_usable_; }
    int64_t count() const { return count_; }
    int64_t dim() const { return dim_; }
    int64_t num_panels() const { return num_panels_; }
    int64_t num_bytes() const;
    Int8Panel panel(int64_t place) const;

private:
    // Return false if a number is not finite or too great.
    bool fill(const Operations& operations, const Items& items, int64_t place, float* scratch);

    int64_t count_, dim_, steps_, num_panels_;
    bool is_usable_ = true;
    Buffer digits_, rates_, lengths_;
};

// Vectors (count, dim) with digits up to `most_digit`; `is_usable` is false if some cannot be in int8.
class PackedInt8Vectors {
public:
    PackedInt8Vectors(const float* vectors, int64_t count, int64_t dim, int most_digit);

    bool is_usable() const { return is_usable_; }
    // The vectors from `first` on, which begins a tile.
    Int8Vectors block(int64_t first, int64_t count) const;
    float rate(int64_t vector) const { return rates_[static_cast<size_t>(vector)]; }
    float second(int64_t vector) const { return seconds_[static_cast<size_t>(vector)]; }  // 1 / rate

private:
    int64_t steps_;
    float slack_;
    bool is_usable_ = true;
    std::vector<int8_t> tiles_;
    std::vector<int32_t> starts_;
    std::vector<float> rates_, seconds_, by_error_, by_length_, by_rate_;
};

// What is known of a score from the product of the digits.
struct ScoreBounds {
    float low, high;

    // `rate` is that of the row, `second` is 1 / rate of the vector.
    ScoreBounds(int32_t product, float margin, float rate, float second) {
        const float whole = static_cast<float>(product), unit = 1.0f / rate;
        low = (whole - margin) * unit * second;
        high = (whole + margin) * unit * second;
        low -= spare(low);
        high += spare(high);
    }

private:
    // More than the few roundings of such a number.
    static float spare(float value) { return std::fabs(value) * 0x1p-20f + 0x1p-140f; }
};

// For tests: the bounds (count, N) of all scores, and which may be as great as their vector's threshold. Return false if
// some vectors cannot be in int8.
bool bound_int8(const Context&, const float* vectors, int64_t count, const Int8Table& table, const float* thresholds,
                float* low, float* high, bool* is_reached);

// As `scan`, with the same results: a row is read in full precision only if its int8 product may reach the n-th best.
void scan_int8(const Context&, const float* vectors, int64_t num_vectors, int64_t group, const Int8Table& table,
               const Items&, const Filter&, int64_t n, float* out_scores, int64_t* out_rows);

}  // namespace railsearch
