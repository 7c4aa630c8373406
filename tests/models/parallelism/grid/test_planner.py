from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from models.catalogue import find_model
from models.parallel_plan import ParallelPlan, symmetric_plan
from models.parallelism.grid.options import GridOptions, PlanRule
from models.parallelism.grid.planner import plan_grids, plan_on
from models.parallelism.layout import build_plan, stage_places
from models.parallelism.legality import plan_violations
from models.parallelism.micro_batches import divisors, micro_batch_counts
from models.parallelism.results import Grid, GridResult, RejectionReason
from models.performance.iteration.model import PerformanceModel
from models.performance.iteration.modelling import virtual_model
from models.transformer import Transformer
from stowplan.errors import InputError
from tests.models.parallelism.scenes import KIND, performance_model, profile
from topology.cluster import GpuType
from topology.gpu_catalogue import find_product, gpu_type_of

GPT = Transformer(
    num_layers=8, hidden_size=256, num_heads=8, vocabulary_size=1000, sequence_length=128, global_batch=32, name="small"
)
A100 = GpuType(
    name="a100",
    memory_bytes=40 * 10**9,
    peak_flops_per_s=312e12,
    intra_node_bandwidth_bytes_per_s=300e9,
    inter_node_bandwidth_bytes_per_s=12.5e9,
)


def planned(model: PerformanceModel, num_gpus: int, *, gpus_per_node: int = 4, **options: object) -> GridResult:
    loads = np.array([layer.forward_flops for layer in model.profile.layers])
    return plan_on(model, KIND, gpus_per_node, loads, [num_gpus], GridOptions(**options))  # type: ignore[arg-type]


def grid(result: GridResult, pp: int) -> Grid:
    (found,) = [grid for grid in result.grids if grid.pp == pp]
    return found


def test_equal_layers_make_equal_stages() -> None:
    result = planned(performance_model(profile(global_batch=16)), 2)
    halves = grid(result, 2)
    assert halves.proxy is not None
    assert halves.proxy.plan.notation() == "PP2 DP1 TP1 (2+2 layers, 8 x 2)"
    assert halves.frontier[0].computation_bias == 0.0
    assert halves.num_plans == 3
    # One stage: tensor parallelism on 2 GPUs moves 2 x 8 bytes a layer and sample each way, 4 x 4 x 16 / 100 s = 10 s
    # an iteration, data parallelism 4 x 2 bytes at 100 bytes/s once.
    assert grid(result, 1).proxy is not None
    assert [stage.tp for stage in grid(result, 1).frontier[0].plan.stages] == [1]


def test_a_heavy_layer_gets_more_gpus() -> None:
    # Loads 1 1 2 on 4 GPUs: stages of 2 and 2 layers' worth on 2 GPUs each, or three stages on 1, 1, 2.
    result = planned(performance_model(profile((1.0, 1.0, 2.0), global_batch=16)), 4)
    proxy = grid(result, 3).proxy
    assert proxy is not None
    assert [(stage.num_layers, stage.num_gpus) for stage in proxy.plan.stages] == [(1, 1), (1, 1), (1, 2)]
    proxy = grid(result, 2).proxy
    assert proxy is not None
    assert [(stage.num_layers, stage.num_gpus) for stage in proxy.plan.stages] == [(2, 2), (1, 2)]


def test_out_of_memory_says_how_much_is_missing() -> None:
    # Four layers of 12 bytes of state; with 8 micro-batches of one sample on one GPU, 16 more of activations.
    result = planned(performance_model(memory_bytes=60.0), 1)
    (only,) = result.grids
    assert only.proxy is None
    assert result.best == {}
    (rejection,) = only.rejections
    assert rejection.reason is RejectionReason.OUT_OF_MEMORY
    assert rejection.needed_bytes == 64.0
    assert rejection.usable_bytes == 54.0
    assert "4 layers on 1 GPU, 8 micro-batches" in rejection.candidate


