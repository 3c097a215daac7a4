// A vector of 16 floats with AVX-512 F, BW, DQ and VL.
#pragma once

#include <immintrin.h>

#include <cstdint>
#include <cstring>

namespace railsearch {
namespace {

struct Vector {
    static constexpr int LANES = 16;
    __m512 lanes;
};

inline Vector load(const float* from) { return {_mm512_loadu_ps(from)}; }
inline void store(float* to, Vector a) { _mm512_storeu_ps(to, a.lanes); }
inline Vector fill(float value) { return {_mm512_set1_ps(value)}; }
inline __mmask16 first_lanes(int64_t count) { return static_cast<__mmask16>((1u << count) - 1u); }
inline Vector load_first(const float* from, int64_t count) { return {_mm512_maskz_loadu_ps(first_lanes(count), from)}; }
inline void store_first(float* to, Vector a, int64_t count) { _mm512_mask_storeu_ps(to, first_lanes(count), a.lanes); }
inline float sum_of_lanes(Vector a) { return _mm512_reduce_add_ps(a.lanes); }
inline Vector inverse(Vector a) {  // a division takes twice as long
    const __m512 guess = _mm512_rcp14_ps(a.lanes);
    const __m512 lost = _mm512_fnmadd_ps(a.lanes, guess, _mm512_set1_ps(1.0f));
    return {_mm512_fmadd_ps(guess, lost, guess)};
}
inline Vector look_up(const float* table, const uint8_t* places) {
    const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(places));
    return {_mm512_i32gather_ps(_mm512_cvtepu8_epi32(bytes), table, 4)};
}
inline Vector add(Vector a, Vector b) { return {_mm512_add_ps(a.lanes, b.lanes)}; }
inline Vector subtract(Vector a, Vector b) { return {_mm512_sub_ps(a.lanes, b.lanes)}; }
inline Vector multiply(Vector a, Vector b) { return {_mm512_mul_ps(a.lanes, b.lanes)}; }
inline Vector divide(Vector a, Vector b) { return {_mm512_div_ps(a.lanes, b.lanes)}; }
inline Vector fused(Vector a, Vector b, Vector c) { return {_mm512_fmadd_ps(a.lanes, b.lanes, c.lanes)}; }
inline Vector larger(Vector a, Vector b) { return {_mm512_max_ps(a.lanes, b.lanes)}; }
inline Vector smaller(Vector a, Vector b) { return {_mm512_min_ps(a.lanes, b.lanes)}; }
inline Vector choose_at_least(Vector a, Vector b, Vector then, Vector otherwise) {
    return {_mm512_mask_blend_ps(_mm512_cmp_ps_mask(a.lanes, b.lanes, _CMP_GE_OQ), otherwise.lanes, then.lanes)};
}

inline Vector power_of_two(Vector t) {
    __m512i shifted = _mm512_slli_epi32(_mm512_castps_si512(t.lanes), 23);
    return {_mm512_castsi512_ps(_mm512_add_epi32(shifted, _mm512_set1_epi32(127 << 23)))};
}

inline void add_sums_of_4(const Vector* v, float* sums) {
    __m256 h[4];
    for (int i = 0; i < 4; ++i) {
        h[i] = _mm256_add_ps(_mm512_castps512_ps256(v[i].lanes), _mm512_extractf32x8_ps(v[i].lanes, 1));
    }
    const __m256 pairs = _mm256_hadd_ps(_mm256_hadd_ps(h[0], h[1]), _mm256_hadd_ps(h[2], h[3]));
    const __m128 found = _mm_add_ps(_mm256_castps256_ps128(pairs), _mm256_extractf128_ps(pairs, 1));
    _mm_storeu_ps(sums, _mm_add_ps(_mm_loadu_ps(sums), found));
}

inline uint64_t lanes_greater(Vector a, Vector b) { return _mm512_cmp_ps_mask(a.lanes, b.lanes, _CMP_GT_OQ); }
inline uint64_t lanes_at_least(Vector a, Vector b) { return _mm512_cmp_ps_mask(a.lanes, b.lanes, _CMP_GE_OQ); }

// 16 whole numbers, the 4 digits of 16 rows each, and 4 digits of a query for all lanes.
struct Whole {
    __m512i lanes;
};
using Bytes = Whole;
using Digits = Whole;

#ifdef RAILSEARCH_VNNI
constexpr int MOST_DIGIT = 127;
#else
constexpr int MOST_DIGIT = 63;  // 2 products of it with 255 are still a 16-bit number
#endif

inline Whole fill_whole(int32_t value) { return {_mm512_set1_epi32(value)}; }
inline void store_whole(int32_t* to, Whole a) { _mm512_storeu_si512(to, a.lanes); }
inline Bytes load_bytes(const uint8_t* from) { return {_mm512_loadu_si512(from)}; }
inline Digits load_digits(const int8_t* from) {
    int32_t four;
    std::memcpy(&four, from, sizeof(four));
    return {_mm512_set1_epi32(four)};
}
inline Whole add_products(Whole sums, Bytes bytes, Digits digits) {
#ifdef RAILSEARCH_VNNI
    // GCC 12 copies the sums twice in each step if it is given the intrinsic.
    __asm__("vpdpbusd %2, %1, %0" : "+v"(sums.lanes) : "v"(bytes.lanes), "v"(digits.lanes));
    return sums;
#else
    const __m512i pairs = _mm512_maddubs_epi16(bytes.lanes, digits.lanes);
    return {_mm512_add_epi32(sums.lanes, _mm512_madd_epi16(pairs, _mm512_set1_epi16(1)))};
#endif
}
inline Vector to_floats(Whole a) { return {_mm512_cvtepi32_ps(a.lanes)}; }

}  // namespace
}  // namespace railsearch

#include "transpose_avx2.h"
