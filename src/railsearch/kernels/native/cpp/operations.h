// What one instruction set offers: the arithmetic of one panel of items. Every instruction set returns the same bits.
#pragma once

#include <cstddef>
#include <cstdint>

namespace railsearch {

// How the numbers of a table are stored. All arithmetic is in fp32; widening fp16 and bf16 is exact.
enum class Number : int { fp32 = 0, fp16 = 1, bf16 = 2 };

// Rows of the left matrix that are multiplied at once; their values lie side by side in a tile: [depth][ROWS_PER_TILE].
constexpr int ROWS_PER_TILE = 4;

// Items of the widest panel of any instruction set; one bit of a uint64_t each.
constexpr int MOST_ITEMS_PER_PANEL = 48;

// The longest vectors of `dot_above`: one panel of them stays in L1.
constexpr int64_t MOST_SCANNED_DIM = 256;

// Rows of a panel in int8, in every instruction set; one bit of a uint64_t each.
constexpr int ROWS_PER_INT8_PANEL = 48;

// Rows x in int8: x = digits / rate + error; see int8_table.h. A digit is stored with 128 added to it.
struct Int8Panel {
    const uint8_t* digits;  // [steps][ROWS_PER_INT8_PANEL][4]
    const float* rates;     // [ROWS_PER_INT8_PANEL]
    float error;            // of any row: the length of its error times its rate
    float length;           // of any row: the length of its digits
    float rate;             // the greatest one
};

// Vectors in int8 that are scanned together, and how far their products with a row may be off: in units of the last
// digit, at most by_error * error + by_length * length + by_rate * rate + slack.
struct Int8Vectors {
    const int8_t* tiles;       // [tile][steps][ROWS_PER_TILE][4]
    const int32_t* starts;     // -128 times the sum of each vector's digits
    const float* by_error;     // these are padded to whole tiles
    const float* by_length;
    const float* by_rate;
    float slack;
    int64_t count;
    int64_t steps;             // 4 digits each
};

// The shape and weights of a mixture of component scores: a Mixture of Logits, or late interaction, whose gate has no
// weights here. The weights of the gate's network are cut into tiles.
struct Mixture {
    int64_t num_query_components = 1;
    int64_t num_item_components = 1;
    int64_t dim = 1;
    int64_t num_pairs = 1;
    int64_t hidden_dim = 0;  // 0: the gate does not look at the pair
    bool has_query_gate = false;
    bool has_item_gate = false;
    bool has_silu = false;
    const float* hidden_tiles = nullptr;  // (hidden_dim, num_pairs) in tiles
    const float* hidden_bias = nullptr;   // padded with zeros to full tiles
    const float* output_tiles = nullptr;  // (num_pairs, hidden_dim) in tiles
    const float* output_bias = nullptr;
    bool is_late_interaction = false;  // with both gates, without a network on the pair
    float absent_gate = 0.0f;          // of late interaction: a component whose gate is not above this is absent
};

// Values of the gate of one query: of late interaction, the logits of its components, then their sharpness.
inline int64_t query_gate_size(const Mixture& mixture) {
    return mixture.is_late_interaction ? 2 * mixture.num_query_components : mixture.num_pairs;
}

// Values of the gate of one item: of late interaction, the logits of its components.
inline int64_t item_gate_size(const Mixture& mixture) {
    return mixture.is_late_interaction ? mixture.num_item_components : mixture.num_pairs;
}

// Queries that are scored together. Their components are divided by the temperature and cut into tiles: the tiles of
// `queries_per_chunk` queries follow each other, then a new chunk begins with a new tile.
struct QueryBlock {
    const float* tiles = nullptr;
    const float* gate = nullptr;  // (num_queries, query_gate_size), or null
    int64_t num_queries = 0;
    int64_t queries_per_chunk = 1;
};

// The mixture of B x N query-item pairs in training, from their component scores. Panels are those of the instruction
// set: `width` items of one query.
struct TrainingStep {
    int64_t num_queries = 0;
    int64_t num_items = 0;
    int64_t num_query_components = 1;
    int64_t num_item_components = 1;
    int64_t num_pairs = 1;
    int64_t hidden_dim = 1;
    bool has_silu = false;
    bool has_own_items = false;  // each query has its own item gates
    const float* scores = nullptr;      // (B, Pq, N, Px)
    const float* query_gate = nullptr;  // (B, P), or null
    const float* item_gate = nullptr;   // (N, P) or (B, N, P), or null
    uint64_t seed = 0;
    uint32_t dropped = 0;  // of 2^16 draws

