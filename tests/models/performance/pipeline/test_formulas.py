"""Closed forms and bounds against the simulator, and against hand-made paths.

1f1b, 2 stages, 2 micro-batches, forward 1 s and 3 s, backward 2 s and 4 s:

  stage 0  F0 F1 .  .  .  .  .  .  B0 B0 .  .  .  .  .  B1 B1      from 8 s and from 15 s
  stage 1  .  F0 F0 F0 B0 B0 B0 B0 F1 F1 F1 B1 B1 B1 B1            17 s = 1 + 2 (3 + 4) + 2
"""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from models.performance.iteration.formulas import pipeline_s
from models.performance.pipeline.formulas import lower_bound_s, pipeline_makespan_s, pipeline_parts_s, upper_bound_s
from models.performance.pipeline.interleaved import interleaved_lower_bound_s
from models.performance.pipeline.schedule import Schedule, ScheduleKind
from models.performance.pipeline.split import split_lower_bound_s
from models.performance.pipeline.times import StageTimes
from stowplan.errors import InputError
from tests.models.performance.pipeline.scenes import IN_LINE, schedules, simulated_s, some_extra, some_times

SHAPE = (20,)


def test_drawing() -> None:
    times = StageTimes(forward_s=np.array([1.0, 3.0]), backward_s=np.array([2.0, 4.0]))
    assert float(pipeline_makespan_s(ScheduleKind.ONE_F_ONE_B, times, 2)) == 17.0
    assert float(lower_bound_s(ScheduleKind.ONE_F_ONE_B, times, 2)) == 17.0
    # Stage 1 has its gradients at 15 s: 4 s more of work there end later than stage 0.
    extra = np.array([0.0, 4.0])
    assert float(pipeline_makespan_s(ScheduleKind.ONE_F_ONE_B, times, 2, extra)) == 19.0
    assert float(upper_bound_s(times, 2, extra)) == 1 + 2 + 3 + 4 + 7 + 2


@given(schedule=schedules(IN_LINE), seed=st.integers(0, 2**32))
@settings(max_examples=50, deadline=None)
def test_parts_add_up_and_are_suikas_where_stages_are_equal(schedule: Schedule, seed: int) -> None:
    times, count, extra = some_times(schedule, seed, SHAPE), schedule.num_micro_batches, some_extra(schedule, seed)
    parts = pipeline_parts_s(schedule.kind, times, count, extra)
    np.testing.assert_allclose(sum(parts), pipeline_makespan_s(schedule.kind, times, count, extra))
    assert all((part >= -1e-9).all() for part in parts)
    each = np.full(schedule.num_devices, 1.5)
    equal = StageTimes(forward_s=each, backward_s=2.0 * each)
    falling = extra[:1] * np.arange(schedule.num_devices, 0, -1)
    # Nothing is late behind the first stage: that is where Suika's extra time is met.
    np.testing.assert_allclose(
        pipeline_parts_s(ScheduleKind.ONE_F_ONE_B, equal, count, falling), pipeline_s(each, 2.0 * each, falling, count)
    )


@given(schedule=schedules((ScheduleKind.ONE_F_ONE_B,), rounds=6), seed=st.integers(0, 2**32))
@settings(max_examples=50, deadline=None)
def test_without_weights_of_their_own_zero_bubble_is_1f1b(schedule: Schedule, seed: int) -> None:
    times = replace(some_times(schedule, seed, SHAPE, sends=0.0), weight_s=0.0)
    found = pipeline_makespan_s(ScheduleKind.ZERO_BUBBLE, times, schedule.num_micro_batches)
    np.testing.assert_allclose(found, simulated_s(schedule, times), rtol=1e-9)


@given(schedule=schedules(IN_LINE, rounds=6), seed=st.integers(0, 2**32), blocking=st.booleans())
@settings(max_examples=200, deadline=None)
def test_closed_forms_are_the_longest_path(schedule: Schedule, seed: int, blocking: bool) -> None:
    times = some_times(schedule, seed, SHAPE, blocking=blocking, sends=2.0 if blocking else 0.0)
    extra = some_extra(schedule, seed, SHAPE) * (seed % 2)
    found = pipeline_makespan_s(schedule.kind, times, schedule.num_micro_batches, extra)
    simulated = simulated_s(schedule, times, extra)
    few = schedule.kind is ScheduleKind.ZERO_BUBBLE and schedule.num_micro_batches <= schedule.num_devices
    # Of the pipelines of ZB-H1 that are never full, some paths are left out.
    np.testing.assert_allclose(found, simulated, rtol=0.05 if few else 1e-12)
    assert (found <= simulated * (1.0 + 1e-12)).all()


@given(schedule=schedules(IN_LINE, rounds=6), seed=st.integers(0, 2**32))
@settings(max_examples=100, deadline=None)
def test_transfers_beside_computation_are_bounded_closely(schedule: Schedule, seed: int) -> None:
    times = some_times(schedule, seed, SHAPE, sends=0.2)
    found = pipeline_makespan_s(schedule.kind, times, schedule.num_micro_batches)
    simulated = simulated_s(schedule, times)
    assert (found <= simulated * (1.0 + 1e-12)).all()
    assert (found >= 0.97 * simulated).all()


