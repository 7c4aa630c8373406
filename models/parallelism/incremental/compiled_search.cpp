// The search of one prefix of Algorithm 1, as `search.Search` has it in NumPy: expansions of predecessors (`candidates`),
// what their stages cost (`configs`), bounds (`bounds`), layers (`balance`) and times (`estimate`), and what is chosen
// (`selection`). For nodes of one kind and layers that are equal. Every number is that of the NumPy form, bit for bit: the
// same operations in the same order, none of them fused; powers and logarithms, which differ from library to library,
// are NumPy's own (`exposed`).
#define PY_SSIZE_T_CLEAN
#define Py_LIMITED_API 0x030B0000
#include <Python.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <new>
#include <numeric>
#include <vector>

namespace {

using Int = std::int64_t;
constexpr double INF = std::numeric_limits<double>::infinity();
constexpr double TINY = 1e-30, EXACT = 1.0 - 1e-9, FLOOR_ROUNDING = 1e-6, FIT_ROUNDING = 1e-12, EQUAL = 1e-12;
constexpr std::size_t FIRST = 128, LATER = 256;

// A Python error is set.
struct Failed {};

// A contiguous array of the caller's.
template <typename T>
struct Array {
    Py_buffer view{};
    ~Array() {
        if (view.obj) PyBuffer_Release(&view);
    }
    const T& operator[](Int k) const { return static_cast<const T*>(view.buf)[k]; }
    Int size() const { return view.len / static_cast<Int>(sizeof(T)); }
};

struct Object {
    PyObject* it;
    explicit Object(PyObject* made) : it(made) {
        if (!it) throw Failed();
    }
    ~Object() { Py_XDECREF(it); }
    Object(const Object&) = delete;
};

// `CostTables.packed`.
struct Tables {
    Array<Int> whole, num_micro_batches, micro_batch;
    Array<double> real, degrees, layer_s, forward_s, backward_s, communication_s, parts, kept, working;
    Array<double> compute, tensor, parameters, boundaries;

    explicit Tables(PyObject* packed) {
        if (!PyArg_ParseTuple(packed, "y*y*y*y*y*y*y*y*y*y*y*y*y*y*y*y*", &whole.view, &num_micro_batches.view,
                              &micro_batch.view, &real.view, &degrees.view, &layer_s.view, &forward_s.view,
                              &backward_s.view, &communication_s.view, &parts.view, &kept.view, &working.view,
                              &compute.view, &tensor.view, &parameters.view, &boundaries.view))
            throw Failed();
    }
    Int num_layers() const { return whole[0]; }
    Int zero() const { return whole[1]; }
    Int own_micro_batch() const { return whole[2]; }
    bool sends() const { return whole[3]; }
    bool splits_sends() const { return whole[4]; }
    bool overlaps_sends() const { return whole[5]; }
    double usable_bytes() const { return real[0]; }
    double optimizer_s() const { return real[1]; }
    double overlap() const { return real[2]; }
    double again() const { return real[3]; }
    double parameter_bytes() const { return real[4]; }
    double gradient_bytes() const { return real[5]; }
    double optimizer_bytes() const { return real[6]; }
    double first_layers() const { return real[7]; }
    double last_layers() const { return real[8]; }
    double tied() const { return real[9]; }
    Int B() const { return num_micro_batches.size(); }
    Int T() const { return degrees.size(); }
    // Of local batches from 0 on.
    Int at(Int degree, Int batch) const { return degree * (layer_s.size() / T()) + batch; }
    // Shares of `part_shares`: 0 the plain layer, 1 and 2 the ends, 3 the copy of tied embeddings.
    double part_compute(int part) const { return parts[part]; }
    double part_tensor(int part) const { return parts[4 + part]; }
    double part_parameters(int part) const { return parts[8 + part]; }
    double kept_bytes(int part, Int degree) const { return kept[part * T() + degree]; }
};

// `Landscape.packed`.
struct Nodes {
    Array<double> intra, inter, fractions, send_fractions;
    Array<Int> unit;
    Int V;
    double least_fraction = INF;
    mutable std::vector<Int> seen;
    mutable Int stamp = 0;

