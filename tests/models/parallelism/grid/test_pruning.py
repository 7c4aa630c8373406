import math
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from models.catalogue import find_model
from models.parallelism.grid.options import GridOptions
from models.parallelism.grid.planner import plan_grids, plan_on, spaces
from models.parallelism.grid.pruning import PrunedSearch, _assigned, _num_assignments, remaining_plans
from models.parallelism.legality import plan_violations
from models.performance.iteration.model import PerformanceModel
from models.performance.iteration.modelling import virtual_model
from stowplan.errors import InputError
from tests.models.parallelism.grid.test_planner import A100, GPT
from tests.models.parallelism.scenes import KIND, performance_model, profile
from topology.gpu_catalogue import find_product, gpu_type_of


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


@given(st.integers(1, 40), st.integers(1, 5), st.lists(st.integers(0, 3), min_size=6, max_size=6))
@settings(deadline=None, max_examples=40)
def test_assignments_are_counted_as_if_one_by_one(units: int, num_stages: int, counts: list[int]) -> None:
    ways = product(range(6), repeat=num_stages)
    expected = sum(math.prod(counts[k] for k in way) for way in ways if sum(1 << k for k in way) == units)
    assert _num_assignments(units, num_stages, tuple(counts)) == expected


@given(
    st.lists(st.integers(0, 48).map(lambda quarters: quarters / 4), min_size=1, max_size=4),
    st.integers(0, 800).map(lambda quarters: quarters / 4),
    st.sampled_from([1, 3]),
    st.integers(1, 12),
    st.data(),
)
@settings(deadline=None, max_examples=60)
def test_no_assignment_is_missed(
    wanted: list[float], distance: float, unit: int, units: int, data: st.DataObject
) -> None:
    some = st.sets(st.sampled_from([unit, 2 * unit, 4 * unit, 8 * unit]))
    stages = [{size: [(size, 1)] for size in data.draw(some)} for _ in wanted]
    expected = [
        sizes
        for sizes in product(*map(sorted, stages))
        if sum(sizes) == unit * units
        and sum((size - share) ** 2 for size, share in zip(sizes, wanted, strict=True)) <= distance
    ]
    assert list(_assigned(wanted, stages, unit * units, distance, unit)) == expected


@pytest.mark.slow
def test_a_prime_number_of_many_gpus_is_counted() -> None:
    """1009 GPUs in 12 stages make 10^18 plans; one by one nobody would come to the many that are left."""
    gpt = find_model("gpt2-350m", global_batch=16384)
    h100 = gpu_type_of(find_product("h100"), "bf16")
    result = plan_grids(gpt, h100, 8, [1009], GridOptions(pipeline_degrees=(12,)))
    search = remaining_plans(gpt, h100, 8, 1009, result)
    assert (search.counted(100_000) or 0) > 10**5
    assert search.counted(10) is None
    assert search.num_before > 10**18


def test_counts_without_grids_are_refused() -> None:
    result = plan_grids(GPT, A100, 4, [8])
    with pytest.raises(InputError, match="no frontier for 4 a100"):
        remaining_plans(GPT, A100, 4, 4, result)
    brief = plan_grids(GPT, A100, 4, [8], GridOptions(details=False))
    with pytest.raises(InputError, match="no frontier for 8 a100"):
        remaining_plans(GPT, A100, 4, 8, brief)
