// `landscape`: `compiled._packed_nodes`.
#pragma once
#include <algorithm>
#include <limits>

#include "arguments.hpp"

namespace search {

constexpr double INF = std::numeric_limits<double>::infinity();

struct Landscape {
    Array<double> intra, inter, fractions, send_fractions;
    Array<Int> unit;
    Int V;
    double least_fraction = INF;

    explicit Landscape(PyObject* packed) {
        unpack(packed, "y*y*y*y*y*", &intra.view, &inter.view, &fractions.view, &send_fractions.view, &unit.view);
        V = intra.size();
        check(V > 0 && inter.size() == V, "nodes: bandwidths");
        check(fractions.size() > 0 && send_fractions.size() == fractions.size(), "nodes: fractions");
        check(unit.size() == (fractions.size() - 1) * V && unit.within(0, V - 1), "nodes: units");
        for (double own : fractions) least_fraction = std::min(least_fraction, own);
        seen.assign(V, 0);
    }

    // `Fabric.send_receive_bytes_per_s`.
    double between(Int v, Int w) const {
        Int shared = 0;
        while (shared + 1 < send_fractions.size() && unit[shared * V + v] == unit[shared * V + w]) ++shared;
        return send_fractions[shared] * std::min(inter[v], inter[w]);
    }

    double reduction_s_per_byte(const Int* replicas, double tp) const {
        double inside = INF;
        for (Int v = 0; v < V; ++v)
            if (replicas[v] > 1) inside = std::min(inside, intra[v]);
        const Int num_nodes = used(replicas), depths = fractions.size();
        double fraction = INF;
        Int before = num_nodes > 0;
        for (Int depth = 0; depth < depths; ++depth) {
            const Int spread = depth + 1 < depths ? num_units(replicas, depth) : num_nodes;
            if (spread > before) fraction = std::min(fraction, fractions[depth]);
            before = spread;
        }
        return std::max(1.0 / (tp * inside), 1.0 / (fraction * slowest(replicas)));
    }

    double send_s_per_byte(const Int* replicas, double tp) const {
        if (V == 1) return 1.0 / (static_cast<double>(std::max<Int>(replicas[0], 1)) * tp * intra[0]);
        return 1.0 / (static_cast<double>(std::max<Int>(used(replicas), 1)) * (slowest(replicas) * least_fraction));
    }

  private:
    mutable std::vector<Int> seen;
    mutable Int stamp = 0;

    Int used(const Int* replicas) const {
        return V - std::count(replicas, replicas + V, 0);
    }
    double slowest(const Int* replicas) const {
        double least = INF;
        for (Int v = 0; v < V; ++v)
            if (replicas[v] > 0) least = std::min(least, inter[v]);
        return least;
    }
    Int num_units(const Int* replicas, Int depth) const {
        Int count = 0;
        ++stamp;
        for (Int v = 0; v < V; ++v) {
            if (replicas[v] <= 0) continue;
            Int& last = seen[unit[depth * V + v]];
            count += last != stamp;
            last = stamp;
        }
        return count;
    }
};

}  // namespace search
