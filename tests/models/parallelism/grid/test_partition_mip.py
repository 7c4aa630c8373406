from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from models.parallelism.grid.options import GridOptions
from models.parallelism.grid.partition import partitions, stage_sizes
from models.parallelism.grid.partition_mip import best_partition, bottleneck_s
from models.parallelism.grid.planner import plan_on
from solver.options import SolveOptions
from solver.result import TerminationReason
from stowplan.errors import InputError
from tests.models.parallelism.scenes import KIND, performance_model, profile


def test_loads_1_1_2_on_four_gpus() -> None:
    # | 1 | 1 | 2 |  on 1, 1, 2 GPUs: every stage takes 1 s.
    found = best_partition(np.array([1.0, 1.0, 2.0]), 4, 3)
    assert found.termination is TerminationReason.OPTIMAL
    assert (found.bounds, found.sizes) == ((0, 1, 2, 3), (1, 1, 2))
    assert found.bottleneck_s == pytest.approx(1.0)
    assert found.bound_s == pytest.approx(1.0)
    # 1 + 1 on one GPU and 2 on three: the slowest stage takes twice as long.
    assert found.gap(2.0) == pytest.approx(0.5)


def test_no_solution_is_an_outcome() -> None:
    # 7 GPUs are 4 + 2 + 1 or 7.
    found = best_partition(np.ones(2), 7, 2)
    assert found.termination is TerminationReason.INFEASIBLE
    assert (found.bounds, found.sizes, found.bottleneck_s) == (None, None, None)


@pytest.mark.parametrize(("num_gpus", "num_stages"), [(4, 3), (1, 2)])
def test_more_stages_than_operators_or_gpus_are_refused(num_gpus: int, num_stages: int) -> None:
    with pytest.raises(InputError, match=f"{num_stages} stages need as many"):
        best_partition(np.ones(2), num_gpus, num_stages)


@given(st.lists(st.integers(1, 9), min_size=2, max_size=5), st.integers(1, 3), st.sampled_from([2, 4, 6]))
@settings(deadline=None, max_examples=8)
def test_it_is_what_brute_force_finds_and_bounds_the_heuristic(
    loads: list[int], num_stages: int, num_gpus: int
) -> None:
    num_stages = min(num_stages, num_gpus, len(loads))
    of = np.array(loads, dtype=np.float64) * 1e-3
    every = [
        bottleneck_s(of, bounds, sizes)
        for bounds in partitions(len(loads), num_stages).tolist()
        for sizes in product(stage_sizes(num_gpus), repeat=num_stages)
        if sum(sizes) == num_gpus
    ]
    found = best_partition(of, num_gpus, num_stages, SolveOptions(relative_gap=0.0))
    if not every:
        assert found.bottleneck_s is None
        return
    assert found.bottleneck_s == pytest.approx(min(every), rel=1e-4)
    assert found.bound_s == pytest.approx(min(every), rel=2e-4)
    model = performance_model(profile(loads, global_batch=64), memory_bytes=1e9)
    grids = plan_on(model, KIND, 8, of, [num_gpus], GridOptions(pipeline_degrees=(num_stages,))).grids
    if grids[0].proxy is not None:
        stages = grids[0].proxy.plan.stages
        cuts = np.cumsum([0, *(stage.num_layers for stage in stages)]).tolist()
        assert found.bound_s is not None
        assert bottleneck_s(of, cuts, [stage.num_gpus for stage in stages]) >= found.bound_s * (1 - 1e-6)
