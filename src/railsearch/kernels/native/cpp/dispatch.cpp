#include "dispatch.h"

namespace railsearch {

#ifndef RAILSEARCH_HAS_AVX2
const Operations* avx2_operations() { return nullptr; }
#endif
#ifndef RAILSEARCH_HAS_VNNI
const Operations* avx512_vnni_operations() { return nullptr; }
#endif
#ifndef RAILSEARCH_HAS_AVX512
const Operations* avx512_operations() { return nullptr; }
#endif

namespace {

bool cpu_has_avx2() {
#ifdef RAILSEARCH_HAS_AVX2
    __builtin_cpu_init();
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c");
#else
    return false;
#endif
}

bool cpu_has_avx512() {
#ifdef RAILSEARCH_HAS_AVX512
    __builtin_cpu_init();
    return cpu_has_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
#else
    return false;
#endif
}

bool cpu_has_vnni() {
#ifdef RAILSEARCH_HAS_VNNI
    return cpu_has_avx512() && __builtin_cpu_supports("avx512vnni");
#else
    return false;
#endif
}

}  // namespace

std::vector<const Operations*> usable_operations() {
    std::vector<const Operations*> found;
    if (cpu_has_vnni()) found.push_back(avx512_vnni_operations());
    if (cpu_has_avx512()) found.push_back(avx512_operations());
    if (cpu_has_avx2()) found.push_back(avx2_operations());
    found.push_back(portable_operations());
    return found;
}

const Operations* find_operations(const std::string& name) {
    for (const Operations* operations : usable_operations()) {
        if (name == operations->name) return operations;
    }
    return nullptr;
}

}  // namespace railsearch
