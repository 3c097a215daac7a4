// A scan that reads int8 digits, and full precision only where those cannot decide.
#include <algorithm>
#include <cmath>
#include <memory>
#include <numeric>

#include "int8_scorer.h"
#include "int8_table.h"
#include "sharing.h"
#include "survivors.h"
#include "tiles.h"

namespace railsearch {

namespace {

constexpr int64_t VECTORS_PER_BLOCK = 64;
constexpr int64_t ROWS_PER_RESULT = 16;   // below this, full precision is as fast
constexpr int64_t LEAST_KNOWN = 4096;     // exact scores of a thread before it decides whether int8 pays
constexpr int64_t PAIRS_PER_KNOWN = 16;   // if more than 1 in 16 pairs needs its exact score, int8 does not pay
constexpr int64_t PANELS_PER_SAMPLE = 64;
constexpr int64_t LEAST_GUESSED = 64;     // with fewer results, the first rows give a threshold just as soon

// What one thread knows of every vector.
struct OwnSurvivors {
    OwnSurvivors(int64_t k, const std::vector<float>& thresholds_, const PackedInt8Vectors& packed)
        : thresholds(thresholds_), levels(thresholds_) {
        lists.reserve(thresholds.size());
        for (size_t i = 0; i < thresholds.size(); ++i) {
            lists.emplace_back(k, thresholds[i]);
            levels[i] = thresholds[i] * packed.rate(static_cast<int64_t>(i));
        }
    }
    std::vector<Survivors> lists;
    std::vector<float> thresholds;
    std::vector<float> levels;  // thresholds times the rates of the vectors
    int64_t num_known = 0, num_pairs = 0;
    bool is_plain = false;  // true once int8 has turned out not to pay
};

// The scan of those of a batch of vectors whose numbers are in `chosen`.
class Int8Scan {
public:
    Int8Scan(const Context& context, const Batch& batch, std::vector<int64_t> chosen, const Int8Table& table,
             const Items& items, const Filter& filter)
        : context_(context),
          operations_(context.operations),
          width_(context.operations.width),
          batch_(batch),
          chosen_(std::move(chosen)),
          count_(static_cast<int64_t>(chosen_.size())),
          table_(table),
          items_(items),
          filter_(filter),
          scorer_(operations_, batch, chosen_, items),
          packed_(scorer_.vectors(), count_, batch.dim, operations_.most_digit) {}

    bool is_usable() const { return packed_.is_usable(); }

    // Write the n best rows of each vector. With `guesses`, rows below a guess were not looked at: return the numbers of
    // the vectors that have fewer than n rows above it, for which nothing is written.
    std::vector<int64_t> run(int64_t n, bool guesses, float* out_scores, int64_t* out_rows) {
        const std::vector<float> guessed =
            guesses ? guess(n) : std::vector<float>(static_cast<size_t>(count_), NOTHING);
        const Threads threads = pass(n, 1, below(guessed));
        std::vector<char> is_written(static_cast<size_t>(count_), 0);
        Pool::instance().run(
            count_, count_ * n < 1024 ? 1 : context_.num_threads,
            [&](int64_t i, int) {
                const size_t place = static_cast<size_t>(i);
                const int64_t vector = chosen_[place];
                is_written[place] = write(threads, i, n, guessed[place], out_scores + vector * n, out_rows + vector * n);
            },
            context_.poll);
        std::vector<int64_t> failed;
        for (size_t i = 0; i < chosen_.size(); ++i) {
            if (!is_written[i]) failed.push_back(chosen_[i]);
        }
        return failed;
    }

private:
    using Threads = std::vector<std::unique_ptr<OwnSurvivors>>;

    // A score for each vector that a few more than n rows reach, judged by a sample of panels. With a threshold that
    // rises from nothing, n (1 + log(N / n)) rows would be kept for a while.
    std::vector<float> guess(int64_t n) const {
        const double expected = static_cast<double>(n) / static_cast<double>(PANELS_PER_SAMPLE);
        const int64_t rank = static_cast<int64_t>(expected + 4.0 * std::sqrt(expected)) + 4;
        const Threads threads = pass(rank, PANELS_PER_SAMPLE, std::vector<float>(chosen_.size(), NOTHING));
        std::vector<float> guessed(chosen_.size(), NOTHING);
        for (size_t i = 0; i < guessed.size(); ++i) {
            std::vector<Survivor> found = survivors(threads, i);
            if (static_cast<int64_t>(found.size()) >= rank) guessed[i] = drop_beaten(found, rank);
        }
        return guessed;
    }

