#include "dispatch.h"

#include <cstring>

#include "search.h"

namespace railsearch {

#ifndef RAILSEARCH_HAS_AVX2
const Operations* avx2_operations() { return nullptr; }
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

// Numbers from -1 to 1 that are the same everywhere.
std::vector<float> numbers(size_t count, uint32_t seed) {
    std::vector<float> found(count);
    for (float& value : found) {
        seed = seed * 1664525u + 1013904223u;
        value = static_cast<float>(static_cast<int32_t>(seed)) * 0x1p-31f;
    }
    return found;
}

std::vector<float> small_scores(const Operations& operations) {
    constexpr int64_t num_queries = 3, num_items = 101, dim = 21, hidden = 10, pairs = 6;
    Mixture shape;
    shape.num_query_components = 3;
    shape.num_item_components = 2;
    shape.dim = dim;
    shape.num_pairs = pairs;
    shape.hidden_dim = hidden;
    shape.has_query_gate = shape.has_item_gate = shape.has_silu = true;
    const std::vector<float> w1 = numbers(hidden * pairs, 1), b1 = numbers(hidden, 2), w2 = numbers(pairs * hidden, 3),
                             b2 = numbers(pairs, 4), components = numbers(num_queries * 3 * dim, 5),
                             query_gate = numbers(num_queries * pairs, 6), rows = numbers(num_items * 2 * dim, 7),
                             item_gate = numbers(num_items * pairs, 8);
    const Form form(shape, 0.05f, true, w1.data(), b1.data(), w2.data(), b2.data());
    Items items;
    items.add({reinterpret_cast<const char*>(rows.data()), 2 * dim * 4, reinterpret_cast<const char*>(item_gate.data()),
               pairs * 4, num_items});
    std::vector<float> scores(num_queries * num_items);
    const Context context{operations, 1, [] {}};
    score(context, form, {components.data(), query_gate.data(), num_queries}, items, false, scores.data(), num_items);
    return scores;
}

}  // namespace

std::vector<const Operations*> usable_operations() {
    std::vector<const Operations*> found;
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

bool agrees_with_portable(const Operations& operations) {
    const std::vector<float> mine = small_scores(operations), right = small_scores(*portable_operations());
    return std::memcmp(mine.data(), right.data(), right.size() * sizeof(float)) == 0;
}

}  // namespace railsearch
