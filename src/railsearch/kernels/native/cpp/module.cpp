// The Python module: plain functions over addresses. Shapes, strides and dtypes are checked in Python.
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <stdexcept>

#include "attention.h"
#include "dispatch.h"
#include "int8_table.h"
#include "layers.h"
#include "lists.h"
#include "search.h"
#include "self_check.h"
#include "training.h"
#include "training_softmax.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace railsearch {
namespace {

template <typename T>
T* at(uintptr_t address) {
    return reinterpret_cast<T*>(address);
}

const Operations& chosen(const std::string& isa) {
    const Operations* operations = find_operations(isa);
    if (operations == nullptr) throw std::invalid_argument("this CPU cannot run the instruction set " + isa);
    return *operations;
}

// Ctrl-C raises KeyboardInterrupt in the thread that waits.
void check_signals() {
    const nb::gil_scoped_acquire gil;
    if (PyErr_CheckSignals() != 0) throw nb::python_error();
}

GateWeights gate_weights(const std::vector<uintptr_t>& addresses) {
    return {at<const float>(addresses.at(0)), at<const float>(addresses.at(1)), at<const float>(addresses.at(2)),
            at<const float>(addresses.at(3))};
}

Context context_of(const std::string& isa, int num_threads) { return {chosen(isa), num_threads, check_signals}; }

}  // namespace
}  // namespace railsearch

