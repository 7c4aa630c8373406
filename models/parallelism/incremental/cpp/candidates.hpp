// `candidates`: skeletons of plans, and expansions of these.
#pragma once
#include <numeric>

#include "configs.hpp"

namespace search {

inline Int sum(const std::vector<Int>& values) { return std::accumulate(values.begin(), values.end(), Int{0}); }

// `origin` is -1 for a new one.
struct Stage {
    std::vector<Int> gpus;
    Int degree, origin;
    bool repeats;
};

// Stages of all plans, where each plan starts, and where the last one ends.
struct Skeletons {
    const Tables& t;
    const Int V;
    std::vector<Stage> stages;
    std::vector<Int> firsts{0};

    // `compiled._packed_plans`.
    Skeletons(const Tables& t, const Landscape& landscape, PyObject* packed) : t(t), V(landscape.V) {
        Array<Int> gpus, degree, origin, num_stages;
        Array<char> repeats;
        unpack(packed, "y*y*y*y*y*", &gpus.view, &degree.view, &origin.view, &repeats.view, &num_stages.view);
        const Int size = degree.size();
        check(gpus.size() == size * V && gpus.within(0, INT32_MAX), "plans: GPUs");
        check(degree.within(0, t.T() - 1) && origin.size() == size && repeats.size() == size, "plans: stages");
        check(num_stages.size() > 0 && num_stages.within(1, size), "plans: numbers of stages");
        check(std::accumulate(num_stages.begin(), num_stages.end(), Int{0}) == size, "plans: number of stages");
        stages.reserve(size);
        for (Int s = 0, p = 0; s < size; ++s) {
            breathe(V);
            const Int* own = gpus.begin() + s * V;
            stages.push_back({std::vector<Int>(own, own + V), degree[s], origin[s], repeats[s] != 0});
            check(sum(stages[s].gpus) >= t.tp(degree[s]), "plans: a stage without replicas");
            if (s + 1 == firsts.back() + num_stages[p]) end_plan(), ++p;
        }
    }

    Int num_plans() const { return static_cast<Int>(firsts.size()) - 1; }
    Int num_stages(Int p) const { return firsts[p + 1] - firsts[p]; }
    std::vector<Stage> plan(Int p) const { return {stages.begin() + firsts[p], stages.begin() + firsts[p + 1]}; }
    void end_plan() { firsts.push_back(static_cast<Int>(stages.size())); }

    std::vector<Int> rest_of(Int p, const Array<Int>& available) const {
        std::vector<Int> rest(available.begin(), available.end());
        for (Int s = firsts[p]; s < firsts[p + 1]; ++s)
            for (Int v = 0; v < V; ++v) rest[v] -= stages[s].gpus[v];
        for (Int left : rest) check(left >= 0, "plans: more GPUs than there are");
        return rest;
    }
};

// What changes in a predecessor: nothing (`stage` -1), a stage, or a new stage before `stage`; `config` of what it
// becomes.
struct Candidate {
    Int plan, stage, config, num_stages;
    bool is_new;
};

struct Candidates {
    Skeletons& plans;
    Configs& configs;
    std::vector<Candidate> list;
    // Configurations of the stages of all plans.
    std::vector<Int> own;

    Candidates(Skeletons& plans, Configs& configs) : plans(plans), configs(configs) {}

    Int config(const Candidate& c, Int s) const { return s == c.stage ? c.config : own[before(c, s)]; }
    // The stage that a stage was, of which it has what it has.
    Int before(const Candidate& c, Int s) const { return plans.firsts[c.plan] + s - (c.is_new && s > c.stage); }

    // `expansions` of one plan.
    void expand(Int p, const std::vector<Int>& rest, Int most_stages, bool anew) {
        const Int S = plans.num_stages(p), T = plans.t.T();
        const Stage* of_plan = &plans.stages[plans.firsts[p]];
        for (Int s = 0; s < S; ++s) {
            const bool inside = of_plan[s].repeats && s + 1 < S && of_plan[s + 1].repeats;
            if (inside && !meets(of_plan[s].gpus, rest)) continue;
            for (Int d = 0; d < T; ++d)
                if (anew || d == of_plan[s].degree) join(&of_plan[s], rest, d, {p, s, 0, S, false});
        }
        for (Int s = 0; anew && S < most_stages && s <= S; ++s)
            if (s == S || !of_plan[s].repeats)
                for (Int d = 0; d < T; ++d) join(nullptr, rest, d, {p, s, 0, S + 1, true});
    }

    // `folding.as_candidates` of the plans from `first` on, and what stages of plans cost.
    void add_whole(Int first) {
        for (Int p = first; p < plans.num_plans(); ++p) list.push_back({p, -1, 0, plans.num_stages(p), false});
        for (const Stage& stage : plans.stages) {
            const Int tp = plans.t.tp(stage.degree);
            for (Int gpus : stage.gpus) configs.replicas.push_back(gpus / tp);
            own.push_back(configs.add(stage.degree));
        }
    }

  private:
    static bool meets(const std::vector<Int>& own, const std::vector<Int>& rest) {
        for (std::size_t v = 0; v < own.size(); ++v)
            if (own[v] > 0 && rest[v] > 0) return true;
        return false;
    }

    // A candidate whose stage, one of the plan's or a new one, has what is left, unless it has nothing, or as before.
    void join(const Stage* stage, const std::vector<Int>& rest, Int degree, Candidate candidate) {
        const std::size_t before = configs.replicas.size();
        const Int tp = plans.t.tp(degree);
        bool any = false, differs = !stage || stage->degree != degree;
        for (Int v = 0; v < plans.V; ++v) {
            const Int held = stage ? stage->gpus[v] : 0, count = (held + rest[v]) / tp;
            any |= count != 0;
            differs |= count != held / tp;
            configs.replicas.push_back(count);
        }
        if (!any || !differs) return configs.replicas.resize(before);
        candidate.config = configs.add(degree);
        list.push_back(candidate);
    }
};

}  // namespace search
