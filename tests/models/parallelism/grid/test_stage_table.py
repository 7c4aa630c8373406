"""The tables say what the performance model says of plans, stage by stage."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from models.parallelism.grid.degrees import compact_degrees, tensor_degrees
from models.parallelism.grid.partition import gpu_sets, stage_sizes
from models.parallelism.grid.stage_table import StageTable
from models.parallelism.layout import build_plan, stage_places
from tests.models.parallelism.scenes import KIND, performance_model, profile


@st.composite
def drawn(draw: st.DrawFn) -> tuple[int, tuple[int, ...], tuple[int, ...], int, int]:
    """GPUs per node, layers and sizes of the stages, micro-batches, ZeRO stage."""
    num_gpus = draw(st.sampled_from([1, 2, 4, 6, 8, 12, 16]))
    pp = draw(st.integers(1, min(4, num_gpus)))
    sets = gpu_sets(num_gpus, pp).tolist()
    sizes = tuple(draw(st.permutations(draw(st.sampled_from(sets))))) if sets else (num_gpus,)
    layers = tuple(draw(st.lists(st.integers(1, 3), min_size=len(sizes), max_size=len(sizes))))
    zero_stage = draw(st.integers(0, 3)) if len(sizes) == 1 else draw(st.integers(0, 1))
    return draw(st.sampled_from([1, 2, 4, 8])), layers, sizes, draw(st.sampled_from([1, 2, 4, 8])), zero_stage


@given(drawn(), st.sampled_from([1.0, 2.0, 7.5]), st.sampled_from([0.0, 3.0]), st.data())
@settings(deadline=None, max_examples=25)
def test_tables_agree_with_the_performance_model(
    case: tuple[int, tuple[int, ...], tuple[int, ...], int, int],
    overlap: float,
    tied_parameters: float,
    data: st.DataObject,
) -> None:
    gpus_per_node, layers, sizes, num_micro_batches, zero_stage = case
    places = stage_places(sizes, gpus_per_node)
    if places is None:
        return
    flops = [1.0 + k % 3 for k in range(sum(layers))]
    model = performance_model(
        profile(flops, global_batch=48, zero_stage=zero_stage, tied_parameters=tied_parameters),
        num_nodes=16,
        overlap=overlap,
        memory_bytes=250.0,
    )
    degrees = compact_degrees(model.profile, stage_sizes(sum(sizes)), gpus_per_node)
    bounds = np.cumsum([0, *layers]).tolist()
    table = StageTable(model=model, gpu_type=KIND, intervals=tuple(pairwise(bounds)), degrees=degrees)
    costs = table.costs(num_micro_batches)
    index = degrees.index_of(np.array(sizes)).tolist()
    valid = [np.flatnonzero(costs.valid[g]).tolist() for g in index]
    if not all(valid):
        return
    options = [data.draw(st.sampled_from(of_stage)) for of_stage in valid]
    plan = build_plan(
        layers=layers,
        degrees=[degrees.degrees(g, t) for g, t in zip(index, options, strict=True)],
        places=places,
        gpu_type=KIND,
        micro_batch=48 // num_micro_batches,
        num_micro_batches=num_micro_batches,
    )
    memory = table.memory_bytes(num_micro_batches, range(1, len(layers) + 1))
    for i, (stage, needed) in enumerate(zip(model.iteration(plan).stages, model.memory(plan), strict=True)):
        at = i, index[i], options[i]
        assert stage.forward_s == pytest.approx(costs.forward_s[at])
        assert stage.backward_s == pytest.approx(costs.backward_s[at])
        assert stage.tensor_communication_s == pytest.approx(costs.communication_s[at])
        assert stage.exposed_reduction_s == pytest.approx(costs.once_s[at])
        assert stage.optimizer_s == pytest.approx(costs.optimizer_s[at])
        assert needed.total_bytes == pytest.approx(memory[(len(layers) - 1 - i, *at)])
    fits = table.fits(memory)
    chosen = [fits[len(layers) - 1 - i, i, index[i], options[i]] for i in range(len(layers))]
    assert all(chosen) == model.fits(plan)


def test_degrees_divide_model_nodes_and_stage() -> None:
    # 12 GPUs on nodes of 8 are 8 + 4: groups of 8 do not fit into the 4, groups of 3 not into the heads.
    degrees = compact_degrees(profile(heads=16), (4, 8, 12), 8)
    assert degrees.tp.tolist() == [1, 2, 4, 8]
    assert degrees.possible.tolist() == [[True, True, True, False], [True] * 4, [True, True, True, False]]
    assert degrees.dp[2].tolist()[:3] == [12, 6, 3]
    # A single group on each node of its own meets others over the network only.
    assert degrees.inside[1].tolist() == [True, True, True, False]
    assert degrees.across[:, 0].tolist() == [False, False, True]
    assert tensor_degrees(profile(heads=6), 8) == (1, 2, 3, 6)


def test_a_batch_that_does_not_divide_is_not_valid() -> None:
    model = performance_model(profile(global_batch=12))
    degrees = compact_degrees(model.profile, (8,), 8)
    for even, valid in ((True, [False, True, True]), (False, [False, True, True])):
        table = StageTable(model=model, gpu_type=KIND, intervals=((0, 4),), degrees=degrees, even_batches=even)
        assert table.costs(3).valid[0].tolist()[:3] == valid
    # 6 sequences for 4 replicas: two of 2 and two of 1, but not in equal local batches.
    uneven = StageTable(model=model, gpu_type=KIND, intervals=((0, 4),), degrees=degrees, even_batches=False)
    even_table = StageTable(model=model, gpu_type=KIND, intervals=((0, 4),), degrees=degrees)
    assert uneven.costs(2).valid[0].tolist() == [False, True, True]
    assert even_table.costs(2).valid[0].tolist() == [False, False, True]
