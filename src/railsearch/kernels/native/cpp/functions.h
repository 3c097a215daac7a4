// exp and SiLU: one polynomial, the same bits with every instruction set.
#pragma once

namespace railsearch {
namespace {

// e^x for -87 <= x <= 88, off by at most 1.1 ulp; a smaller x counts as -87 (e^-87 = 1.6e-38), a larger one as 88.
// x = n ln 2 + r with |r| <= ln(2) / 2; e^r is a polynomial of degree 6, off by 5e-9. A NaN stays a NaN.
inline Vector exponential(Vector x) {
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
    y = fused(y, r, fill(1.0f));
    return multiply(y, power_of_two(t));
}

// x / (1 + e^-x).
inline Vector silu(Vector x) {
    const Vector one = fill(1.0f);
    return divide(x, add(one, exponential(subtract(fill(0.0f), x))));
}

}  // namespace
}  // namespace railsearch
