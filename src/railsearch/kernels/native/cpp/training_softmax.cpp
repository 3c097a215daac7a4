#include "training_softmax.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

namespace railsearch {
namespace {

// The queries are cut into as many tasks on any number of threads, so that sums have one order.
constexpr int64_t MOST_TASKS = 16, LEAST_TASKS = 4;
constexpr int64_t MOST_SUMS = int64_t{1} << 23;  // floats of all tasks' gradients of items: 32 MiB
constexpr int64_t ROWS_PER_PANEL_STEP = 3;       // rows of a panel that products are summed for at once
constexpr int64_t QUERIES_PER_BLOCK = 16;

}  // namespace

double softmax_in_training(const Context& context, SoftmaxStep step, const float* items, const float* offsets,
                           float* to_items) {
    const Operations& operations = context.operations;
    const int64_t width = operations.width, dim = step.dim, num_items = step.num_items;
    const int64_t num_panels = (num_items + width - 1) / width;
    step.panel_rows = (dim + ROWS_PER_PANEL_STEP - 1) / ROWS_PER_PANEL_STEP * ROWS_PER_PANEL_STEP;
    const int64_t panel_size = step.panel_rows * width;
    Buffer panels(num_panels * panel_size);
    std::fill_n(panels.data(), num_panels * panel_size, 0.0f);
    std::vector<float> padded(num_panels * width, -std::numeric_limits<float>::infinity());
    std::vector<const void*> rows(width);
    for (int64_t panel = 0; panel < num_panels; ++panel) {
        const int count = static_cast<int>(std::min(width, num_items - panel * width));
        for (int i = 0; i < count; ++i) rows[i] = items + (panel * width + i) * dim;
        operations.pack(Number::fp32, rows.data(), count, dim, panels.data() + panel * panel_size);
        for (int64_t i = panel * width; i < panel * width + count; ++i) {
            padded[i] = offsets == nullptr ? 0.0f : offsets[i];
        }
    }
    std::vector<float> peaks(step.num_queries), totals(step.num_queries);
    step.panels = panels.data();
    step.offsets = padded.data();
    step.peaks = peaks.data();
    step.totals = totals.data();

    const int64_t sums_size = num_panels * dim * width;
    const int64_t num_blocks = (step.num_queries + QUERIES_PER_BLOCK - 1) / QUERIES_PER_BLOCK;
    const int64_t num_tasks = std::min(
        num_blocks, std::clamp(MOST_SUMS / std::max<int64_t>(sums_size, 1), LEAST_TASKS, MOST_TASKS));
    const int num_threads = static_cast<int>(std::clamp<int64_t>(context.num_threads, 1, std::max<int64_t>(num_tasks, 1)));
    std::vector<Buffer> scratch(num_threads);
    std::vector<float> sums(std::max<int64_t>(num_tasks, 1) * sums_size);
    Pool::instance().run(
        num_tasks, num_threads,
        [&](int64_t task, int slot) {
            scratch[slot].reserve(operations.softmax_scratch_size(step));
            const int64_t first = num_blocks * task / num_tasks * QUERIES_PER_BLOCK;
            const int64_t last = std::min(step.num_queries, num_blocks * (task + 1) / num_tasks * QUERIES_PER_BLOCK);
            operations.softmax_backward(step, first, last, scratch[slot].data(), sums.data() + task * sums_size);
        },
        context.poll);
    Pool::instance().run(
        num_panels, num_threads,
        [&](int64_t panel, int) {
            float* own = sums.data() + panel * dim * width;
            for (int64_t task = 1; task < num_tasks; ++task) {
                const float* other = own + task * sums_size;
                for (int64_t i = 0; i < dim * width; ++i) own[i] += other[i];
            }
            const int64_t count = std::min(width, num_items - panel * width);
            for (int64_t i = 0; i < count; ++i) {
                for (int64_t k = 0; k < dim; ++k) to_items[(panel * width + i) * dim + k] = own[k * width + i];
            }
        },
        context.poll);
    double loss = 0.0;
    for (int64_t i = 0; i < step.num_queries; ++i) {
        loss += std::log(static_cast<double>(totals[i])) + static_cast<double>(peaks[i]) -
                static_cast<double>(step.rights[i]);
    }
    return loss * static_cast<double>(step.weight);
}

}  // namespace railsearch
