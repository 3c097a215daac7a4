// Products of int8 vectors with a panel of int8 rows, exact in whole numbers, and which of them reach a threshold.

namespace railsearch {
namespace {

constexpr int INT8_LANES = Vector::LANES;
constexpr int INT8_VECTORS = INT8_LANES == 16 ? 3 : INT8_LANES == 8 ? 2 : 1;  // sums that fit the registers
constexpr int INT8_GROUP = INT8_VECTORS * INT8_LANES;

static_assert(ROWS_PER_INT8_PANEL % INT8_GROUP == 0, "a panel is cut into whole groups");

template <int ROWS>
inline uint64_t tile_reaches(const Int8Panel& panel, int first, const int8_t* tile, int64_t steps,
                             const int32_t* starts, const float* levels, const float* margins, int32_t* products,
                             uint64_t* lanes) {
    Whole sums[ROWS][INT8_VECTORS];
    for (int row = 0; row < ROWS; ++row) {
        for (int v = 0; v < INT8_VECTORS; ++v) sums[row][v] = fill_whole(starts[row]);
    }
    const uint8_t* bytes = panel.digits + 4 * first;
    for (int64_t step = 0; step < steps; ++step) {
        Bytes own[INT8_VECTORS];
        for (int v = 0; v < INT8_VECTORS; ++v) own[v] = load_bytes(bytes + 4 * v * INT8_LANES);
        for (int row = 0; row < ROWS; ++row) {
            const Digits digits = load_digits(tile + 4 * row);
            for (int v = 0; v < INT8_VECTORS; ++v) sums[row][v] = add_products(sums[row][v], own[v], digits);
        }
        bytes += 4 * ROWS_PER_INT8_PANEL;
        tile += 4 * ROWS_PER_TILE;
    }
    uint64_t any = 0;
    for (int row = 0; row < ROWS; ++row) {
        const Vector level = fill(levels[row]), margin = fill(-margins[row]);
        uint64_t found = 0;
        for (int v = 0; v < INT8_VECTORS; ++v) {
            const Vector needed = fused(level, load(panel.rates + first + v * INT8_LANES), margin);
            found |= lanes_at_least(to_floats(sums[row][v]), needed) << (v * INT8_LANES);
        }
        lanes[row] = (first == 0 ? 0 : lanes[row]) | found << first;
        any |= found;
        if (found == 0) continue;
        int32_t* own = products + row * ROWS_PER_INT8_PANEL + first;
        for (int v = 0; v < INT8_VECTORS; ++v) store_whole(own + v * INT8_LANES, sums[row][v]);
    }
    return any;
}

bool reach_int8(const Int8Panel& panel, const Int8Vectors& vectors, const float* levels, int32_t* products,
                float* margins, uint64_t* lanes) {
    for (int64_t i = 0; i < vectors.count; ++i) {
        margins[i] = vectors.by_error[i] * panel.error + vectors.by_length[i] * panel.length +
                     vectors.by_rate[i] * panel.rate + vectors.slack;
    }
    uint64_t any = 0;
    for (int64_t row = 0; row < vectors.count; row += ROWS_PER_TILE) {
        const int8_t* tile = vectors.tiles + 4 * row * vectors.steps;
        for (int first = 0; first < ROWS_PER_INT8_PANEL; first += INT8_GROUP) {
            const auto reaches = [&](auto tile_function) {
                return tile_function(panel, first, tile, vectors.steps, vectors.starts + row, levels + row,
                                     margins + row, products + row * ROWS_PER_INT8_PANEL, lanes + row);
            };
            switch (vectors.count - row) {
                case 1: any |= reaches(tile_reaches<1>); break;
                case 2: any |= reaches(tile_reaches<2>); break;
                case 3: any |= reaches(tile_reaches<3>); break;
                default: any |= reaches(tile_reaches<4>); break;
            }
        }
    }
    return any != 0;
}

}  // namespace
}  // namespace railsearch
