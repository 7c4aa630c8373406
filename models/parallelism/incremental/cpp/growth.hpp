// `growth`: expansions of all of a plan by what is left, as further plans.
#pragma once
#include "candidates.hpp"

namespace search {

inline Int groups(const std::vector<Int>& gpus, Int size) {
    Int count = 0;
    for (Int own : gpus) count += own / size;
    return count;
}

// `_dealt`.
inline std::vector<std::vector<Int>> dealt(const std::vector<Int>& gpus, Int size, const std::vector<Int>& quotas) {
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

// `growths` of one plan.
inline void grow(Skeletons& plans, Int p, const std::vector<Int>& rest, Int most_stages) {
    const std::vector<Stage> own = plans.plan(p);
    const Int S = static_cast<Int>(own.size()), total = sum(rest);
    std::vector<Int> sizes;
    for (const Stage& stage : own) sizes.push_back(sum(stage.gpus));
    Int usual = 0, most = 0;
    auto alike = [&](Int a, Int b) { return own[a].degree == own[b].degree && sizes[a] == sizes[b]; };
    for (Int s = 0; s < S; ++s) {
        Int same = 0;
        for (Int other = 0; other < S; ++other) same += alike(s, other);
        if (same > most) most = same, usual = s;
    }
    std::vector<Stage>& stages = plans.stages;
    const Int size = sizes[usual], tp = plans.t.tp(own[usual].degree);
    const Int count = total >= 2 * size ? std::min(groups(rest, tp) / (size / tp), most_stages - S) : 0;
    if (count > 1) {
        Int end = S;
        while (!alike(end - 1, usual)) --end;
        stages.insert(stages.end(), own.begin(), own.begin() + end);
        for (const std::vector<Int>& row : dealt(rest, tp, std::vector<Int>(count, size / tp)))
            stages.push_back({row, own[usual].degree, -1, false});
        stages.insert(stages.end(), own.begin() + end, own.end());
        plans.end_plan();
    }
    if (S < 2 || 2 * total < sum(sizes)) return;
    Int widest = 0;
    for (const Stage& stage : own) widest = std::max(widest, plans.t.tp(stage.degree));
    std::vector<Int> quotas;
    for (Int one : sizes) quotas.push_back(groups(rest, widest) * one / sum(sizes));
    if (*std::min_element(quotas.begin(), quotas.end()) == 0) return;
    const std::vector<std::vector<Int>> rows = dealt(rest, widest, quotas);
    for (Int s = 0; s < S; ++s) {
        stages.push_back(own[s]);
        for (Int v = 0; v < plans.V; ++v) stages.back().gpus[v] += rows[s][v];
    }
    plans.end_plan();
}

}  // namespace search
