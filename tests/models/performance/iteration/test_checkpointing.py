"""Stages with a checkpointing of their own: what all jobs of that checkpointing have, and what is between."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from models.parallel_plan import ParallelPlan, symmetric_plan
from models.parallelism.legality import plan_violations
from models.performance.iteration.coefficients import Calibration
from models.performance.iteration.model import PerformanceModel
from models.performance.iteration.modelling import virtual_model
from models.software import Software
from models.transformer import Attention, Checkpointing, Operator, OperatorModel, Transformer
from stowplan.errors import InputError
from topology.cluster import GpuType

KIND = GpuType(
    name="a100",
    memory_bytes=40 * 10**9,
    peak_flops_per_s=312e12,
    intra_node_bandwidth_bytes_per_s=300e9,
    inter_node_bandwidth_bytes_per_s=25e9,
)
GPT = Transformer(
    num_layers=6,
    hidden_size=1024,
    num_heads=16,
    vocabulary_size=51200,
    sequence_length=1024,
    global_batch=16,
    software=Software.MEGATRON_CORE,
)
GPUS = tuple(("0", gpu) for gpu in range(8))
KINDS = st.sampled_from(list(Checkpointing))


def plan_of(layers: tuple[int, ...], virtual_stages: int = 1) -> ParallelPlan:
    return symmetric_plan(
        num_layers=layers,
        pp=2,
        dp=2,
        tp=2,
        global_batch=16,
        num_micro_batches=8,
        gpu_type="a100",
        gpus=GPUS,
        virtual_stages=virtual_stages,
    )


def kept(plan: ParallelPlan, kind: Checkpointing | None, *counts: int | None) -> ParallelPlan:
    """The plan with a checkpointing of stages, of `counts` of their layers."""
    of = counts or (None,) * plan.pp
    stages = zip(plan.stages, of, strict=True)
    return replace(plan, stages=tuple(replace(s, checkpointing=kind, recomputed_layers=n) for s, n in stages))


def model_of(kind: Checkpointing, job: Transformer = GPT, calibration: Calibration | None = None) -> PerformanceModel:
    return virtual_model(replace(job, checkpointing=kind), KIND, 8, 1, calibration)


@settings(deadline=None)
@given(
    own=KINDS,
    kind=KINDS,
    first=st.integers(1, 5),
    attention=st.sampled_from([Attention.FUSED, Attention.PLAIN]),
    context_parallel=st.sampled_from([1, 2]),
)
def test_stages_that_are_all_alike_are_those_of_a_job(
    own: Checkpointing, kind: Checkpointing, first: int, attention: Attention, context_parallel: int
) -> None:
    job = replace(GPT, attention=attention)
    plan = replace(plan_of((first, 6 - first)), context_parallel=context_parallel)
    model, other = model_of(own, job), model_of(kind, job)
    asked = kept(plan, kind)
    assert model.iteration(asked).total_s == pytest.approx(other.iteration(plan).total_s, rel=1e-12)
    assert [s.total_bytes for s in model.memory(asked)] == pytest.approx([s.total_bytes for s in other.memory(plan)])
    assert model.fits(asked) == other.fits(plan)


@settings(deadline=None)
@given(first=st.integers(2, 4), counts=st.tuples(st.integers(1, 2), st.integers(1, 2)), own=KINDS)
def test_every_layer_that_is_recomputed_costs_time_and_keeps_its_input_only(
    first: int, counts: tuple[int, int], own: Checkpointing
) -> None:
    plan, model = plan_of((first, 6 - first)), model_of(own)
    some, fewer = kept(plan, Checkpointing.FULL, *counts), kept(plan, Checkpointing.FULL, 1, 1)
    times = [model.iteration(of).total_s for of in (kept(plan, Checkpointing.NONE), fewer, some)]
    assert times == sorted(times)
    assert times[2] <= model.iteration(kept(plan, Checkpointing.FULL)).total_s * (1 + 1e-12)
    profile, full = (model_of(kind).profile.layers[1] for kind in (Checkpointing.NONE, Checkpointing.FULL))
    given_up = profile.partitioned_activation_bytes / 2 + profile.replicated_activation_bytes / 2
    given_up -= full.replicated_activation_bytes / 2
    in_flight = (2, 1)
    memory = zip(model.memory(fewer), model.memory(some), strict=True)
    for i, (more, less) in enumerate(memory):
        saved = in_flight[i] * plan.stages[i].replicas[0].local_batch * (counts[i] - 1) * given_up
        assert more.total_bytes - less.total_bytes == pytest.approx(saved)


def test_what_was_measured_holds_of_other_checkpointing() -> None:
    """Forward passes twice as slow as the data sheet says are so whatever is recomputed."""
    white = model_of(Checkpointing.NONE)
    own = white.coefficients.gpus["a100"]
    slower = Calibration(gpus={"a100": replace(own, compute_s=2 * own.compute_s)})
    plan = kept(plan_of((3, 3)), Checkpointing.FULL)
    of_model = model_of(Checkpointing.NONE, calibration=slower).iteration(plan).stages[0]
    of_full = model_of(Checkpointing.FULL, calibration=slower).iteration(plan).stages[0]
    assert of_model.forward_s == pytest.approx(of_full.forward_s)
    assert of_model.forward_s > 1.5 * white.iteration(plan).stages[0].forward_s
    assert of_model.backward_s > 1.5 * white.iteration(plan).stages[0].backward_s


def test_in_short() -> None:
    plan = plan_of((3, 3))
    mixed = replace(plan, stages=(kept(plan, Checkpointing.FULL, 2, 2).stages[0], plan.stages[1]))
    assert kept(plan, Checkpointing.FULL, 2, 1).notation() == (
        "PP2 DP2 TP2 (3+3 layers, 8 x 2, recomputing full 2, full 1)"
    )
    assert kept(plan, Checkpointing.SELECTIVE).notation() == "PP2 DP2 TP2 (3+3 layers, 8 x 2, recomputing 2 selective)"
    assert mixed.notation() == "PP2 DP2 TP2 (3+3 layers, 8 x 2, recomputing full 2, as the job)"
    assert plan.notation() == "PP2 DP2 TP2 (3+3 layers, 8 x 2)"


@pytest.mark.parametrize(
    ("kind", "counts", "virtual_stages"),
    [
        (Checkpointing.SELECTIVE, (1, 1), 1),
        (None, (1, 1), 1),
        (Checkpointing.FULL, (0, 1), 1),
        (Checkpointing.FULL, (1, 5), 1),
        (Checkpointing.FULL, (2, 3), 2),
    ],
)
def test_layers_that_cannot_be_recomputed(
    kind: Checkpointing | None, counts: tuple[int, int], virtual_stages: int
) -> None:
    plan = plan_of((2, 4), virtual_stages)
    with pytest.raises(InputError) as caught:
        kept(plan, kind, *counts)
    assert {issue.code for issue in caught.value.issues} == {"recomputed_layers"}


def test_software_and_operators_that_cannot() -> None:
    plan = kept(plan_of((3, 3)), Checkpointing.FULL, 1, 1)
    deepspeed = virtual_model(replace(GPT, software=Software.DEEPSPEED), KIND, 8, 1)
    where = [f"/stages/{i}/checkpointing" for i in range(2)]
    assert [(issue.code, issue.pointer) for issue in plan_violations(plan, deepspeed)] == [
        ("checkpointing", pointer) for pointer in where
    ]
    assert plan_violations(plan, model_of(Checkpointing.NONE)) == []
    operator = Operator(
        name="o",
        parameters=1000,
        forward_flops=1e9,
        memory_traffic_bytes=1e6,
        activation_bytes=1e6,
        output_bytes=1e5,
        tensor_parallel_bytes=0,
    )
    operators = OperatorModel(operators=(operator,) * 6, global_batch=16, software=Software.TORCH)
    model = virtual_model(operators, KIND, 8, 1)
    assert {issue.code for issue in plan_violations(plan, model)} == {"checkpointing"}
    with pytest.raises(InputError, match="which say what they keep"):
        model.iteration(plan)
