#include "int8_table.h"

#include <algorithm>
#include <atomic>
#include <cmath>

#include "sharing.h"

namespace railsearch {

namespace {

constexpr int DIGITS_PER_STEP = 4;
constexpr int MOST_ROW_DIGIT = 127;
constexpr double UP = 1.0 + 0x1p-20;
constexpr double ROUNDOFF_OF_LENGTHS = 0x1p-40;
constexpr float MOST_RATE = 0x1p100f;
constexpr int LENGTHS_PER_PANEL = 3;
constexpr double PANELS_PER_TASK_WORK = 8.0;  // operations for each value

// The rate that brings the greatest value to the greatest digit; a smaller value could overflow the rate.
float rate_of(float greatest, int most_digit) {
    const float most = static_cast<float>(most_digit);
    return greatest < most / MOST_RATE ? MOST_RATE : most / greatest;
}

// The nearest whole number; adding 1.5 * 2^23 leaves no bits for a fraction.
float rounded(float value) { return (value + 0x1.8p23f) - 0x1.8p23f; }

}  // namespace

Int8Table::Int8Table(const Context& context, const Items& items, int64_t dim)
    : count_(items.count()),
      dim_(dim),
      steps_(divided_up(dim, DIGITS_PER_STEP)),
      num_panels_(divided_up(count_, ROWS_PER_INT8_PANEL)) {
    if (dim > MOST_INT8_DIM) {
        is_usable_ = false;
        return;
    }
    digits_.reserve(std::max<int64_t>(1, num_panels_ * steps_ * ROWS_PER_INT8_PANEL));
    rates_.reserve(std::max<int64_t>(1, num_panels_ * ROWS_PER_INT8_PANEL));
    lengths_.reserve(std::max<int64_t>(1, num_panels_ * LENGTHS_PER_PANEL));
    const Shares shares(num_panels_, PANELS_PER_TASK_WORK * static_cast<double>(dim * ROWS_PER_INT8_PANEL),
                        context.num_threads);
    std::atomic<bool> is_usable{true};
    Pool::instance().run(
        shares.num_tasks, shares.num_threads,
        [&](int64_t task, int) {
            float* scratch = scratch_floats(dim * MOST_ITEMS_PER_PANEL);
            const int64_t first = task * shares.steps_per_task;
            const int64_t last = std::min(num_panels_, first + shares.steps_per_task);
            for (int64_t place = first; place < last && is_usable; ++place) {
                if (!fill(context.operations, items, place, scratch)) is_usable = false;
            }
        },
        context.poll);
    is_usable_ = is_usable;
}

int64_t Int8Table::num_bytes() const {
    const int64_t floats = steps_ * ROWS_PER_INT8_PANEL + ROWS_PER_INT8_PANEL + LENGTHS_PER_PANEL;
    return is_usable_ ? num_panels_ * floats * static_cast<int64_t>(sizeof(float)) : 0;
}

Int8Panel Int8Table::panel(int64_t place) const {
    const float* lengths = lengths_.data() + place * LENGTHS_PER_PANEL;
    const uint8_t* digits = reinterpret_cast<const uint8_t*>(digits_.data());
    return {digits + place * steps_ * ROWS_PER_INT8_PANEL * DIGITS_PER_STEP, rates_.data() + place * ROWS_PER_INT8_PANEL,
            lengths[0], lengths[1], lengths[2]};
}

bool Int8Table::fill(const Operations& operations, const Items& items, int64_t place, float* scratch) {
    uint8_t* digits = reinterpret_cast<uint8_t*>(digits_.data()) +
                      place * steps_ * ROWS_PER_INT8_PANEL * DIGITS_PER_STEP;
    float* rates = rates_.data() + place * ROWS_PER_INT8_PANEL;
    std::fill_n(digits, steps_ * ROWS_PER_INT8_PANEL * DIGITS_PER_STEP, uint8_t{128});
    std::fill_n(rates, ROWS_PER_INT8_PANEL, 1.0f);
    double most_error = 0.0, most_length = 0.0, most_rate = 0.0;
    const int width = operations.width;
    const int64_t begin = place * ROWS_PER_INT8_PANEL;
    const int64_t end = std::min(count_, begin + ROWS_PER_INT8_PANEL);
    for (int64_t row = begin; row < end; row += width) {
        const int lanes = static_cast<int>(std::min<int64_t>(width, end - row));
        const void* lines[MOST_ITEMS_PER_PANEL];
        items.point(row, lanes, lines, nullptr);
        operations.pack(items.number, lines, lanes, dim_, scratch);
        float greatest[MOST_ITEMS_PER_PANEL] = {}, own_rates[MOST_ITEMS_PER_PANEL];
        double seconds[MOST_ITEMS_PER_PANEL], errors[MOST_ITEMS_PER_PANEL] = {};
        int32_t squares[MOST_ITEMS_PER_PANEL] = {};
        bool is_small = true;
        for (int64_t k = 0; k < dim_; ++k) {
            for (int lane = 0; lane < lanes; ++lane) {
                const float size = std::fabs(scratch[k * width + lane]);
                is_small &= size <= MOST_INT8_VALUE;  // false if it is NaN
                greatest[lane] = std::max(greatest[lane], size);
            }
        }
        if (!is_small) return false;
        for (int lane = 0; lane < lanes; ++lane) {
            own_rates[lane] = rate_of(greatest[lane], MOST_ROW_DIGIT);
            seconds[lane] = 1.0 / static_cast<double>(own_rates[lane]);
            rates[row - begin + lane] = own_rates[lane];
        }
        for (int64_t k = 0; k < dim_; ++k) {
            uint8_t* own = digits + (k / DIGITS_PER_STEP * ROWS_PER_INT8_PANEL + row - begin) * DIGITS_PER_STEP +
                           k % DIGITS_PER_STEP;
            for (int lane = 0; lane < lanes; ++lane) {
                const float value = scratch[k * width + lane], digit = rounded(value * own_rates[lane]);
                const double error = static_cast<double>(value) - static_cast<double>(digit) * seconds[lane];
                const int32_t whole = static_cast<int32_t>(digit);
                errors[lane] += error * error;
                squares[lane] += whole * whole;
                own[lane * DIGITS_PER_STEP] = static_cast<uint8_t>(whole + 128);
            }
        }
        for (int lane = 0; lane < lanes; ++lane) {
            const double rate = static_cast<double>(own_rates[lane]), length = std::sqrt(squares[lane]);
            most_error = std::max(most_error, std::sqrt(errors[lane]) * rate + (length + 1.0) * ROUNDOFF_OF_LENGTHS);
            most_length = std::max(most_length, length);
            most_rate = std::max(most_rate, rate);
        }
    }
    float* lengths = lengths_.data() + place * LENGTHS_PER_PANEL;
    lengths[0] = static_cast<float>(most_error * UP);
    lengths[1] = static_cast<float>(most_length * UP);
    lengths[2] = static_cast<float>(most_rate * UP);
    return true;
}

PackedInt8Vectors::PackedInt8Vectors(const float* vectors, int64_t count, int64_t dim, int most_digit)
    : steps_(divided_up(dim, DIGITS_PER_STEP)),
      // Covers the rounding of `level * rate - margin` and of products beyond 2^24, which are at most 127^2 dim: levels
      // above 8 times that are never reached, whatever is rounded.
      slack_(static_cast<float>(dim) * 0x1p-4f) {
    const size_t padded = static_cast<size_t>(divided_up(count, ROWS_PER_TILE) * ROWS_PER_TILE);
    tiles_.assign(padded * static_cast<size_t>(steps_ * DIGITS_PER_STEP), 0);
    starts_.assign(padded, 0);
    for (std::vector<float>* each : {&rates_, &seconds_, &by_error_, &by_length_, &by_rate_}) each->assign(padded, 0.0f);
    const double gamma = static_cast<double>(dim) * 0x1p-23;
    for (int64_t i = 0; i < count; ++i) {
        const float* own = vectors + i * dim;
        float greatest = 0.0f;
        for (int64_t k = 0; k < dim; ++k) {
            if (!(std::fabs(own[k]) <= MOST_INT8_VALUE)) {
                is_usable_ = false;
                return;
            }
            greatest = std::max(greatest, std::fabs(own[k]));
        }
        const float rate = rate_of(greatest, most_digit);
        const double wide = static_cast<double>(rate);
        int8_t* tile = tiles_.data() + i / ROWS_PER_TILE * ROWS_PER_TILE * steps_ * DIGITS_PER_STEP +
                       i % ROWS_PER_TILE * DIGITS_PER_STEP;
        int32_t sum = 0;
        double length = 0.0, error = 0.0;
        for (int64_t k = 0; k < dim; ++k) {
            const float digit = rounded(own[k] * rate);
            const double value = static_cast<double>(own[k]), rest = value - static_cast<double>(digit) / wide;
            length += value * value;
            error += rest * rest;
            sum += static_cast<int32_t>(digit);
            tile[k / DIGITS_PER_STEP * ROWS_PER_TILE * DIGITS_PER_STEP + k % DIGITS_PER_STEP] =
                static_cast<int8_t>(digit);
        }
        length = std::sqrt(length) * wide;
        error = std::sqrt(error) * wide + (length + 1.0) * ROUNDOFF_OF_LENGTHS;
        const size_t place = static_cast<size_t>(i);
        rates_[place] = rate;
        seconds_[place] = 1.0f / rate;
        starts_[place] = -128 * sum;
        by_error_[place] = static_cast<float>(length * (1.0 + gamma) * UP);
        by_length_[place] = static_cast<float>((error + gamma * length) * UP);
        by_rate_[place] = static_cast<float>(static_cast<double>(dim) * 0x1p-140 * wide * UP);
    }
}

bool bound_int8(const Context& context, const float* vectors, int64_t count, const Int8Table& table,
                const float* thresholds, float* low, float* high, bool* is_reached) {
    bool is_usable = false;
    const auto bound_all = [&](int64_t, int) {
        const PackedInt8Vectors packed(vectors, count, table.dim(), context.operations.most_digit);
        is_usable = packed.is_usable();
        if (!is_usable) return;
        for (int64_t i = 0; i < count * table.num_panels(); ++i) {
            const int64_t vector = i / table.num_panels(), place = i % table.num_panels();
            const Int8Panel panel = table.panel(place);
            const int64_t row = place * ROWS_PER_INT8_PANEL;
            const int64_t lanes = std::min<int64_t>(ROWS_PER_INT8_PANEL, table.count() - row);
            int32_t products[ROWS_PER_TILE * ROWS_PER_INT8_PANEL];
            float margins[ROWS_PER_TILE], levels[ROWS_PER_TILE];
            uint64_t all[ROWS_PER_TILE], reached[ROWS_PER_TILE];
            const int64_t tile = vector / ROWS_PER_TILE * ROWS_PER_TILE, own = vector - tile;
            const Int8Vectors block = packed.block(tile, std::min<int64_t>(ROWS_PER_TILE, count - tile));
            for (int64_t j = 0; j < block.count; ++j) levels[j] = thresholds[tile + j] * packed.rate(tile + j);
            context.operations.reach_int8(panel, block, levels, products, margins, reached);
            std::fill_n(levels, ROWS_PER_TILE, NOTHING);
            context.operations.reach_int8(panel, block, levels, products, margins, all);
            for (int64_t lane = 0; lane < lanes; ++lane) {
                const int64_t at = vector * table.count() + row + lane;
                const ScoreBounds bounds(products[own * ROWS_PER_INT8_PANEL + lane], margins[own], panel.rates[lane],
                                         packed.second(vector));
                low[at] = bounds.low;
                high[at] = bounds.high;
                is_reached[at] = (reached[own] >> lane & 1) != 0;
            }
        }
    };
    Pool::instance().run(1, 1, bound_all, context.poll);
    return is_usable;
}

Int8Vectors PackedInt8Vectors::block(int64_t first, int64_t count) const {
    return {tiles_.data() + first * steps_ * DIGITS_PER_STEP,
            starts_.data() + first,
            by_error_.data() + first,
            by_length_.data() + first,
            by_rate_.data() + first,
            slack_,
            count,
            steps_};
}

}  // namespace railsearch
