// Scores and best rows of many items, panel by panel on several threads.
#pragma once

#include <cstdint>
#include <vector>

#include "operations.h"
#include "pool.h"

namespace railsearch {

// Memory that begins at a cache line; throws std::bad_alloc if there is none.
class Buffer {
public:
    Buffer() = default;
    explicit Buffer(int64_t count) { reserve(count); }
    ~Buffer();
    Buffer(const Buffer&) = delete;
    Buffer& operator=(const Buffer&) = delete;

    // Make room for `count` floats; what was there is lost.
    void reserve(int64_t count);
    float* data() { return data_; }
    const float* data() const { return data_; }

private:
    float* data_ = nullptr;
    int64_t capacity_ = 0;
};

// A similarity ready for use: its shape and its own copy of the gate's weights, in tiles.
struct Form {
    Form(Mixture shape, float temperature, bool is_mixture, const float* hidden_weight, const float* hidden_bias,
         const float* output_weight, const float* output_bias);
    Form(const Form&) = delete;
    Form& operator=(const Form&) = delete;

    Mixture mixture;
    float temperature;
    bool is_mixture;  // false: one component on each side, and the score is their product

private:
    Buffer hidden_tiles_, hidden_bias_, output_tiles_, output_bias_;
};

// Rows that lie together: `stride` bytes from one to the next.
struct Segment {
    const char* components;
    int64_t stride;
    const char* gate;  // null if the form has no item gate
    int64_t gate_stride;
    int64_t count;
};

// Items of one or several segments, one after the other.
struct Items {
    Number number = Number::fp32;
    std::vector<Segment> segments;
    std::vector<int64_t> first_rows;  // of each segment

    void add(const Segment& segment);
    int64_t count() const;
    const Segment& find(int64_t row, int64_t& own_row) const;

    // The addresses of `count` rows from `first` on; gates only if `gates` is not null.
    void point(int64_t first, int count, const void** components, const void** gates) const;
};

struct Queries {
    const float* components;  // (count, num_query_components, dim)
    const float* gate;        // (count, query_gate_size), or null
    int64_t count;
};

// Which rows must not be returned: those that are not allowed to anybody, and (query, row) pairs.
class Filter {
public:
    Filter() = default;
    Filter(const bool* is_allowed, const int64_t* queries, const int64_t* rows, int64_t num_pairs, int64_t num_queries);

    // Whether any of `count` rows from `first` on is allowed.
    bool allows_any(int64_t first, int64_t count) const;
    bool hides(int64_t query, int64_t row) const;
    // One bit for each of `count` rows from `first` on: whether it is hidden from the query.
    uint64_t hidden(int64_t query, int64_t first, int count) const;
    bool is_empty() const { return is_allowed_ == nullptr && rows_.empty(); }

private:
    const bool* is_allowed_ = nullptr;
    std::vector<int64_t> starts_;  // of each query in rows_
    std::vector<int64_t> rows_;    // ascending for each query
};

// How to compute: with what, on how many threads, and whom to ask whether to go on.
struct Context {
    const Operations& operations;
    int num_threads;
    Poll poll;
};

// Those that score return false if a score was not finite; the results then mean nothing.

// scores (B, N), or best component scores if `is_bound`; `stride` floats from one query to the next.
bool score(const Context&, const Form&, const Queries&, const Items&, bool is_bound, float* out, int64_t stride);

// The k best rows of each query: out (B, k), best first; minus infinity and row -1 if there are no more.
bool top_k(const Context&, const Form&, const Queries&, const Items&, const Filter&, int64_t k, float* out_scores,
           int64_t* out_rows);

// scores (B, C) of each query with its own rows (B, C); minus infinity for a negative row.
bool score_candidates(const Context&, const Form&, const Queries&, const Items&, const int64_t* rows, int64_t width,
                      float* out);

// What `top_k_above` writes for each query.
struct Above {
    float* scores;         // (B, k) best first, minus infinity if there are no more
    int64_t* rows;         // (B, k), -1 if there are no more
    int64_t* num_scored;   // (B,)
    float* best_skipped;   // (B,) the best bound of a row that was not scored; minus infinity if there is none
};

// The k best of those rows whose best component score reaches their query's threshold (B,); the others are not scored.
bool top_k_above(const Context&, const Form&, const Queries&, const Items&, const Filter&, int64_t k,
                 const float* thresholds, const Above& out);

// What `best_by_component` writes; minus infinity and row -1 if there are no more.
struct ByComponent {
    float* scores;        // (B, P, n) of each component pair, best first
    int64_t* rows;        // (B, P, n)
    float* bounds;        // (B, m) the best component scores of items, best first
    int64_t* bound_rows;  // (B, m)
};

// The n best rows of each component pair, and the m rows with the best component scores of any pair.
bool best_by_component(const Context&, const Form&, const Queries&, const Items&, const Filter&, int64_t n, int64_t m,
                       const ByComponent& out);

// The n best rows by dot product for each of num_vectors vectors, `group` of them for each query: out (V, n). If
// `bounds` (num_vectors / group, N) is given, raise each to the best product of any vector of its query, `stride`
// floats from one query to the next; a row that the filter hides keeps its bound. Products
// that are NaN are ignored.
void scan(const Context&, const float* vectors, int64_t num_vectors, int64_t group, int64_t dim, const Items&,
          const Filter&, int64_t n, float* out_scores, int64_t* out_rows, float* bounds, int64_t stride);

}  // namespace railsearch