    const float* item_panels = nullptr;   // (N, P) in panels, unless queries have their own
    const float* hidden_tiles = nullptr;  // W1 (H, P) in tiles
    const float* hidden_bias = nullptr;   // padded with zeros to full tiles
    const float* output_tiles = nullptr;  // W2 (P, H) in tiles
    const float* output_bias = nullptr;
    const float* hidden_back_tiles = nullptr;  // W1 transposed (P, H) in tiles
    const float* output_back_tiles = nullptr;  // W2 transposed (H, P) in tiles
};

// The gradient of some of the queries. Sums are added to; the rest is overwritten.
struct TrainingSums {
    float* hidden_weight;  // (H, P + 1) sums; the last column is the bias
    float* output_weight;  // (P, H + 1) sums
    float* item_panels;    // sums in panels, or null
};

// The sampled softmax of B examples that share N negatives, under a dot product. Every gradient is overwritten.
struct SoftmaxStep {
    int64_t num_queries = 0;
    int64_t num_items = 0;
    int64_t dim = 1;
    float weight = 1.0f;              // of the loss of each example
    const float* queries = nullptr;   // (B, d), divided by the temperature
    const float* rights = nullptr;    // (B,) the score of the right item
    const int64_t* own = nullptr;     // (B,) the column of the right item among the negatives, or -1; null: all -1
    const unsigned char* excluded = nullptr;  // (R, N) not 0: the negative does not count; or null
    const int64_t* excluded_rows = nullptr;   // (B,) rows of `excluded`; null: row b for query b
    float* to_queries = nullptr;      // (B, d)
    float* to_rights = nullptr;       // (B,)

    const float* panels = nullptr;    // (N, d) in panels of `panel_rows` rows each; those that are added are 0
    int64_t panel_rows = 1;           // d, rounded up to a multiple of 3
    const float* offsets = nullptr;   // (N,) added to the scores, padded to full panels with minus infinity
    float* peaks = nullptr;           // (B,) the largest score of any item
    float* totals = nullptr;          // (B,) the sum of e^(score - peak) over all items
};

constexpr int64_t MOST_TIME_BUCKETS = 256;
constexpr int64_t DROPPED_TOGETHER = 64;  // values whose draws depend on one key

// The gated attention of HSTU over B histories with E events, H heads of size d:
//     u, v, q, k = SiLU(inputs)
//     a_i        = sum over j <= i of SiLU(<q_i, k_j> + distance_bias[i - j] + time_bias[bucket(i, j)]) v_j
//     output_i   = dropout(u_i * normalized(a_i * scale))
struct AttentionStep {
    int64_t num_heads = 1;
    int64_t head_dim = 1;
    int64_t longest = 1;                      // events of the longest history
    const float* inputs = nullptr;            // (E, 4 * H * d)
    const float* distance_bias = nullptr;     // (longest or more)
    const float* time_bias = nullptr;         // one for each bucket
    const int64_t* starts = nullptr;          // (B + 1) the first event of each history, and E
    const int64_t* bucket_starts = nullptr;   // (B) the first bucket of each history
    const uint8_t* buckets = nullptr;         // of all j <= i, history by history, and 64 more that are read in vain
    float scale = 1.0f;
    float epsilon = 0.0f;
    uint64_t seed = 0;
    uint32_t dropped = 0;  // of 2^16 draws
};

// A panel holds the rows of up to `width` items, transposed: [value][width]. Items lie in lanes, so that the score of
// an item never depends on its neighbours.
struct Operations {
    const char* name;
    int width;

    // Transpose `count` rows of `length` numbers into a panel; the lanes that are left repeat the first row.
    void (*pack)(Number number, const void* const* rows, int count, int64_t length, float* panel);

    // Scores [num_queries][width] of the items of a panel. Return false if any is not finite.
    bool (*mix)(const Mixture& mixture, const QueryBlock& queries, const float* panel, const float* gate_panel,
                float* scratch, float* scores);

    // The best component score [num_queries][width] of each item.
    bool (*bound)(const Mixture& mixture, const QueryBlock& queries, const float* panel, float* scratch, float* scores);

    // Component scores [num_queries][num_pairs][width] of queries in tiles (one chunk), and of each item the best one,
    // [num_queries][width]. Return false if any is not finite.
    bool (*products)(const Mixture& mixture, const float* tiles, int64_t num_queries, const float* panel,
                     float* products, float* bounds);