@given(schedule=schedules(rounds=6), seed=st.integers(0, 2**32), blocking=st.booleans())
@settings(max_examples=150, deadline=None)
def test_bounds(schedule: Schedule, seed: int, blocking: bool) -> None:
    times, count = some_times(schedule, seed, SHAPE, blocking=blocking), schedule.num_micro_batches
    extra = some_extra(schedule, seed, SHAPE)
    simulated = simulated_s(schedule, times, extra)
    if schedule.kind is ScheduleKind.INTERLEAVED:
        assert (interleaved_lower_bound_s(schedule, times, extra) <= simulated * (1.0 + 1e-12)).all()
        return
    if schedule.num_chunks > 1:
        assert (split_lower_bound_s(schedule, times, extra) <= simulated * (1.0 + 1e-12)).all()
        return
    found = pipeline_makespan_s(schedule.kind, times, count, extra)
    lower = lower_bound_s(schedule.kind, times, count, extra)
    assert (lower <= found * (1.0 + 1e-12)).all()
    assert (found <= simulated * (1.0 + 1e-12)).all()
    if schedule.kind is not ScheduleKind.ZERO_BUBBLE:
        assert (simulated <= upper_bound_s(times, count, extra) * (1.0 + 1e-12)).all()


@given(schedule=schedules((ScheduleKind.ONE_F_ONE_B,), rounds=6), seed=st.integers(0, 2**32), ratio=st.floats(0.2, 5.0))
@settings(max_examples=100, deadline=None)
def test_suikas_formula_is_a_bound_where_backward_is_a_multiple_of_forward(
    schedule: Schedule, seed: int, ratio: float
) -> None:
    forward = some_times(schedule, seed, SHAPE).forward_s
    extra, count = some_extra(schedule, seed, SHAPE), schedule.num_micro_batches
    times = StageTimes(forward_s=forward, backward_s=ratio * forward)
    suika = np.sum(pipeline_s(forward, ratio * forward, extra, count), axis=0)
    assert (simulated_s(schedule, times, extra) <= suika * (1.0 + 1e-12)).all()
    np.testing.assert_allclose(upper_bound_s(times, count, extra), suika)


def test_suikas_formula_is_no_bound_where_forward_is_slow_here_and_backward_there() -> None:
    """The first micro-batch waits 1 s for each forward pass of stage 0, the last one for each backward pass of
    stage 1: 3 stages, 3 micro-batches, 3 + 3 s; but no stage takes longer than 1 s."""
    times = StageTimes(forward_s=np.array([1.0, 0.001, 0.001]), backward_s=np.array([0.001, 1.0, 0.001]))
    schedule = Schedule(kind=ScheduleKind.ONE_F_ONE_B, num_devices=3, num_micro_batches=3)
    suika = float(sum(pipeline_s(times.forward_s, times.backward_s, np.zeros(3), 3)))
    assert suika < 4.1
    assert 4.9 < float(simulated_s(schedule, times)) <= float(upper_bound_s(times, 3))


@given(
    schedule=schedules(IN_LINE, rounds=6), seed=st.integers(0, 2**32), blocking=st.booleans(), scale=st.floats(0.01, 99)
)
@settings(max_examples=100, deadline=None)
def test_slower_passes_never_help_and_times_scale(schedule: Schedule, seed: int, blocking: bool, scale: float) -> None:
    times, count = some_times(schedule, seed, SHAPE, blocking=blocking), schedule.num_micro_batches
    rng = np.random.default_rng(seed)
    more = rng.choice([0.0, 1.0], (4, *SHAPE, schedule.num_virtual))
    slower = StageTimes(
        forward_s=times.forward_s + more[0],
        backward_s=times.backward_s + more[1],
        weight_s=times.weight_s + 0.5 * more[1],
        there_s=times.there_s + more[2],
        back_s=times.back_s + more[3],
        blocking=blocking,
    )
    before = pipeline_makespan_s(schedule.kind, times, count)
    assert (pipeline_makespan_s(schedule.kind, slower, count) >= before - 1e-9).all()
    scaled = StageTimes(
        forward_s=scale * times.forward_s,
        backward_s=scale * times.backward_s,
        weight_s=scale * times.weight_s,
        there_s=scale * times.there_s,
        back_s=scale * times.back_s,
        blocking=blocking,
    )
    np.testing.assert_allclose(pipeline_makespan_s(schedule.kind, scaled, count), scale * before)


