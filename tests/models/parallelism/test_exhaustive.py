"""The reference against enumeration by hand: every node for every replica, every plan timed by itself."""

from collections.abc import Iterator
from itertools import combinations, product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from models.parallel_plan import Gpu, ParallelPlan
from models.parallelism.exhaustive import ExhaustiveOptions, best_plan
from models.parallelism.grid.options import GridOptions
from models.parallelism.grid.planner import plan_on
from models.parallelism.layout import build_plan
from models.parallelism.legality import plan_violations
from models.performance.iteration.model import PerformanceModel
from stowplan.errors import InputError
from tests.models.parallelism.scenes import KIND, performance_model, profile


def every_plan(model: PerformanceModel, capacities: tuple[int, ...]) -> Iterator[ParallelPlan]:
    """All legal plans on nodes with these GPUs that use all of them."""
    num_gpus, of = sum(capacities), model.profile
    for pp in range(1, min(num_gpus, of.num_layers) + 1):
        cuts = [(0, *inner, of.num_layers) for inner in combinations(range(1, of.num_layers), pp - 1)]
        pairs = [(dp, tp) for dp in range(1, num_gpus + 1) for tp in range(1, num_gpus + 1)]
        degrees = [way for way in product(pairs, repeat=pp) if sum(dp * tp for dp, tp in way) == num_gpus]
        for way, bounds in product(degrees, cuts):
            for nodes in product(range(len(capacities)), repeat=sum(dp for dp, _ in way)):
                yield from _placed(model, way, bounds, nodes, capacities)


def _placed(
    model: PerformanceModel,
    way: tuple[tuple[int, int], ...],
    bounds: tuple[int, ...],
    nodes: tuple[int, ...],
    capacities: tuple[int, ...],
) -> Iterator[ParallelPlan]:
    used = [0] * len(capacities)
    places: list[tuple[Gpu, ...]] = []
    left = iter(nodes)
    for dp, tp in way:
        stage: list[Gpu] = []
        for _ in range(dp):
            node = next(left)
            stage += [(str(node), gpu) for gpu in range(used[node], used[node] + tp)]
            used[node] += tp
        places.append(tuple(stage))
    if used != list(capacities):
        return
    for count in (1, 2, 4):
        if model.profile.global_batch % count or max(dp for dp, _ in way) > model.profile.global_batch // count:
            continue
        plan = build_plan(
            layers=np.diff(bounds).tolist(),
            degrees=way,
            places=places,
            gpu_type=KIND,
            micro_batch=model.profile.global_batch // count,
            num_micro_batches=count,
        )
        if not plan_violations(plan, model):
            yield plan


@given(
    st.lists(st.sampled_from([1.0, 2.0]), min_size=1, max_size=3),
    st.sampled_from([(1,), (2,), (2, 1), (2, 2), (4,)]),
    st.sampled_from([(100.0, 10.0), (10.0, 100.0)]),
    st.sampled_from([60.0, 100.0, 1e6]),
    st.sampled_from([2, 3]),
    st.sampled_from([0.0, 2.0]),
)
@settings(deadline=None, max_examples=25)
def test_nothing_is_faster(
    flops: list[float],
    nodes: tuple[int, ...],
    bandwidths: tuple[float, float],
    memory_bytes: float,
    heads: int,
    tied_parameters: float,
) -> None:
    model = performance_model(
        profile(flops, global_batch=4, heads=heads, tied_parameters=tied_parameters),
        memory_bytes=memory_bytes,
        intra_bytes_per_s=bandwidths[0],
        inter_bytes_per_s=bandwidths[1],
    )
    expected = min((model.iteration(plan).total_s for plan in every_plan(model, nodes)), default=None)
    found = best_plan(model, KIND, max(nodes), sum(nodes))
    assert (found.best is None) == (expected is None)
    if found.best is not None:
        assert found.best.iteration.total_s == pytest.approx(expected)
        assert plan_violations(found.best.plan, model) == []
        assert found.best.iteration.total_s == min(one.iteration.total_s for one in found.by_degree.values())


@given(
    st.lists(st.sampled_from([1.0, 2.0, 5.0]), min_size=1, max_size=6),
    st.sampled_from([1, 2, 3, 4, 6]),
    st.sampled_from([150.0, 400.0, 1e6]),
    st.sampled_from([0.0, 3.0]),
)
@settings(deadline=None, max_examples=10)
def test_no_grid_is_faster_than_the_reference(
    flops: list[float], num_gpus: int, memory_bytes: float, tied_parameters: float
) -> None:
    model = performance_model(
        profile(flops, global_batch=12, tied_parameters=tied_parameters), memory_bytes=memory_bytes
    )
    loads = np.array(flops)
    planned = plan_on(model, KIND, 2, loads, [num_gpus], GridOptions())
    reference = best_plan(model, KIND, 2, num_gpus)
    for grid in planned.grids:
        if grid.proxy is not None:
            assert reference.by_degree[grid.pp].iteration.total_s <= grid.proxy.iteration.total_s * (1 + 1e-9)
    for best in planned.best.values():
        assert reference.best is not None
        assert reference.best.iteration.total_s <= best.iteration.total_s * (1 + 1e-9)


def test_a_slow_stage_across_nodes_beats_one_inside_when_the_network_is_faster() -> None:
    # Two nodes of 2 GPUs, one layer: DP2 TP2 inside each node, or DP4; the replicas meet over the network either way.
    # Two layers, DP2 each: inside a node at 10 bytes/s, or across at 100.
    slow_links = performance_model(
        profile((1.0, 1.0), global_batch=16), intra_bytes_per_s=10.0, inter_bytes_per_s=100.0
    )
    best = best_plan(slow_links, KIND, 2, 4, ExhaustiveOptions(pipeline_degrees=(2,))).best
    assert best is not None
    assert [{replica.node for replica in stage.replicas} for stage in best.plan.stages] == [{"0", "1"}, {"0", "1"}]


def test_only_what_was_asked_for_is_compared() -> None:
    model = performance_model(profile((1.0,) * 4, global_batch=16), memory_bytes=1e6)
    options = ExhaustiveOptions(
        bounds=(0, 2, 4), pipeline_degrees=(2,), num_micro_batches={2: (4,)}, powers_of_two=True
    )
    found = best_plan(model, KIND, 4, 4, options)
    # One partition; on 2 + 2 GPUs DP2 or TP2 each.
    assert found.num_plans == 4
    assert list(found.by_degree) == [2]
    # Without the limits, 1 + 3 and 3 + 1 too, three partitions, and five divisors.
    assert best_plan(model, KIND, 4, 4, ExhaustiveOptions(pipeline_degrees=(2,))).num_plans == (4 + 2) * 3 * 5


def test_too_many_plans_are_refused_before_they_are_counted_one_by_one() -> None:
    model = performance_model(profile((1.0,) * 40, global_batch=64))
    with pytest.raises(InputError, match="use fewer GPUs, operators or pipeline degrees"):
        best_plan(model, KIND, 8, 64)
    with pytest.raises(InputError, match="num_gpus is 0"):
        best_plan(model, KIND, 8, 0)


def test_a_fixed_micro_batch_holds_in_the_reference_too() -> None:
    model = performance_model(profile(global_batch=16, micro_batch=2), memory_bytes=1e6)
    found = best_plan(model, KIND, 4, 4)
    for estimate in found.by_degree.values():
        plan = estimate.plan
        assert max(stage.dp for stage in plan.stages) * 2 * plan.num_micro_batches == 16