    // Thresholds that a score equal to the guess exceeds.
    static std::vector<float> below(std::vector<float> guessed) {
        for (float& each : guessed) each = std::nextafter(each, NOTHING);
        return guessed;
    }

    // Look for the k best rows of each vector in every `stride`-th panel.
    Threads pass(int64_t k, int64_t stride, const std::vector<float>& thresholds) const {
        const int64_t num_panels = divided_up(table_.num_panels(), stride);
        const double work = static_cast<double>((count_ / 4 + 8) * batch_.dim * ROWS_PER_INT8_PANEL);
        const Shares shares(num_panels, work, context_.num_threads);
        Threads threads(static_cast<size_t>(shares.num_threads));
        Pool::instance().run(
            shares.num_tasks, shares.num_threads,
            [&](int64_t task, int slot) {
                auto& own = threads[static_cast<size_t>(slot)];
                if (own == nullptr) own = std::make_unique<OwnSurvivors>(k, thresholds, packed_);
                const int64_t first = task * shares.steps_per_task;
                const int64_t last = std::min(num_panels, first + shares.steps_per_task);
                for (int64_t place = first; place < last; ++place) scan_panel(*own, place * stride);
                own->is_plain = own->num_known > LEAST_KNOWN && own->num_known * PAIRS_PER_KNOWN > own->num_pairs;
            },
            context_.poll);
        return threads;
    }

    void scan_panel(OwnSurvivors& own, int64_t place) const {
        const int64_t row = place * ROWS_PER_INT8_PANEL;
        const int lanes = static_cast<int>(std::min<int64_t>(ROWS_PER_INT8_PANEL, table_.count() - row));
        if (!filter_.allows_any(row, lanes)) return;
        if (own.is_plain) return scan_plainly(own, row, lanes);
        own.num_pairs += count_ * lanes;
        const Int8Panel panel = table_.panel(place);
        const uint64_t are_real = (uint64_t{1} << lanes) - 1;
        int32_t products[VECTORS_PER_BLOCK * ROWS_PER_INT8_PANEL];
        float margins[VECTORS_PER_BLOCK];
        uint64_t masks[VECTORS_PER_BLOCK];
        for (int64_t first = 0; first < count_; first += VECTORS_PER_BLOCK) {
            const Int8Vectors block = packed_.block(first, std::min(VECTORS_PER_BLOCK, count_ - first));
            if (!operations_.reach_int8(panel, block, own.levels.data() + first, products, margins, masks)) continue;
            for (int64_t i = 0; i < block.count; ++i) {
                const uint64_t mask = masks[i] & are_real;
                if (mask != 0) take(own, first + i, panel, products + i * ROWS_PER_INT8_PANEL, margins[i], mask, row);
            }
        }
    }

    // Keep the rows in `mask`, with bounds of their scores.
    void take(OwnSurvivors& own, int64_t i, const Int8Panel& panel, const int32_t* products, float margin,
              uint64_t mask, int64_t row) const {
        const float second = packed_.second(i);
        for (; mask != 0; mask &= mask - 1) {
            const int lane = __builtin_ctzll(mask);
            if (hides(i, row + lane)) continue;
            const ScoreBounds bounds(products[lane], margin, panel.rates[lane], second);
            add(own, i, bounds.low, bounds.high, row + lane);
        }
    }

    // Scan the rows of a panel in full precision.
    void scan_plainly(OwnSurvivors& own, int64_t begin, int count) const {
        Buffer& memory = plain_memory();
        memory.reserve((batch_.dim + VECTORS_PER_BLOCK) * width_);
        float* panel = memory.data();
        float* scores = panel + batch_.dim * width_;
        uint64_t masks[VECTORS_PER_BLOCK];
        for (int64_t row = begin; row < begin + count; row += width_) {
            const int lanes = static_cast<int>(std::min<int64_t>(width_, begin + count - row));
            const uint64_t are_real = (uint64_t{1} << lanes) - 1;
            const void* lines[MOST_ITEMS_PER_PANEL];
            items_.point(row, lanes, lines, nullptr);
            operations_.pack(items_.number, lines, lanes, batch_.dim, panel);
            for (int64_t first = 0; first < count_; first += VECTORS_PER_BLOCK) {
                const int64_t size = std::min(VECTORS_PER_BLOCK, count_ - first);
                operations_.dot(scorer_.tiles() + first * batch_.dim, size, batch_.dim, panel, scores);
                if (!operations_.reach(scores, own.thresholds.data() + first, size, false, masks)) continue;
                for (int64_t i = 0; i < size; ++i) {
                    for (uint64_t mask = masks[i] & are_real; mask != 0; mask &= mask - 1) {
                        const int lane = __builtin_ctzll(mask);
                        const float score = scores[i * width_ + lane];
                        if (!hides(first + i, row + lane)) add(own, first + i, score, score, row + lane);
                    }
                }
            }
        }
    }

