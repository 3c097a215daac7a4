// The gated attention of HSTU on several threads. The results do not depend on their number.
#pragma once

#include <cstdint>
#include <vector>

#include "operations.h"
#include "search.h"

namespace railsearch {

// Histories of a batch and the time buckets of their events, for all blocks of an encoder.
class AttentionPlan {
public:
    // Events of the histories, and their times and times of queries (E); a time difference is in the bucket of the last
    // of the ascending bounds (num_buckets) that it reaches.
    AttentionPlan(const Context&, const int64_t* lengths, int64_t num_histories, const int64_t* times,
                  const int64_t* next_times, const float* bounds, int64_t num_buckets);

    // outputs (E, H * d); `step` has everything but the histories.
    void forward(const Context&, AttentionStep step, float* attended, float* outputs) const;

    // The gradient of <upstream, outputs>: of inputs (E, 4 * H * d), and of biases (num_distances) and (num_buckets).
    void backward(const Context&, AttentionStep step, const float* attended, const float* upstream, float* to_inputs,
                  float* to_distances, int64_t num_distances, float* to_times) const;

private:
    // Call work(task, first history, last history, scratch) for all tasks.
    template <typename WorkOnHistories>
    void for_each_task(const Context&, const AttentionStep&, bool has_gradient, const WorkOnHistories&) const;
    void complete(AttentionStep&) const;

    int64_t num_buckets_;
    int64_t longest_ = 1;
    std::vector<int64_t> starts_, bucket_starts_;
    std::vector<int64_t> cuts_;  // the first history of each task, and their number
    std::vector<uint8_t> buckets_;
};

// results[at] = values[at] / (1 - share) or 0, for `dropped` of 2^16 draws; the seed decides which.
void drop(const Context&, const float* values, int64_t count, uint64_t seed, uint32_t dropped, float* results);

}  // namespace railsearch
