// The arithmetic with the instruction set "portable"; CMakeLists.txt sets the compiler flags.
#include "operations.h"
#include "simd_portable.h"

#include "arithmetic.inl"

namespace railsearch {

const Operations* portable_operations() {
    static constexpr Operations operations = make_operations("portable");
    return &operations;
}

}  // namespace railsearch
