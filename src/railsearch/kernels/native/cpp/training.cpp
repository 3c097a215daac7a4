#include "training.h"

#include <algorithm>
#include <vector>

#include "tiles.h"

namespace railsearch {
namespace {

// The queries are cut into as many tasks on any number of threads, so that sums have one order.
constexpr int64_t MOST_TASKS = 16;

// The gate's weights in tiles, both ways, and the shared item gates in panels.
class Prepared {
public:
    Prepared(const Operations& operations, TrainingStep& step, const GateWeights& weights, bool has_gradient) {
        const int64_t pairs = step.num_pairs, units = step.hidden_dim;
        step.hidden_tiles = cut(weights.hidden_weight, units, pairs, hidden_tiles_);
        step.output_tiles = cut(weights.output_weight, pairs, units, output_tiles_);
        step.hidden_bias = cut(weights.hidden_bias, units, 1, hidden_bias_);
        step.output_bias = cut(weights.output_bias, pairs, 1, output_bias_);
        if (has_gradient) {
            step.hidden_back_tiles = cut_transposed(weights.hidden_weight, units, pairs, hidden_back_tiles_);
            step.output_back_tiles = cut_transposed(weights.output_weight, pairs, units, output_back_tiles_);
        }
        if (step.item_gate == nullptr || step.has_own_items) return;
        item_panels_.reserve(panels_size(step, operations.width));
        std::vector<const void*> rows(operations.width);
        for (int64_t item = 0; item < step.num_items; item += operations.width) {
            const int count = static_cast<int>(std::min<int64_t>(operations.width, step.num_items - item));
            for (int i = 0; i < count; ++i) rows[i] = step.item_gate + (item + i) * pairs;
            operations.pack(Number::fp32, rows.data(), count, pairs, item_panels_.data() + item * pairs);
        }
        step.item_panels = item_panels_.data();
    }

    static int64_t panels_size(const TrainingStep& step, int width) {
        return (step.num_items + width - 1) / width * width * step.num_pairs;
    }

private:
    static const float* cut(const float* rows, int64_t num_rows, int64_t depth, Buffer& tiles) {
        tiles.reserve(tiles_size(num_rows, depth));
        cut_into_tiles(rows, num_rows, depth, 1.0f, tiles.data());
        return tiles.data();
    }

    static const float* cut_transposed(const float* rows, int64_t num_rows, int64_t depth, Buffer& tiles) {
        std::vector<float> turned(num_rows * depth);
        for (int64_t row = 0; row < num_rows; ++row) {
            for (int64_t k = 0; k < depth; ++k) turned[k * num_rows + row] = rows[row * depth + k];
        }
        return cut(turned.data(), depth, num_rows, tiles);
    }

    Buffer hidden_tiles_, output_tiles_, hidden_bias_, output_bias_, hidden_back_tiles_, output_back_tiles_,
        item_panels_;
};

// Call work(task, first query, last query, scratch) for all tasks.
template <typename WorkOnQueries>
void for_each_task(const Context& context, const TrainingStep& step, int64_t num_tasks, const WorkOnQueries& work) {
    const int64_t size = context.operations.training_scratch_size(step);
    const int num_threads = static_cast<int>(std::min<int64_t>(context.num_threads, num_tasks));
    std::vector<Buffer> scratch(std::max(num_threads, 1));
    Pool::instance().run(
        num_tasks, num_threads,
        [&](int64_t task, int slot) {
            scratch[slot].reserve(size);
            work(task, step.num_queries * task / num_tasks, step.num_queries * (task + 1) / num_tasks,
                 scratch[slot].data());
        },
        context.poll);
}

}  // namespace

void mix_in_training(const Context& context, TrainingStep step, const GateWeights& weights, float* mixed) {
    const Prepared prepared(context.operations, step, weights, false);
    const int64_t num_tasks = std::min(MOST_TASKS, step.num_queries);
    for_each_task(context, step, num_tasks, [&](int64_t, int64_t first, int64_t last, float* scratch) {
        context.operations.train_forward(step, first, last, scratch, mixed);
    });
}

void mix_backward(const Context& context, TrainingStep step, const GateWeights& weights, const float* upstream,
                  const MixtureGradient& gradient) {
    const Prepared prepared(context.operations, step, weights, true);
    const int width = context.operations.width;
    const int64_t pairs = step.num_pairs, units = step.hidden_dim, num_tasks = std::min(MOST_TASKS, step.num_queries);
    const int64_t hidden_size = units * (pairs + 1), output_size = pairs * (units + 1);
    const int64_t panels_size = step.item_panels == nullptr ? 0 : Prepared::panels_size(step, width);
    const int64_t size = hidden_size + output_size + panels_size;
    std::vector<float> sums(std::max<int64_t>(num_tasks, 1) * size);
    for_each_task(context, step, num_tasks, [&](int64_t task, int64_t first, int64_t last, float* scratch) {
        float* own = sums.data() + task * size;
        context.operations.train_backward(step, first, last, upstream, scratch, gradient.scores, gradient.query_gate,
                                          gradient.item_gate,
                                          {own, own + hidden_size, own + hidden_size + output_size});
    });
    for (int64_t task = 1; task < num_tasks; ++task) {
        for (int64_t i = 0; i < size; ++i) sums[i] += sums[task * size + i];
    }
    const float* found = sums.data();
    for (int64_t row = 0; row < units; ++row, ++found) {
        for (int64_t k = 0; k < pairs; ++k) gradient.hidden_weight[row * pairs + k] = *found++;
        gradient.hidden_bias[row] = *found;
    }
    for (int64_t row = 0; row < pairs; ++row, ++found) {
        for (int64_t k = 0; k < units; ++k) gradient.output_weight[row * units + k] = *found++;
        gradient.output_bias[row] = *found;
    }
    if (panels_size == 0) return;
    for (int64_t item = 0; item < step.num_items; ++item) {
        const float* panel = found + item / width * width * pairs + item % width;
        for (int64_t p = 0; p < pairs; ++p) gradient.item_gate[item * pairs + p] = panel[p * width];
    }
}

}  // namespace railsearch
