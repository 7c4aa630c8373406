// `estimate`: layers and iteration times.
#pragma once
#include "balance.hpp"

namespace search {

constexpr double FIT_ROUNDING = 1e-12;

// What stages take, one after another, and GPUs of plans.
struct Terms {
    std::vector<double> forward, backward, hiding, reduction, overlap, optimizer, num_gpus;

    // A stage with layers [from, end); of `every` replica, also of those with a sample less.
    void add(const Configs& configs, const Config& c, Int b, Int from, Int end, bool every) {
        const Tables& t = configs.t;
        const Int most = configs.local_batch(c, b);
        const Int least = every && c.count * most > t.micro_batch[b] ? most - 1 : most;
        const double compute = t.compute[end] - t.compute[from], tensor = t.tensor[end] - t.tensor[from];
        const bool has_copy = from > 0 && from < end && end == t.num_layers();
        const double parameters = t.parameters[end] - t.parameters[from] + t.tied() * (has_copy ? 1.0 : 0.0);
        double there = 0.0, back = 0.0;
        for (Int batch = least; batch <= most; ++batch) {
            const Int at = t.at(c.degree, batch);
            there = std::max(there, t.forward_s[at] * compute + t.communication_s[at] * tensor);
            back = std::max(back, t.backward_s[at] * compute + t.communication_s[at] * (t.again() * tensor));
        }
        const Int zero = t.zero();
        const double N = static_cast<double>(t.num_micro_batches[b]);
        const double gradients = zero < 1 ? 2.0 : zero == 1 ? 1.0 : N;
        const double weights = zero < 1 ? 0.0 : zero < 3 ? 1.0 : 2.0 * N;
        const double once = gradients * (t.gradient_bytes() * parameters) +
                            weights * (t.parameter_bytes() * parameters);
        forward.push_back(there);
        backward.push_back(back);
        hiding.push_back(zero < 2 ? back : N * (zero == 2 ? back : there + back));
        reduction.push_back(once * std::max(1.0 - 1.0 / c.dp - 0.0, 0.0) * c.reduction_s_per_byte);
        overlap.push_back(t.overlap());
        optimizer.push_back(t.optimizer_s() * (zero >= 1 ? parameters / c.tp / c.dp : parameters / c.tp));
    }
};

// What NumPy makes of them (`compiled.CompiledSearch._exposed`).
struct Exposed {
    Array<double> exposed_s, factor;