    explicit Nodes(PyObject* packed) {
        if (!PyArg_ParseTuple(packed, "y*y*y*y*y*", &intra.view, &inter.view, &fractions.view, &send_fractions.view,
                              &unit.view))
            throw Failed();
        V = intra.size();
        for (Int d = 0; d < fractions.size(); ++d) least_fraction = std::min(least_fraction, fractions[d]);
        seen.assign(V, 0);
    }
    // `Fabric.send_receive_bytes_per_s`.
    double between(Int v, Int w) const {
        Int shared = 0;
        while (shared + 1 < send_fractions.size() && unit[shared * V + v] == unit[shared * V + w]) ++shared;
        return send_fractions[shared] * std::min(inter[v], inter[w]);
    }
};

// `StageShapes` and `StageConfigs` of one stage, but for what depends on the number of micro-batches.
struct Config {
    Int degree, count;
    double tp, dp, reduction_s_per_byte, send_s_per_byte, fixed_bytes, state_bytes, gradient_bytes;
};

double sharded(double tp, double dp, bool is_sharded) { return is_sharded ? 1.0 / tp / dp : 1.0 / tp; }
double in_full(double tp, double dp, bool is_sharded) { return is_sharded ? (1.0 - 1.0 / dp) / tp : 0.0; }

Config config_of(const Tables& t, const Nodes& nodes, const Int* replicas, Int degree) {
    Config c{};
    c.degree = degree;
    c.tp = t.degrees[degree];
    double inside = INF, slowest = INF;
    Int num_nodes = 0;
    for (Int v = 0; v < nodes.V; ++v) {
        if (replicas[v] <= 0) continue;
        c.count += replicas[v];
        ++num_nodes;
        slowest = std::min(slowest, nodes.inter[v]);
        if (replicas[v] > 1) inside = std::min(inside, nodes.intra[v]);
    }
    double fraction = INF;
    Int before = num_nodes > 0;
    const Int depths = nodes.fractions.size();
    for (Int depth = 0; depth < depths; ++depth) {
        Int spread = num_nodes;
        if (depth + 1 < depths) {
            ++nodes.stamp;
            spread = 0;
            for (Int v = 0; v < nodes.V; ++v) {
                if (replicas[v] <= 0) continue;
                Int& seen = nodes.seen[nodes.unit[depth * nodes.V + v]];
                spread += seen != nodes.stamp;
                seen = nodes.stamp;
            }
        }
        if (spread > before) fraction = std::min(fraction, nodes.fractions[depth]);
        before = spread;
    }
    c.reduction_s_per_byte = std::max(1.0 / (c.tp * inside), 1.0 / (fraction * slowest));
    if (nodes.V == 1)
        c.send_s_per_byte = 1.0 / (static_cast<double>(std::max<Int>(c.count, 1)) * c.tp * nodes.intra[0]);
    else
        c.send_s_per_byte = 1.0 / (static_cast<double>(std::max<Int>(num_nodes, 1)) * (slowest * nodes.least_fraction));
    c.dp = static_cast<double>(std::max<Int>(c.count, 1));
    const Int zero = t.zero();
    c.fixed_bytes = t.parameter_bytes() * in_full(c.tp, c.dp, zero >= 3) + t.gradient_bytes() * in_full(c.tp, c.dp, zero >= 2);
    c.state_bytes = t.parameter_bytes() * sharded(c.tp, c.dp, zero >= 3);
    c.state_bytes += t.optimizer_bytes() * sharded(c.tp, c.dp, zero >= 1);
    c.gradient_bytes = t.gradient_bytes() * sharded(c.tp, c.dp, zero >= 2);
    return c;
}

struct Stage {
    std::vector<Int> gpus;
    Int degree, origin;
    bool repeats;
};

// What changes in a predecessor: nothing (`stage` -1), a stage, or a new stage before `stage`; `config` of what it becomes.
struct Candidate {
    Int plan, stage, config, num_stages;
    bool is_new;
};

struct Row {
    Int candidate, batch;
    double bound;
};

class Search {
  public:
    Search(const Tables& tables, const Nodes& nodes) : t(tables), nodes(nodes) {}

    // Plans whose stages hold GPUs per node, and have degrees, stages that they were (-1: none), and whether they repeat.
    void plans(const Array<Int>& gpus, const Array<Int>& degree, const Array<Int>& origin, const Array<char>& repeats,
               const Array<Int>& num_stages) {
        for (Int p = 0, first = 0; p < num_stages.size(); first += num_stages[p++]) {
            for (Int s = first; s < first + num_stages[p]; ++s) {
                const Int* of_nodes = &gpus[s * nodes.V];
                stages.push_back({std::vector<Int>(of_nodes, of_nodes + nodes.V), degree[s], origin[s], repeats[s] != 0});
            }
            end_plan();
        }
    }

    // Expansions of the first `num_expanded` plans, foldings of the next `num_folded`, and the others as they are.
    void candidates_of(Int num_expanded, Int num_folded, const Array<Int>& available, Int most_stages, bool anew) {
        for (Int p = 0; p < num_expanded; ++p) expand(p, rest_of(p, available), most_stages, anew);
        const Int num_given = num_expanded + num_folded;
        for (Int p = num_expanded; p < num_given; ++p) fold(p, most_stages);
        for (Int p = 0; p < num_expanded; ++p) grow(p, rest_of(p, available), anew ? most_stages : num_stages(p));
        for (Int p = num_given; p < static_cast<Int>(firsts.size()) - 1; ++p)
            candidates.push_back({p, -1, 0, num_stages(p), false});
    }

