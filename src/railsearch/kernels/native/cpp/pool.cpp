#include "pool.h"

#include <pthread.h>

#include <algorithm>
#include <cfenv>
#include <chrono>
#include <thread>

namespace railsearch {

namespace {

constexpr auto POLL_INTERVAL = std::chrono::milliseconds(50);

std::atomic<Pool*> the_pool{nullptr};

// A pool is never destroyed: its threads may wait in it until the process ends.
void forget_pool() { the_pool.store(new Pool()); }

// Arithmetic as IEEE 754 defines it, whatever this thread was told before (torch.set_flush_denormal).
class PlainArithmetic {
public:
    PlainArithmetic() {
        std::fegetenv(&before_);
        std::fesetenv(FE_DFL_ENV);
    }
    ~PlainArithmetic() { std::fesetenv(&before_); }
    PlainArithmetic(const PlainArithmetic&) = delete;
    PlainArithmetic& operator=(const PlainArithmetic&) = delete;

private:
    std::fenv_t before_;
};

}  // namespace

Pool& Pool::instance() {
    static const bool is_registered = [] {
        the_pool.store(new Pool());
        pthread_atfork(nullptr, nullptr, forget_pool);
        return true;
    }();
    (void)is_registered;
    return *the_pool.load();
}

void Pool::do_tasks(Job& job, int slot, const Poll* poll) {
    const PlainArithmetic plain;
    auto last_poll = std::chrono::steady_clock::now();
    for (int64_t task = job.next++; task < job.count; task = job.next++) {
        (*job.work)(task, slot);
        if (poll != nullptr && std::chrono::steady_clock::now() - last_poll > POLL_INTERVAL) {
            (*poll)();
            last_poll = std::chrono::steady_clock::now();
        }
    }
}

void Pool::join(Job& job, int slot, const Poll* poll) {
    std::exception_ptr error;
    try {
        do_tasks(job, slot, poll);
    } catch (...) {
        error = std::current_exception();
    }
    const std::lock_guard<std::mutex> lock(mutex_);
    if (error != nullptr) {
        job.next = job.count;  // the others finish the task they are at, and no more
        if (job.error == nullptr) job.error = error;
    }
    const auto place = std::find(jobs_.begin(), jobs_.end(), &job);
    if (place != jobs_.end()) jobs_.erase(place);  // nothing is left to take
    --job.num_active;
    has_changed_.notify_all();
}

void Pool::serve() {
    std::unique_lock<std::mutex> lock(mutex_);
    while (true) {
        const auto place = std::find_if(jobs_.begin(), jobs_.end(), [](const Job* job) {
            return job->num_threads < job->most_threads && job->next < job->count;
        });
        if (place == jobs_.end()) {
            has_work_.wait(lock);
            continue;
        }
        Job& job = **place;
        const int slot = job.num_threads++;
        ++job.num_active;
        lock.unlock();
        join(job, slot, nullptr);
        lock.lock();
    }
}

void Pool::ensure_workers(int count) {
    for (; num_workers_ < count; ++num_workers_) {
        std::thread([this] { serve(); }).detach();
    }
}

void Pool::run(int64_t count, int num_threads, const Work& work, const Poll& poll) {
    Job job;
    job.work = &work;
    job.count = count;
    job.most_threads = static_cast<int>(std::min<int64_t>(num_threads, count));
    if (job.most_threads <= 1) {
        do_tasks(job, 0, &poll);
        return;
    }
    std::unique_lock<std::mutex> lock(mutex_);
    ensure_workers(num_threads - 1);
    jobs_.push_back(&job);
    has_work_.notify_all();
    while (job.num_active > 0 || job.next < job.count) {
        if (!is_caller_computing_ && job.num_threads < job.most_threads && job.next < job.count) {
            is_caller_computing_ = true;
            const int slot = job.num_threads++;
            ++job.num_active;
            lock.unlock();
            join(job, slot, &poll);
            lock.lock();
            is_caller_computing_ = false;
            has_changed_.notify_all();
        } else if (has_changed_.wait_for(lock, POLL_INTERVAL) == std::cv_status::timeout) {
            lock.unlock();
            try {
                poll();
                lock.lock();
            } catch (...) {
                lock.lock();
                job.next = job.count;
                if (job.error == nullptr) job.error = std::current_exception();
            }
        }
    }
    const auto place = std::find(jobs_.begin(), jobs_.end(), &job);
    if (place != jobs_.end()) jobs_.erase(place);
    lock.unlock();
    if (job.error != nullptr) std::rethrow_exception(job.error);
}

}  // namespace railsearch
