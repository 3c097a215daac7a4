// Late interaction of a panel: each query component weighs the item components by how well they match it.

namespace railsearch {
namespace {

// What one query component finds in each item: m = sum_j e_j s_j / sum_j e_j with e_j = exp(z_j - max z) and
// z_j = sharpness * s_j + b_j. An absent component has the least z there is, so its weight is at most e^-87; its score is
// 0, so that it adds nothing. If all are absent, they weigh the same. `best` is raised to the scores s_j.
inline void match_component(const Mixture& mixture, float sharpness, const float* gate_panel, const float* products,
                            float* logits, Vector* best, Vector* matches) {
    Vector peaks[VECTORS], totals[VECTORS], sums[VECTORS];
    for (int v = 0; v < VECTORS; ++v) {
        peaks[v] = fill(-__builtin_inff());
        totals[v] = sums[v] = fill(0.0f);
    }
    for (int64_t j = 0; j < mixture.num_item_components; ++j) {
        for (int v = 0; v < VECTORS; ++v) {
            const int64_t at = j * WIDTH + v * LANES;
            const Vector gate = load(gate_panel + at);
            const Vector z = fused(fill(sharpness), load(products + at), gate);
            const Vector own = choose_at_least(fill(mixture.absent_gate), gate, fill(-__FLT_MAX__), z);
            store(logits + at, own);
            peaks[v] = larger(peaks[v], own);
        }
    }
    for (int64_t j = 0; j < mixture.num_item_components; ++j) {
        for (int v = 0; v < VECTORS; ++v) {
            const int64_t at = j * WIDTH + v * LANES;
            const Vector product = load(products + at);
            const Vector weight = exponential(subtract(load(logits + at), peaks[v]));
            totals[v] = add(totals[v], weight);
            sums[v] = fused(weight, product, sums[v]);
            best[v] = larger(best[v], product);
        }
    }
    for (int v = 0; v < VECTORS; ++v) matches[v] = divide(sums[v], totals[v]);
}

// phi = sum_i w_i m_i / sum_i w_i with w_i = exp(c_i - max c), never above the best component score. The gate of the query
// has the logits c, then the sharpness of each component. An absent query component has no weight, unless all are absent.
// Returns 0 if all scores are finite.
inline Vector late_interaction(const Mixture& mixture, const float* query_gate, const float* gate_panel,
                               const float* products, float* logits, float* out) {
    const int64_t count = mixture.num_query_components;
    float peak = -__builtin_inff();
    for (int64_t i = 0; i < count; ++i) peak = query_gate[i] > peak ? query_gate[i] : peak;
    Vector total = fill(0.0f), sums[VECTORS], best[VECTORS];
    for (int v = 0; v < VECTORS; ++v) {
        sums[v] = fill(0.0f);
        best[v] = fill(-__builtin_inff());
    }
    for (int64_t i = 0; i < count; ++i) {
        if (query_gate[i] <= mixture.absent_gate && peak > mixture.absent_gate) continue;
        Vector matches[VECTORS];
        match_component(mixture, query_gate[count + i], gate_panel, products + i * mixture.num_item_components * WIDTH,
                        logits, best, matches);
        const Vector weight = exponential(fill(query_gate[i] - peak));
        total = add(total, weight);
        for (int v = 0; v < VECTORS; ++v) sums[v] = fused(weight, matches[v], sums[v]);
    }
    Vector defects = fill(0.0f);
    for (int v = 0; v < VECTORS; ++v) {
        Vector score = smaller(best[v], divide(sums[v], total));
        score = add(score, fill(0.0f));  // -0 becomes 0, so that equal scores have equal bits
        store(out + v * LANES, score);
        defects = fused(score, fill(0.0f), defects);  // 0 unless a score is infinite or NaN
    }
    return defects;
}

}  // namespace
}  // namespace railsearch