def test_more_micro_batches_where_fewer_do_not_fit() -> None:
    # One GPU, 48 bytes of state, 16 bytes of activations per sample: 80 bytes hold two samples, not the four of 4 x 1
    # micro-batches of 16 sequences.
    result = planned(performance_model(profile(global_batch=16), memory_bytes=81 / 0.9), 1)
    assert result.best[KIND, 1].plan.num_micro_batches == 8


def test_grids_that_cannot_be_say_why() -> None:
    model = performance_model(profile((1.0,) * 2, heads=3), num_nodes=8)
    result = planned(model, 6, pipeline_degrees=(1, 3), gpus_per_node=2)
    assert grid(result, 3).rejections[0].reason is RejectionReason.LAYERS
    tensor = [r for r in grid(result, 1).rejections if r.reason is RejectionReason.TENSOR_DEGREE]
    assert "2 does not divide the 3 attention heads; the next degree that works is 3" in tensor[0].detail
    # 7 GPUs: no local batch of a global batch of 8 is whole, neither for 7 replicas nor for one group of 7.
    assert grid(planned(model, 7, pipeline_degrees=(1,)), 1).rejections[0].reason is RejectionReason.BATCH
    lonely = planned(model, 8, pipeline_degrees=(1,), num_micro_batches=(3,))
    assert lonely.grids[0].rejections[0].reason is RejectionReason.BATCH
    assert planned(model, 1, pipeline_degrees=(2,)).grids[0].rejections[0].reason is RejectionReason.NODES


def test_zero_2_and_3_have_one_stage() -> None:
    result = planned(performance_model(profile(zero_stage=3)), 4)
    assert [found.pp for found in result.grids] == [1]
    asked = planned(performance_model(profile(zero_stage=2)), 4, pipeline_degrees=(1, 2))
    assert grid(asked, 2).rejections[0].reason is RejectionReason.ZERO_STAGE
    assert asked.best[KIND, 4].plan.pp == 1


def test_a_fixed_micro_batch_is_that_of_the_largest_stage() -> None:
    result = planned(performance_model(profile(global_batch=32, micro_batch=2), memory_bytes=1e6), 4)
    for found in result.grids:
        assert found.proxy is not None
        plan = found.proxy.plan
        assert max(stage.dp for stage in plan.stages) * 2 * plan.num_micro_batches == 32


def test_a_micro_batch_that_no_number_of_replicas_meets_is_not_a_lack_of_memory() -> None:
    # 3 x 8 of 24 sequences: 3 replicas of 8, and 2 GPUs make 1 or 2.
    model = performance_model(profile(global_batch=24, micro_batch=8), memory_bytes=1e6)
    (rejection,) = planned(model, 2, pipeline_degrees=(1,), num_micro_batches=(1,)).grids[0].rejections
    assert rejection.reason is RejectionReason.BATCH
    assert "24 does not divide among the replicas with a micro-batch of 8" in rejection.detail


def test_a_measurement_takes_the_place_of_the_prediction() -> None:
    model = performance_model(profile(global_batch=16))
    free = planned(model, 4, refine=False)
    slowest = max((found.proxy for found in free.grids if found.proxy), key=lambda proxy: proxy.iteration.total_s)
    measured = planned(model, 4, refine=False, measured={slowest.plan: 0.5}.get)
    best = measured.best[KIND, 4]
    assert best.plan == slowest.plan
    assert best.measured
    assert (best.iteration.total_s, best.throughput) == (0.5, 32.0)
    assert not free.best[KIND, 4].measured


