// `bounds`: what no distribution of the layers can beat.
#pragma once
#include <cmath>

#include "candidates.hpp"

namespace search {

constexpr double TINY = 1e-30, EXACT = 1.0 - 1e-9, FLOOR_ROUNDING = 1e-6;

// A candidate with a number of micro-batches, and its bound.
struct Row {
    Int candidate, batch;
    double bound;
};

// Rows whose `divisible_bounds` are below the limits, lowest first, as `selection._by_bound` has them.
inline std::vector<Row> bounded(const Candidates& candidates, const std::vector<double>& limits_s) {
    const Configs& configs = candidates.configs;
    const Tables& t = configs.t;
    const Int B = t.B(), L = t.num_layers(), own = t.own_micro_batch();
    std::vector<Row> rows;
    std::vector<double> rate, sum(B), most(B), least(B);
    for (double one : configs.layer_s) rate.push_back(1.0 / one);
    for (std::size_t k = 0; k < candidates.list.size(); ++k) {
        const Candidate& c = candidates.list[k];
        breathe(c.num_stages * B);
        std::fill(sum.begin(), sum.end(), 0.0);
        std::fill(most.begin(), most.end(), 0.0);
        std::fill(least.begin(), least.end(), INF);
        double widest = 1.0;
        for (Int s = 0; s < c.num_stages; ++s) {
            const Int q = candidates.config(c, s);
            widest = std::max(widest, configs.rows[q].dp);
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
    return rows;
}

// `_room`.
inline double room_of(const Configs& configs, const Config& c, Int b, Int behind) {
    const Tables& t = configs.t;
    const Int N = t.num_micro_batches[b];
    const double batch = static_cast<double>(configs.local_batch(c, b));
    double state = c.state_bytes * t.part_parameters(0);
    state += N > behind ? c.gradient_bytes * t.part_parameters(0) : 0.0;
    const double in_flight = static_cast<double>(std::min(N, behind)) * t.kept_bytes(0, c.degree);
    const double need = state + in_flight * batch;
    const double usable = t.usable_bytes() - c.fixed_bytes - batch * t.working[c.degree];
    return std::max(usable / std::max(need, TINY), 0.0);
}

inline bool may_beat(const Candidates& candidates, const Row& row, double limit_s) {
    const Configs& configs = candidates.configs;
    const Tables& t = configs.t;
    const Candidate& c = candidates.list[row.candidate];
    const Int N = t.num_micro_batches[row.batch];
    const double L = static_cast<double>(t.num_layers());
    auto rate = [&](Int q) { return 1.0 / configs.layer_s[q * t.B() + row.batch]; };
    breathe(c.num_stages);
    double most = 0.0;
    for (Int s = 0; s < c.num_stages; ++s) most = std::max(most, rate(candidates.config(c, s)));
    limit_s /= EXACT;
    const double left = limit_s - L / most;
    double slowest = left < 0 ? -1.0 : limit_s / static_cast<double>(N);
    if (N > 1) slowest = std::min(slowest, left / static_cast<double>(N - 1));
    double whole = 0.0;
    for (Int s = 0; s < c.num_stages; ++s) {
        const Int q = candidates.config(c, s);
        double fitting = slowest * rate(q);
        if (s == 0) fitting -= t.first_layers();
        if (s == c.num_stages - 1) fitting -= t.last_layers();
        const double room = room_of(configs, configs.rows[q], row.batch, c.num_stages - s) / EXACT;
        whole += std::floor(std::min(fitting, room) + FLOOR_ROUNDING);
    }
    return whole >= L;
}

}  // namespace search