    // `selection._choices`: as a list of choices.
    PyObject* choose(std::vector<double> limits_s, double best_s, double within, PyObject* exposed) {
        configure();
        times_of_layers();
        bounded(limits_s);
        Object found(PyList_New(0));
        for (std::size_t size = FIRST; !rows.empty(); size = LATER) {
            rows.erase(std::remove_if(rows.begin(), rows.end(), [&](const Row& r) { return !may_beat(r, limits_s[r.batch]); }), rows.end());
            std::vector<Row> chunk(rows.begin(), rows.begin() + std::min(size, rows.size()));
            rows.erase(rows.begin(), rows.begin() + chunk.size());
            if (chunk.empty()) break;
            const std::vector<double> time_s = estimated(chunk, exposed);
            std::vector<std::size_t> better;
            for (std::size_t k = 0; k < chunk.size(); ++k)
                if (time_s[k] < limits_s[chunk[k].batch]) better.push_back(k);
            std::stable_sort(better.begin(), better.end(), [&](std::size_t a, std::size_t b) { return time_s[a] < time_s[b]; });
            for (std::size_t k : better) {
                if (!(time_s[k] < limits_s[chunk[k].batch])) continue;
                take(found.it, chunk[k], time_s[k], &layers[starts[k]]);
                best_s = std::min(best_s, time_s[k]);
                limits_s[chunk[k].batch] = time_s[k] * (1.0 - EQUAL);
                for (double& limit : limits_s) limit = std::min(limit, best_s * within);
            }
        }
        Py_INCREF(found.it);
        return found.it;
    }

    // `PerformanceModel.iteration` of the first plan, with what its replicas send to one another.
    double time_s(const Array<Int>& own_layers, Int b, PyObject* exposed) {
        configure();
        Terms terms;
        double num_gpus = 0.0, sum = 0.0, most = 0.0, slowest = 0.0;
        const Int S = own_layers.size(), N = t.num_micro_batches[b];
        for (Int s = 0, end = 0; s < S; ++s) {
            const Int from = end;
            end += own_layers[s];
            add_terms(terms, configs[s], b, from, end, true);
            num_gpus += configs[s].tp * configs[s].dp;
            const double copies = t.splits_sends() ? 1.0 : configs[s].tp;
            const double send_s = s + 1 < S ? 2.0 * transfer_s(s, b, copies * t.boundaries[end - 1]) : 0.0;
            sum += send_s;
            most = std::max(most, send_s);
            slowest = std::max(slowest, terms.forward[s] + terms.backward[s] + send_s / 2.0);
        }
        terms.num_gpus.push_back(num_gpus);
        const Exposed found(exposed, terms);
        Passes passes = passed(terms, found, 0, S, N);
        const double others = static_cast<double>(N - 1);
        passes.warm_up += sum;
        passes.steady = t.overlaps_sends() ? std::max(passes.steady, others * most / 2.0) : others * slowest;
        const double total = passes.warm_up + passes.steady + passes.last;
        return total + total * (found.factor[0] - 1.0);
    }

  private:
    const Tables& t;
    const Nodes& nodes;
    // Stages of all plans, their configurations, where each plan starts, and where the last one ends.
    std::vector<Stage> stages;
    std::vector<Int> own_configs, firsts{0};
    std::vector<Int> replicas, layers;
    std::vector<std::size_t> starts;
    std::vector<Config> configs;
    std::vector<double> layer_s;
    std::vector<Candidate> candidates;
    std::vector<Row> rows;

    // Of what stands last in `replicas`; its index.
    Int add_config(Int degree) {
        configs.push_back(config_of(t, nodes, &replicas[configs.size() * nodes.V], degree));
        return static_cast<Int>(configs.size()) - 1;
    }

    Int num_stages(Int p) const { return firsts[p + 1] - firsts[p]; }
    void end_plan() { firsts.push_back(static_cast<Int>(stages.size())); }
    Int tp_of(Int degree) const { return static_cast<Int>(t.degrees[degree]); }
    static Int sum(const std::vector<Int>& values) { return std::accumulate(values.begin(), values.end(), Int{0}); }

    std::vector<Int> rest_of(Int p, const Array<Int>& available) const {
        std::vector<Int> rest(&available[0], &available[0] + nodes.V);
        for (Int s = firsts[p]; s < firsts[p + 1]; ++s)
            for (Int v = 0; v < nodes.V; ++v) rest[v] -= stages[s].gpus[v];
        return rest;
    }

    // `candidates.expansions` of one plan.
    void expand(Int p, const std::vector<Int>& rest, Int most_stages, bool anew) {
        const Int S = num_stages(p), first = firsts[p];
        for (Int s = 0; s < S; ++s) {
            const Stage& own = stages[first + s];
            if (own.repeats && s + 1 < S && stages[first + s + 1].repeats && !meets(own.gpus, rest)) continue;
            for (Int d = 0; d < t.T(); ++d)
                if (anew || d == own.degree) join(&own, rest, d, {p, s, 0, S, false});
        }
        for (Int s = 0; anew && S < most_stages && s <= S; ++s)
            if (s == S || !stages[first + s].repeats)
                for (Int d = 0; d < t.T(); ++d) join(nullptr, rest, d, {p, s, 0, S + 1, true});
    }

