#include "attention.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "sharing.h"

namespace railsearch {
namespace {

// The histories are cut into as many tasks on any number of threads, so that sums have one order.
constexpr int64_t MOST_TASKS = 32;
constexpr int64_t EVENT_WORK = 64;     // of an event beside its pairs, in pairs
constexpr int64_t VALUES_PER_DROP = 1024 * DROPPED_TOGETHER;  // of one task
constexpr int64_t SPARE_BUCKETS = 64;  // that are read in vain after the last one

int64_t num_pairs(int64_t length) { return length * (length + 1) / 2; }

// A difference as a float, without overflow; its sign does not matter.
float seconds_between(int64_t later, int64_t earlier) {
    const uint64_t difference = static_cast<uint64_t>(later) - static_cast<uint64_t>(earlier);
    return std::fabs(static_cast<float>(static_cast<int64_t>(difference)));
}

// A guess at the bucket from the first bits of a float, which is never too high; the bounds decide.
class Buckets {
public:
    Buckets(const float* bounds, int64_t count) : bounds_(bounds, bounds + count), guesses_(1 << GUESS_BITS) {
        for (uint32_t first = 0; first < guesses_.size(); ++first) {
            const uint32_t bits = first << (32 - GUESS_BITS);
            float least;
            std::memcpy(&least, &bits, sizeof(least));
            guesses_[first] = static_cast<uint8_t>(above(least) - 1);
        }
    }

    uint8_t of(float seconds) const {
        uint32_t bits;
        std::memcpy(&bits, &seconds, sizeof(bits));
        size_t bucket = guesses_[bits >> (32 - GUESS_BITS)];
        while (bucket + 1 < bounds_.size() && seconds >= bounds_[bucket + 1]) ++bucket;
        return static_cast<uint8_t>(bucket);
    }

private:
    static constexpr int GUESS_BITS = 12;  // sign, exponent and 3 bits of the fraction

    int64_t above(float seconds) const {
        return std::max<int64_t>(1, std::upper_bound(bounds_.begin(), bounds_.end(), seconds) - bounds_.begin());
    }

    std::vector<float> bounds_;
    std::vector<uint8_t> guesses_;
};

}  // namespace

AttentionPlan::AttentionPlan(const Context& context, const int64_t* lengths, int64_t num_histories,
                             const int64_t* times, const int64_t* next_times, const float* bounds, int64_t num_buckets)
    : num_buckets_(num_buckets) {
    int64_t num_events = 0, num_all_pairs = 0, work = 0;
    for (int64_t history = 0; history < num_histories; ++history) {
        starts_.push_back(num_events);
        bucket_starts_.push_back(num_all_pairs);
        num_events += lengths[history];
        num_all_pairs += num_pairs(lengths[history]);
        longest_ = std::max(longest_, lengths[history]);
    }
    starts_.push_back(num_events);
    const int64_t all_work = num_all_pairs + EVENT_WORK * num_events;
    for (int64_t history = 0; history < num_histories; ++history) {
        const int64_t num_tasks = static_cast<int64_t>(cuts_.size());
        if (work * MOST_TASKS >= num_tasks * all_work) cuts_.push_back(history);
        work += num_pairs(lengths[history]) + EVENT_WORK * lengths[history];
    }
    cuts_.push_back(num_histories);
    buckets_.resize(num_all_pairs + SPARE_BUCKETS);
    const Buckets buckets(bounds, num_buckets);
    Pool::instance().run(
        static_cast<int64_t>(cuts_.size()) - 1, context.num_threads,
        [&](int64_t task, int) {
            for (int64_t history = cuts_[task]; history < cuts_[task + 1]; ++history) {
                const int64_t start = starts_[history];
                uint8_t* own = buckets_.data() + bucket_starts_[history];
                for (int64_t i = 0; i < lengths[history]; ++i) {
                    for (int64_t j = 0; j <= i; ++j) {
                        *own++ = buckets.of(seconds_between(next_times[start + i], times[start + j]));
                    }
                }
            }
        },
        context.poll);
}

void AttentionPlan::complete(AttentionStep& step) const {
    step.longest = longest_;
    step.starts = starts_.data();
    step.bucket_starts = bucket_starts_.data();
    step.buckets = buckets_.data();
}

template <typename WorkOnHistories>
void AttentionPlan::for_each_task(const Context& context, const AttentionStep& step, bool has_gradient,
                                  const WorkOnHistories& work) const {
    const int64_t size = context.operations.attention_scratch_size(step, has_gradient);
    Pool::instance().run(
        static_cast<int64_t>(cuts_.size()) - 1, context.num_threads,
        [&](int64_t task, int) { work(task, cuts_[task], cuts_[task + 1], scratch_floats(size)); }, context.poll);
}

void AttentionPlan::forward(const Context& context, AttentionStep step, float* attended, float* outputs) const {
    complete(step);
    for_each_task(context, step, false, [&](int64_t, int64_t first, int64_t last, float* scratch) {
        context.operations.attend_forward(step, first, last, scratch, attended, outputs);
    });
}

void AttentionPlan::backward(const Context& context, AttentionStep step, const float* attended, const float* upstream,
                             float* to_inputs, float* to_distances, int64_t num_distances, float* to_times) const {
    complete(step);
    const int64_t size = longest_ + MOST_TIME_BUCKETS;
    const int64_t num_tasks = static_cast<int64_t>(cuts_.size()) - 1;
    std::vector<double> sums(num_tasks * size);
    for_each_task(context, step, true, [&](int64_t task, int64_t first, int64_t last, float* scratch) {
        double* own = sums.data() + task * size;
        context.operations.attend_backward(step, first, last, scratch, attended, upstream, to_inputs, own,
                                           own + longest_);
    });
    for (int64_t task = 1; task < num_tasks; ++task) {
        for (int64_t i = 0; i < size; ++i) sums[i] += sums[task * size + i];
    }
    for (int64_t i = 0; i < num_distances; ++i) to_distances[i] = i < longest_ ? static_cast<float>(sums[i]) : 0.0f;
    for (int64_t i = 0; i < num_buckets_; ++i) to_times[i] = static_cast<float>(sums[longest_ + i]);
}

void drop(const Context& context, const float* values, int64_t count, uint64_t seed, uint32_t dropped, float* results) {
    const int64_t per_task = VALUES_PER_DROP;
    const int64_t num_tasks = divided_up(count, per_task);
    Pool::instance().run(
        num_tasks, num_tasks == 1 ? 1 : context.num_threads,
        [&](int64_t task, int) {
            context.operations.drop(values, task * per_task, std::min(count, (task + 1) * per_task), seed, dropped,
                                    results);
        },
        context.poll);
}

}  // namespace railsearch