    Exposed(PyObject* exposed, const Terms& terms) {
        const Object answer(PyObject_CallFunction(
            exposed, "y#y#y#y#", bytes_of(terms.hiding), length_of(terms.hiding), bytes_of(terms.reduction),
            length_of(terms.reduction), bytes_of(terms.overlap), length_of(terms.overlap), bytes_of(terms.num_gpus),
            length_of(terms.num_gpus)));
        unpack(answer.it, "y*y*", &exposed_s.view, &factor.view);
        check(exposed_s.view.len == length_of(terms.hiding) && factor.view.len == length_of(terms.num_gpus),
              "exposed: as many as there are stages and plans");
    }
};

struct Passes {
    double warm_up, steady, last;
};

// `formulas.pipeline_s`.
inline Passes pipeline(const Terms& terms, const Exposed& found, Int first, Int end, Int num_micro_batches) {
    double warm_up = 0.0, steady = 0.0, last = -INF, before = 0.0;
    for (Int s = first; s < end; ++s) {
        const double both = terms.forward[s] + terms.backward[s];
        warm_up += both;
        steady = std::max(steady, both);
        before += terms.backward[s];
        last = std::max(last, found.exposed_s[s] + terms.optimizer[s] - (before - terms.backward[s]));
    }
    return {warm_up, (static_cast<double>(num_micro_batches) - 1.0) * steady, last};
}

// `_split_equal` of one row; whether it has a solution.
inline bool split_equal(const Candidates& candidates, const Row& row, Int* items) {
    const Configs& configs = candidates.configs;
    const Tables& t = configs.t;
    const Candidate& c = candidates.list[row.candidate];
    const Int S = c.num_stages, L = t.num_layers(), N = t.num_micro_batches[row.batch];
    std::vector<double> cost(S), offset(S);
    std::vector<Int> upper(S);
    bool solvable = S <= L;
    Int most = 0;
    for (Int s = 0; s < S; ++s) {
        const Config& q = configs.rows[candidates.config(c, s)];
        const Int largest = configs.local_batch(q, row.batch), at = t.at(q.degree, largest), behind = S - s;
        const double batch = static_cast<double>(largest);
        const bool is_first = s == 0, is_last = s == S - 1;
        double both[3];
        for (int part = 0; part < 3; ++part) {
            const double compute = t.part_compute(part), tensor = t.part_tensor(part);
            both[part] = (t.forward_s[at] * compute + t.communication_s[at] * tensor) +
                         (t.backward_s[at] * compute + t.communication_s[at] * (t.again() * tensor));
        }
        cost[s] = both[0];
        offset[s] = (is_first ? both[1] : 0.0) + (is_last ? both[2] : 0.0);
        const double usable = t.usable_bytes() * (1.0 - FIT_ROUNDING) - (q.fixed_bytes + batch * t.working[q.degree]);
        const double samples = static_cast<double>(std::min(N, behind)) * batch;
        const double coexist = N > behind ? 1.0 : 0.0;
        double before[4], after[4];
        for (int part = 0; part < 4; ++part) {
            const double state = q.state_bytes * t.part_parameters(part);
            const double gradients = q.gradient_bytes * t.part_parameters(part);
            before[part] = state + samples * t.kept_bytes(part, q.degree) + coexist * gradients;
            after[part] = state + gradients;
        }
        double room = INF;
        for (const double* need : {before, after}) {
            const double ends = (is_first ? need[1] : 0.0) + (is_last ? need[2] : 0.0) +
                                (is_last && !is_first ? need[3] : 0.0);
            room = std::min(room, (usable - ends) / std::max(need[0], TINY));
        }
        upper[s] = static_cast<Int>(std::min(std::max(0.0, room), static_cast<double>(L)));
        solvable = solvable && upper[s] >= 1;
        most += upper[s];
    }
    if (!solvable || most < L) return false;
    split_row(L, cost, offset, upper, items);
    return true;
}

// Rows with what `estimate` finds: layers from `starts` on, and iteration times.
struct Estimates {
    std::vector<Int> layers, starts;
    std::vector<double> total_s;
};

inline Estimates estimate(const Candidates& candidates, const std::vector<Row>& rows, PyObject* exposed) {
    const Configs& configs = candidates.configs;
    const Tables& t = configs.t;
    Estimates found;
    std::vector<char> possible;
    Terms terms;
    for (const Row& row : rows) {
        const Candidate& c = candidates.list[row.candidate];
        breathe(16 * c.num_stages);
        const Int start = static_cast<Int>(found.layers.size());
        found.starts.push_back(start);
        found.layers.resize(start + c.num_stages);
        possible.push_back(split_equal(candidates, row, &found.layers[start]));
        double num_gpus = 0.0;
        for (Int s = 0, end = 0; s < c.num_stages; ++s) {
            const Config& q = configs.rows[candidates.config(c, s)];
            const Int from = end;
            end += found.layers[start + s];
            terms.add(configs, q, row.batch, from, end, false);
            num_gpus += q.tp * q.dp;
            if (!t.sends()) continue;
            double sent = end < t.num_layers() ? t.boundaries[std::max<Int>(end, 1) - 1] : 0.0;
            sent = sent * static_cast<double>(t.micro_batch[row.batch]) * (t.splits_sends() ? 1.0 : q.tp);
            const double half = 0.5 * (sent * q.send_s_per_byte);
            for (double* pass : {&terms.forward.back(), &terms.backward.back()})
                *pass = t.overlaps_sends() ? std::max(*pass, half) : *pass + half;
        }
        terms.num_gpus.push_back(num_gpus);
    }
    const Exposed hidden(exposed, terms);
    for (std::size_t k = 0; k < rows.size(); ++k) {
        const Int start = found.starts[k], S = candidates.list[rows[k].candidate].num_stages;
        const Passes passes = pipeline(terms, hidden, start, start + S, t.num_micro_batches[rows[k].batch]);
        found.total_s.push_back(possible[k] ? (passes.warm_up + passes.steady + passes.last) * hidden.factor[k] : INF);
    }
    return found;
}

}  // namespace search