@given(
    st.lists(st.sampled_from([1.0, 2.0, 5.0]), min_size=1, max_size=9),
    st.sampled_from([1, 2, 4, 6, 8, 12, 16, 24]),
    st.sampled_from([2, 4, 8]),
    st.sampled_from([150.0, 400.0, 1e6]),
    st.sampled_from(list(PlanRule)),
)
@settings(deadline=None, max_examples=20)
def test_every_plan_is_legal_and_as_fast_as_it_says(
    flops: list[float], num_gpus: int, gpus_per_node: int, memory_bytes: float, rule: PlanRule
) -> None:
    model = performance_model(profile(flops, global_batch=48), memory_bytes=memory_bytes, num_nodes=16)
    result = planned(model, num_gpus, gpus_per_node=gpus_per_node, rule=rule)
    plans = [entry.plan for found in result.grids for entry in found.frontier]
    plans += [found.proxy.plan for found in result.grids if found.proxy is not None]
    plans += [estimate.plan for estimate in result.best.values()]
    for plan in plans:
        assert plan.num_gpus == num_gpus
        assert plan_violations(plan, model) == []
        assert len({node for node, _ in plan.gpus}) == -(-num_gpus // gpus_per_node)
    for found in result.grids:
        assert (found.proxy is None) == any(r.reason is not RejectionReason.TENSOR_DEGREE for r in found.rejections)
        if rule is PlanRule.ARENA and found.proxy is not None:
            assert found.proxy.plan == found.frontier[0].plan
    for key, best in result.best.items():
        assert best.throughput >= result.proxies[key].throughput
        assert best.iteration == model.iteration(best.plan)


@given(st.lists(st.sampled_from([1.0, 2.0, 5.0]), min_size=1, max_size=9), st.sampled_from([2, 6, 8]))
@settings(deadline=None, max_examples=8)
def test_in_brief_the_best_plans_are_the_same(flops: list[float], num_gpus: int) -> None:
    model = performance_model(profile(flops, global_batch=48), memory_bytes=300.0)
    long, short = planned(model, num_gpus), planned(model, num_gpus, details=False)
    assert {key: estimate.throughput for key, estimate in short.best.items()} == pytest.approx(
        {key: estimate.throughput for key, estimate in long.best.items()}
    )
    assert short.grids == (() if short.best else long.grids)


def test_crius_assembles_data_and_tensor_parallel_stages() -> None:
    model = performance_model(profile((1.0,) * 4, global_batch=32), memory_bytes=1e6, intra_bytes_per_s=20.0)
    proxy = grid(planned(model, 8, rule=PlanRule.CRIUS), 2).proxy
    assert proxy is not None
    places = stage_places((4, 4), 4)
    assert places is not None
    every = [
        build_plan(layers=(2, 2), degrees=degrees, places=places, gpu_type=KIND, micro_batch=4, num_micro_batches=8)
        for degrees in product(((4, 1), (1, 4)), repeat=2)
    ]
    assert proxy.iteration.total_s == pytest.approx(min(model.iteration(plan).total_s for plan in every))
    assert proxy.plan in every


def test_a_transformer_on_gpus_of_a_snapshot() -> None:
    # Kernels of small layers wait for the host, on eight GPUs, too.
    result = plan_grids(replace(GPT, hidden_size=2048, sequence_length=1024), A100, 4, [1, 2, 8])
    assert {count for _, count in result.best} == {1, 2, 8}
    throughputs = [result.best["a100", count].throughput for count in (1, 2, 8)]
    assert throughputs == sorted(throughputs)
    assert all(found.num_gpus in (1, 2, 8) for found in result.grids)


@pytest.mark.parametrize(
    ("gpus_per_node", "counts", "said"),
    [(0, [1], "gpus_per_node is 0"), (4, [], "give at least one"), (4, [0], "below 1")],
)
def test_bad_input_is_refused(gpus_per_node: int, counts: list[int], said: str) -> None:
    with pytest.raises(InputError, match=said):
        plan_grids(GPT, A100, gpus_per_node, counts)


@pytest.mark.parametrize(
    "options",
    [
        {"num_operators": 21},
        {"num_operators": 0},
        {"max_frontier": 0},
        {"pipeline_degrees": ()},
        {"num_micro_batches": (0,)},
        {"details": False, "measured": {}.get},
    ],
)
def test_bad_options_are_refused(options: dict[str, object]) -> None:
    with pytest.raises(InputError):
        GridOptions(**options)  # type: ignore[arg-type]


def test_numbers_of_micro_batches_start_at_four_times_the_stages() -> None:
    assert micro_batch_counts(profile(global_batch=32), 2, ()) == (8, 16, 32, 4, 2, 1)
    # 12 does not divide 32; the next that does is 16.
    assert micro_batch_counts(profile(global_batch=32), 3, ())[0] == 16
    assert micro_batch_counts(profile(global_batch=32), 9, ())[0] == 32
    assert micro_batch_counts(profile(global_batch=36), 1, ()) == (4, 9, 18, 36, 2, 1)
    # A micro-batch of 2 with 1, 2, 4 or 8 replicas makes 16, 8, 4 or 2; 3 replicas do not divide.
    fixed = profile(global_batch=32, micro_batch=2)
    assert micro_batch_counts(fixed, 1, (1, 2, 3, 4, 8)) == (4, 8, 2, 16)
    assert divisors(12) == (1, 2, 3, 4, 6, 12)


def test_a_deep_pipeline_is_cut_from_as_many_operators() -> None:
    model = performance_model(profile((1.0,) * 40, global_batch=64), num_nodes=16, memory_bytes=1e6)
    found = grid(planned(model, 64, pipeline_degrees=(32,)), 32)
    assert found.proxy is not None
    assert found.num_plans == 1
    assert sum(stage.num_layers for stage in found.proxy.plan.stages) == 40
    assert isinstance(found.proxy.plan, ParallelPlan)


@pytest.mark.parametrize(
    ("name", "gpu", "num_gpus", "global_batch"),
    [("llama2-7b", "h100", 48, 256), ("llama2-70b", "h100", 48, 512), ("moe-10b", "a100-40gb", 64, 256)],
)
def test_no_symmetric_plan_is_better(name: str, gpu: str, num_gpus: int, global_batch: int) -> None:
    """The partitions of 16 operators are not all: PP3 of 32 layers, or PP12 of 80, is none of them."""
    kind = gpu_type_of(find_product(gpu), "bf16")
    job = find_model(name, global_batch=global_batch)
    best = plan_grids(job, kind, 8, (num_gpus,), GridOptions(details=False)).best[kind.name, num_gpus]
    model = virtual_model(job, kind, 8, -(-num_gpus // 8))
    gpus = tuple((str(k // 8), k % 8) for k in range(num_gpus))
    symmetric = [
        symmetric_plan(
            num_layers=model.profile.num_layers,
            pp=pp,
            dp=num_gpus // pp // tp,
            tp=tp,
            global_batch=global_batch,
            num_micro_batches=count,
            gpu_type=kind.name,
            gpus=gpus,
        )
        for pp, tp in product(divisors(num_gpus), (1, 2, 4, 8))
        if num_gpus % (pp * tp) == 0 and pp <= model.profile.num_layers
        for count in divisors(global_batch)
        if global_batch % (count * (num_gpus // pp // tp)) == 0
    ]
    free = {node: (kind.name, frozenset(range(8))) for node, _ in gpus}
    legal = [plan for plan in symmetric if not plan_violations(plan, model, free)]
    assert legal
    assert best.throughput >= max(model.throughput(plan) for plan in legal) * (1 - 1e-9)
    assert not plan_violations(best.plan, model, free)


def test_a_micro_batch_of_the_job_is_kept_beyond_the_grids() -> None:
    """64 samples in micro-batches of 1 do not divide among 10 replicas; ZeRO 3 allows one stage only."""
    found = planned(
        performance_model(profile((1.0,) * 4, global_batch=64, micro_batch=1, zero_stage=3), num_nodes=3), 10
    )
    assert not found.best
    for count in (8, 12):
        whole = planned(performance_model(profile((1.0,) * 4, global_batch=48, micro_batch=2), num_nodes=3), count)
        widest = max(whole.best[KIND, count].plan.stages, key=lambda stage: stage.dp)
        assert {replica.local_batch for replica in widest.replicas} == {2}
