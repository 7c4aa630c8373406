"""Bounds are bounds, and what they leave out is not missed."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from models.parallelism.exhaustive import best_plan
from models.parallelism.incremental.bounds import divisible_bounds, may_beat
from models.parallelism.incremental.candidates import expansions
from models.parallelism.incremental.configs import StageConfigs
from models.parallelism.incremental.estimate import estimate
from models.parallelism.incremental.expand import expand
from models.parallelism.incremental.folding import Part, relayouts, skeleton_of
from models.parallelism.incremental.options import IncrementalOptions
from models.parallelism.incremental.problem import Problem
from models.parallelism.incremental.terms import Rows
from tests.models.parallelism.incremental.scenes import models, plans, symmetric
from tests.models.parallelism.scenes import KIND, performance_model, profile

EXAMPLES = settings(max_examples=20, deadline=None)


@EXAMPLES
@given(st.data())
def test_no_plan_is_faster_than_its_bounds(data: st.DataObject) -> None:
    model = data.draw(models(num_types=2).filter(lambda drawn: len(set(drawn.profile.layers)) == 1))
    plan = data.draw(plans(model))
    problem = Problem.of(model, plan, IncrementalOptions(), added=[("node 2", 0), ("node 2", 1), ("node 3", 0)])
    tables, available = problem.tables, np.array([4] * len(problem.landscape.nodes))
    parts = [Part(gpus=g, degree=d, origin=None) for g, d in zip(problem.gpus, problem.degree.tolist(), strict=True)]
    starts = [skeleton_of(parts), *relayouts(available // 2, tables.degrees, 3, uneven=True)]
    candidates = expansions(starts, available, tables.degrees, model.profile.num_layers)
    configs = StageConfigs.of(tables, problem.landscape, candidates.replicas, candidates.degree)
    bounds = divisible_bounds(tables, configs, candidates.stages, candidates.num_stages)
    c, batch = np.nonzero(np.isfinite(bounds))
    rows = Rows(stages=candidates.stages[c], num_stages=candidates.num_stages[c], batch=batch, candidate=c)
    exact = estimate(tables, configs, rows).total_s
    assert (bounds[c, batch] <= exact * (1 + 1e-9)).all()
    legal = np.isfinite(exact)
    assert may_beat(tables, configs, rows, exact)[legal].all()
    assert not may_beat(tables, configs, rows, 0.5 * bounds[c, batch]).any()


def test_growing_from_one_gpu_comes_close_to_all_plans() -> None:
    """Four layers, nodes of four GPUs: every plan on up to six GPUs against those grown one GPU at a time."""
    for head_flops in (0.0, 2.0):
        model = performance_model(profile(global_batch=12, head_flops=head_flops), num_nodes=2)
        base = symmetric(model, 1, 1, 1, 4, [("0", 0)])
        released = [(str(k // 4), k % 4) for k in range(1, 6)]
        best = 0.0
        for step in expand(model, base, released, IncrementalOptions(expansion_limit=None)).steps:
            found = best_plan(model, KIND, 4, 1 + step.num_added).best
            assert found is not None
            best = max(best, found.throughput)
            assert 0.97 * best <= step.throughput <= best * (1 + 1e-9)
