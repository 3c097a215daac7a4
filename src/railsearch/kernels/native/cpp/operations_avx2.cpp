// The arithmetic with the instruction set "avx2"; CMakeLists.txt sets the compiler flags.
#include "operations.h"
#include "simd_avx2.h"

#include "arithmetic.inl"

namespace railsearch {

const Operations* avx2_operations() {
    static constexpr Operations operations = make_operations("avx2");
    return &operations;
}

}  // namespace railsearch