    // `growth.growths` of one plan, as further plans.
    void grow(Int p, const std::vector<Int>& rest, Int most_stages) {
        const Int S = num_stages(p), total = sum(rest);
        const std::vector<Stage> own(stages.begin() + firsts[p], stages.begin() + firsts[p + 1]);
        std::vector<Int> sizes;
        for (const Stage& stage : own) sizes.push_back(sum(stage.gpus));
        Int usual = 0, most = 0;
        auto alike = [&](Int a, Int b) { return own[a].degree == own[b].degree && sizes[a] == sizes[b]; };
        for (Int s = 0; s < S; ++s) {
            Int same = 0;
            for (Int other = 0; other < S; ++other) same += alike(s, other);
            if (same > most) most = same, usual = s;
        }
        const Int size = sizes[usual], tp = tp_of(own[usual].degree);
        const Int count = total >= 2 * size ? std::min(groups(rest, tp) / (size / tp), most_stages - S) : 0;
        if (count > 1) {
            Int end = S;
            while (!alike(end - 1, usual)) --end;
            stages.insert(stages.end(), own.begin(), own.begin() + end);
            for (const std::vector<Int>& row : dealt(rest, tp, std::vector<Int>(count, size / tp)))
                stages.push_back({row, own[usual].degree, -1, false});
            stages.insert(stages.end(), own.begin() + end, own.end());
            end_plan();
        }
        if (S > 1 && 2 * total >= sum(sizes)) {
            Int widest = 0;
            for (const Stage& stage : own) widest = std::max(widest, tp_of(stage.degree));
            std::vector<Int> quotas;
            for (Int one : sizes) quotas.push_back(groups(rest, widest) * one / sum(sizes));
            if (*std::min_element(quotas.begin(), quotas.end()) == 0) return;
            const std::vector<std::vector<Int>> rows = dealt(rest, widest, quotas);
            for (Int s = 0; s < S; ++s) {
                stages.push_back(own[s]);
                for (Int v = 0; v < nodes.V; ++v) stages.back().gpus[v] += rows[s][v];
            }
            end_plan();
        }
    }

    static Int groups(const std::vector<Int>& gpus, Int size) {
        Int count = 0;
        for (Int own : gpus) count += own / size;
        return count;
    }

    // `growth._dealt`.
    static std::vector<std::vector<Int>> dealt(const std::vector<Int>& gpus, Int size, const std::vector<Int>& quotas) {
        std::vector<std::vector<Int>> rows;
        std::size_t v = 0;
        Int left = gpus[0] / size;
        for (Int quota : quotas) {
            rows.emplace_back(gpus.size(), 0);
            for (;;) {
                const Int some = std::min(quota, left);
                rows.back()[v] += some * size;
                quota -= some;
                left -= some;
                if (!quota) break;
                left = gpus[++v] / size;
            }
        }
        return rows;
    }

    // `folding.foldings` of one plan, as further plans.
    void fold(Int p, Int most_stages) {
        const std::vector<Stage> own(stages.begin() + firsts[p], stages.begin() + firsts[p + 1]);
        Int widest = 0;
        for (const Stage& stage : own) widest = std::max(widest, sum(stage.gpus) / tp_of(stage.degree));
        for (Int lower : {0, 1}) {
            for (const Stage& stage : own)
                if (sum(stage.gpus) / tp_of(stage.degree) != widest || !halve(stage, stage.degree - lower)) stages.push_back(stage);
            keep_unless(own.size(), most_stages);
        }
        for (Int higher : {0, 1}) {
            for (std::size_t s = 0; s < own.size(); ++s)
                if (s + 1 < own.size() && joined(own[s], own[s + 1], own[s].degree + higher))
                    ++s;
                else
                    stages.push_back(own[s]);
            keep_unless(own.size(), most_stages);
        }
    }

    // End a plan, unless it has as many stages as the one that it is a folding of, and so is that one, or too many.
    void keep_unless(Int same, Int most_stages) {
        const Int S = static_cast<Int>(stages.size()) - firsts.back();
        if (S == same || S > most_stages)
            stages.resize(firsts.back());
        else
            end_plan();
    }

    // `folding._halves`; false where there are none.
    bool halve(const Stage& stage, Int degree) {
        if (degree < 0) return false;
        const Int tp = tp_of(degree), count = groups(stage.gpus, tp);
        if (count < 2) return false;
        Stage first{std::vector<Int>(nodes.V), degree, stage.origin, false}, second{std::vector<Int>(nodes.V), degree, -1, false};
        for (Int v = 0, left = (count + 1) / 2; v < nodes.V; ++v) {
            const Int here = stage.gpus[v] / tp, some = std::min(here, left);
            left -= some;
            first.gpus[v] = some * tp;
            second.gpus[v] = (here - some) * tp;
        }
        stages.push_back(first);
        stages.push_back(second);
        return true;
    }

    // A stage of both, as `folding._two_by_two` has it; false where there is none.
    bool joined(const Stage& a, const Stage& b, Int degree) {
        if (a.degree != b.degree || degree >= t.T()) return false;
        const Int tp = tp_of(degree);
        Stage both{std::vector<Int>(nodes.V), degree, a.origin >= 0 ? a.origin : b.origin, false};
        for (Int v = 0; v < nodes.V; ++v) both.gpus[v] = (a.gpus[v] + b.gpus[v]) / tp * tp;
        if (!sum(both.gpus)) return false;
        stages.push_back(both);
        return true;
    }

    bool meets(const std::vector<Int>& own, const std::vector<Int>& rest) const {
        for (Int v = 0; v < nodes.V; ++v)
            if (own[v] * rest[v] > 0) return true;
        return false;
    }

