"""Symmetric plans, interleaved ones too: as good as the best of all, legal, never worse than without."""

import math
from dataclasses import replace
from itertools import pairwise, product
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from models.parallel_plan import ParallelPlan, symmetric_plan
from models.parallelism.cuts import folded_layers, schedules_of, stage_bounds, virtual_stages
from models.parallelism.even import even_plans, sharing_degrees
from models.parallelism.grid.options import GridOptions
from models.parallelism.legality import plan_violations
from models.parallelism.offers import free_gpus, offers_of
from models.parallelism.planner import answer
from models.parallelism.request import Degrees, Offer, ParallelRequest, Planner
from models.performance.iteration.model import PerformanceModel
from models.performance.iteration.modelling import virtual_model
from models.performance.iteration.whitebox import roofline_s
from models.pipeline_schedule import PipelineSchedule
from models.software import Software
from models.transformer import Checkpointing, Transformer
from stowplan.errors import InputError
from tests.growth import work
from topology.cluster import Cluster, GpuType, Node, Tier

KIND = GpuType(
    name="gpu",
    memory_bytes=40 * 10**9,
    peak_flops_per_s=312e12,
    intra_node_bandwidth_bytes_per_s=300e9,
    inter_node_bandwidth_bytes_per_s=25e9,
)
GPT = Transformer(
    num_layers=12,
    hidden_size=2048,
    num_heads=16,
    vocabulary_size=51200,
    sequence_length=1024,
    global_batch=16,
    software=Software.MEGATRON_CORE,
)


# Long sequences and experts, on which replicas may share.
MIXTURE = replace(GPT, num_layers=4, sequence_length=16384, num_experts=4, experts_per_token=2, global_batch=8)


