// Rows into panels, 8 rows by 8 values at a time; AVX-512 uses it too.
#pragma once

namespace railsearch {
namespace {

inline float widen_fp16(uint16_t half) { return _cvtsh_ss(half); }

inline __m256 load_8(Number number, const void* row, int64_t at) {
    if (number == Number::fp32) return _mm256_loadu_ps(static_cast<const float*>(row) + at);
    const __m128i bits =
        _mm_loadu_si128(reinterpret_cast<const __m128i*>(static_cast<const uint16_t*>(row) + at));
    if (number == Number::fp16) return _mm256_cvtph_ps(bits);
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(bits), 16));
}

inline void transpose_8x8(__m256* r) {
    const __m256 t0 = _mm256_unpacklo_ps(r[0], r[1]), t1 = _mm256_unpackhi_ps(r[0], r[1]);
    const __m256 t2 = _mm256_unpacklo_ps(r[2], r[3]), t3 = _mm256_unpackhi_ps(r[2], r[3]);
    const __m256 t4 = _mm256_unpacklo_ps(r[4], r[5]), t5 = _mm256_unpackhi_ps(r[4], r[5]);
    const __m256 t6 = _mm256_unpacklo_ps(r[6], r[7]), t7 = _mm256_unpackhi_ps(r[6], r[7]);
    const __m256 u0 = _mm256_shuffle_ps(t0, t2, 0x44), u1 = _mm256_shuffle_ps(t0, t2, 0xee);
    const __m256 u2 = _mm256_shuffle_ps(t1, t3, 0x44), u3 = _mm256_shuffle_ps(t1, t3, 0xee);
    const __m256 u4 = _mm256_shuffle_ps(t4, t6, 0x44), u5 = _mm256_shuffle_ps(t4, t6, 0xee);
    const __m256 u6 = _mm256_shuffle_ps(t5, t7, 0x44), u7 = _mm256_shuffle_ps(t5, t7, 0xee);
    r[0] = _mm256_permute2f128_ps(u0, u4, 0x20);
    r[1] = _mm256_permute2f128_ps(u1, u5, 0x20);
    r[2] = _mm256_permute2f128_ps(u2, u6, 0x20);
    r[3] = _mm256_permute2f128_ps(u3, u7, 0x20);
    r[4] = _mm256_permute2f128_ps(u0, u4, 0x31);
    r[5] = _mm256_permute2f128_ps(u1, u5, 0x31);
    r[6] = _mm256_permute2f128_ps(u2, u6, 0x31);
    r[7] = _mm256_permute2f128_ps(u3, u7, 0x31);
}

template <Number NUMBER>
inline void transpose_as(const void* const* rows, int64_t length, int width, float* panel) {
    // 8 rows from end to end: rows that are a multiple of 2 KiB apart share few places of L1, which 8 of them do not
    // exceed.
    for (int lane = 0; lane < width; lane += 8) {
        for (int64_t at = 0; at + 8 <= length; at += 8) {
            __m256 block[8];
            for (int i = 0; i < 8; ++i) block[i] = load_8(NUMBER, rows[lane + i], at);
            transpose_8x8(block);
            for (int i = 0; i < 8; ++i) _mm256_storeu_ps(panel + (at + i) * width + lane, block[i]);
        }
    }
}

// Transpose as many values of each row as come in groups of 8, and say how many they are.
inline void transpose_bulk(Number number, const void* const* rows, int64_t length, int width, float* panel,
                           int64_t& done) {
    if (number == Number::fp32) {
        transpose_as<Number::fp32>(rows, length, width, panel);
    } else if (number == Number::fp16) {
        transpose_as<Number::fp16>(rows, length, width, panel);
    } else {
        transpose_as<Number::bf16>(rows, length, width, panel);
    }
    done = length / 8 * 8;
}

// The way back: as many values and rows of a panel as come in groups of 8, into contiguous rows. Rows in full groups of
// 8 only; `done` counts values.
inline void transpose_back_bulk(const float* panel, int width, int count, int64_t length, float* rows, int64_t& done) {
    for (int64_t at = 0; at + 8 <= length; at += 8) {
        for (int lane = 0; lane < count; lane += 8) {
            __m256 block[8];
            for (int i = 0; i < 8; ++i) block[i] = _mm256_loadu_ps(panel + (at + i) * width + lane);
            transpose_8x8(block);
            const int own = count - lane < 8 ? count - lane : 8;
            for (int i = 0; i < own; ++i) _mm256_storeu_ps(rows + (lane + i) * length + at, block[i]);
        }
    }
    done = length / 8 * 8;
}

}  // namespace
}  // namespace railsearch