@given(schedule=schedules(IN_LINE), seed=st.integers(0, 2**32), padding=st.integers(1, 3))
@settings(max_examples=50, deadline=None)
def test_counts_broadcast_and_stages_that_are_not_there_change_nothing(
    schedule: Schedule, seed: int, padding: int
) -> None:
    times, extra = some_times(schedule, seed, SHAPE), some_extra(schedule, seed, SHAPE)
    counts = np.array([1, 2, schedule.num_micro_batches, 30])
    wide = [(0, 0), (0, padding)]
    padded = StageTimes(
        forward_s=np.pad(times.forward_s, wide),
        backward_s=np.pad(times.backward_s, wide),
        weight_s=np.pad(times.weight_s, wide),
        there_s=np.pad(times.there_s, wide),
        back_s=np.pad(times.back_s, wide),
    )
    together = pipeline_makespan_s(schedule.kind, padded, counts[:, None], np.pad(extra, wide))
    assert together.shape == (4, *SHAPE)
    for row, count in zip(together, counts.tolist(), strict=True):
        np.testing.assert_allclose(row, pipeline_makespan_s(schedule.kind, times, count, extra))


@pytest.mark.parametrize("kind", IN_LINE)
def test_plans_of_several_sizes_are_rows_of_one_array(kind: ScheduleKind) -> None:
    """Rows of 1 to 4 stages, each with a number of micro-batches of its own, as planners have them."""
    rng = np.random.default_rng(3)
    rows = [(num_stages, count) for num_stages in (1, 2, 3, 4) for count in (1, 2, 3, 5, 8)]
    there = np.arange(4) < np.array([num_stages for num_stages, _ in rows])[:, None]
    forward, backward, weight, sends, extra = there * rng.uniform(0.6, 1.4, (5, len(rows), 4))
    times = StageTimes(
        forward_s=forward, backward_s=backward + weight, weight_s=weight, there_s=0.1 * sends, back_s=0.1 * sends
    )
    together = pipeline_makespan_s(kind, times, np.array([count for _, count in rows]), extra)
    for k, (num_stages, count) in enumerate(rows):
        schedule = Schedule(kind=kind, num_devices=num_stages, num_micro_batches=count)
        alone = StageTimes(
            forward_s=forward[k, :num_stages],
            backward_s=(backward + weight)[k, :num_stages],
            weight_s=weight[k, :num_stages],
            there_s=0.1 * sends[k, :num_stages],
            back_s=0.1 * sends[k, :num_stages],
        )
        after = extra[k, :num_stages]
        assert float(together[k]) == pytest.approx(float(pipeline_makespan_s(kind, alone, count, after)))
        assert float(together[k]) == pytest.approx(float(simulated_s(schedule, alone, after)), rel=0.03)


@pytest.mark.parametrize("num_chunks", [2, 3])
def test_interleaved_bound_of_equal_stages_is_the_makespan(num_chunks: int) -> None:
    schedule = Schedule(kind=ScheduleKind.INTERLEAVED, num_devices=4, num_micro_batches=12, num_chunks=num_chunks)
    each = np.full(4 * num_chunks, 1.0 / num_chunks)
    bound = interleaved_lower_bound_s(schedule, StageTimes(forward_s=each, backward_s=2.0 * each))
    assert float(bound) == pytest.approx(12 * 3.0 + 3 * 3.0 / num_chunks)


@pytest.mark.parametrize(
    ("kind", "num_chunks", "bubble"),
    [
        (ScheduleKind.INTERLEAVED_ZERO_BUBBLE, 2, 0.5),
        (ScheduleKind.INTERLEAVED_ZERO_BUBBLE, 4, 0.25),
        (ScheduleKind.ZBV, 2, 0.5),
    ],
)
@pytest.mark.parametrize("weight", [0.5, 1.0])
def test_split_bound_of_equal_stages_is_the_makespan_where_passes_are_alike(
    kind: ScheduleKind, num_chunks: int, bubble: float, weight: float
) -> None:
    """Bubbles of (p - 1)(f + b - w) / v, of zbv (p - 1) f / 2, which it takes to begin; more if W is less."""
    schedule = Schedule(kind=kind, num_devices=4, num_micro_batches=12, num_chunks=num_chunks)
    each = np.full(4 * num_chunks, 1.0 / num_chunks)
    times = StageTimes(forward_s=each, backward_s=2.0 * each, weight_s=weight * each)
    bound, makespan = float(split_lower_bound_s(schedule, times)), float(simulated_s(schedule, times))
    if weight == 1.0:
        assert makespan == pytest.approx(12 * 3.0 + 3 * bubble * (2.0 - weight))
        assert bound == pytest.approx(makespan)
    else:
        assert 0.9 * makespan <= bound <= makespan + 1e-9


def test_which_formula_is_for_which_schedule() -> None:
    times = StageTimes(forward_s=np.ones(2), backward_s=np.ones(2))
    with pytest.raises(InputError, match="closed form"):
        pipeline_makespan_s(ScheduleKind.INTERLEAVED, times, 2)
    with pytest.raises(InputError, match="closed form"):
        pipeline_makespan_s(ScheduleKind.ZBV, times, 2)
    with pytest.raises(InputError, match="no chunks"):
        split_lower_bound_s(Schedule(kind=ScheduleKind.ZERO_BUBBLE, num_devices=2, num_micro_batches=2), times)
    with pytest.raises(InputError, match="not interleaved"):
        interleaved_lower_bound_s(Schedule(kind=ScheduleKind.GPIPE, num_devices=2, num_micro_batches=2), times)
