// `configs`: stages as they cost, but for their layers.
#pragma once
#include "landscape.hpp"
#include "tables.hpp"

namespace search {

// `StageShapes` and `StageConfigs` of one stage, but for what depends on the number of micro-batches.
struct Config {
    Int degree, count;
    double tp, dp, reduction_s_per_byte, send_s_per_byte, fixed_bytes, state_bytes, gradient_bytes;
};

struct Configs {
    const Tables& t;
    const Landscape& landscape;
    // (Q, V), (Q,), (Q, B)
    std::vector<Int> replicas;
    std::vector<Config> rows;
    std::vector<double> layer_s;

    Configs(const Tables& t, const Landscape& landscape) : t(t), landscape(landscape) {}

    const Int* replicas_of(Int q) const { return &replicas[q * landscape.V]; }

    // Of what stands last in `replicas`; its index.
    Int add(Int degree) {
        const Int q = static_cast<Int>(rows.size());
        breathe(landscape.V);
        rows.push_back(of(replicas_of(q), degree));
        const Config& c = rows.back();
        for (Int b = 0; b < t.B(); ++b) {
            const bool possible = c.count > 0 && t.micro_batch[b] >= c.count;
            layer_s.push_back(possible ? t.layer_s[t.at(degree, local_batch(c, b))] : INF);
        }
        return q;
    }

    Int local_batch(const Config& c, Int b) const {
        const Int count = std::max<Int>(c.count, 1);
        return (t.micro_batch[b] + count - 1) / count;
    }

  private:
    static double shard(double tp, double dp, bool is_sharded) { return is_sharded ? 1.0 / tp / dp : 1.0 / tp; }
    static double in_full(double tp, double dp, bool is_sharded) { return is_sharded ? (1.0 - 1.0 / dp) / tp : 0.0; }

    Config of(const Int* own, Int degree) const {
        Config c{};
        c.degree = degree;
        c.tp = t.degrees[degree];
        for (Int v = 0; v < landscape.V; ++v) c.count += own[v];
        c.dp = static_cast<double>(std::max<Int>(c.count, 1));
        c.reduction_s_per_byte = landscape.reduction_s_per_byte(own, c.tp);
        c.send_s_per_byte = landscape.send_s_per_byte(own, c.tp);
        const Int zero = t.zero();
        c.fixed_bytes = t.parameter_bytes() * in_full(c.tp, c.dp, zero >= 3);
        c.fixed_bytes += t.gradient_bytes() * in_full(c.tp, c.dp, zero >= 2);
        c.state_bytes = t.parameter_bytes() * shard(c.tp, c.dp, zero >= 3);
        c.state_bytes += t.optimizer_bytes() * shard(c.tp, c.dp, zero >= 1);
        c.gradient_bytes = t.gradient_bytes() * shard(c.tp, c.dp, zero >= 2);
        return c;
    }
};

}  // namespace search
