#include "layers.h"

#include <algorithm>
#include <cmath>

#include "pool.h"
#include "sharing.h"
#include "tiles.h"

namespace railsearch {

namespace {

constexpr int64_t MOST_ROWS_PER_BLOCK = 64;
constexpr int64_t ROWS_AT_ONCE = 8;  // of `normalize`: their sums do not wait for each other

// x * P(a standard normal number is below x). In fp64, so that the rounding to fp32 does not depend on the library.
float gelu(float x) { return static_cast<float>(0.5 * x * (1.0 + std::erf(x * 0.70710678118654752440))); }

void normalize_rows(float* rows, int64_t count, int64_t dim, float epsilon) {
    double sums[ROWS_AT_ONCE] = {};
    for (int64_t k = 0; k < dim; ++k) {
        for (int64_t row = 0; row < count; ++row) {
            const double value = rows[row * dim + k];
            sums[row] += value * value;  // the square of an fp32 number is exact
        }
    }
    for (int64_t row = 0; row < count; ++row) {
        const float length = std::max(static_cast<float>(std::sqrt(sums[row])), epsilon);
        for (int64_t k = 0; k < dim; ++k) rows[row * dim + k] /= length;
    }
}

}  // namespace

Layer::Layer(const Operations& operations, Activation activation, const float* weight, const float* bias,
             int64_t output_dim, int64_t input_dim)
    : operations_(operations), activation_(activation), output_dim_(output_dim), input_dim_(input_dim) {
    const int64_t width = operations.width, panel_size = width * input_dim;
    panels_.reserve(divided_up(output_dim, width) * panel_size);
    for (int64_t first = 0; first < output_dim; first += width) {
        const void* rows[MOST_ITEMS_PER_PANEL];
        const int lanes = static_cast<int>(std::min(width, output_dim - first));
        for (int lane = 0; lane < lanes; ++lane) rows[lane] = weight + (first + lane) * input_dim;
        operations.pack(Number::fp32, rows, lanes, input_dim, panels_.data() + first / width * panel_size);
    }
    bias_.reserve(output_dim);
    for (int64_t i = 0; i < output_dim; ++i) bias_.data()[i] = bias == nullptr ? 0.0f : bias[i];
}

void Layer::apply(const Context& context, const float* inputs, int64_t count, float* results, int64_t stride) const {
    // A few rows are shared out in smaller blocks, of full tiles.
    const int64_t even = divided_up(count, 2 * context.num_threads * ROWS_PER_TILE) * ROWS_PER_TILE;
    const int64_t rows = std::clamp<int64_t>(even, ROWS_PER_TILE, MOST_ROWS_PER_BLOCK);
    const double work = static_cast<double>(rows * output_dim_) * static_cast<double>(input_dim_);
    const Shares shares(divided_up(count, rows), work, context.num_threads);
    Pool::instance().run(
        shares.num_tasks, shares.num_threads,
        [&](int64_t task, int) {
            const int64_t end = std::min(count, (task + 1) * shares.steps_per_task * rows);
            for (int64_t row = task * shares.steps_per_task * rows; row < end; row += rows) {
                apply_to_block(inputs + row * input_dim_, std::min(rows, end - row), results + row * stride, stride);
            }
        },
        context.poll);
}

void Layer::apply_to_block(const float* inputs, int64_t count, float* results, int64_t stride) const {
    const int64_t width = operations_.width;
    float* tiles = scratch_floats(tiles_size(count, input_dim_) + count * width + count * output_dim_);
    float* sums = tiles + tiles_size(count, input_dim_);  // [count][width]
    float* outputs = sums + count * width;                // (count, output_dim)
    cut_into_tiles(inputs, count, input_dim_, 1.0f, tiles);
    for (int64_t first = 0; first < output_dim_; first += width) {
        operations_.dot(tiles, count, input_dim_, panels_.data() + first * input_dim_, sums);
        const int64_t lanes = std::min(width, output_dim_ - first);
        for (int64_t row = 0; row < count; ++row) {
            float* out = outputs + row * output_dim_ + first;
            for (int64_t lane = 0; lane < lanes; ++lane) out[lane] = sums[row * width + lane] + bias_.data()[first + lane];
        }
    }
    for (int64_t row = 0; row < count; ++row) {
        finish(inputs + row * input_dim_, outputs + row * output_dim_, results + row * stride);
    }
}

void Layer::finish(const float* inputs, const float* outputs, float* results) const {
    const int64_t half = output_dim_ / 2;
    switch (activation_) {
        case Activation::none:
            std::copy(outputs, outputs + output_dim_, results);
            break;
        case Activation::silu:
            operations_.silu(outputs, output_dim_, results);
            break;
        case Activation::swiglu:
            operations_.silu(outputs, half, results);
            for (int64_t i = 0; i < half; ++i) results[i] *= outputs[half + i];
            break;
        case Activation::geglu:
            for (int64_t i = 0; i < half; ++i) results[i] = gelu(outputs[i]) * outputs[half + i];
            break;
        case Activation::residual:
            for (int64_t first = 0; first < output_dim_; first += input_dim_) {
                for (int64_t i = 0; i < input_dim_; ++i) results[first + i] = inputs[i] + outputs[first + i];
            }
            break;
    }
}

void normalize(const Context& context, float* rows, int64_t count, int64_t dim, float epsilon) {
    const Shares shares(divided_up(count, ROWS_AT_ONCE), static_cast<double>(4 * ROWS_AT_ONCE * dim),
                        context.num_threads);
    Pool::instance().run(
        shares.num_tasks, shares.num_threads,
        [&](int64_t task, int) {
            const int64_t per_task = shares.steps_per_task * ROWS_AT_ONCE, end = std::min(count, (task + 1) * per_task);
            for (int64_t row = task * per_task; row < end; row += ROWS_AT_ONCE) {
                normalize_rows(rows + row * dim, std::min(ROWS_AT_ONCE, end - row), dim, epsilon);
            }
        },
        context.poll);
}

}  // namespace railsearch
