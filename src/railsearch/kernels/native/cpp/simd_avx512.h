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
inline Vector add(Vector a, Vector b) { return {_mm512_add_ps(a.lanes, b.lanes)}; }
inline Vector subtract(Vector a, Vector b) { return {_mm512_sub_ps(a.lanes, b.lanes)}; }
inline Vector multiply(Vector a, Vector b) { return {_mm512_mul_ps(a.lanes, b.lanes)}; }
inline Vector divide(Vector a, Vector b) { return {_mm512_div_ps(a.lanes, b.lanes)}; }
inline Vector fused(Vector a, Vector b, Vector c) { return {_mm512_fmadd_ps(a.lanes, b.lanes, c.lanes)}; }
inline Vector larger(Vector a, Vector b) { return {_mm512_max_ps(a.lanes, b.lanes)}; }
inline Vector smaller(Vector a, Vector b) { return {_mm512_min_ps(a.lanes, b.lanes)}; }

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

}  // namespace
}  // namespace railsearch

#include "transpose_avx2.h"
