"""What stages recompute: the cheapest of all that fits, and what a search makes of it."""

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from models.parallel_plan import ParallelPlan, symmetric_plan
from models.parallelism.even import even_plans
from models.parallelism.grid.degrees import compact_degrees
from models.parallelism.grid.options import GridOptions
from models.parallelism.grid.stage_table import StageTable
from models.parallelism.legality import plan_violations
from models.parallelism.planner import answer
from models.parallelism.recomputation import StageChoices, recomputations, recomputing, with_cheapest
from models.parallelism.request import Degrees, Offer, ParallelRequest, Planner
from models.parallelism.training import ALL_CHECKPOINTING, ALL_ZERO_STAGES, Choices, Training
from models.performance.iteration.model import PerformanceModel
from models.performance.iteration.modelling import virtual_model
from models.performance.iteration.whitebox import roofline_s
from models.software import Software
from models.transformer import Attention, Checkpointing, Transformer
from stowplan.errors import InputError
from tests.models.parallelism.test_even import GPT, KIND, every_plan

# Most of the memory is that of activations.
LARGE = replace(GPT, num_layers=6, hidden_size=1024, sequence_length=8192, vocabulary_size=4096, global_batch=8)
MIXED = "PP4 DP1 TP1 (3+3+3+3 layers, 8 x 1, recomputing full, full 2, selective, none)"