    // Scores [width] of one query from its component scores [num_pairs][width]. Return false if any is not finite.
    bool (*mix_products)(const Mixture& mixture, const float* query_gate, const float* gate_panel,
                         const float* products, float* scratch, float* scores);

    // Dot products [num_rows][width] of rows in tiles with the items of a panel.
    bool (*dot)(const float* tiles, int64_t num_rows, int64_t dim, const float* panel, float* scores);

    // As `dot` and then `reach` (greater), without the scores that nobody needs: only rows with a lane that is greater
    // than its threshold are written. dim is at most MOST_SCANNED_DIM.
    bool (*dot_above)(const float* tiles, int64_t num_rows, int64_t dim, const float* panel, const float* thresholds,
                      float* scores, uint64_t* lanes);

    // For each of num_rows rows of scores, which lanes are greater than its threshold (`or_equal`: or the same).
    // Return false if none is.
    bool (*reach)(const float* scores, const float* thresholds, int64_t num_rows, bool or_equal, uint64_t* lanes);

    // For each of the vectors, which rows of a panel may have a score of at least its threshold: a bit is 0 only if
    // product + margin < level * rate, where the level is the threshold times the rate of the vector. The products
    // [count][ROWS_PER_INT8_PANEL] are exact; only those of vectors with any bit are written. Margins [count] are
    // written for all. Return false if there is no bit.
    bool (*reach_int8)(const Int8Panel& panel, const Int8Vectors& vectors, const float* levels, int32_t* products,
                       float* margins, uint64_t* lanes);

    // The greatest digit of a vector that `reach_int8` multiplies exactly.
    int most_digit;

    // Scores (B, N) of the queries from `first` to `last` - 1 in training.
    void (*train_forward)(const TrainingStep& step, int64_t first, int64_t last, float* scratch, float* mixed);

    // Their gradient, given that of the scores (B, N): of component scores and gates, and sums of the other gradients.
    void (*train_backward)(const TrainingStep& step, int64_t first, int64_t last, const float* upstream, float* scratch,
                           float* to_scores, float* to_query_gate, float* to_item_gate, const TrainingSums& sums);

    // Floats of scratch that both need.
    int64_t (*training_scratch_size)(const TrainingStep& step);

    // The softmax of the queries from `first` to `last` - 1; the gradient of the items is added to `item_sums`, which
    // are panels of d rows.
    void (*softmax_backward)(const SoftmaxStep& step, int64_t first, int64_t last, float* scratch, float* item_sums);
    int64_t (*softmax_scratch_size)(const SoftmaxStep& step);

    // exp and x * sigmoid(x) of many numbers, for tests of their error.
    void (*exponential)(const float* values, int64_t count, float* results);
    void (*silu)(const float* values, int64_t count, float* results);

    // The outputs (E, H * d) of some histories, and a (E, H * d) unless it is null.
    void (*attend_forward)(const AttentionStep& step, int64_t first_history, int64_t last_history, float* scratch,
                           float* attended, float* outputs);

    // The gradient of some histories, given a and that of the outputs; sums of the biases are added to. There are
    // MOST_TIME_BUCKETS sums of times.
    void (*attend_backward)(const AttentionStep& step, int64_t first_history, int64_t last_history, float* scratch,
                            const float* attended, const float* upstream, float* to_inputs, double* to_distances,
                            double* to_times);

    // values[at] / (1 - share) or 0 for all at from `first` to `last` - 1; `first` is a multiple of DROPPED_TOGETHER.
    void (*drop)(const float* values, int64_t first, int64_t last, uint64_t seed, uint32_t dropped, float* results);

    // Floats of scratch that one of them needs.
    int64_t (*attention_scratch_size)(const AttentionStep& step, bool has_gradient);
};

// Floats of scratch that `mix` and `bound` need beside the panels.
inline int64_t scratch_size(const Mixture& mixture, int64_t queries_per_chunk, int width) {
    int64_t hidden = (mixture.hidden_dim + ROWS_PER_TILE - 1) / ROWS_PER_TILE * ROWS_PER_TILE;
    int64_t pairs = (mixture.num_pairs + ROWS_PER_TILE - 1) / ROWS_PER_TILE * ROWS_PER_TILE;
    return (queries_per_chunk * mixture.num_pairs + hidden + pairs) * width;
}

// The operations of an instruction set, or null if it was not compiled or this CPU cannot run it.
const Operations* portable_operations();
const Operations* avx2_operations();
const Operations* avx512_operations();
const Operations* avx512_vnni_operations();

}  // namespace railsearch
