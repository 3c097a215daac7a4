// Rows of a left matrix in tiles: ROWS_PER_TILE rows side by side, [depth][ROWS_PER_TILE].
#pragma once

#include <cstdint>

#include "operations.h"

namespace railsearch {

inline int64_t tiles_size(int64_t num_rows, int64_t depth) {
    return (num_rows + ROWS_PER_TILE - 1) / ROWS_PER_TILE * ROWS_PER_TILE * depth;
}

// Write rows (num_rows, depth), each value divided by the divisor, into tiles; rows that are missing are zero.
void cut_into_tiles(const float* rows, int64_t num_rows, int64_t depth, float divisor, float* tiles);

}  // namespace railsearch
