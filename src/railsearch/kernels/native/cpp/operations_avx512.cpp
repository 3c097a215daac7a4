// The arithmetic with the instruction set "avx512"; CMakeLists.txt sets the compiler flags.
#include "operations.h"
#include "simd_avx512.h"

#include "arithmetic.inl"

namespace railsearch {

const Operations* avx512_operations() {
    static constexpr Operations operations = make_operations("avx512");
    return &operations;
}

}  // namespace railsearch
