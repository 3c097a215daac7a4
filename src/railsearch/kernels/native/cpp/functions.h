// exp and SiLU: one polynomial, the same bits with every instruction set.
#pragma once

namespace railsearch {
namespace {

// e^x = 2^n (1 + r y), where x = n ln 2 + r and |r| <= ln(2) / 2; 1 + r y is a polynomial of degree 6, off by 5e-9. An x
// below -87 counts as -87 (e^-87 = 1.6e-38), one above 88 as 88. A NaN stays a NaN.
struct Exponent {
    Vector power;  // 2^n
    Vector r;
    Vector y;
};

inline Exponent split_exponent(Vector x) {
    const Vector shift = fill(0x1.8p23f);  // adding it rounds to a whole number
    x = smaller(fill(88.0f), larger(fill(-87.0f), x));
    const Vector t = fused(x, fill(0x1.715476p0f), shift);  // 1 / ln 2
    const Vector n = subtract(t, shift);
    Vector r = fused(n, fill(-0x1.62e400p-1f), x);  // ln 2 in two parts; n times the first is exact
    r = fused(n, fill(-0x1.7f7d1cp-20f), r);
    Vector y = fused(fill(0x1.6a2254p-10f), r, fill(0x1.123b02p-7f));
    y = fused(y, r, fill(0x1.5558f8p-5f));
    y = fused(y, r, fill(0x1.555490p-3f));
    y = fused(y, r, fill(0x1.fffffcp-2f));
    y = fused(y, r, fill(1.0f));
    return {power_of_two(t), r, y};
}

// e^x for -87 <= x <= 88, off by at most 1.1 ulp.
inline Vector exponential(Vector x) {
    const Exponent e = split_exponent(x);
    return multiply(fused(e.y, e.r, fill(1.0f)), e.power);
}

// x / (1 + e^-x) for finite x >= -87, off by at most 2 ulp. With e^-x = 2^n (1 + r y), the divisor is (1 + 2^n) + 2^n r y,
// where 1 + 2^n is exact wherever the 1 matters. What rounding took from the divisor comes back at the end.
inline Vector silu(Vector x) {
    const Exponent e = split_exponent(subtract(fill(0.0f), x));
    const Vector start = add(fill(1.0f), e.power), scaled = multiply(e.y, e.power);
    const Vector divisor = fused(scaled, e.r, start);
    const Vector lost = fused(scaled, e.r, subtract(start, divisor));
    const Vector inverse = divide(fill(1.0f), divisor);
    const Vector guess = multiply(x, inverse), minus = subtract(fill(0.0f), guess);
    return fused(fused(minus, lost, fused(minus, divisor, x)), inverse, guess);
}

}  // namespace
}  // namespace railsearch