    // A candidate whose stage, one of the plan's or a new one, has what is left, unless it has nothing, or as before.
    void join(const Stage* own, const std::vector<Int>& rest, Int degree, Candidate candidate) {
        const std::size_t before = replicas.size();
        const Int tp = tp_of(degree);
        bool any = false, differs = !own || own->degree != degree;
        for (Int v = 0; v < nodes.V; ++v) {
            const Int count = ((own ? own->gpus[v] : 0) + rest[v]) / tp;
            any |= count != 0;
            differs |= own && count != own->gpus[v] / tp;
            replicas.push_back(count);
        }
        if (!any || !differs) return replicas.resize(before);
        candidate.config = add_config(degree);
        candidates.push_back(candidate);
    }

    Int config(const Candidate& c, Int s) const {
        if (s == c.stage) return c.config;
        return own_configs[firsts[c.plan] + s - (c.is_new && s > c.stage)];
    }

    // Configurations of the stages of all plans.
    void configure() {
        for (const Stage& stage : stages) {
            for (Int gpus : stage.gpus) replicas.push_back(gpus / tp_of(stage.degree));
            own_configs.push_back(add_config(stage.degree));
        }
    }

    Int batch_of(const Config& c, Int b) const { return (t.micro_batch[b] + c.count - 1) / c.count; }

    void times_of_layers() {
        for (const Config& c : configs)
            for (Int b = 0; b < t.B(); ++b) {
                const bool possible = c.count > 0 && static_cast<double>(t.micro_batch[b]) >= c.dp;
                layer_s.push_back(possible ? t.layer_s[t.at(c.degree, batch_of(c, b))] : INF);
            }
    }

    // Rows whose `divisible_bounds` are below the limits, lowest first.
    void bounded(const std::vector<double>& limits_s) {
        const Int B = t.B(), L = t.num_layers(), own = t.own_micro_batch();
        std::vector<double> rate, sum(B), most(B), least(B);
        for (double one : layer_s) rate.push_back(1.0 / one);
        for (std::size_t k = 0; k < candidates.size(); ++k) {
            const Candidate& c = candidates[k];
            std::fill(sum.begin(), sum.end(), 0.0);
            std::fill(most.begin(), most.end(), 0.0);
            std::fill(least.begin(), least.end(), INF);
            double widest = 1.0;
            for (Int s = 0; s < c.num_stages; ++s) {
                const Int q = config(c, s);
                widest = std::max(widest, configs[q].dp);
                for (Int b = 0; b < B; ++b) {
                    const double one = rate[q * B + b];
                    sum[b] += one;
                    most[b] = std::max(most[b], one);
                    least[b] = std::min(least[b], one);
                }
            }
            Int wanted = 0;
            while (wanted < B && static_cast<double>(t.micro_batch[wanted]) < static_cast<double>(own) * widest) ++wanted;
            for (Int b = 0; b < B; ++b) {
                if (!(least[b] > 0) || (own && B > 1 && b != wanted)) continue;
                const double level = (static_cast<double>(L) + t.first_layers() + t.last_layers()) / std::max(sum[b], TINY);
                const double first = std::max(level, static_cast<double>(L) / std::max(most[b], TINY));
                const double bound = (static_cast<double>(t.num_micro_batches[b] - 1) * level + first) * EXACT;
                if (bound < limits_s[b]) rows.push_back({static_cast<Int>(k), b, bound});
            }
        }
        std::stable_sort(rows.begin(), rows.end(), [](const Row& a, const Row& b) { return a.bound < b.bound; });
    }

    // `bounds.may_beat`.
    bool may_beat(const Row& row, double limit_s) const {
        const Candidate& c = candidates[row.candidate];
        const Int N = t.num_micro_batches[row.batch], B = t.B(), L = t.num_layers();
        double most = 0.0;
        for (Int s = 0; s < c.num_stages; ++s) most = std::max(most, 1.0 / layer_s[config(c, s) * B + row.batch]);
        limit_s /= EXACT;
        const double left = limit_s - static_cast<double>(L) / most;
        double slowest = left < 0 ? -1.0 : limit_s / static_cast<double>(N);
        if (N > 1) slowest = std::min(slowest, left / static_cast<double>(N - 1));
        double whole = 0.0;
        for (Int s = 0; s < c.num_stages; ++s) {
            const Int q = config(c, s);
            double fitting = slowest * (1.0 / layer_s[q * B + row.batch]);
            if (s == 0) fitting -= t.first_layers();
            if (s == c.num_stages - 1) fitting -= t.last_layers();
            const double room = room_of(configs[q], row.batch, c.num_stages - s) / EXACT;
            whole += std::floor(std::min(fitting, room) + FLOOR_ROUNDING);
        }
        return whole >= static_cast<double>(L);
    }

    // `bounds._room`.
    double room_of(const Config& c, Int b, Int behind) const {
        const Int N = t.num_micro_batches[b];
        const double batch = static_cast<double>(batch_of(c, b));
        double state = c.state_bytes * t.part_parameters(0);
        state += N > behind ? c.gradient_bytes * t.part_parameters(0) : 0.0;
        const double in_flight = static_cast<double>(std::min(N, behind)) * t.kept_bytes(0, c.degree);
        const double need = state + in_flight * batch;
        const double usable = t.usable_bytes() - c.fixed_bytes - batch * t.working[c.degree];
        return std::max(usable / std::max(need, TINY), 0.0);
    }

