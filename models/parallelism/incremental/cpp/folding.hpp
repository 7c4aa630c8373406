// `folding`: other ways to fold a plan, as further plans.
#pragma once
#include "growth.hpp"

namespace search {

// `_halves`; false where there are none.
inline bool halve(Skeletons& plans, const Stage& stage, Int degree) {
    if (degree < 0) return false;
    const Int tp = plans.t.tp(degree), count = groups(stage.gpus, tp);
    if (count < 2) return false;
    Stage first{std::vector<Int>(plans.V), degree, stage.origin, false}, second = first;
    second.origin = -1;
    for (Int v = 0, left = (count + 1) / 2; v < plans.V; ++v) {
        const Int here = stage.gpus[v] / tp, some = std::min(here, left);
        left -= some;
        first.gpus[v] = some * tp;
        second.gpus[v] = (here - some) * tp;
    }
    plans.stages.push_back(first);
    plans.stages.push_back(second);
    return true;
}

// A stage of both, as `_two_by_two` has it; false where there is none.
inline bool joined(Skeletons& plans, const Stage& a, const Stage& b, Int degree) {
    if (a.degree != b.degree || degree >= plans.t.T()) return false;
    const Int tp = plans.t.tp(degree);
    Stage both{std::vector<Int>(plans.V), degree, a.origin >= 0 ? a.origin : b.origin, false};
    for (Int v = 0; v < plans.V; ++v) both.gpus[v] = (a.gpus[v] + b.gpus[v]) / tp * tp;
    if (!sum(both.gpus)) return false;
    plans.stages.push_back(both);
    return true;
}

// `foldings` of one plan.
inline void fold(Skeletons& plans, Int p, Int most_stages) {
    const std::vector<Stage> own = plans.plan(p);
    auto width = [&](const Stage& stage) { return sum(stage.gpus) / plans.t.tp(stage.degree); };
    // Not a plan that has as many stages as the one that it is a folding of, and so is that one, or too many.
    auto end_plan = [&] {
        const Int S = static_cast<Int>(plans.stages.size()) - plans.firsts.back();
        if (S == static_cast<Int>(own.size()) || S > most_stages)
            plans.stages.resize(plans.firsts.back());
        else
            plans.end_plan();
    };
    Int widest = 0;
    for (const Stage& stage : own) widest = std::max(widest, width(stage));
    for (Int lower : {0, 1}) {
        for (const Stage& stage : own)
            if (width(stage) != widest || !halve(plans, stage, stage.degree - lower)) plans.stages.push_back(stage);
        end_plan();
    }
    for (Int higher : {0, 1}) {
        for (std::size_t s = 0; s < own.size(); ++s)
            if (s + 1 < own.size() && joined(plans, own[s], own[s + 1], own[s].degree + higher))
                ++s;
            else
                plans.stages.push_back(own[s]);
        end_plan();
    }
}

}  // namespace search
