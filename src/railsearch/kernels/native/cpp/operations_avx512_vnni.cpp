// The instruction set "avx512_vnni": products of int8 in one instruction; all else is that of "avx512".
#define RAILSEARCH_VNNI

#include "operations.h"
#include "simd_avx512.h"

#include "reach_int8.inl"

namespace railsearch {

const Operations* avx512_vnni_operations() {
    static const Operations operations = [] {
        Operations own = *avx512_operations();
        own.name = "avx512_vnni";
        own.reach_int8 = reach_int8;
        own.most_digit = MOST_DIGIT;
        return own;
    }();
    return &operations;
}

}  // namespace railsearch