    // `estimate.estimate`: iteration times of some rows; their layers are in `layers` from `starts` on.
    std::vector<double> estimated(const std::vector<Row>& chunk, PyObject* exposed) {
        starts.clear();
        layers.clear();
        std::vector<char> possible;
        for (const Row& row : chunk) {
            starts.push_back(layers.size());
            layers.resize(layers.size() + candidates[row.candidate].num_stages);
            possible.push_back(split(row, &layers[starts.back()]));
        }
        Terms terms;
        for (std::size_t k = 0; k < chunk.size(); ++k) {
            const Candidate& c = candidates[chunk[k].candidate];
            const Int b = chunk[k].batch;
            double num_gpus = 0.0;
            for (Int s = 0, end = 0; s < c.num_stages; ++s) {
                const Config& q = configs[config(c, s)];
                const Int from = end;
                end += layers[starts[k] + s];
                add_terms(terms, q, b, from, end, false);
                num_gpus += q.tp * q.dp;
                if (!t.sends()) continue;
                double sent = end < t.num_layers() ? t.boundaries[std::max<Int>(end, 1) - 1] : 0.0;
                sent = sent * static_cast<double>(t.micro_batch[b]) * (t.splits_sends() ? 1.0 : q.tp);
                const double half = 0.5 * (sent * q.send_s_per_byte);
                for (double* pass : {&terms.forward.back(), &terms.backward.back()})
                    *pass = t.overlaps_sends() ? std::max(*pass, half) : *pass + half;
            }
            terms.num_gpus.push_back(num_gpus);
        }
        const Exposed found(exposed, terms);
        std::vector<double> time_s;
        for (std::size_t k = 0; k < chunk.size(); ++k) {
            const std::size_t S = candidates[chunk[k].candidate].num_stages;
            const Passes passes = passed(terms, found, starts[k], starts[k] + S, t.num_micro_batches[chunk[k].batch]);
            time_s.push_back(possible[k] ? (passes.warm_up + passes.steady + passes.last) * found.factor[k] : INF);
        }
        return time_s;
    }

    // What stages take, one after another, and GPUs of plans.
    struct Terms {
        std::vector<double> forward, backward, hiding, reduction, overlap, optimizer, num_gpus;
    };

    // What NumPy makes of them.
    struct Exposed {
        Array<double> exposed_s, factor;
        Exposed(PyObject* exposed, const Terms& terms) {
            const std::vector<double>*hiding = &terms.hiding, *reduction = &terms.reduction, *overlap = &terms.overlap;
            Object answer(PyObject_CallFunction(exposed, "y#y#y#y#", bytes_of(*hiding), length_of(*hiding),
                                                bytes_of(*reduction), length_of(*reduction), bytes_of(*overlap),
                                                length_of(*overlap), bytes_of(terms.num_gpus), length_of(terms.num_gpus)));
            if (!PyArg_ParseTuple(answer.it, "y*y*", &exposed_s.view, &factor.view)) throw Failed();
        }
    };

    struct Passes {
        double warm_up, steady, last;
    };

    // Times of a stage with layers [from, end); of `every` replica, also of those with a sample less.
    void add_terms(Terms& terms, const Config& c, Int b, Int from, Int end, bool every) const {
        const Int most = batch_of(c, b), least = every && c.count * most > t.micro_batch[b] ? most - 1 : most;
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
        const double gradients = zero < 1 ? 2.0 : zero == 1 ? 1.0 : N, weights = zero < 1 ? 0.0 : zero < 3 ? 1.0 : 2.0 * N;
        const double once = gradients * (t.gradient_bytes() * parameters) + weights * (t.parameter_bytes() * parameters);
        terms.forward.push_back(there);
        terms.backward.push_back(back);
        terms.hiding.push_back(zero < 2 ? back : N * (zero == 2 ? back : there + back));
        terms.reduction.push_back(once * std::max(1.0 - 1.0 / c.dp - 0.0, 0.0) * c.reduction_s_per_byte);
        terms.overlap.push_back(t.overlap());
        terms.optimizer.push_back(t.optimizer_s() * (zero >= 1 ? parameters / c.tp / c.dp : parameters / c.tp));
    }

    // `formulas.pipeline_s`.
    static Passes passed(const Terms& terms, const Exposed& found, std::size_t first, std::size_t end, Int num_micro_batches) {
        double warm_up = 0.0, steady = 0.0, last = -INF, before = 0.0;
        for (std::size_t s = first; s < end; ++s) {
            const double both = terms.forward[s] + terms.backward[s];
            warm_up += both;
            steady = std::max(steady, both);
            before += terms.backward[s];
            last = std::max(last, found.exposed_s[s] + terms.optimizer[s] - (before - terms.backward[s]));
        }
        return {warm_up, (static_cast<double>(num_micro_batches) - 1.0) * steady, last};
    }

