// `selection`: the best of the candidates for every number of micro-batches.
#pragma once
#include "estimate.hpp"

namespace search {

constexpr double EQUAL = 1e-12;
constexpr std::size_t FIRST = 128, LATER = 256;

// (candidate, index of the number of micro-batches, time, and of every stage: layers, GPUs per node, degree, the stage
// that it was or -1, whether it costs what the one before it costs)
inline PyObject* choice(const Candidates& candidates, const Row& row, double time_s, const Int* own_layers) {
    const Configs& configs = candidates.configs;
    const Candidate& c = candidates.list[row.candidate];
    const std::vector<Int> layers(own_layers, own_layers + c.num_stages);
    std::vector<Int> gpus, degree, origin;
    std::vector<char> repeats;
    const Config* last = nullptr;
    for (Int s = 0; s < c.num_stages; ++s) {
        const Int q = candidates.config(c, s);
        const Config& own = configs.rows[q];
        for (Int v = 0; v < candidates.plans.V; ++v)
            gpus.push_back(configs.replicas_of(q)[v] * configs.t.tp(own.degree));
        degree.push_back(own.degree);
        origin.push_back(c.is_new && s == c.stage ? -1 : candidates.plans.stages[candidates.before(c, s)].origin);
        repeats.push_back(last && own.degree == last->degree && own.count == last->count &&
                          own.reduction_s_per_byte == last->reduction_s_per_byte);
        last = &own;
    }
    const long long number = row.candidate, batch = row.batch;
    return Py_BuildValue("LLdy#y#y#y#y#", number, batch, time_s, bytes_of(layers), length_of(layers), bytes_of(gpus),
                         length_of(gpus), bytes_of(degree), length_of(degree), bytes_of(origin), length_of(origin),
                         bytes_of(repeats), length_of(repeats));
}

// `_choices`: as a list of choices.
inline PyObject* choices(const Candidates& candidates, std::vector<double> limits_s, double best_s, double within,
                         PyObject* exposed) {
    Object chosen(PyList_New(0));
    std::vector<Row> rows = bounded(candidates, limits_s);
    for (std::size_t size = FIRST; !rows.empty(); size = LATER) {
        auto hopeless = [&](const Row& row) { return !may_beat(candidates, row, limits_s[row.batch]); };
        rows.erase(std::remove_if(rows.begin(), rows.end(), hopeless), rows.end());
        if (rows.empty()) break;
        const std::vector<Row> chunk(rows.begin(), rows.begin() + std::min(size, rows.size()));
        rows.erase(rows.begin(), rows.begin() + chunk.size());
        const Estimates found = estimate(candidates, chunk, exposed);
        const std::vector<double>& time_s = found.total_s;
        std::vector<std::size_t> better;
        for (std::size_t k = 0; k < chunk.size(); ++k)
            if (time_s[k] < limits_s[chunk[k].batch]) better.push_back(k);
        auto faster = [&](std::size_t a, std::size_t b) { return time_s[a] < time_s[b]; };
        std::stable_sort(better.begin(), better.end(), faster);
        for (std::size_t k : better) {
            if (!(time_s[k] < limits_s[chunk[k].batch])) continue;
            const Object taken(choice(candidates, chunk[k], time_s[k], &found.layers[found.starts[k]]));
            if (PyList_Append(chosen.it, taken.it)) throw Failed();
            best_s = std::min(best_s, time_s[k]);
            limits_s[chunk[k].batch] = time_s[k] * (1.0 - EQUAL);
            for (double& limit : limits_s) limit = std::min(limit, best_s * within);
        }
    }
    return chosen.given_away();
}

}  // namespace search
