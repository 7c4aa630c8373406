// The search of one prefix of Algorithm 1, as `search.Search` has it in NumPy; a header is a module of that name. For
// nodes of one kind and layers that are equal. Every number is that of the NumPy form, bit for bit: the same operations
// in the same order, none of them fused; powers and logarithms, which differ from library to library, are NumPy's own
// (`Exposed`).
#include "arguments.hpp"

#include <exception>
#include <new>

#include "folding.hpp"
#include "iteration.hpp"
#include "selection.hpp"

namespace search {

// Exceptions end here.
template <typename Answer>
PyObject* guarded(Answer answer) {
    try {
        return answer();
    } catch (const Failed&) {
    } catch (const std::bad_alloc&) {
        PyErr_NoMemory();
    } catch (const std::exception& fault) {
        PyErr_SetString(PyExc_RuntimeError, fault.what());
    }
    return nullptr;
}

// Expansions of the first `num_expanded` plans, foldings of the next `num_folded`, and the others as they are.
PyObject* choices_of(PyObject*, PyObject* arguments) {
    return guarded([&] {
        PyObject *packed_tables, *packed_nodes, *packed_plans, *exposed;
        Array<Int> available;
        Array<double> limits_s;
        double best_s, within;
        long long num_expanded, num_folded, most_stages;
        int anew;
        unpack(arguments, "OOOLLy*Lpy*ddO", &packed_tables, &packed_nodes, &packed_plans, &num_expanded, &num_folded,
               &available.view, &most_stages, &anew, &limits_s.view, &best_s, &within, &exposed);
        const Tables tables(packed_tables);
        const Landscape landscape(packed_nodes);
        Skeletons plans(tables, landscape, packed_plans);
        const Int num_given = plans.num_plans();
        check(num_expanded >= 0 && num_folded >= 0 && num_folded <= num_given && num_expanded <= num_given - num_folded,
              "plans: number of those that are expanded or folded");
        check(available.size() == landscape.V && limits_s.size() == tables.B(), "plans: available GPUs, limits");
        Configs configs(tables, landscape);
        Candidates candidates(plans, configs);
        for (Int p = 0; p < num_expanded; ++p) candidates.expand(p, plans.rest_of(p, available), most_stages, anew);
        for (Int p = num_expanded; p < num_expanded + num_folded; ++p) fold(plans, p, most_stages);
        for (Int p = 0; p < num_expanded; ++p)
            grow(plans, p, plans.rest_of(p, available), anew ? most_stages : plans.num_stages(p));
        candidates.add_whole(num_expanded + num_folded);
        return choices(candidates, {limits_s.begin(), limits_s.end()}, best_s, within, exposed);
    });
}

PyObject* time_s_of(PyObject*, PyObject* arguments) {
    return guarded([&] {
        PyObject *packed_tables, *packed_nodes, *packed_plan, *exposed;
        Array<Int> layers;
        long long batch;
        unpack(arguments, "OOOy*LO", &packed_tables, &packed_nodes, &packed_plan, &layers.view, &batch, &exposed);
        const Tables tables(packed_tables);
        const Landscape landscape(packed_nodes);
        Skeletons plan(tables, landscape, packed_plan);
        Configs configs(tables, landscape);
        Candidates(plan, configs).add_whole(0);
        check(batch >= 0 && batch < tables.B(), "plan: number of micro-batches");
        for (const Config& c : configs.rows)
            check(c.count > 0 && c.count <= tables.micro_batch[batch], "plan: replicas without samples");
        check(layers.size() == static_cast<Int>(configs.rows.size()) && layers.within(1, tables.num_layers()) &&
                  std::accumulate(layers.begin(), layers.end(), Int{0}) == tables.num_layers(),
              "plan: layers");
        return PyFloat_FromDouble(iteration_s(configs, layers, batch, exposed));
    });
}

PyMethodDef methods[] = {
    {"time_s", time_s_of, METH_VARARGS, "Iteration time of a plan; see `compiled`."},
    {"choices", choices_of, METH_VARARGS, "Choices among expansions of plans, and other plans; see `compiled`."},
    {nullptr, nullptr, 0, nullptr}};

PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "compiled_search", nullptr, 0, methods, nullptr, nullptr, nullptr, nullptr};

}  // namespace search

PyMODINIT_FUNC PyInit_compiled_search() {
    PyObject* module = PyModule_Create(&search::definition);
    if (module && PyModule_AddStringConstant(module, "SOURCE", SOURCE_DIGEST)) Py_CLEAR(module);
    return module;
}
