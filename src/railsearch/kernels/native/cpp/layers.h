// The networks that compute components and gates of queries and items: the same bits for a row in every batch.
#pragma once

#include <cstdint>

#include "operations.h"
#include "search.h"

namespace railsearch {

// What follows the linear map x W^T + b of a layer.
enum class Activation : int {
    none = 0,
    silu = 1,
    swiglu = 2,    // silu(a) * b, where a and b are the two halves of the outputs
    geglu = 3,     // gelu(a) * b
    residual = 4,  // x + y for each part y of the outputs that is as long as x
};

// One layer. Outputs lie in lanes, and each is a sum in ascending order of the inputs, so that the result of a row never
// depends on the other rows of its batch.
class Layer {
public:
    // The weight is (output_dim, input_dim); the bias may be null.
    Layer(const Operations& operations, Activation activation, const float* weight, const float* bias,
          int64_t output_dim, int64_t input_dim);

    // Write (count, num_results) for inputs (count, input_dim); rows of results are `stride` floats apart.
    void apply(const Context& context, const float* inputs, int64_t count, float* results, int64_t stride) const;

private:
    void apply_to_block(const float* inputs, int64_t count, float* results, int64_t stride) const;
    void finish(const float* inputs, const float* outputs, float* results) const;

    const Operations& operations_;
    Activation activation_;
    int64_t output_dim_, input_dim_;
    Buffer panels_;  // the rows of the weight in panels
    Buffer bias_;
};

// Divide each of `count` rows by its length, or by epsilon if that is longer, in place. Lengths are summed in fp64.
void normalize(const Context& context, float* rows, int64_t count, int64_t dim, float epsilon);

}  // namespace railsearch
