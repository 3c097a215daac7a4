// Many searches at once in one pool, for ThreadSanitizer: no Python and no torch, whose own threads it cannot follow.
// `make sanitize` compiles and runs it.
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <stdexcept>
#include <thread>
#include <vector>

#include "dispatch.h"
#include "int8_table.h"
#include "pool.h"
#include "search.h"
#include "self_check.h"

namespace {

using namespace railsearch;

constexpr int64_t NUM_QUERIES = 9, NUM_ITEMS = 3000, DIM = 16, K = 11;
constexpr int NUM_CALLERS = 6, NUM_ROUNDS = 12;

void check(bool is_right, const char* what) {
    if (is_right) return;
    std::fprintf(stderr, "wrong: %s\n", what);
    std::exit(1);
}

std::vector<float> numbers(size_t count, uint32_t seed) {
    std::vector<float> found(count);
    for (float& value : found) {
        seed = seed * 1664525u + 1013904223u;
        value = static_cast<float>(static_cast<int32_t>(seed)) * 0x1p-31f;
    }
    return found;
}

struct World {
    std::vector<float> queries = numbers(NUM_QUERIES * DIM, 1), rows = numbers(NUM_ITEMS * DIM, 2);
    Form form{Mixture{1, 1, DIM, 1}, 1.0f, false, nullptr, nullptr, nullptr, nullptr};
    Items items = items_of(rows);
    Int8Table int8{{*portable_operations(), 3, [] {}}, items, DIM};

    static Items items_of(const std::vector<float>& rows) {
        Items items;
        items.add({reinterpret_cast<const char*>(rows.data()), DIM * 4, nullptr, 0, NUM_ITEMS});
        return items;
    }

    std::vector<int64_t> best(const Operations& operations, int num_threads, const Poll& poll) const {
        std::vector<float> scores(NUM_QUERIES * K);
        std::vector<int64_t> found(NUM_QUERIES * K);
        const Context context{operations, num_threads, poll};
        top_k(context, form, {queries.data(), nullptr, NUM_QUERIES}, items, Filter(), K, scores.data(), found.data());
        std::vector<int64_t> scanned(NUM_QUERIES * K);
        scan(context, queries.data(), NUM_QUERIES, 1, DIM, items, Filter(), K, scores.data(), scanned.data(), nullptr,
             0);
        check(found == scanned, "a scan and a search by dot product find the same rows");
        scan_int8(context, queries.data(), NUM_QUERIES, 1, int8, items, Filter(), K, scores.data(), scanned.data());
        check(found == scanned, "a scan in int8 finds the same rows");
        return found;
    }
};

// Callers search at the same time with different numbers of threads; the answers never differ.
void search_at_once(const World& world) {
    for (const Operations* operations : usable_operations()) {
        const std::vector<int64_t> right = world.best(*operations, 1, [] {});
        std::vector<std::thread> callers;
        for (int caller = 0; caller < NUM_CALLERS; ++caller) {
            callers.emplace_back([&, caller] {
                for (int round = 0; round < NUM_ROUNDS; ++round) {
                    check(world.best(*operations, 1 + (caller + round) % 4, [] {}) == right, "answers of many threads");
                }
            });
        }
        for (std::thread& caller : callers) caller.join();
    }
}

// Tasks that throw end their own job only.
void throw_at_once() {
    std::atomic<int> num_thrown{0}, num_done{0};
    std::vector<std::thread> callers;
    for (int caller = 0; caller < NUM_CALLERS; ++caller) {
        callers.emplace_back([&, caller] {
            for (int round = 0; round < NUM_ROUNDS; ++round) {
                std::atomic<int64_t> sum{0};
                try {
                    Pool::instance().run(
                        100, 3,
                        [&](int64_t task, int) {
                            if (caller % 2 == 0 && task == 40 + round) throw std::runtime_error("on purpose");
                            sum += task;
                        },
                        [] {});
                    check(sum == 4950, "every task of a job is done once");
                    ++num_done;
                } catch (const std::runtime_error&) {
                    ++num_thrown;
                }
            }
        });
    }
    for (std::thread& caller : callers) caller.join();
    check(num_thrown == NUM_CALLERS / 2 * NUM_ROUNDS, "every job that throws is reported");
    check(num_done == NUM_CALLERS / 2 * NUM_ROUNDS, "the other jobs are complete");
}

// An instruction set with an error in any operation is not used.
void refuse_wrong_operations() {
    for (const Operations* operations : usable_operations()) {
        check(agrees_with_portable(*operations), "every instruction set returns the bits of the portable one");
    }
    static const Operations& right = *portable_operations();
    Operations wrong = right;
    wrong.reach = [](const float*, const float*, int64_t, bool, uint64_t*) { return false; };
    check(!agrees_with_portable(wrong), "a wrong comparison is noticed");
    wrong = right;
    wrong.dot_above = [](const float*, int64_t, int64_t, const float*, const float*, float*, uint64_t*) { return false; };
    check(!agrees_with_portable(wrong), "a wrong scan is noticed");
    wrong = right;
    wrong.reach_int8 = [](const Int8Panel& panel, const Int8Vectors& vectors, const float* levels, int32_t* products,
                          float* margins, uint64_t* lanes) {
        const bool has_any = right.reach_int8(panel, vectors, levels, products, margins, lanes);
        lanes[vectors.count - 1] &= ~(uint64_t{1} << 47);
        return has_any;
    };
    check(!agrees_with_portable(wrong), "a wrong product of int8 is noticed");
    wrong = right;
    wrong.pack = [](Number number, const void* const* rows, int count, int64_t length, float* panel) {
        right.pack(number, rows, count, length, panel);
        if (number == Number::bf16) panel[length * right.width - 1] += 1.0f;
    };
    check(!agrees_with_portable(wrong), "a wrong number format is noticed");
    wrong = right;
    wrong.bound = [](const Mixture& mixture, const QueryBlock& queries, const float* panel, float* scratch, float* scores) {
        const bool is_finite = right.bound(mixture, queries, panel, scratch, scores);
        scores[0] = scores[0] + 0x1p-20f;
        return is_finite;
    };
    check(!agrees_with_portable(wrong), "a wrong bound is noticed");
}

}  // namespace

int main() {
    const World world;
    search_at_once(world);
    throw_at_once();
    refuse_wrong_operations();
    std::puts("the threads agree");
}
