// The sampled softmax of examples that share their negatives, and its gradient, on several threads. The results do not
// depend on their number.
#pragma once

#include <cstdint>

#include "operations.h"
#include "search.h"

namespace railsearch {

// The sum over examples of weight * (log(e^right + sum over items of e^(<query, item> + offset)) - right). `step` has
// everything but panels and offsets in panels; its gradients are written. `items` are (n, d), `offsets` (n) or null.
double softmax_in_training(const Context&, SoftmaxStep step, const float* items, const float* offsets, float* to_items);

}  // namespace railsearch
