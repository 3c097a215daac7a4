// A small pool of threads that all searches of a process share.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <mutex>

namespace railsearch {

// Work on one task by one of the threads of a job; `slot` tells those threads apart: 0 <= slot < num_threads.
using Work = std::function<void(int64_t task, int slot)>;
// Called now and then in the thread that waits; throws to give up (Ctrl-C).
using Poll = std::function<void()>;

class Pool {
public:
    // The pool of this process. A child process after a fork gets a new one, as threads do not survive a fork.
    static Pool& instance();

    // Call work(task, slot) for all tasks from 0 to count - 1, each thread in ascending order, on up to num_threads
    // threads. The workers serve the oldest job first, and of all callers only one computes at a time beside them, so
    // that many searches at once do not crowd each other out. The first exception is thrown here, when all threads
    // have left the job.
    void run(int64_t count, int num_threads, const Work& work, const Poll& poll);

private:
    struct Job {
        const Work* work;
        int64_t count;
        int most_threads;
        std::atomic<int64_t> next{0};
        int num_threads = 0;  // that have joined
        int num_active = 0;   // that have not left yet
        std::exception_ptr error;
    };

    void ensure_workers(int count);
    void serve();
    // Take part in a job until no task is left.
    void join(Job& job, int slot, const Poll* poll);
    static void do_tasks(Job& job, int slot, const Poll* poll);

    std::mutex mutex_;
    std::condition_variable has_work_;
    std::condition_variable has_changed_;
    std::deque<Job*> jobs_;
    int num_workers_ = 0;
    bool is_caller_computing_ = false;
};

}  // namespace railsearch
