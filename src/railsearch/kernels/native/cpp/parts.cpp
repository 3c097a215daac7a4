// The two sides of a search as the drivers want them: buffers, weights in tiles, segments, filters.
#include <algorithm>
#include <cstdlib>
#include <new>

#include "search.h"
#include "tiles.h"

namespace railsearch {

Buffer::~Buffer() { std::free(data_); }

void Buffer::reserve(int64_t count) {
    if (count <= capacity_) return;
    const size_t bytes = (static_cast<size_t>(count) * sizeof(float) + 63) / 64 * 64;
    void* data = std::aligned_alloc(64, bytes);
    if (data == nullptr) throw std::bad_alloc();
    std::free(data_);
    data_ = static_cast<float*>(data);
    capacity_ = count;
}

void cut_into_tiles(const float* rows, int64_t num_rows, int64_t depth, float divisor, float* tiles) {
    for (int64_t first = 0; first < num_rows; first += ROWS_PER_TILE) {
        for (int64_t k = 0; k < depth; ++k) {
            for (int64_t row = first; row < first + ROWS_PER_TILE; ++row) {
                *tiles++ = row < num_rows ? rows[row * depth + k] / divisor : 0.0f;
            }
        }
    }
}

Form::Form(Mixture shape, float temperature_, bool is_mixture_, const float* hidden_weight, const float* hidden_bias,
           const float* output_weight, const float* output_bias)
    : mixture(shape), temperature(temperature_), is_mixture(is_mixture_) {
    const int64_t hidden = mixture.hidden_dim, pairs = mixture.num_pairs;
    if (hidden == 0) return;
    hidden_tiles_.reserve(tiles_size(hidden, pairs));
    hidden_bias_.reserve(tiles_size(hidden, 1));
    output_tiles_.reserve(tiles_size(pairs, hidden));
    output_bias_.reserve(tiles_size(pairs, 1));
    cut_into_tiles(hidden_weight, hidden, pairs, 1.0f, hidden_tiles_.data());
    cut_into_tiles(hidden_bias, hidden, 1, 1.0f, hidden_bias_.data());
    cut_into_tiles(output_weight, pairs, hidden, 1.0f, output_tiles_.data());
    cut_into_tiles(output_bias, pairs, 1, 1.0f, output_bias_.data());
    mixture.hidden_tiles = hidden_tiles_.data();
    mixture.hidden_bias = hidden_bias_.data();
    mixture.output_tiles = output_tiles_.data();
    mixture.output_bias = output_bias_.data();
}

void Items::add(const Segment& segment) {
    first_rows.push_back(count());
    segments.push_back(segment);
}

int64_t Items::count() const { return segments.empty() ? 0 : first_rows.back() + segments.back().count; }

const Segment& Items::find(int64_t row, int64_t& own_row) const {
    size_t place = 0;
    if (segments.size() > 1) {
        const auto after = std::upper_bound(first_rows.begin(), first_rows.end(), row);
        place = static_cast<size_t>(after - first_rows.begin()) - 1;
    }
    own_row = row - first_rows[place];
    return segments[place];
}

void Items::point(int64_t first, int count, const void** components, const void** gates) const {
    for (int lane = 0; lane < count;) {
        int64_t own_row = 0;
        const Segment& segment = find(first + lane, own_row);
        const int end = static_cast<int>(std::min<int64_t>(count, lane + segment.count - own_row));
        for (; lane < end; ++lane, ++own_row) {
            components[lane] = segment.components + own_row * segment.stride;
            if (gates != nullptr) gates[lane] = segment.gate + own_row * segment.gate_stride;
        }
    }
}

Filter::Filter(const bool* is_allowed, const int64_t* queries, const int64_t* rows, int64_t num_pairs,
               int64_t num_queries)
    : is_allowed_(is_allowed) {
    if (num_pairs == 0) return;
    starts_.assign(static_cast<size_t>(num_queries) + 1, 0);
    for (int64_t i = 0; i < num_pairs; ++i) ++starts_[static_cast<size_t>(queries[i]) + 1];
    for (size_t q = 1; q < starts_.size(); ++q) starts_[q] += starts_[q - 1];
    rows_.resize(static_cast<size_t>(num_pairs));
    std::vector<int64_t> next(starts_.begin(), starts_.end() - 1);
    for (int64_t i = 0; i < num_pairs; ++i) rows_[static_cast<size_t>(next[static_cast<size_t>(queries[i])]++)] = rows[i];
    for (size_t q = 0; q + 1 < starts_.size(); ++q) {
        std::sort(rows_.begin() + starts_[q], rows_.begin() + starts_[q + 1]);
    }
}

bool Filter::allows_any(int64_t first, int64_t count) const {
    return is_allowed_ == nullptr || std::find(is_allowed_ + first, is_allowed_ + first + count, true) != is_allowed_ + first + count;
}

uint64_t Filter::hidden(int64_t query, int64_t first, int count) const {
    uint64_t found = 0;
    if (is_allowed_ != nullptr) {
        for (int i = 0; i < count; ++i) found |= static_cast<uint64_t>(!is_allowed_[first + i]) << i;
    }
    if (rows_.empty()) return found;
    const auto end = rows_.begin() + starts_[static_cast<size_t>(query) + 1];
    auto at = std::lower_bound(rows_.begin() + starts_[static_cast<size_t>(query)], end, first);
    for (; at != end && *at < first + count; ++at) found |= uint64_t{1} << (*at - first);
    return found;
}

bool Filter::hides(int64_t query, int64_t row) const {
    if (is_allowed_ != nullptr && !is_allowed_[row]) return true;
    if (rows_.empty()) return false;
    const size_t q = static_cast<size_t>(query);
    return std::binary_search(rows_.begin() + starts_[q], rows_.begin() + starts_[q + 1], row);
}

}  // namespace railsearch
