// How the work of a search is shared out among threads, and the scratch memory of each.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>

#include "search.h"

namespace railsearch {

constexpr double WORK_PER_TASK = 1e6;              // multiply-adds: some 20 us
constexpr double LEAST_SHARED_WORK = 4e6;          // less than this is done sooner than a thread is woken
constexpr float NOTHING = -std::numeric_limits<float>::infinity();

// Scratch of a thread, kept for the next search: memory that is new costs a page fault for each 4 KiB.
inline float* scratch_floats(int64_t count) {
    thread_local Buffer buffer;
    buffer.reserve(count);
    return buffer.data();
}

inline int64_t divided_up(int64_t count, int64_t size) { return (count + size - 1) / size; }

// How `count` equal steps are shared out: as tasks that are worth handing over, several for each thread.
struct Shares {
    int64_t steps_per_task;
    int64_t num_tasks;
    int num_threads;

    Shares(int64_t count, double work_per_step, int most_threads) {
        num_threads = static_cast<double>(count) * work_per_step < LEAST_SHARED_WORK ? 1 : most_threads;
        steps_per_task = std::max<int64_t>(1, static_cast<int64_t>(WORK_PER_TASK / std::max(1.0, work_per_step)));
        num_tasks = divided_up(count, steps_per_task);
    }
};

}  // namespace railsearch
