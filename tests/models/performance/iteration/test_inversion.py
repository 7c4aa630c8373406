"""Inversion: the identity on what the model itself shows, arithmetic by hand, and bad measurements."""

import math
from collections.abc import Iterable
from dataclasses import fields, replace
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from models.parallel_plan import ParallelPlan
from models.performance.iteration.coefficients import GpuCoefficients, JobCoefficients, SizeCoefficients
from models.performance.iteration.inversion import LARGEST_OVERLAP, invert, observe, overlap_of
from models.performance.iteration.measurement import Measurement
from models.performance.iteration.model import PerformanceModel
from models.pipeline_schedule import PipelineSchedule
from stowplan.errors import InputError
from tests.models.performance.iteration.plan_scenes import GPUS, SIZES, fabric, model, plan, plans, profile

COEFFICIENTS = st.builds(
    GpuCoefficients,
    compute_s=st.floats(0.01, 10.0),
    backward_ratio=st.floats(0.5, 4.0),
    optimizer_s=st.floats(0.001, 1.0),
    overlap=st.floats(1.0, 8.0),
)
ONE_STAGE = plan((6, 2, {"a": [2], "b": [2]}))


@given(plans(), COEFFICIENTS, COEFFICIENTS, st.sampled_from([0, 1, 2, 3]), st.floats(0.5, 2.0))
@settings(max_examples=30, deadline=None)
def test_invert_undoes_observe(
    drawn: ParallelPlan, x: GpuCoefficients, y: GpuCoefficients, zero_stage: int, factor: float
) -> None:
    job = _job({"x": x, "y": y}, zero_stage, _scaled(factor, 1.0 + factor, factor))
    found = invert(job.profile, drawn, observe(job, drawn), job.fabric)
    types = [{replica.gpu_type for replica in stage.replicas} for stage in drawn.stages]
    assert set(found.gpus) == set().union(*types)
    for name, coefficients in found.gpus.items():
        for field in ("compute_s", "backward_ratio", "optimizer_s"):
            assert getattr(coefficients, field) == pytest.approx(getattr(job.coefficients.gpus[name], field), rel=1e-6)
        alone = any(of_stage == {name} and stage.dp > 1 for of_stage, stage in zip(types, drawn.stages, strict=True))
        if alone and _shows_overlap(job, drawn, name):
            assert coefficients.overlap == pytest.approx(job.coefficients.gpus[name].overlap, rel=1e-6)
    for field in ("parameter_bytes", "gradient_bytes", "optimizer_bytes", "activation_bytes"):
        assert getattr(found.sizes or SIZES, field) == pytest.approx(getattr(job.coefficients.sizes, field), rel=1e-6)


def _shows_overlap(job: PerformanceModel, drawn: ParallelPlan, name: str) -> bool:
    """Whether times tell the overlap: hardly where one of computation and reduction is much longer than the other."""
    gpu = job.coefficients.gpus[name]
    gpus = {**job.coefficients.gpus, name: replace(gpu, overlap=gpu.overlap * 1.001)}
    other = replace(job, coefficients=replace(job.coefficients, gpus=gpus))
    pairs = [
        (a.exposed_reduction_s or 0.0, b.exposed_reduction_s or 0.0)
        for a, b in zip(observe(job, drawn), observe(other, drawn), strict=True)
        if drawn.stages[a.stage].dp > 1 and {replica.gpu_type for replica in drawn.stages[a.stage].replicas} == {name}
    ]
    return all(abs(a - b) > 1e-10 * a for a, b in pairs)


@given(plans(nodes="ab"), COEFFICIENTS)
@settings(max_examples=20, deadline=None)
def test_the_inverted_model_predicts_what_was_measured(drawn: ParallelPlan, x: GpuCoefficients) -> None:
    job = _job({"x": x}, 1, SIZES)
    found = invert(job.profile, drawn, observe(job, drawn), job.fabric)
    again = replace(job, coefficients=JobCoefficients(gpus=found.gpus, sizes=found.sizes or SIZES))
    assert again.iteration(drawn).total_s == pytest.approx(job.iteration(drawn).total_s, rel=1e-6)


@given(st.floats(0.1, 10.0), st.floats(0.1, 10.0), st.integers(2, 6))
@settings(max_examples=40, deadline=None)
def test_two_tensor_degrees_tell_the_parts_of_activations(partitioned: float, replicated: float, batches: int) -> None:
    sizes = replace(SIZES, partitioned_activation_bytes=partitioned, replicated_activation_bytes=replicated)
    job = _job(GPUS, 0, sizes)
    two = plan((3, 1, {"a": [2]}), (3, 4, {"b": [2]}), num_micro_batches=1 + batches)
    found = invert(job.profile, two, observe(job, two), job.fabric).sizes or SIZES
    assert found.partitioned_activation_bytes == pytest.approx(partitioned, rel=1e-6)
    assert found.replicated_activation_bytes == pytest.approx(replicated, rel=1e-6)


