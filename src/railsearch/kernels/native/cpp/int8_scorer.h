// Scores in full precision of rows that an int8 scan could not decide.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "search.h"
#include "sharing.h"
#include "survivors.h"
#include "tiles.h"

namespace railsearch {

// Vectors (count, dim), `group` of them for each query.
struct Batch {
    const float* vectors;
    int64_t count;
    int64_t group;
    int64_t dim;
};

// Computes the bits that `scan` returns, for items in one segment.
class Int8Scorer {
public:
    Int8Scorer(const Operations& operations, const Batch& batch, const std::vector<int64_t>& chosen, const Items& items)
        : operations_(operations),
          number_(items.number),
          rows_(items.segments[0]),
          dim_(batch.dim),
          bytes_per_row_(batch.dim * (items.number == Number::fp32 ? 4 : 2)) {
        const int64_t count = static_cast<int64_t>(chosen.size());
        vectors_.reserve(count * dim_);
        single_tiles_.reserve(count * tiles_size(1, dim_));
        tiles_.reserve(tiles_size(count, dim_));
        for (int64_t i = 0; i < count; ++i) {
            const float* from = batch.vectors + chosen[static_cast<size_t>(i)] * dim_;
            std::copy(from, from + dim_, vectors_.data() + i * dim_);
            cut_into_tiles(from, 1, dim_, 1.0f, single_tiles_.data() + i * tiles_size(1, dim_));
        }
        cut_into_tiles(vectors_.data(), count, dim_, 1.0f, tiles_.data());
    }

    const float* vectors() const { return vectors_.data(); }  // (count, dim), those that were chosen
    const float* tiles() const { return tiles_.data(); }

    // Compute the scores of survivors of the i-th vector that are not known yet.
    void know(int64_t i, std::vector<Survivor>& survivors) const {
        const int width = operations_.width;
        std::vector<Survivor*> unknown;
        for (Survivor& each : survivors) {
            if (!each.is_known()) unknown.push_back(&each);
        }
        const int64_t count = static_cast<int64_t>(unknown.size());
        float* panel = scratch_floats((dim_ + 1) * width);
        float* scores = panel + dim_ * width;
        const void* lines[MOST_ITEMS_PER_PANEL];
        for (int64_t first = 0; first < count; first += width) {
            const int own = static_cast<int>(count - first < width ? count - first : width);
            for (int lane = 0; lane < own; ++lane) {
                lines[lane] = line(unknown[static_cast<size_t>(first + lane)]->row);
            }
            for (int64_t next = first + width; next < first + 2 * width && next < count; ++next) {
                prefetch(unknown[static_cast<size_t>(next)]->row);
            }
            operations_.pack(number_, lines, own, dim_, panel);
            operations_.dot(single_tiles_.data() + i * tiles_size(1, dim_), 1, dim_, panel, scores);
            for (int lane = 0; lane < own; ++lane) {
                Survivor& each = *unknown[static_cast<size_t>(first + lane)];
                each.low = each.high = scores[lane];
            }
        }
    }

private:
    const char* line(int64_t row) const { return rows_.components + row * rows_.stride; }

    void prefetch(int64_t row) const {
        const char* from = line(row);
        for (int64_t at = 0; at < bytes_per_row_ && at < MOST_PREFETCHED; at += 64) __builtin_prefetch(from + at);
    }

    static constexpr int64_t MOST_PREFETCHED = 512;

    const Operations& operations_;
    Number number_;
    Segment rows_;
    int64_t dim_, bytes_per_row_;
    Buffer vectors_, tiles_, single_tiles_;  // single: one tile for each vector, of which only the first row is used
};

}  // namespace railsearch