def gpus(count: int) -> tuple[tuple[str, int], ...]:
    return tuple((str(k // 4), k % 4) for k in range(count))


def model_on(memory_gb: float, job: Transformer = LARGE) -> PerformanceModel:
    return virtual_model(job, replace(KIND, memory_bytes=int(memory_gb * 1e9)), 4, 2)


def pipeline(layers: tuple[int, ...], num_micro_batches: int = 8, virtual_stages: int = 1) -> ParallelPlan:
    return symmetric_plan(
        num_layers=layers,
        pp=len(layers),
        dp=1,
        tp=1,
        global_batch=8,
        num_micro_batches=num_micro_batches,
        gpu_type=KIND.name,
        gpus=gpus(len(layers)),
        virtual_stages=virtual_stages,
    )


def brute_force(plan: ParallelPlan, model: PerformanceModel) -> ParallelPlan | None:
    """The fastest of all recomputations of the stages that fit."""
    every = product(*(recomputations(stage.num_layers, plan.virtual_stages) for stage in plan.stages))
    fitting = [built for one in every if model.fits(built := recomputing(plan, one))]
    return min(fitting, key=lambda built: model.iteration(built).total_s, default=None)


@settings(max_examples=25, deadline=None)
@given(
    memory_gb=st.floats(1.5, 8),
    layers=st.sampled_from([(6,), (3, 3), (2, 4), (2, 2, 2)]),
    attention=st.sampled_from([Attention.FUSED, Attention.PLAIN]),
    zero_stage=st.integers(0, 1),
)
def test_stages_recompute_what_is_best_of_all(
    memory_gb: float, layers: tuple[int, ...], attention: Attention, zero_stage: int
) -> None:
    model = model_on(memory_gb, replace(LARGE, attention=attention, zero_stage=zero_stage))
    plan = pipeline(layers)
    best, found = brute_force(plan, model), with_cheapest(plan, model, 4)
    if best is None:
        assert found is None
        return
    if found is None:
        alike = {(stage.checkpointing, stage.recomputed_layers) for stage in best.stages}
        assert len(alike) == 1
        return
    assert plan_violations(found, model) == []
    assert model.iteration(found).total_s == pytest.approx(model.iteration(best).total_s, rel=1e-9)


def test_the_first_stages_recompute_more() -> None:
    """Four stages of 3 layers have 4, 3, 2 and 1 micro-batches in flight."""
    found = with_cheapest(pipeline((3, 3, 3, 3)), model_on(2.2, replace(LARGE, num_layers=12)), 4)
    assert found is not None
    assert found.notation() == MIXED


def test_every_part_of_an_interleaved_stage_recomputes_as_many_layers() -> None:
    """4 layers of 6 in two parts, 2 of each: 3 or 5 are no choice, though 3 would be enough without parts."""
    found = with_cheapest(pipeline((6, 6), virtual_stages=2), model_on(4.0, replace(LARGE, num_layers=12)), 4)
    assert found is not None
    assert found.notation() == "PP2x2 DP1 TP1 (6+6 layers, 8 x 1, recomputing full 4, selective)"
    assert {count for _, count in recomputations(6, 2)} == {None, 2, 4}


@settings(max_examples=20, deadline=None)
@given(
    rows=st.lists(
        st.tuples(st.integers(0, 4), st.integers(1, 3), st.sampled_from([*recomputations(3)])), min_size=1, max_size=4
    ),
    count=st.sampled_from([1, 2, 4]),
)
def test_tables_say_what_the_model_says(
    rows: list[tuple[int, int, tuple[Checkpointing, int | None]]], count: int
) -> None:
    """Of a stage between others that recompute nothing."""
    job = replace(LARGE, num_layers=8, attention=Attention.PLAIN)
    model = model_on(40, job)
    rows = [(a, n, (kind, k if k is None or k < n else None)) for a, n, (kind, k) in rows]
    table = StageTable(
        model=model,
        gpu_type=KIND.name,
        intervals=tuple((a, a + n) for a, n, _ in rows),
        degrees=compact_degrees(model.profile, (2,), 4),
        recomputation=tuple(one for _, _, one in rows),
    )
    costs, memory = table.costs(count), table.own_memory_bytes(count, np.full(len(rows), 2.0))
    for k, (first, length, (kind, recomputed)) in enumerate(rows):
        layers = [first, length, 8 - first - length]
        place = 1 if first else 0
        cut = tuple(n for n in layers if n)
        plan = symmetric_plan(
            num_layers=cut,
            pp=len(cut),
            dp=2,
            tp=1,
            global_batch=8,
            num_micro_batches=count,
            gpu_type=KIND.name,
            gpus=gpus(2 * len(cut)),
        )
        others: list[tuple[Checkpointing, int | None]] = [(Checkpointing.NONE, None)] * len(cut)
        others[place] = (kind, recomputed)
        own = recomputing(plan, others)
        free = replace(virtual_model(job, KIND, 4, 2), send_receive=False)
        stage = free.iteration(own).stages[place]
        bare = replace(table, model=replace(table.model, send_receive=False)).costs(count)
        assert bare.forward_s[k, 0, 0] == pytest.approx(stage.forward_s)
        assert bare.backward_s[k, 0, 0] == pytest.approx(stage.backward_s)
        assert costs.communication_s[k, 0, 0] == pytest.approx(stage.tensor_communication_s)
        if own.in_flight(place) == 2:
            assert memory[k, 0, 0] == pytest.approx(free.memory(own)[place].total_bytes)


@settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(memory_gb=st.sampled_from([3, 4, 5, 6]), num_gpus=st.sampled_from([2, 4]), num_layers=st.sampled_from([4, 6]))
def test_the_search_is_near_the_best_of_all(memory_gb: int, num_gpus: int, num_layers: int) -> None:
    """Over all degrees, micro-batches, virtual stages and recomputations, where layers are spread evenly."""
    job = replace(LARGE, num_layers=num_layers, attention=Attention.FUSED)
    kind = replace(KIND, memory_bytes=memory_gb * 10**9)
    model, roomy = (virtual_model(job, of, 4, 1) for of in (kind, replace(KIND, memory_bytes=10**15)))
    loads = roofline_s(model.profile, kind)
    even = even_plans(model, kind.name, 4, num_gpus, loads, GridOptions(), by_stage=True)
    best = [brute_force(plan, model) for plan in every_plan(roomy, num_gpus, 4)]
    for interleaved, found in ((False, even.plain), (True, even.interleaved)):
        own = [plan for plan in best if plan is not None and (plan.virtual_stages > 1) is interleaved]
        times = [model.iteration(plan).total_s for plan in own if not _alike(plan)]
        assert found is not None or not times
        if found is not None:
            assert plan_violations(found, model) == []
            assert model.iteration(found).total_s <= 1.03 * min(times, default=np.inf)


def _alike(plan: ParallelPlan) -> bool:
    return len({stage.checkpointing for stage in plan.stages}) == 1 and all(
        stage.recomputed_layers is None for stage in plan.stages
    )


def test_answers_say_that_stages_recompute_on_their_own() -> None:
    job = replace(LARGE, num_layers=12, software=Software.MEGATRON_CORE)
    kind = replace(KIND, memory_bytes=2_200_000_000)
    offers = (Offer(gpu_type=kind, gpus_per_node=4, counts=(4,)),)
    choices = Choices(checkpointing=ALL_CHECKPOINTING, zero_stages=ALL_ZERO_STAGES)
    request = ParallelRequest(model=job, offers=offers, choices=choices)
    found = answer(request)
    ways = [other.training for other in found.alternatives]
    assert sum(way.by_stage for way in ways) > 0
    times = {other.training: other.estimate.iteration.total_s for other in found.alternatives if other.estimate}
    assert found.best.seconds == min(times.values())
    deepspeed = answer(replace(request, model=replace(job, software=Software.DEEPSPEED)))
    assert not any(other.training.by_stage for other in deepspeed.alternatives)
    degrees = Degrees(pp=4, dp=1, tp=1, num_micro_batches=8)
    given_plan = answer(
        replace(request, planner=Planner.GIVEN, degrees=degrees, choices=Choices(checkpointing=ALL_CHECKPOINTING))
    )
    best = given_plan.best
    assert (
        Training.of(best.model, by_stage=best.estimate.plan.has_own_checkpointing).words
        == "checkpointing by stage, ZeRO 1"
    )
    assert best.estimate.plan.notation() == MIXED


def test_given_degrees_may_say_how_many_layers_are_recomputed() -> None:
    offers = (Offer(gpu_type=KIND, gpus_per_node=4, counts=(2,)),)
    degrees = Degrees(pp=2, dp=1, tp=1, num_micro_batches=8, layers=(4, 2), recomputed_layers=2)
    request = ParallelRequest(model=LARGE, offers=offers, planner=Planner.GIVEN, degrees=degrees)
    assert answer(request).best.estimate.plan.notation() == (
        "PP2 DP1 TP1 (4+2 layers, 8 x 1, recomputing full 2, full)"
    )
    for count, model in ((0, LARGE), (2, replace(LARGE, software=Software.DEEPSPEED))):
        with pytest.raises(InputError) as caught:
            answer(replace(request, model=model, degrees=replace(degrees, recomputed_layers=count)))
        assert {issue.pointer for issue in caught.value.issues} == {"/degrees/recomputed_layers"}


def test_choices_of_the_job_alone_are_one_row_a_stage() -> None:
    model = model_on(40)
    stages = StageChoices.of(
        model, KIND.name, compact_degrees(model.profile, (1,), 4), [(0, 2), (2, 6)], [2.0, 1.0], None
    )
    found = stages.cheapest(8)
    assert found.row.tolist() == [[0], [1]]
    assert stages.recomputation(found.row[:, 0]) is None
    assert found.forward_s[:, 0].tolist() == stages.table.costs(8).forward_s[:, 0, 0].tolist()