def test_one_tensor_degree_takes_the_replicated_part_from_the_architecture() -> None:
    # k_activ is 8 x 1.5; C_np of the toy model is 1/8, so k_activ-np is 1.5 and the rest of the peak is k_activ-p.
    job = _job(GPUS, 0, _scaled(1.5, 1.0, 1.5))
    found = invert(job.profile, ONE_STAGE, observe(job, ONE_STAGE), job.fabric).sizes or SIZES
    assert found.replicated_activation_bytes == pytest.approx(1.5)
    assert found.partitioned_activation_bytes == pytest.approx(6.0)


@pytest.mark.parametrize(
    ("parts", "schedule"),
    [(3, PipelineSchedule.ONE_F_ONE_B), (2, PipelineSchedule.ZERO_BUBBLE), (2, PipelineSchedule.ZBV)],
)
def test_stages_in_parts_hold_what_their_schedule_says(parts: int, schedule: PipelineSchedule) -> None:
    job = _job(GPUS, 0, _scaled(1.5, 1.0, 1.5))
    two = plan((4, 1, {"a": [2]}), (4, 1, {"b": [2]}), num_micro_batches=8)
    cut = replace(two, virtual_stages=parts, schedule=schedule)
    of = profile(8)
    found = invert(of, cut, observe(replace(job, profile=of), cut), job.fabric).sizes or SIZES
    assert found.partitioned_activation_bytes == pytest.approx(job.coefficients.sizes.partitioned_activation_bytes)


def test_activations_below_the_replicated_part_scale_both() -> None:
    # 2 sequences in flight, 6 layers: 12 (6/2 + 1) = 48 bytes by the architecture, 6 measured: an eighth.
    job = _job(GPUS, 0, SIZES)
    states = _first(ONE_STAGE).peak_bytes
    assert states is not None
    found = invert(job.profile, ONE_STAGE, [replace(_first(ONE_STAGE), peak_bytes=states - 42)], job.fabric).sizes
    assert found is not None
    assert found.partitioned_activation_bytes == pytest.approx(6 / 8)
    assert found.replicated_activation_bytes == pytest.approx(1 / 8)


def test_peaks_of_gradients_say_nothing_about_activations() -> None:
    # One micro-batch of one sample: 6 (6 + 1) = 42 bytes of activations, gone when the 180 bytes of gradients peak.
    hidden = plan((6, 1, {"a": [1]}), num_micro_batches=1)
    job = _job(GPUS, 0, replace(SIZES, partitioned_activation_bytes=5.0))
    assert invert(job.profile, hidden, observe(job, hidden), job.fabric).sizes is None


def test_by_hand() -> None:
    # 6 layers on 2 tensor ranks, 2 sequences: computation 14 - 2 = 12 s, 12 x 2 / (2 x 6) = 2 s per layer and sequence.
    # Backward 32 - 2 = 30 s of computation, 30 / 12 = 2.5 times the forward one (and not 30 / 2). Optimiser 3 x 2 / 6.
    # Gradients 30 x 6 = 180 bytes at 10 bytes/s: 18 s; exposed 18 s: no overlap.
    measured = Measurement(
        stage=0,
        replica=1,
        shard=1,
        forward_s=14.0,
        forward_communication_s=2.0,
        backward_s=32.0,
        optimizer_s=3.0,
        exposed_reduction_s=18.0,
    )
    found = invert(profile(), ONE_STAGE, [measured], fabric(), measured_at_s=7.0)
    assert found.gpus["x"].compute_s == pytest.approx(2.0)
    assert found.gpus["x"].backward_ratio == pytest.approx(2.5)
    assert found.gpus["x"].optimizer_s == pytest.approx(1.0)
    assert found.gpus["x"].overlap == pytest.approx(1.0)
    assert (found.sizes, found.measured_at_s) == (None, 7.0)


def test_several_gpus_give_the_median() -> None:
    one = _first(ONE_STAGE)
    odd = replace(one, forward_s=100.0 * one.forward_s)
    found = invert(profile(), ONE_STAGE, [one, odd, replace(one, shard=1)], fabric())
    assert found.gpus["x"].compute_s == pytest.approx(GPUS["x"].compute_s)


def test_one_gpu_of_unequal_replicas_is_enough() -> None:
    # The replica that did not report is the slower one; the overlap refers to its backward pass.
    unequal = plan((6, 2, {"a": [2], "b": [4]}))
    found = invert(profile(), unequal, observe(model(), unequal)[:1], fabric())
    assert found.gpus["x"].overlap == pytest.approx(GPUS["x"].overlap, rel=1e-6)