    // Not the memory of the scorer, which computes while a panel is in use.
    static Buffer& plain_memory() {
        thread_local Buffer memory;
        return memory;
    }

    bool hides(int64_t i, int64_t row) const {
        return !filter_.is_empty() && filter_.hides(chosen_[static_cast<size_t>(i)] / batch_.group, row);
    }

    void add(OwnSurvivors& own, int64_t i, float low, float high, int64_t row) const {
        const size_t place = static_cast<size_t>(i);
        Survivors& list = own.lists[place];
        if (!list.add(low, high, static_cast<uint32_t>(row))) return;
        own.num_known += list.shrink([&](std::vector<Survivor>& survivors) { scorer_.know(i, survivors); });
        own.thresholds[place] = list.threshold();
        own.levels[place] = list.threshold() * packed_.rate(i);
    }

    static std::vector<Survivor> survivors(const Threads& threads, size_t place) {
        std::vector<Survivor> found;
        for (const auto& own : threads) {
            if (own == nullptr) continue;
            const std::vector<Survivor>& more = own->lists[place].all();
            found.insert(found.end(), more.begin(), more.end());
        }
        return found;
    }

    // Write the n best rows of one vector, best first; return false if a row below the guess may be among them.
    bool write(const Threads& threads, int64_t i, int64_t n, float guessed, float* scores, int64_t* rows) const {
        std::vector<Survivor> found = survivors(threads, static_cast<size_t>(i));
        if (static_cast<int64_t>(found.size()) > n) drop_beaten(found, n);
        scorer_.know(i, found);
        std::vector<uint64_t> keys;
        keys.reserve(found.size());
        for (const Survivor& each : found) keys.push_back(key_of(each.low + 0.0f, each.row));
        keep_best(keys, n);
        const int64_t count = static_cast<int64_t>(keys.size());
        if (guessed > NOTHING && (count < n || score_of(keys.back()) < guessed)) return false;
        for (int64_t place = 0; place < n; ++place) {
            scores[place] = place < count ? score_of(keys[static_cast<size_t>(place)]) : NOTHING;
            rows[place] = place < count ? static_cast<int64_t>(tie_of(keys[static_cast<size_t>(place)])) : -1;
        }
        return true;
    }

    const Context& context_;
    const Operations& operations_;
    const int width_;
    const Batch& batch_;
    const std::vector<int64_t> chosen_;
    const int64_t count_;
    const Int8Table& table_;
    const Items& items_;
    const Filter& filter_;
    const Int8Scorer scorer_;
    const PackedInt8Vectors packed_;
};

}  // namespace

void scan_int8(const Context& context, const float* vectors, int64_t num_vectors, int64_t group,
               const Int8Table& table, const Items& items, const Filter& filter, int64_t n, float* out_scores,
               int64_t* out_rows) {
    const Batch batch{vectors, num_vectors, group, table.dim()};
    std::vector<int64_t> left(static_cast<size_t>(num_vectors));
    std::iota(left.begin(), left.end(), int64_t{0});
    bool pays = table.is_usable() && items.segments.size() == 1 && n > 0 && n * ROWS_PER_RESULT <= table.count();
    for (bool guesses = n >= LEAST_GUESSED; pays && !left.empty(); guesses = false) {
        std::unique_ptr<Int8Scan> scan_of_left;
        Pool::instance().run(  // in the arithmetic that the pool sets
            1, 1,
            [&](int64_t, int) {
                scan_of_left = std::make_unique<Int8Scan>(context, batch, left, table, items, filter);
            },
            context.poll);
        pays = scan_of_left->is_usable();
        if (pays) left = scan_of_left->run(n, guesses, out_scores, out_rows);
    }
    if (!pays) {
        scan(context, vectors, num_vectors, group, table.dim(), items, filter, n, out_scores, out_rows, nullptr, 0);
    }
}

}  // namespace railsearch
