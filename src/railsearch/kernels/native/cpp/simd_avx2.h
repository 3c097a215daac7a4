// A vector of 8 floats with AVX2, FMA and F16C.
#pragma once

#include <immintrin.h>

#include <cstdint>
#include <cstring>

namespace railsearch {
namespace {

struct Vector {
    static constexpr int LANES = 8;
    __m256 lanes;
};

inline Vector load(const float* from) { return {_mm256_loadu_ps(from)}; }
inline void store(float* to, Vector a) { _mm256_storeu_ps(to, a.lanes); }
inline Vector fill(float value) { return {_mm256_set1_ps(value)}; }
inline __m256i first_lanes(int64_t count) {
    return _mm256_cmpgt_epi32(_mm256_set1_epi32(static_cast<int>(count)), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}
inline Vector load_first(const float* from, int64_t count) { return {_mm256_maskload_ps(from, first_lanes(count))}; }
inline void store_first(float* to, Vector a, int64_t count) { _mm256_maskstore_ps(to, first_lanes(count), a.lanes); }
inline float sum_of_lanes(Vector a) {
    const __m128 half = _mm_add_ps(_mm256_castps256_ps128(a.lanes), _mm256_extractf128_ps(a.lanes, 1));
    const __m128 pairs = _mm_add_ps(half, _mm_movehl_ps(half, half));
    return _mm_cvtss_f32(_mm_add_ss(pairs, _mm_movehdup_ps(pairs)));
}
inline Vector inverse(Vector a) { return {_mm256_div_ps(_mm256_set1_ps(1.0f), a.lanes)}; }
inline Vector look_up(const float* table, const uint8_t* places) {
    const __m128i bytes = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(places));
    return {_mm256_i32gather_ps(table, _mm256_cvtepu8_epi32(bytes), 4)};
}
inline Vector add(Vector a, Vector b) { return {_mm256_add_ps(a.lanes, b.lanes)}; }
inline Vector subtract(Vector a, Vector b) { return {_mm256_sub_ps(a.lanes, b.lanes)}; }
inline Vector multiply(Vector a, Vector b) { return {_mm256_mul_ps(a.lanes, b.lanes)}; }
inline Vector divide(Vector a, Vector b) { return {_mm256_div_ps(a.lanes, b.lanes)}; }
inline Vector fused(Vector a, Vector b, Vector c) { return {_mm256_fmadd_ps(a.lanes, b.lanes, c.lanes)}; }
inline Vector larger(Vector a, Vector b) { return {_mm256_max_ps(a.lanes, b.lanes)}; }
inline Vector smaller(Vector a, Vector b) { return {_mm256_min_ps(a.lanes, b.lanes)}; }
inline Vector choose_at_least(Vector a, Vector b, Vector then, Vector otherwise) {
    return {_mm256_blendv_ps(otherwise.lanes, then.lanes, _mm256_cmp_ps(a.lanes, b.lanes, _CMP_GE_OQ))};
}

inline Vector power_of_two(Vector t) {
    __m256i shifted = _mm256_slli_epi32(_mm256_castps_si256(t.lanes), 23);
    return {_mm256_castsi256_ps(_mm256_add_epi32(shifted, _mm256_set1_epi32(127 << 23)))};
}

inline void add_sums_of_4(const Vector* v, float* sums) {
    const __m256 pairs = _mm256_hadd_ps(_mm256_hadd_ps(v[0].lanes, v[1].lanes), _mm256_hadd_ps(v[2].lanes, v[3].lanes));
    const __m128 found = _mm_add_ps(_mm256_castps256_ps128(pairs), _mm256_extractf128_ps(pairs, 1));
    _mm_storeu_ps(sums, _mm_add_ps(_mm_loadu_ps(sums), found));
}

inline uint64_t lanes_greater(Vector a, Vector b) {
    return static_cast<uint32_t>(_mm256_movemask_ps(_mm256_cmp_ps(a.lanes, b.lanes, _CMP_GT_OQ)));
}

inline uint64_t lanes_at_least(Vector a, Vector b) {
    return static_cast<uint32_t>(_mm256_movemask_ps(_mm256_cmp_ps(a.lanes, b.lanes, _CMP_GE_OQ)));
}

// 8 whole numbers, the 4 digits of 8 rows each, and 4 digits of a query for all lanes.
struct Whole {
    __m256i lanes;
};
using Bytes = Whole;
using Digits = Whole;

constexpr int MOST_DIGIT = 63;  // 2 products of it with 255 are still a 16-bit number

inline Whole fill_whole(int32_t value) { return {_mm256_set1_epi32(value)}; }
inline void store_whole(int32_t* to, Whole a) { _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), a.lanes); }
inline Bytes load_bytes(const uint8_t* from) { return {_mm256_loadu_si256(reinterpret_cast<const __m256i*>(from))}; }
inline Digits load_digits(const int8_t* from) {
    int32_t four;
    std::memcpy(&four, from, sizeof(four));
    return {_mm256_set1_epi32(four)};
}
inline Whole add_products(Whole sums, Bytes bytes, Digits digits) {
    const __m256i pairs = _mm256_maddubs_epi16(bytes.lanes, digits.lanes);
    return {_mm256_add_epi32(sums.lanes, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)))};
}
inline Vector to_floats(Whole a) { return {_mm256_cvtepi32_ps(a.lanes)}; }

}  // namespace
}  // namespace railsearch

#include "transpose_avx2.h"