def every_plan(
    model: PerformanceModel, num_gpus: int, gpus_per_node: int, cp: int = 1, ep: int = 1
) -> list[ParallelPlan]:
    """All symmetric plans with stages as even by load as whole parts go, that fit."""
    profile, found = model.profile, []
    loads = roofline_s(profile, KIND)
    gpus = tuple((str(k // gpus_per_node), k % gpus_per_node) for k in range(num_gpus))
    for pp, tp, count in product(range(1, num_gpus + 1), range(1, num_gpus + 1), range(1, profile.global_batch + 1)):
        if (
            num_gpus % (pp * tp * cp)
            or num_gpus // (pp * tp) % ep
            or not profile.admits_tensor_degree(tp)
            or pp > profile.num_layers
        ):
            continue
        kinds = [one for one in schedules_of(model, pp, GridOptions()) if one is not PipelineSchedule.ZBV]
        cuts: list[tuple[PipelineSchedule, int, tuple[int, ...]]] = [
            (kind, parts, tuple(last - first for first, last in pairwise(stage_bounds(loads, pp, parts))))
            for kind, parts in product(kinds, virtual_stages(model, pp))
        ]
        if len(kinds) > 1 and 2 * pp <= profile.num_layers:
            cuts.append((PipelineSchedule.ZBV, 2, folded_layers(loads, pp)))
        for schedule, parts, layers in cuts:
            try:
                plan = symmetric_plan(
                    num_layers=layers,
                    pp=pp,
                    dp=num_gpus // pp // tp // cp,
                    tp=tp,
                    cp=cp,
                    ep=ep,
                    global_batch=profile.global_batch,
                    num_micro_batches=count,
                    gpu_type=KIND.name,
                    gpus=gpus,
                    virtual_stages=parts,
                    schedule=schedule,
                )
            except InputError:
                continue
            if model.fits(plan):
                found.append(plan)
    return found


@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    memory_gb=st.sampled_from([4, 8, 40]),
    num_gpus=st.sampled_from([2, 4, 8]),
    software=st.sampled_from([Software.MEGATRON_CORE, Software.DEEPSPEED, Software.TORCH_EAGER]),
    num_layers=st.sampled_from([6, 12, 13, 14]),
)
def test_they_are_near_the_best_of_all(memory_gb: int, num_gpus: int, software: Software, num_layers: int) -> None:
    """The ranking knows sends and schedule roughly, so that a few percent may be lost."""
    kind = replace(KIND, memory_bytes=memory_gb * 10**9)
    job = replace(GPT, software=software, num_layers=num_layers, checkpointing=Checkpointing.NONE)
    model = virtual_model(job, kind, 4, -(-num_gpus // 4))
    loads = roofline_s(model.profile, kind)
    found = even_plans(model, kind.name, 4, num_gpus, loads, GridOptions())
    every = every_plan(model, num_gpus, 4)
    assert found.bound_s <= min((model.iteration(other).total_s for other in every), default=math.inf) * (1 + 1e-9)
    kinds = {(False, False): found.plain, (True, False): found.interleaved, (True, True): found.zero_bubble}
    for kind_of, plan in kinds.items():
        times = [
            model.iteration(other).total_s
            for other in every
            if (other.virtual_stages > 1, other.schedule.splits_backward) == kind_of
        ]
        assert (plan is None) == (not times)
        if plan is not None:
            assert plan_violations(plan, model) == []
            assert min(times) * (1 - 1e-9) <= model.iteration(plan).total_s <= 1.03 * min(times)


@settings(max_examples=10, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    memory_gb=st.sampled_from([3, 5, 10, 40]),
    num_gpus=st.sampled_from([2, 4, 8]),
    software=st.sampled_from([Software.MEGATRON_CORE, Software.TORCH, Software.DEEPSPEED]),
    zero_stage=st.sampled_from([0, 1]),
    slower=st.sampled_from([1.0, 30.0]),
)
def test_sharing_is_near_the_best_of_all(
    memory_gb: int, num_gpus: int, software: Software, zero_stage: int, slower: float
) -> None:
    """Over all degrees of context and expert parallelism that the software has, on fast and slow networks."""
    bandwidth = KIND.inter_node_bandwidth_bytes_per_s / slower
    kind = replace(KIND, memory_bytes=memory_gb * 10**9, inter_node_bandwidth_bytes_per_s=bandwidth)
    model = virtual_model(replace(MIXTURE, software=software, zero_stage=zero_stage), kind, 4, -(-num_gpus // 4))
    degrees = list(sharing_degrees(model, num_gpus, GridOptions()))
    powers = [1, 2, 4] if software is not Software.DEEPSPEED else [1]
    assert degrees == [(cp, ep) for cp in powers for ep in powers if max(cp, ep) <= num_gpus]
    found = even_plans(model, kind.name, 4, num_gpus, roofline_s(model.profile, kind), GridOptions())
    every = [plan for cp, ep in degrees for plan in every_plan(model, num_gpus, 4, cp, ep)]
    assert found.bound_s <= min((model.iteration(other).total_s for other in every), default=math.inf) * (1 + 1e-9)
    for interleaved, plan in ((False, found.plain), (True, found.interleaved)):
        times = [model.iteration(other).total_s for other in every if (other.virtual_stages > 1) is interleaved]
        assert (plan is None) == (not times)
        if plan is not None:
            assert plan_violations(plan, model) == []
            assert min(times) * (1 - 1e-9) <= model.iteration(plan).total_s <= 1.03 * min(times)


def mixture(**changes: Any) -> ParallelRequest:
    """Experts of 39 GB with their states, on four GPUs of 15 GB, without ZeRO."""
    model = replace(MIXTURE, sequence_length=2048, num_experts=16, zero_stage=0, checkpointing=Checkpointing.FULL)
    offers = (Offer(gpu_type=replace(KIND, memory_bytes=15 * 10**9), gpus_per_node=4, counts=(4,)),)
    request = ParallelRequest(model=model, offers=offers, grid=GridOptions(pipeline_degrees=(1,)))
    return replace(request, **changes)


def test_experts_fit_where_replicas_share_them() -> None:
    """Nothing else divides them: one stage, and no tensor parallelism with heads that four does not divide."""
    request = mixture()
    assert isinstance(request.model, Transformer)
    odd = replace(request.model, num_heads=1)
    found = answer(replace(request, model=odd)).best
    assert found.estimate.plan.notation().startswith("PP1 DP4 TP1 EP4")
    with pytest.raises(InputError, match="megatron-core, whose replicas share experts"):
        answer(replace(request, model=replace(odd, software=Software.DEEPSPEED)))


def test_replicas_share_on_the_nodes_of_a_cluster() -> None:
    """Four nodes with a GPU each, in two leaves with a tenth of the bandwidth between them: with the experts of a leaf
    next to each other, all-to-alls of two stay in it, those of four do not."""
    nodes = tuple(Node(id=name, gpu_type=KIND.name, num_gpus=1, path=(name[0],)) for name in ("a1", "a2", "b1", "b2"))
    tiers = (Tier(name="leaf", bandwidth_fraction=1.0),)
    cluster = Cluster(gpu_types=(KIND,), nodes=nodes, tiers=tiers, core_bandwidth_fraction=0.1)
    offers = offers_of(cluster, free_gpus(cluster), {KIND.name: (4,)})
    request = mixture(offers=offers, cluster=cluster)
    waiting = {}
    for degree in (2, 4):
        options = replace(request.grid, context_degrees=(1,), expert_degrees=(degree,))
        best = answer(replace(request, model=replace(request.model, zero_stage=1), grid=options)).best
        assert best.estimate.plan.expert_parallel == degree
        assert {node for node, _ in best.estimate.plan.gpus} == {"a1", "a2", "b1", "b2"}
        waiting[degree] = best.breakdown.all_to_all_s
    # Half of what is sent goes to the other node; or a quarter there, and half at a tenth of the bandwidth.
    assert waiting[4] == pytest.approx(waiting[2] / 0.5 * (0.25 + 0.5 / 0.1))


@pytest.mark.parametrize(("context", "expert"), [((2,), None), (None, (2,)), ((2, 4), (2,))])
def test_degrees_that_are_asked_for(context: tuple[int, ...] | None, expert: tuple[int, ...] | None) -> None:
    options = GridOptions(context_degrees=context, expert_degrees=expert)
    plan = answer(mixture(grid=options)).best.estimate.plan
    assert plan.context_parallel in (context or (1,))
    assert plan.expert_parallel in (expert or (1, 2, 4))


def test_degrees_that_nothing_admits_are_told() -> None:
    with pytest.raises(InputError) as caught:
        answer(mixture(grid=GridOptions(expert_degrees=(3,))))
    assert [(issue.code, issue.pointer) for issue in caught.value.issues] == [("sharing", "/offers/0")]
    assert "no symmetric plan with EP [3] fits" in caught.value.issues[0].detail


@settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(memory_gb=st.sampled_from([4, 8, 40]), global_batch=st.sampled_from([4, 8, 24]), count=st.sampled_from([4, 8]))
def test_interleaving_never_makes_an_answer_worse(memory_gb: int, global_batch: int, count: int) -> None:
    kind = replace(KIND, memory_bytes=memory_gb * 10**9)
    offers = (Offer(gpu_type=kind, gpus_per_node=4, counts=(count,)),)
    request = ParallelRequest(model=replace(GPT, global_batch=global_batch), offers=offers)
    try:
        without = answer(replace(request, grid=GridOptions(refine=False)))
    except InputError:
        return
    assert answer(request).best.seconds <= without.best.seconds


def test_a_deep_pipeline_of_few_micro_batches_is_interleaved() -> None:
    """One GPU a node, and as many stages as GPUs."""
    model = replace(GPT, num_layers=16, global_batch=4)
    offers = (Offer(gpu_type=KIND, gpus_per_node=1, counts=(4,)),)
    options = GridOptions(pipeline_degrees=(4,))
    found = answer(ParallelRequest(model=model, offers=offers, grid=options)).best
    parts = found.estimate.plan.virtual_stages
    assert parts > 1
    assert found.estimate.plan.notation().startswith(f"PP4x{parts} DP1 TP1")
    plain = answer(ParallelRequest(model=replace(model, software=Software.DEEPSPEED), offers=offers, grid=options)).best
    assert plain.estimate.plan.virtual_stages == 1
    assert found.breakdown.bubble_s < plain.breakdown.bubble_s
    degrees = Degrees(pp=4, dp=1, tp=1, num_micro_batches=4, virtual_stages=parts)
    given = answer(ParallelRequest(model=model, offers=offers, planner=Planner.GIVEN, degrees=degrees)).best
    assert given.estimate.plan.virtual_stages == parts


def zero_bubble_request(**changes: Any) -> ParallelRequest:
    """Four stages of one GPU each, with a micro-batch a stage."""
    model = replace(GPT, num_layers=16, global_batch=4, software=Software.TORCH_EAGER, checkpointing=Checkpointing.NONE)
    offers = (Offer(gpu_type=KIND, gpus_per_node=1, counts=(4,)),)
    request = ParallelRequest(model=replace(model, **changes), offers=offers)
    return replace(request, grid=GridOptions(pipeline_degrees=(4,)))


@pytest.mark.parametrize("schedule", [PipelineSchedule.ZERO_BUBBLE, PipelineSchedule.ZBV])
def test_zero_bubble_schedules_are_searched_and_evaluated(schedule: PipelineSchedule) -> None:
    request = zero_bubble_request()
    plain = replace(request.grid, schedules=(PipelineSchedule.ONE_F_ONE_B,))
    only = replace(request.grid, schedules=(schedule,))
    best, without, found = (answer(replace(request, grid=grid)).best for grid in (request.grid, plain, only))
    plan = found.estimate.plan
    assert plan.schedule is schedule
    assert without.estimate.plan.schedule is PipelineSchedule.ONE_F_ONE_B
    assert best.seconds <= min(found.seconds, without.seconds)
    assert found.breakdown.bubble_s < without.breakdown.bubble_s
    for point in (best, without, found):
        assert point.bound_s is not None
        assert point.bound_s <= point.seconds
    degrees = Degrees(
        pp=4,
        dp=1,
        tp=1,
        num_micro_batches=plan.num_micro_batches,
        layers=tuple(stage.num_layers for stage in plan.stages),
        virtual_stages=plan.virtual_stages,
        schedule=schedule,
    )
    given = answer(replace(request, planner=Planner.GIVEN, degrees=degrees)).best
    assert given.seconds == pytest.approx(found.seconds)


@pytest.mark.parametrize("changes", [{"software": Software.TORCH}, {"checkpointing": Checkpointing.FULL}])
def test_zero_bubble_is_not_where_software_or_checkpointing_exclude_it(changes: dict[str, Any]) -> None:
    """PyTorch refuses compiled stages, and repeats forward passes for every weight."""
    request = zero_bubble_request(**changes)
    assert not answer(request).best.estimate.plan.schedule.splits_backward
    only = replace(request, grid=replace(request.grid, schedules=(PipelineSchedule.ZBV,)))
    with pytest.raises(InputError, match=r"no symmetric plan with schedules \['zbv'\]") as caught:
        answer(only)
    assert [issue.pointer for issue in caught.value.issues] == ["/offers/0"]
    degrees = Degrees(
        pp=4, dp=1, tp=1, num_micro_batches=4, virtual_stages=2, schedule=PipelineSchedule.ZBV, recomputed_layers=1
    )
    with pytest.raises(InputError) as caught:
        answer(replace(request, planner=Planner.GIVEN, degrees=degrees))
    assert {issue.pointer for issue in caught.value.issues} == {"/degrees/schedule", "/degrees/recomputed_layers"}


def test_stages_of_a_model_that_is_folded() -> None:
    """The first and the last layers share a stage; of an odd number the middle one is alone in the last stage."""
    assert folded_layers(np.ones(12), 3) == (4, 4, 4)
    assert folded_layers(np.ones(13), 3) == (4, 4, 5)
    assert folded_layers(np.array([1.0, 1, 1, 1, 1, 5]), 2) == (2, 4)


def test_parts_count_embedding_and_head_where_that_divides() -> None:
    """126 layers and two are 8 stages of 8 parts, as Llama 3 405B was trained; whole parts of 7 layers are 18."""
    model = virtual_model(replace(GPT, num_layers=126), KIND, 8, 1)
    assert virtual_stages(model, 8) == (1, 2, 3, 4, 6, 7, 8, 9, 14)
    loads = np.ones(126)
    assert set(np.diff(stage_bounds(loads, 8, 7))) == {14, 21}
    assert sorted(np.diff(stage_bounds(loads, 8, 8))) == [15] * 2 + [16] * 6


@pytest.mark.parametrize(
    ("changes", "software", "pointer"),
    [
        ({}, Software.DEEPSPEED, "/degrees/virtual_stages"),
        ({"pp": 1, "dp": 4}, Software.TORCH, "/degrees/virtual_stages"),
        ({"virtual_stages": 7}, Software.TORCH, "/degrees/virtual_stages"),
        ({"num_micro_batches": 1}, Software.TORCH, "/degrees/num_micro_batches"),
    ],
)
def test_virtual_stages_that_cannot_be(changes: dict[str, int], software: Software, pointer: str) -> None:
    of = Degrees(pp=2, dp=2, tp=1, num_micro_batches=4, virtual_stages=2)
    degrees = replace(of, **changes)  # type: ignore[arg-type]
    offers = (Offer(gpu_type=KIND, gpus_per_node=4, counts=(4,)),)
    request = ParallelRequest(model=replace(GPT, software=software), offers=offers, planner=Planner.GIVEN)
    with pytest.raises(InputError) as caught:
        answer(replace(request, degrees=degrees))
    assert [(issue.code, issue.pointer) for issue in caught.value.issues] == [("virtual_stages", pointer)]


def test_an_asymmetric_best_plan_has_a_symmetric_one_beside_it() -> None:
    model = replace(GPT, num_layers=24, software=Software.DEEPSPEED, global_batch=32)
    for memory_gb, count in product((6, 8, 12), (6, 8, 12)):
        kind = replace(KIND, memory_bytes=memory_gb * 10**9)
        offers = (Offer(gpu_type=kind, gpus_per_node=4, counts=(count,)),)
        try:
            found = answer(ParallelRequest(model=model, offers=offers))
        except InputError:
            continue
        warned = [issue.detail for issue in found.warnings if issue.code == "asymmetric_plan"]
        best = found.best
        assert bool(warned) is not best.estimate.plan.is_symmetric
        if best.symmetric is not None:
            assert best.symmetric.estimate.plan.is_symmetric
            assert best.symmetric.seconds >= best.seconds
            assert f"takes {100 * (best.symmetric.seconds / best.seconds - 1):.1f} % longer" in warned[0]
            return
    pytest.fail("no answer was asymmetric with a symmetric plan beside it")


@pytest.mark.parametrize("job", [GPT, MIXTURE, replace(GPT, software=Software.TORCH_EAGER)])
def test_the_cost_grows_with_the_gpus_at_most(job: Transformer) -> None:
    def cost(num_gpus: int) -> int:
        model = virtual_model(replace(job, global_batch=256), KIND, 8, num_gpus // 8)
        loads = roofline_s(model.profile, KIND)
        return work(lambda: even_plans(model, KIND.name, 8, num_gpus, loads, GridOptions()))

    cost(64)
    assert cost(512) <= 2.3 * cost(256)
