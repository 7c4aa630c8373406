import math

import numpy as np
import pytest

from models.parallelism.legality import plan_violations
from models.parallelism.options import GridOptions
from models.parallelism.planner import plan_grids, plan_on, spaces
from models.parallelism.pruning import PrunedSearch, remaining_plans
from models.performance.iteration import PerformanceModel
from models.performance.modelling import virtual_model
from stowplan.errors import InputError
from tests.models.parallelism.scenes import KIND, performance_model, profile
from tests.models.parallelism.test_planner import A100, GPT


def pruned(model: PerformanceModel, num_gpus: int, pp: tuple[int, ...]) -> PrunedSearch:
    loads = np.array([layer.forward_flops for layer in model.profile.layers])
    result = plan_on(model, KIND, 4, loads, [num_gpus], GridOptions(pipeline_degrees=pp))
    ((_, space),) = spaces(model, KIND, 4, loads, [num_gpus], 16)
    return PrunedSearch.of(space, num_gpus, result.grids)


def test_two_stages_of_four_equal_layers_on_two_gpus() -> None:
    # Before: 3 partitions of one assignment. The frontier is 2 | 2 alone, bias 0: nothing else is as balanced.
    search = pruned(performance_model(profile(global_batch=16)), 2, (2,))
    assert search.num_before == 3
    assert search.max_bias == 0.0
    assert search.fixed == {(0, 2): {(1, 1)}, (2, 4): {(1, 1)}}
    assert search.num_after == 1
    assert [plan.notation() for plan in search.plans()] == ["PP2 DP1 TP1 (2+2 layers, 8 x 2)"]


def test_the_best_grid_gives_the_pipeline_degree() -> None:
    model = performance_model(profile(global_batch=16), memory_bytes=1e6)
    search = pruned(model, 4, (1, 2, 4))
    # One stage of 4 GPUs: 3 degrees. Two of 2: 3 partitions, 2 x 2 degrees. Four of 1: one plan.
    assert search.num_before == 3 + 3 * 4 + 1
    assert search.grid.proxy is not None
    assert {plan.pp for plan in search.plans()} == {search.grid.pp}
    assert search.grid.proxy.plan in list(search.plans())


def test_the_plans_that_are_left_are_legal_and_hold_the_frontier() -> None:
    result = plan_grids(GPT, A100, 4, [8])
    search = remaining_plans(GPT, A100, 4, 8, result)
    model = virtual_model(GPT, A100, 4, 2)
    plans = list(search.plans())
    assert len(plans) <= search.num_after <= search.num_before
    assert all(plan_violations(plan, model) == [] for plan in plans)
    assert {entry.plan for entry in search.grid.frontier} <= set(plans)
    assert len(set(plans)) == len(plans)
    assert math.isfinite(search.max_bias)


def test_counts_without_grids_are_refused() -> None:
    result = plan_grids(GPT, A100, 4, [8])
    with pytest.raises(InputError, match="no frontier for 4 a100"):
        remaining_plans(GPT, A100, 4, 4, result)
    brief = plan_grids(GPT, A100, 4, [8], GridOptions(details=False))
    with pytest.raises(InputError, match="no frontier for 8 a100"):
        remaining_plans(GPT, A100, 4, 8, brief)
