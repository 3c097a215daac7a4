#include "self_check.h"

#include <cstring>
#include <vector>

#include "int8_table.h"
#include "layers.h"
#include "search.h"

namespace railsearch {

namespace {

constexpr int64_t NUM_QUERIES = 5, NUM_QUERY_COMPONENTS = 3, NUM_ITEM_COMPONENTS = 2, PAIRS = 6, HIDDEN = 10;
constexpr int64_t NUM_ITEMS = 113, FIRST_SEGMENT = 50, K = 7;  // several panels of any width, the last one not full
constexpr uint16_t LARGEST_FRACTION = 0x3ff;
constexpr int LEAST_MOST_DIGIT = 63;  // of all instruction sets

// Numbers from -1 to 1 that are the same everywhere.
class Draws {
public:
    explicit Draws(uint32_t seed) : state_(seed) {}

    uint32_t next() { return state_ = state_ * 1664525u + 1013904223u; }

    std::vector<float> floats(int64_t count) {
        std::vector<float> found(static_cast<size_t>(count));
        for (float& value : found) value = static_cast<float>(static_cast<int32_t>(next())) * 0x1p-31f;
        return found;
    }

    // Numbers of any format: fp16 from 2^-14 to 2, bf16 from 2^-8 to 2, and some zeros and subnormals.
    std::vector<char> bytes(Number number, int64_t count) {
        if (number == Number::fp32) {
            const std::vector<float> values = floats(count);
            std::vector<char> found(values.size() * sizeof(float));
            std::memcpy(found.data(), values.data(), found.size());
            return found;
        }
        std::vector<char> found(static_cast<size_t>(count) * sizeof(uint16_t));
        for (int64_t i = 0; i < count; ++i) {
            const uint32_t draw = next() >> 8;
            const uint16_t sign = static_cast<uint16_t>((draw & 1) << 15);
            const uint32_t exponent = number == Number::fp16 ? 1 + (draw >> 1) % 15 : 119 + (draw >> 1) % 9;
            const uint32_t fraction = (draw >> 6) & (number == Number::fp16 ? LARGEST_FRACTION : 0x7f);
            uint32_t value = exponent << (number == Number::fp16 ? 10 : 7) | fraction;
            if (i % 17 == 0) value = fraction;  // subnormal
            if (i % 29 == 0) value = 0;
            const uint16_t bits = static_cast<uint16_t>(sign | value);
            std::memcpy(found.data() + i * 2, &bits, sizeof(bits));
        }
        return found;
    }

private:
    uint32_t state_;
};

template <typename T>
void append(std::vector<char>& to, const std::vector<T>& values) {
    const char* from = reinterpret_cast<const char*>(values.data());
    to.insert(to.end(), from, from + values.size() * sizeof(T));
}

// How component scores are mixed: with which activation of the gate, or by late interaction.
enum class Mixing { identity, silu, late_interaction };

// What every operation returns for a mixture of vectors of this size, in items of this format.
std::vector<char> results(const Operations& operations, Number number, int64_t dim, Mixing mixing) {
    Draws draws(static_cast<uint32_t>(dim) * 3 + static_cast<uint32_t>(number));
    Mixture shape;
    shape.num_query_components = NUM_QUERY_COMPONENTS;
    shape.num_item_components = NUM_ITEM_COMPONENTS;
    shape.dim = dim;
    shape.num_pairs = PAIRS;
    shape.hidden_dim = mixing == Mixing::late_interaction ? 0 : HIDDEN;
    shape.has_query_gate = shape.has_item_gate = true;
    shape.has_silu = mixing == Mixing::silu;
    shape.is_late_interaction = mixing == Mixing::late_interaction;
    shape.absent_gate = -0.75f;  // some components are absent
    const std::vector<float> w1 = draws.floats(HIDDEN * PAIRS), b1 = draws.floats(HIDDEN),
                             w2 = draws.floats(PAIRS * HIDDEN), b2 = draws.floats(PAIRS),
                             components = draws.floats(NUM_QUERIES * NUM_QUERY_COMPONENTS * dim),
                             query_gate = draws.floats(NUM_QUERIES * query_gate_size(shape));
    const std::vector<char> rows = draws.bytes(number, NUM_ITEMS * NUM_ITEM_COMPONENTS * dim),
                            item_gate = draws.bytes(number, NUM_ITEMS * item_gate_size(shape));
    const Form form(shape, 0.05f, true, w1.data(), b1.data(), w2.data(), b2.data());
    const Queries queries{components.data(), query_gate.data(), NUM_QUERIES};
    const int64_t size = number == Number::fp32 ? 4 : 2;
    const int64_t stride = NUM_ITEM_COMPONENTS * dim * size, gate_stride = item_gate_size(shape) * size;
    Items items, table;
    items.number = table.number = number;
    items.add({rows.data(), stride, item_gate.data(), gate_stride, FIRST_SEGMENT});
    items.add({rows.data() + FIRST_SEGMENT * stride, stride, item_gate.data() + FIRST_SEGMENT * gate_stride, gate_stride,
               NUM_ITEMS - FIRST_SEGMENT});
    table.add({rows.data(), stride, nullptr, 0, NUM_ITEMS});  // of the first component
    std::vector<char> is_allowed(NUM_ITEMS, 1);
    for (size_t row = 3; row < is_allowed.size(); row += 5) is_allowed[row] = 0;
    const std::vector<int64_t> hidden_from{0, 2, 2}, hidden_rows{4, 1, 100};
    const Filter filter(reinterpret_cast<const bool*>(is_allowed.data()), hidden_from.data(), hidden_rows.data(), 3,
                        NUM_QUERIES);
    const Context context{operations, 1, [] {}};

    std::vector<char> found;
    std::vector<float> all(NUM_QUERIES * NUM_ITEMS);
    for (const bool is_bound : {false, true}) {
        score(context, form, queries, items, is_bound, all.data(), NUM_ITEMS);
        append(found, all);
    }
    std::vector<float> best(NUM_QUERIES * K);
    std::vector<int64_t> best_rows(NUM_QUERIES * K);
    top_k(context, form, queries, items, filter, K, best.data(), best_rows.data());
    append(found, best);
    append(found, best_rows);
    score_candidates(context, form, queries, items, best_rows.data(), K, best.data());
    append(found, best);
    std::vector<float> thresholds(NUM_QUERIES), skipped(NUM_QUERIES);
    for (size_t q = 0; q < thresholds.size(); ++q) thresholds[q] = static_cast<float>(q);
    std::vector<int64_t> num_scored(NUM_QUERIES);
    top_k_above(context, form, queries, items, filter, K, thresholds.data(),
                {best.data(), best_rows.data(), num_scored.data(), skipped.data()});
    append(found, best);
    append(found, best_rows);
    append(found, num_scored);
    append(found, skipped);
    std::vector<float> by_pair(NUM_QUERIES * PAIRS * K);
    std::vector<int64_t> pair_rows(NUM_QUERIES * PAIRS * K);
    best_by_component(context, form, queries, items, filter, K, K,
                      {by_pair.data(), pair_rows.data(), best.data(), best_rows.data()});
    append(found, by_pair);
    append(found, pair_rows);
    append(found, best);
    append(found, best_rows);
    const int64_t num_vectors = NUM_QUERIES * NUM_QUERY_COMPONENTS;
    std::vector<float> nearest(static_cast<size_t>(num_vectors * K));
    std::vector<int64_t> nearest_rows(static_cast<size_t>(num_vectors * K));
    for (float* bounds : {static_cast<float*>(nullptr), all.data()}) {
        scan(context, components.data(), num_vectors, NUM_QUERY_COMPONENTS, dim, table, filter, K, nearest.data(),
             nearest_rows.data(), bounds, NUM_ITEMS);
        append(found, nearest);
        append(found, nearest_rows);
    }
    append(found, all);
    for (const Activation activation : {Activation::none, Activation::silu, Activation::swiglu, Activation::geglu}) {
        const Layer layer(operations, activation, components.data(), b1.data(), HIDDEN, dim);
        std::vector<float> outputs(static_cast<size_t>(NUM_QUERIES * HIDDEN));
        layer.apply(context, components.data(), NUM_QUERIES, outputs.data(), HIDDEN);
        append(found, outputs);
    }
    return found;
}

// What the operation on int8 returns: exact products of digits that every instruction set can multiply, and the lanes
// that reach some levels.
std::vector<char> int8_results(const Operations& operations, int64_t dim) {
    constexpr int64_t NUM_VECTORS = 7;
    Draws draws(static_cast<uint32_t>(dim));
    const std::vector<float> rows = draws.floats(NUM_ITEMS * dim), vectors = draws.floats(NUM_VECTORS * dim);
    Items items;
    items.add({reinterpret_cast<const char*>(rows.data()), dim * 4, nullptr, 0, NUM_ITEMS});
    const Int8Table table({operations, 1, [] {}}, items, dim);
    const PackedInt8Vectors packed(vectors.data(), NUM_VECTORS, dim, LEAST_MOST_DIGIT);
    std::vector<char> found;
    for (const float threshold : {-1e9f, 0.5f, 1e9f}) {
        for (int64_t place = 0; place < table.num_panels(); ++place) {
            const Int8Vectors block = packed.block(0, NUM_VECTORS);
            std::vector<float> levels(NUM_VECTORS), margins(NUM_VECTORS);
            for (int64_t i = 0; i < NUM_VECTORS; ++i) levels[static_cast<size_t>(i)] = threshold * packed.rate(i);
            std::vector<int32_t> products(NUM_VECTORS * ROWS_PER_INT8_PANEL, 0);
            std::vector<uint64_t> lanes(NUM_VECTORS, 0);
            const Int8Panel panel = table.panel(place);
            const bool has_any = operations.reach_int8(panel, block, levels.data(), products.data(), margins.data(),
                                                       lanes.data());
            found.push_back(static_cast<char>(has_any));
            if (threshold < 0.0f) append(found, products);  // all are written
            append(found, margins);
            append(found, lanes);
        }
    }
    return found;
}

}  // namespace

bool agrees_with_portable(const Operations& operations) {
    for (const Number number : {Number::fp32, Number::fp16, Number::bf16}) {
        for (const int64_t dim : {13, 32}) {
            if (int8_results(operations, dim) != int8_results(*portable_operations(), dim)) return false;
            for (const Mixing mixing : {dim == 13 ? Mixing::silu : Mixing::identity, Mixing::late_interaction}) {
                if (results(operations, number, dim, mixing) != results(*portable_operations(), number, dim, mixing)) {
                    return false;
                }
            }
        }
    }
    return true;
}

}  // namespace railsearch
