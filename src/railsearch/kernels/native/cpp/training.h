// The mixture of training and its gradient, on several threads. The results do not depend on their number.
#pragma once

#include <cstdint>

#include "operations.h"
#include "search.h"

namespace railsearch {

// The weights of the gate's network on the pair, as torch stores them.
struct GateWeights {
    const float* hidden_weight;  // (H, P)
    const float* hidden_bias;    // (H)
    const float* output_weight;  // (P, H)
    const float* output_bias;    // (P)
};

// Where the gradient goes; every place is overwritten. Those of gates that are missing are null.
struct MixtureGradient {
    float* scores;         // (B, Pq, N, Px)
    float* query_gate;     // (B, P)
    float* item_gate;      // (N, P) or (B, N, P)
    float* hidden_weight;  // (H, P)
    float* hidden_bias;    // (H)
    float* output_weight;  // (P, H)
    float* output_bias;    // (P)
};

// mixed (B, N) = sum_p pi_p l_p; `step` has everything but the tiles and the panels of gates.
void mix_in_training(const Context&, TrainingStep step, const GateWeights&, float* mixed);

// The gradient of <upstream, mixed> for upstream (B, N).
void mix_backward(const Context&, TrainingStep step, const GateWeights&, const float* upstream, const MixtureGradient&);

}  // namespace railsearch