    // `sends._transfer_s` from a stage to the next one.
    double transfer_s(Int here, Int b, double sample_bytes) const {
        std::vector<double> sent(nodes.V, 0.0), received(nodes.V, 0.0);
        Replica from(*this, here, b), to(*this, here + 1, b);
        double slowest = 0.0, inside_sent = 0.0, inside_received = 0.0;
        while (from.left) {
            const Int samples = std::min(from.left, to.left);
            const double payload = static_cast<double>(samples) * sample_bytes;
            if (from.node == to.node) {
                const double seconds = payload / configs[here].tp / nodes.intra[from.node];
                inside_sent += seconds;
                inside_received += seconds;
            } else {
                const double seconds = payload / nodes.between(from.node, to.node);
                sent[from.node] += seconds;
                received[to.node] += seconds;
            }
            slowest = std::max({slowest, inside_sent, inside_received});
            if (from.take(samples)) inside_sent = 0.0;
            if (to.take(samples)) inside_received = 0.0;
        }
        for (Int v = 0; v < nodes.V; ++v) slowest = std::max({slowest, sent[v], received[v]});
        return slowest;
    }

    // Replicas of a stage in their order (`assembly`), and the samples that the present one has left.
    struct Replica {
        const Search& search;
        Int stage, most, larger, node = -1, of_node = 0, left = 0;
        Replica(const Search& search, Int stage, Int b) : search(search), stage(stage) {
            const Config& c = search.configs[stage];
            most = search.batch_of(c, b);
            larger = c.count - (c.count * most - search.t.micro_batch[b]);
            next();
        }
        void next() {
            while (!of_node && ++node < search.nodes.V) of_node = search.replicas[stage * search.nodes.V + node];
            if (!of_node) return;
            --of_node;
            left = larger-- > 0 ? most : most - 1;
        }
        // Whether another replica is the present one now.
        bool take(Int samples) {
            left -= samples;
            if (left) return false;
            next();
            return true;
        }
    };

    static const char* bytes_of(const std::vector<double>& values) { return reinterpret_cast<const char*>(values.data()); }
    static Py_ssize_t length_of(const std::vector<double>& values) { return static_cast<Py_ssize_t>(values.size() * sizeof(double)); }

    // `estimate._split_equal` and `balance.split_rows` of one row; whether it has a solution.
    bool split(const Row& row, Int* items) const {
        const Candidate& c = candidates[row.candidate];
        const Int S = c.num_stages, L = t.num_layers(), b = row.batch, N = t.num_micro_batches[b];
        std::vector<double> cost(S), offset(S);
        std::vector<Int> upper(S);
        bool solvable = S <= L;
        Int most = 0;
        for (Int s = 0; s < S; ++s) {
            const Config& q = configs[config(c, s)];
            const Int at = t.at(q.degree, batch_of(q, b)), behind = S - s;
            const double batch = static_cast<double>(batch_of(q, b));
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
                const double state = q.state_bytes * t.part_parameters(part), gradients = q.gradient_bytes * t.part_parameters(part);
                before[part] = state + samples * t.kept_bytes(part, q.degree) + coexist * gradients;
                after[part] = state + gradients;
            }
            double room = INF;
            for (const double* need : {before, after}) {
                const double ends = (is_first ? need[1] : 0.0) + (is_last ? need[2] : 0.0) + (is_last && !is_first ? need[3] : 0.0);
                room = std::min(room, (usable - ends) / std::max(need[0], TINY));
            }
            upper[s] = static_cast<Int>(std::min(std::max(room, 0.0), static_cast<double>(L)));
            solvable = solvable && upper[s] >= 1;
            most += upper[s];
        }
        if (!solvable || most < L) return false;
        balance(cost, offset, upper, items);
        return true;
    }

    // `balance.split_rows`, where there is a solution.
    void balance(const std::vector<double>& cost, const std::vector<double>& offset, const std::vector<Int>& upper, Int* items) const {
        const std::size_t S = cost.size();
        const Int L = t.num_layers();
        std::vector<double> rate(S), lead(S), level(S);
        std::vector<char> full(S, 0);
        for (std::size_t s = 0; s < S; ++s) {
            rate[s] = 1.0 / cost[s];
            lead[s] = offset[s] * rate[s];
        }
        for (int round = 0; round < 2; ++round) {
            double open_rate = 0.0, taken = 0.0;
            for (std::size_t s = 0; s < S; ++s) {
                open_rate += full[s] ? 0.0 : rate[s];
                taken += full[s] ? static_cast<double>(upper[s]) : -lead[s];
            }
            const double share = (static_cast<double>(L) - taken) / std::max(open_rate, TINY);
            for (std::size_t s = 0; s < S; ++s) level[s] = share * rate[s] - lead[s];
            for (std::size_t s = 0; s < S; ++s) full[s] = level[s] > static_cast<double>(upper[s]);
        }
        Int missing = L;
        for (std::size_t s = 0; s < S; ++s) {
            const double below = std::floor(std::min(std::max(level[s], 0.0), static_cast<double>(upper[s])));
            items[s] = std::max<Int>(static_cast<Int>(below), 1);
            missing -= items[s];
        }
        for (; missing > 0; --missing) {
            std::size_t cheapest = 0;
            double least = INF;
            for (std::size_t s = 0; s < S; ++s) {
                const double next = items[s] < upper[s] ? offset[s] + static_cast<double>(items[s] + 1) * cost[s] : INF;
                if (next < least) least = next, cheapest = s;
            }
            ++items[cheapest];
        }
        for (; missing < 0; ++missing) {
            std::size_t dearest = 0;
            double largest = -INF;
            for (std::size_t s = 0; s < S; ++s) {
                const double own = items[s] > 1 ? offset[s] + static_cast<double>(items[s]) * cost[s] : -INF;
                if (own > largest) largest = own, dearest = s;
            }
            --items[dearest];
        }
    }