NB_MODULE(_railsearch_native, m) {
    using namespace railsearch;

    m.attr("INTERFACE") = 4;  // library.py asks for this number; raise both if a signature changes

    nb::class_<Form>(m, "Form").def(
        "__init__",
        [](Form* self, int64_t num_query_components, int64_t num_item_components, int64_t dim, int64_t hidden_dim,
           bool has_query_gate, bool has_item_gate, bool has_silu, bool is_mixture, bool is_late_interaction,
           float absent_gate, float temperature, uintptr_t w1, uintptr_t b1, uintptr_t w2, uintptr_t b2) {
            Mixture shape;
            shape.num_query_components = num_query_components;
            shape.num_item_components = num_item_components;
            shape.dim = dim;
            shape.num_pairs = num_query_components * num_item_components;
            shape.hidden_dim = hidden_dim;
            shape.has_query_gate = has_query_gate;
            shape.has_item_gate = has_item_gate;
            shape.has_silu = has_silu;
            shape.is_late_interaction = is_late_interaction;
            shape.absent_gate = absent_gate;
            new (self) Form(shape, temperature, is_mixture, at<const float>(w1), at<const float>(b1),
                            at<const float>(w2), at<const float>(b2));
        },
        nb::kw_only(), "num_query_components"_a, "num_item_components"_a, "dim"_a, "hidden_dim"_a, "has_query_gate"_a,
        "has_item_gate"_a, "has_silu"_a, "is_mixture"_a, "is_late_interaction"_a, "absent_gate"_a, "temperature"_a,
        "hidden_weight"_a, "hidden_bias"_a, "output_weight"_a, "output_bias"_a);

    nb::class_<Items>(m, "Items")
        .def("__init__", [](Items* self, int number) {
            new (self) Items();
            self->number = static_cast<Number>(number);
        })
        .def("add", [](Items& self, uintptr_t components, int64_t stride, uintptr_t gate, int64_t gate_stride,
                       int64_t count) {
            self.add({at<const char>(components), stride, at<const char>(gate), gate_stride, count});
        })
        .def("__len__", &Items::count);

    nb::class_<Filter>(m, "Filter")
        .def(nb::init<>())
        .def("__init__", [](Filter* self, uintptr_t is_allowed, uintptr_t queries, uintptr_t rows, int64_t num_pairs,
                            int64_t num_queries) {
            new (self) Filter(at<const bool>(is_allowed), at<const int64_t>(queries), at<const int64_t>(rows), num_pairs,
                              num_queries);
        });

    m.def("score", [](const std::string& isa, int num_threads, const Form& form, uintptr_t components, uintptr_t gate,
                      int64_t num_queries, const Items& items, bool is_bound, uintptr_t out, int64_t stride) {
        const Context context = context_of(isa, num_threads);
        const nb::gil_scoped_release unlocked;
        return score(context, form, {at<const float>(components), at<const float>(gate), num_queries}, items, is_bound,
                     at<float>(out), stride);
    });

    m.def("top_k", [](const std::string& isa, int num_threads, const Form& form, uintptr_t components, uintptr_t gate,
                      int64_t num_queries, const Items& items, const Filter& filter, int64_t k, uintptr_t scores,
                      uintptr_t rows) {
        const Context context = context_of(isa, num_threads);
        const nb::gil_scoped_release unlocked;
        return top_k(context, form, {at<const float>(components), at<const float>(gate), num_queries}, items, filter, k,
                     at<float>(scores), at<int64_t>(rows));
    });

    m.def("top_k_above", [](const std::string& isa, int num_threads, const Form& form, uintptr_t components,
                            uintptr_t gate, int64_t num_queries, const Items& items, const Filter& filter, int64_t k,
                            uintptr_t thresholds, uintptr_t scores, uintptr_t rows, uintptr_t num_scored,
                            uintptr_t best_skipped) {
        const Context context = context_of(isa, num_threads);
        const nb::gil_scoped_release unlocked;
        return top_k_above(context, form, {at<const float>(components), at<const float>(gate), num_queries}, items,
                           filter, k, at<const float>(thresholds),
                           {at<float>(scores), at<int64_t>(rows), at<int64_t>(num_scored), at<float>(best_skipped)});
    });

    m.def("best_by_component", [](const std::string& isa, int num_threads, const Form& form, uintptr_t components,
                                  int64_t num_queries, const Items& items, const Filter& filter, int64_t n, int64_t m,
                                  uintptr_t scores, uintptr_t rows, uintptr_t bounds, uintptr_t bound_rows) {
        const Context context = context_of(isa, num_threads);
        const nb::gil_scoped_release unlocked;
        return best_by_component(context, form, {at<const float>(components), nullptr, num_queries}, items, filter, n, m,
                                 {at<float>(scores), at<int64_t>(rows), at<float>(bounds), at<int64_t>(bound_rows)});
    });

    m.def("score_candidates", [](const std::string& isa, int num_threads, const Form& form, uintptr_t components,
                                 uintptr_t gate, int64_t num_queries, const Items& items, uintptr_t rows, int64_t width,
                                 uintptr_t out) {
        const Context context = context_of(isa, num_threads);
        const nb::gil_scoped_release unlocked;
        return score_candidates(context, form, {at<const float>(components), at<const float>(gate), num_queries}, items,
                                at<const int64_t>(rows), width, at<float>(out));
    });

    m.def("scan", [](const std::string& isa, int num_threads, uintptr_t vectors, int64_t num_vectors, int64_t group,
                     int64_t dim, const Items& items, const Filter& filter, int64_t n, uintptr_t scores, uintptr_t rows,
                     uintptr_t bounds, int64_t stride) {
        const Context context = context_of(isa, num_threads);
        const nb::gil_scoped_release unlocked;
        scan(context, at<const float>(vectors), num_vectors, group, dim, items, filter, n, at<float>(scores),
                    at<int64_t>(rows), at<float>(bounds), stride);
    });

    nb::class_<Int8Table>(m, "Int8Table")
        .def("__init__", [](Int8Table* self, const std::string& isa, int num_threads, const Items& items, int64_t dim) {
            const Context context = context_of(isa, num_threads);
            const nb::gil_scoped_release unlocked;
            new (self) Int8Table(context, items, dim);
        })
        .def_prop_ro("is_usable", &Int8Table::is_usable)
        .def_prop_ro("num_bytes", &Int8Table::num_bytes);

    m.def("scan_int8", [](const std::string& isa, int num_threads, uintptr_t vectors, int64_t num_vectors, int64_t group,
                          const Int8Table& table, const Items& items, const Filter& filter, int64_t n, uintptr_t scores,
                          uintptr_t rows) {
        const Context context = context_of(isa, num_threads);
        const nb::gil_scoped_release unlocked;
        scan_int8(context, at<const float>(vectors), num_vectors, group, table, items, filter, n, at<float>(scores),
                  at<int64_t>(rows));
    });

    m.def("bound_int8", [](const std::string& isa, uintptr_t vectors, int64_t num_vectors, const Int8Table& table,
                           uintptr_t thresholds, uintptr_t low, uintptr_t high, uintptr_t is_reached) {
        return bound_int8(context_of(isa, 1), at<const float>(vectors), num_vectors, table, at<const float>(thresholds),
                          at<float>(low), at<float>(high), at<bool>(is_reached));
    });

    m.def("select_best", [](const std::string& isa, int num_threads, uintptr_t scores, uintptr_t ties, int64_t count,
                            int64_t width, int64_t k, uintptr_t best, uintptr_t columns) {
        const Context context = context_of(isa, num_threads);
        const nb::gil_scoped_release unlocked;
        select_best(context, at<const float>(scores), at<const int64_t>(ties), count, width, k, at<float>(best),
                    at<int64_t>(columns));
    });

    m.def("unite", [](const std::string& isa, int num_threads, uintptr_t rows, int64_t count, int64_t width,
                      uintptr_t united, uintptr_t is_real, uintptr_t counts) {
        const Context context = context_of(isa, num_threads);
        const nb::gil_scoped_release unlocked;
        unite(context, at<const int64_t>(rows), count, width, at<int64_t>(united), at<bool>(is_real),
              at<int64_t>(counts));
    });

    nb::class_<Layer>(m, "Layer")
        .def("__init__", [](Layer* self, const std::string& isa, int activation, uintptr_t weight, uintptr_t bias,
                            int64_t output_dim, int64_t input_dim) {
            new (self) Layer(chosen(isa), static_cast<Activation>(activation), at<const float>(weight),
                             at<const float>(bias), output_dim, input_dim);
        })
        .def("apply", [](const Layer& self, const std::string& isa, int num_threads, uintptr_t inputs, int64_t count,
                         uintptr_t results, int64_t stride) {
            const Context context = context_of(isa, num_threads);
            const nb::gil_scoped_release unlocked;
            self.apply(context, at<const float>(inputs), count, at<float>(results), stride);
        });

    m.def("normalize", [](const std::string& isa, int num_threads, uintptr_t rows, int64_t count, int64_t dim,
                          float epsilon) {
        const Context context = context_of(isa, num_threads);
        const nb::gil_scoped_release unlocked;
        normalize(context, at<float>(rows), count, dim, epsilon);
    });

    nb::class_<TrainingStep>(m, "TrainingStep").def("__init__", [](
        TrainingStep* self, int64_t num_queries, int64_t num_items, int64_t num_query_components,
        int64_t num_item_components, int64_t hidden_dim, bool has_silu, bool has_own_items, uintptr_t scores, uintptr_t query_gate, uintptr_t item_gate, uint64_t seed,
        uint32_t dropped) {
        new (self) TrainingStep();
        self->num_queries = num_queries;
        self->num_items = num_items;
        self->num_query_components = num_query_components;
        self->num_item_components = num_item_components;
        self->num_pairs = num_query_components * num_item_components;
        self->hidden_dim = hidden_dim;
        self->has_silu = has_silu;
        self->has_own_items = has_own_items;
        self->scores = at<const float>(scores);
        self->query_gate = at<const float>(query_gate);
        self->item_gate = at<const float>(item_gate);
        self->seed = seed;
        self->dropped = dropped;
    }, nb::kw_only(), "num_queries"_a, "num_items"_a, "num_query_components"_a,
        "num_item_components"_a, "hidden_dim"_a, "has_silu"_a, "has_own_items"_a,
        "scores"_a, "query_gate"_a, "item_gate"_a, "seed"_a, "dropped"_a);

    m.def("mix_in_training", [](const std::string& isa, int num_threads, const TrainingStep& step,
                                const std::vector<uintptr_t>& weights, uintptr_t mixed) {
        const Context context = context_of(isa, num_threads);
        const GateWeights own = gate_weights(weights);
        const nb::gil_scoped_release unlocked;
        mix_in_training(context, step, own, at<float>(mixed));
    });

    m.def("mix_backward", [](const std::string& isa, int num_threads, const TrainingStep& step,
                             const std::vector<uintptr_t>& weights, uintptr_t upstream,
                             const std::vector<uintptr_t>& gradients) {
        const Context context = context_of(isa, num_threads);
        const GateWeights own = gate_weights(weights);
        const MixtureGradient gradient{at<float>(gradients.at(0)), at<float>(gradients.at(1)),
                                       at<float>(gradients.at(2)), at<float>(gradients.at(3)),
                                       at<float>(gradients.at(4)), at<float>(gradients.at(5)),
                                       at<float>(gradients.at(6))};
        const nb::gil_scoped_release unlocked;
        mix_backward(context, step, own, at<const float>(upstream), gradient);
    });

    m.def("shared_softmax", [](const std::string& isa, int num_threads, int64_t num_queries, int64_t num_items,
                                    int64_t dim, float weight, uintptr_t queries, uintptr_t rights, uintptr_t own,
                                    uintptr_t excluded, uintptr_t excluded_rows, uintptr_t items, uintptr_t offsets,
                                    uintptr_t to_queries, uintptr_t to_rights, uintptr_t to_items) {
        const Context context = context_of(isa, num_threads);
        SoftmaxStep step;
        step.num_queries = num_queries;
        step.num_items = num_items;
        step.dim = dim;
        step.weight = weight;
        step.queries = at<const float>(queries);
        step.rights = at<const float>(rights);
        step.own = at<const int64_t>(own);
        step.excluded = at<const unsigned char>(excluded);
        step.excluded_rows = at<const int64_t>(excluded_rows);
        step.to_queries = at<float>(to_queries);
        step.to_rights = at<float>(to_rights);
        const nb::gil_scoped_release unlocked;
        return softmax_in_training(context, step, at<const float>(items), at<const float>(offsets),
                                   at<float>(to_items));
    }, nb::kw_only(), "isa"_a, "num_threads"_a, "num_queries"_a, "num_items"_a, "dim"_a, "weight"_a, "queries"_a,
        "rights"_a, "own"_a, "excluded"_a, "excluded_rows"_a, "items"_a, "offsets"_a, "to_queries"_a, "to_rights"_a,
        "to_items"_a);

    nb::class_<AttentionStep>(m, "AttentionStep").def("__init__", [](
        AttentionStep* self, int64_t num_heads, int64_t head_dim, uintptr_t inputs, uintptr_t distance_bias,
        uintptr_t time_bias, float scale, float epsilon, uint64_t seed, uint32_t dropped) {
        new (self) AttentionStep();
        self->num_heads = num_heads;
        self->head_dim = head_dim;
        self->inputs = at<const float>(inputs);
        self->distance_bias = at<const float>(distance_bias);
        self->time_bias = at<const float>(time_bias);
        self->scale = scale;
        self->epsilon = epsilon;
        self->seed = seed;
        self->dropped = dropped;
    }, nb::kw_only(), "num_heads"_a, "head_dim"_a, "inputs"_a, "distance_bias"_a, "time_bias"_a, "scale"_a,
        "epsilon"_a, "seed"_a, "dropped"_a);

    nb::class_<AttentionPlan>(m, "AttentionPlan")
        .def("__init__", [](AttentionPlan* self, const std::string& isa, int num_threads, uintptr_t lengths,
                            int64_t num_histories, uintptr_t times, uintptr_t next_times, uintptr_t bounds,
                            int64_t num_buckets) {
            const Context context = context_of(isa, num_threads);
            const nb::gil_scoped_release unlocked;
            new (self) AttentionPlan(context, at<const int64_t>(lengths), num_histories, at<const int64_t>(times),
                                     at<const int64_t>(next_times), at<const float>(bounds), num_buckets);
        })
        .def("forward", [](const AttentionPlan& self, const std::string& isa, int num_threads,
                           const AttentionStep& step, uintptr_t attended, uintptr_t outputs) {
            const Context context = context_of(isa, num_threads);
            const nb::gil_scoped_release unlocked;
            self.forward(context, step, at<float>(attended), at<float>(outputs));
        })
        .def("backward", [](const AttentionPlan& self, const std::string& isa, int num_threads,
                            const AttentionStep& step, uintptr_t attended, uintptr_t upstream, uintptr_t to_inputs,
                            uintptr_t to_distances, int64_t num_distances, uintptr_t to_times) {
            const Context context = context_of(isa, num_threads);
            const nb::gil_scoped_release unlocked;
            self.backward(context, step, at<const float>(attended), at<const float>(upstream), at<float>(to_inputs),
                          at<float>(to_distances), num_distances, at<float>(to_times));
        });

    m.def("drop", [](const std::string& isa, int num_threads, uintptr_t values, int64_t count, uint64_t seed,
                     uint32_t dropped, uintptr_t results) {
        const Context context = context_of(isa, num_threads);
        const nb::gil_scoped_release unlocked;
        drop(context, at<const float>(values), count, seed, dropped, at<float>(results));
    });

    m.def("usable_isas", [] {
        std::vector<std::string> names;
        for (const Operations* operations : usable_operations()) names.emplace_back(operations->name);
        return names;
    });
    m.def("agrees_with_portable", [](const std::string& isa) { return agrees_with_portable(chosen(isa)); });
    m.def("exponential", [](const std::string& isa, uintptr_t values, int64_t count, uintptr_t results) {
        chosen(isa).exponential(at<const float>(values), count, at<float>(results));
    });
    m.def("silu", [](const std::string& isa, uintptr_t values, int64_t count, uintptr_t results) {
        chosen(isa).silu(at<const float>(values), count, at<float>(results));
    });
}
