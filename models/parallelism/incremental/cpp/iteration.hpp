// `models.performance.iteration`: the time of one plan, with what its replicas send to one another.
#pragma once
#include "estimate.hpp"

namespace search {

// Replicas of a stage in their order (`assembly`), and the samples that the present one has left.
struct Replica {
    const Int* of_nodes;
    const Int V, most;
    Int larger, node = -1, of_node = 0, left = 0;

    Replica(const Configs& configs, Int stage, Int b)
        : of_nodes(configs.replicas_of(stage)), V(configs.landscape.V),
          most(configs.local_batch(configs.rows[stage], b)) {
        const Int count = configs.rows[stage].count;
        larger = count - (count * most - configs.t.micro_batch[b]);
        next();
    }
    void next() {
        while (!of_node && ++node < V) of_node = of_nodes[node];
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

// `sends._transfer_s` from a stage to the next one.
inline double transfer_s(const Configs& configs, Int here, Int b, double sample_bytes) {
    const Landscape& landscape = configs.landscape;
    std::vector<double> sent(landscape.V, 0.0), received(landscape.V, 0.0);
    Replica from(configs, here, b), to(configs, here + 1, b);
    double slowest = 0.0, inside_sent = 0.0, inside_received = 0.0;
    while (from.left) {
        const Int samples = std::min(from.left, to.left);
        const double payload = static_cast<double>(samples) * sample_bytes;
        if (from.node == to.node) {
            const double seconds = payload / configs.rows[here].tp / landscape.intra[from.node];
            inside_sent += seconds;
            inside_received += seconds;
        } else {
            const double seconds = payload / landscape.between(from.node, to.node);
            sent[from.node] += seconds;
            received[to.node] += seconds;
        }
        slowest = std::max({slowest, inside_sent, inside_received});
        if (from.take(samples)) inside_sent = 0.0;
        if (to.take(samples)) inside_received = 0.0;
    }
    for (Int v = 0; v < landscape.V; ++v) slowest = std::max({slowest, sent[v], received[v]});
    return slowest;
}

// `PerformanceModel.iteration` of a plan whose stages are all that there are.
inline double iteration_s(const Configs& configs, const Array<Int>& layers, Int b, PyObject* exposed) {
    const Tables& t = configs.t;
    const Int S = static_cast<Int>(configs.rows.size()), N = t.num_micro_batches[b];
    Terms terms;
    double num_gpus = 0.0, sum = 0.0, most = 0.0, slowest = 0.0;
    for (Int s = 0, end = 0; s < S; ++s) {
        const Config& c = configs.rows[s];
        const Int from = end;
        end += layers[s];
        breathe(configs.landscape.V + c.count);
        terms.add(configs, c, b, from, end, true);
        num_gpus += c.tp * c.dp;
        const double copies = t.splits_sends() ? 1.0 : c.tp;
        const double send_s = s + 1 < S ? 2.0 * transfer_s(configs, s, b, copies * t.boundaries[end - 1]) : 0.0;
        sum += send_s;
        most = std::max(most, send_s);
        slowest = std::max(slowest, terms.forward[s] + terms.backward[s] + send_s / 2.0);
    }
    terms.num_gpus.push_back(num_gpus);
    const Exposed found(exposed, terms);
    Passes passes = pipeline(terms, found, 0, S, N);
    const double others = static_cast<double>(N - 1);
    passes.warm_up += sum;
    passes.steady = t.overlaps_sends() ? std::max(passes.steady, others * most / 2.0) : others * slowest;
    const double total = passes.warm_up + passes.steady + passes.last;
    return total + total * (found.factor[0] - 1.0);
}

}  // namespace search