def test_without_replicas_there_is_no_overlap() -> None:
    alone = plan((6, 2, {"a": [2]}))
    assert invert(profile(), alone, observe(model(), alone), fabric()).gpus["x"].overlap == 1.0


def test_a_type_without_replicas_takes_the_least_overlap_of_the_others() -> None:
    two = plan((3, 1, {"a": [2], "b": [2]}), (3, 1, {"c": [4]}))
    found = invert(profile(), two, observe(model(), two), fabric())
    assert found.gpus["y"].overlap == pytest.approx(GPUS["x"].overlap, rel=1e-6)


def test_overlap_stays_within_its_range() -> None:
    assert overlap_of(1.0, 3.0, 5.0) == 1.0
    assert overlap_of(1.0, 3.0, 0.5) == LARGEST_OVERLAP
    assert overlap_of(8.0, 6.0, 2.0) == pytest.approx(2.0)


@given(st.floats(0.1, 10.0), st.floats(0.1, 10.0), st.floats(0.0, 1.0), st.floats(0.0, 1.0))
@settings(max_examples=60, deadline=None)
def test_more_exposed_is_less_overlap(backward_s: float, reduction_s: float, a: float, b: float) -> None:
    assume(a <= b)
    assert overlap_of(backward_s, reduction_s, a * reduction_s) >= overlap_of(backward_s, reduction_s, b * reduction_s)


@pytest.mark.parametrize("value", [-1.0, math.nan, math.inf])
@pytest.mark.parametrize("field", [f.name for f in fields(Measurement) if f.name not in ("stage", "replica", "shard")])
def test_values_must_be_finite_and_not_negative(field: str, value: float) -> None:
    wrong: dict[str, Any] = {field: value}
    assert _refused([replace(_first(ONE_STAGE), **wrong)]) == [("out_of_range", f"/measurements/0/{field}")]


@pytest.mark.parametrize(
    ("changes", "code", "field"),
    [
        ({"stage": 1}, "other_plan", "stage"),
        ({"stage": -1}, "other_plan", "stage"),
        ({"replica": 2}, "other_plan", "replica"),
        ({"shard": 2}, "other_plan", "shard"),
        ({"forward_s": 2.0, "forward_communication_s": 2.0}, "no_computation", "forward_s"),
        ({"backward_s": 1.0, "forward_communication_s": 2.0}, "no_computation", "backward_s"),
    ],
)
def test_contradictions_are_named(changes: dict[str, Any], code: str, field: str) -> None:
    good = _first(ONE_STAGE)
    assert _refused([good, replace(good, **changes)]) == [(code, f"/measurements/1/{field}")]


def test_communication_that_the_plan_does_not_have_is_refused() -> None:
    alone = plan((6, 1, {"a": [4]}))
    wrong = replace(_first(alone), forward_communication_s=0.1, exposed_reduction_s=0.1)
    assert _refused([wrong], alone) == [
        ("other_plan", "/measurements/0/forward_communication_s"),
        ("other_plan", "/measurements/0/exposed_reduction_s"),
    ]


def test_nothing_measured_is_refused() -> None:
    assert _refused([]) == [("no_measurements", "/measurements")]


def test_a_plan_of_another_model_is_refused() -> None:
    with pytest.raises(InputError, match="the plan has 6 layers; the model 'toy' has 4"):
        invert(profile(4), ONE_STAGE, [_first(ONE_STAGE)], fabric())


def _refused(measurements: Iterable[Measurement], of: ParallelPlan = ONE_STAGE) -> list[tuple[str, str]]:
    with pytest.raises(InputError) as refusal:
        invert(profile(), of, list(measurements), fabric())
    return [(issue.code, issue.pointer) for issue in refusal.value.issues]


def _first(of: ParallelPlan) -> Measurement:
    return observe(model(), of)[0]


def _job(gpus: dict[str, GpuCoefficients], zero_stage: int, sizes: SizeCoefficients) -> PerformanceModel:
    return model(profile(zero_stage=zero_stage), coefficients=JobCoefficients(gpus=gpus, sizes=sizes))


def _scaled(activation: float, partitioned: float, replicated: float) -> SizeCoefficients:
    """Sizes off the white-box ones: states by a third, activations by these factors."""
    return SizeCoefficients(
        activation_bytes=SIZES.activation_bytes * activation,
        gradient_bytes=SIZES.gradient_bytes * 4 / 3,
        parameter_bytes=SIZES.parameter_bytes * 4 / 3,
        optimizer_bytes=SIZES.optimizer_bytes * 4 / 3,
        partitioned_activation_bytes=SIZES.partitioned_activation_bytes * partitioned,
        replicated_activation_bytes=SIZES.replicated_activation_bytes * replicated,
    )