    // (candidate, index of the number of micro-batches, time, and of every stage: layers, GPUs per node, degree, the stage
    // that it was or -1, whether it costs what the one before it costs)
    void take(PyObject* found, const Row& row, double time_s, const Int* own_layers) const {
        const Candidate& c = candidates[row.candidate];
        const Int S = c.num_stages;
        std::vector<Int> gpus, degree, origin;
        std::vector<char> repeats;
        for (Int s = 0; s < S; ++s) {
            const Int q = config(c, s);
            const Config& own = configs[q];
            for (Int v = 0; v < nodes.V; ++v) gpus.push_back(replicas[q * nodes.V + v] * static_cast<Int>(own.tp));
            degree.push_back(own.degree);
            origin.push_back(c.is_new && s == c.stage ? -1 : stages[firsts[c.plan] + s - (c.is_new && s > c.stage)].origin);
            const Config& last = configs[config(c, std::max<Int>(s, 1) - 1)];
            repeats.push_back(s > 0 && own.degree == last.degree && own.count == last.count &&
                              own.reduction_s_per_byte == last.reduction_s_per_byte);
        }
        const Py_ssize_t word = static_cast<Py_ssize_t>(sizeof(Int));
        Object choice(Py_BuildValue("LLdy#y#y#y#y#", static_cast<long long>(row.candidate),
                                    static_cast<long long>(row.batch), time_s, reinterpret_cast<const char*>(own_layers),
                                    S * word, reinterpret_cast<const char*>(gpus.data()), S * nodes.V * word,
                                    reinterpret_cast<const char*>(degree.data()), S * word,
                                    reinterpret_cast<const char*>(origin.data()), S * word, repeats.data(), static_cast<Py_ssize_t>(S)));
        if (PyList_Append(found, choice.it)) throw Failed();
    }
};

PyObject* choices(PyObject*, PyObject* arguments) {
    PyObject *packed_tables, *packed_nodes, *exposed;
    Array<Int> gpus, degree, origin, num_stages, available;
    Array<char> repeats;
    Array<double> limits_s;
    double best_s, within;
    long long num_expanded, num_folded, most_stages;
    int anew;
    try {
        if (!PyArg_ParseTuple(arguments, "OO(y*y*y*y*y*)LLy*Lpy*ddO", &packed_tables, &packed_nodes, &gpus.view,
                              &degree.view, &origin.view, &repeats.view, &num_stages.view, &num_expanded, &num_folded,
                              &available.view, &most_stages, &anew, &limits_s.view, &best_s, &within, &exposed))
            return nullptr;
        const Tables tables(packed_tables);
        const Nodes nodes(packed_nodes);
        Search search(tables, nodes);
        search.plans(gpus, degree, origin, repeats, num_stages);
        search.candidates_of(num_expanded, num_folded, available, most_stages, anew);
        return search.choose(std::vector<double>(&limits_s[0], &limits_s[0] + limits_s.size()), best_s, within, exposed);
    } catch (const Failed&) {
        return nullptr;
    } catch (const std::bad_alloc&) {
        return PyErr_NoMemory();
    }
}

PyObject* time_s(PyObject*, PyObject* arguments) {
    PyObject *packed_tables, *packed_nodes, *exposed;
    Array<Int> gpus, degree, origin, num_stages, layers;
    Array<char> repeats;
    long long batch;
    try {
        if (!PyArg_ParseTuple(arguments, "OO(y*y*y*y*y*)y*LO", &packed_tables, &packed_nodes, &gpus.view, &degree.view,
                              &origin.view, &repeats.view, &num_stages.view, &layers.view, &batch, &exposed))
            return nullptr;
        const Tables tables(packed_tables);
        const Nodes nodes(packed_nodes);
        Search search(tables, nodes);
        search.plans(gpus, degree, origin, repeats, num_stages);
        return PyFloat_FromDouble(search.time_s(layers, batch, exposed));
    } catch (const Failed&) {
        return nullptr;
    } catch (const std::bad_alloc&) {
        return PyErr_NoMemory();
    }
}

PyMethodDef methods[] = {
    {"time_s", time_s, METH_VARARGS, "Iteration time of a plan; see `compiled`."},
    {"choices", choices, METH_VARARGS, "Choices among expansions of plans, and other plans; see `compiled`."},
    {nullptr, nullptr, 0, nullptr}};

PyModuleDef definition = {PyModuleDef_HEAD_INIT, "compiled_search", nullptr, 0, methods, nullptr, nullptr, nullptr, nullptr};

}  // namespace

PyMODINIT_FUNC PyInit_compiled_search() {
    PyObject* module = PyModule_Create(&definition);
    if (module && PyModule_AddStringConstant(module, "SOURCE", SOURCE_DIGEST)) Py_CLEAR(module);
    return module;
}
