// Lists of rows and scores, one for each query.
#pragma once

#include <cstdint>

#include "search.h"

namespace railsearch {

// The k best of each of `count` lists of scores (count, width), best first: of equal scores the smaller tie value
// (count, width), or the smaller column if ties is null. Scores are not NaN.
void select_best(const Context&, const float* scores, const int64_t* ties, int64_t count, int64_t width, int64_t k,
                 float* best, int64_t* columns);

// The rows (count, width) of each list, ascending, each once: united (count, width), filled up with 0, and which of them
// are real. A negative row stands for none.
void unite(const Context&, const int64_t* rows, int64_t count, int64_t width, int64_t* united, bool* is_real,
           int64_t* counts);

}  // namespace railsearch
