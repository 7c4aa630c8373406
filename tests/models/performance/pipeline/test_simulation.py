"""The simulator against drawings, against another simulator, and against what must hold of every schedule.

2 devices, forward 1 s, backward 2 s (zero-bubble: 1 s for the inputs, 1 s for the weights):

1f1b, 3 micro-batches: (3 + 2 - 1) (1 + 2) = 12 s
  device 0  F0 F1 .  .  B0 B0 F2 B1 B1 .  B2 B2
  device 1  .  F0 B0 B0 F1 B1 B1 F2 B2 B2 .  .

gpipe, 2 micro-batches: (2 + 2 - 1) (1 + 2) = 9 s
  device 0  F0 F1 .  .  .  B0 B0 B1 B1
  device 1  .  F0 F1 B0 B0 B1 B1 .  .

interleaved, 2 chunks (a: first, b: second) of 1 s and 2 s each, 2 micro-batches: 2 2 (1 + 2) + (2 - 1) (1 + 2) = 15 s
  device 0  a0 a1 b0 b1 .  .  B0 B0 .  B1 B1 A0 A0 A1 A1
  device 1  .  a0 a1 b0 B0 B0 b1 B1 B1 A0 A0 A1 A1 .  .

zero-bubble, 3 micro-batches: 3 3 + (2 - 1) (1 + 1 - 1) = 10 s
  device 0  F0 F1 .  B0 W0 F2 B1 W1 B2 W2
  device 1  .  F0 B0 F1 B1 W0 F2 B2 W1 W2
"""

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from models.performance.pipeline.activations import held_chunks, peak_chunks
from models.performance.pipeline.schedule import PassKind, Schedule, ScheduleKind
from models.performance.pipeline.simulation import Timeline, simulate
from models.performance.pipeline.times import StageTimes
from stowplan.arrays import FloatArray
from stowplan.errors import InputError
from tests.models.performance.pipeline.event_loop import EventLoop
from tests.models.performance.pipeline.scenes import schedules, some_times


def drawn(timeline: Timeline, device: int) -> str:
    """A row of the drawings: a column a second."""
    order, start, end = timeline.of_device(device)
    chunked = timeline.schedule.num_chunks > 1
    row = ["."] * round(float(timeline.makespan_s))
    for (kind, stage, m), first, last in zip(order.tolist(), start, end, strict=True):
        name = "FBW"[kind]
        if chunked:
            chunk = "ab"[stage // timeline.schedule.num_devices]
            name = chunk if kind == PassKind.FORWARD else chunk.upper()
        row[round(float(first)) : round(float(last))] = [f"{name}{m}"] * round(float(last - first))
    return " ".join(one.ljust(2) for one in row).rstrip()


@pytest.mark.parametrize(
    ("kind", "num_chunks", "num_micro_batches"),
    [
        (ScheduleKind.ONE_F_ONE_B, 1, 3),
        (ScheduleKind.GPIPE, 1, 2),
        (ScheduleKind.INTERLEAVED, 2, 2),
        (ScheduleKind.ZERO_BUBBLE, 1, 3),
    ],
)
def test_drawings(kind: ScheduleKind, num_chunks: int, num_micro_batches: int) -> None:
    schedule = Schedule(kind=kind, num_devices=2, num_micro_batches=num_micro_batches, num_chunks=num_chunks)
    ones = np.ones(2 * num_chunks)
    timeline = simulate(schedule, StageTimes(forward_s=ones, backward_s=2.0 * ones, weight_s=1.0))
    text = (__doc__ or "").partition(f"\n{kind}")[2].splitlines()
    rows = [line.removeprefix(f"  device {d}  ").rstrip() for d, line in enumerate(text[1:3])]
    assert [drawn(timeline, d) for d in range(2)] == rows
    assert float(timeline.makespan_s) == float(text[0].split("=")[1].split()[0])


@given(schedule=schedules(), seed=st.integers(0, 2**32), blocking=st.booleans())
@settings(max_examples=150, deadline=None)
def test_agrees_with_an_event_loop(schedule: Schedule, seed: int, blocking: bool) -> None:
    times = some_times(schedule, seed, blocking=blocking)
    parts = (times.forward_s, times.backward_s, times.weight_s, times.there_s, times.back_s)
    forward, backward, weight, there, back = (np.asarray(part).tolist() for part in parts)
    loop = EventLoop(schedule, forward, backward, weight, there, back, blocking)
    ends = loop.run()
    timeline = simulate(schedule, times)
    assert float(timeline.makespan_s) == pytest.approx(loop.makespan_s)
    starts = {
        ("FBW"[kind], stage, m): float(timeline.end_s[kind, stage, m])
        for kind, stage, m in np.ndindex(timeline.end_s.shape)
    }
    if not blocking:
        assert starts == pytest.approx(ends)
    assert [device.most_held for device in loop.devices] == peak_chunks(schedule).tolist()
    most = [held_chunks(schedule, d).sum(axis=1).max() for d in range(schedule.num_devices)]
    assert most == peak_chunks(schedule).tolist()


@given(
    num_devices=st.integers(1, 6), rounds=st.integers(1, 4), num_chunks=st.integers(2, 4), forward_s=st.floats(0.1, 9)
)
@settings(max_examples=50, deadline=None)
def test_equal_stages(num_devices: int, rounds: int, num_chunks: int, forward_s: float) -> None:
    """Bubbles as published: (p - 1)(f + b), that over v, and (p - 1)(f + b - w) where b = w = f."""
    count = rounds * num_devices

    def makespan_s(kind: ScheduleKind, chunks: int) -> float:
        schedule = Schedule(kind=kind, num_devices=num_devices, num_micro_batches=count, num_chunks=chunks)
        each = np.full(num_devices * chunks, forward_s / chunks)
        return float(simulate(schedule, StageTimes(forward_s=each, backward_s=2.0 * each, weight_s=each)).makespan_s)

    work_s, bubble_s = 3.0 * count * forward_s, 3.0 * (num_devices - 1) * forward_s
    assert makespan_s(ScheduleKind.ONE_F_ONE_B, 1) == pytest.approx(work_s + bubble_s)
    assert makespan_s(ScheduleKind.GPIPE, 1) == pytest.approx(work_s + bubble_s)
    assert makespan_s(ScheduleKind.INTERLEAVED, num_chunks) == pytest.approx(work_s + bubble_s / num_chunks)
    assert makespan_s(ScheduleKind.ZERO_BUBBLE, 1) == pytest.approx(work_s + bubble_s / 3.0)


@given(
    num_devices=st.integers(1, 6),
    count=st.integers(1, 20),
    times_s=st.tuples(st.floats(0.1, 9.0), st.floats(0.1, 9.0), st.floats(0.0, 9.0)),
)
@settings(max_examples=50, deadline=None)
def test_zero_bubble_is_no_slower_on_equal_stages(
    num_devices: int, count: int, times_s: tuple[float, float, float]
) -> None:
    """On uneven ones it may be: weights that are late delay what another stage waits for."""
    forward, inputs, weight = (np.full(num_devices, one) for one in times_s)
    times = StageTimes(forward_s=forward, backward_s=inputs + weight, weight_s=weight)
    zero_bubble, plain = (
        float(simulate(Schedule(kind=kind, num_devices=num_devices, num_micro_batches=count), times).makespan_s)
        for kind in (ScheduleKind.ZERO_BUBBLE, ScheduleKind.ONE_F_ONE_B)
    )
    assert zero_bubble <= plain * (1.0 + 1e-12)


@given(schedule=schedules(), seed=st.integers(0, 2**32), scale=st.floats(0.01, 100.0), blocking=st.booleans())
@settings(max_examples=50, deadline=None)
def test_many_at_once_are_one_by_one_and_times_scale(
    schedule: Schedule, seed: int, scale: float, blocking: bool
) -> None:
    times = some_times(schedule, seed, (2, 3), blocking=blocking)
    together = simulate(schedule, times)
    assert together.makespan_s.shape == (2, 3)
    for at in np.ndindex(2, 3):
        alone = simulate(schedule, _mapped(times, lambda part, at=at: part[at]))  # type: ignore[misc]  # a default
        for name in ("start_s", "end_s", "makespan_s", "last_backward_s", "bubble_fraction"):
            np.testing.assert_allclose(getattr(together, name)[at], getattr(alone, name), atol=1e-12)
    scaled = simulate(schedule, _mapped(times, lambda part: scale * part))
    np.testing.assert_allclose(scaled.makespan_s, scale * together.makespan_s)
    np.testing.assert_allclose(scaled.bubble_fraction, together.bubble_fraction, atol=1e-12)


@given(schedule=schedules(), seed=st.integers(0, 2**32), stage=st.integers(0, 14))
@settings(max_examples=50, deadline=None)
def test_nothing_ends_earlier_when_a_stage_takes_longer(schedule: Schedule, seed: int, stage: int) -> None:
    times = some_times(schedule, seed)
    forward = times.forward_s + 0.5 * (np.arange(schedule.num_virtual) == stage % schedule.num_virtual)
    slower = _mapped(times, lambda part: forward if part is times.forward_s else part)
    assert (simulate(schedule, slower).end_s >= simulate(schedule, times).end_s - 1e-9).all()


@given(schedule=schedules((ScheduleKind.ONE_F_ONE_B,)), seed=st.integers(0, 2**32))
@settings(max_examples=30, deadline=None)
def test_1f1b_backwards_in_time_is_1f1b(schedule: Schedule, seed: int) -> None:
    times = some_times(schedule, seed)
    swapped = StageTimes(
        forward_s=times.backward_s, backward_s=times.forward_s, there_s=times.back_s, back_s=times.there_s
    )
    times = StageTimes(
        forward_s=times.forward_s, backward_s=times.backward_s, there_s=times.there_s, back_s=times.back_s
    )
    assert simulate(schedule, swapped).makespan_s == pytest.approx(simulate(schedule, times).makespan_s)


def test_bubbles_and_when_gradients_are_there() -> None:
    """The 1f1b drawing: 3 s idle on each device, 6 of 24; device 1 has its gradients 2 s before the end."""
    schedule = Schedule(kind=ScheduleKind.ONE_F_ONE_B, num_devices=2, num_micro_batches=3)
    timeline = simulate(schedule, StageTimes(forward_s=np.ones(2), backward_s=np.full(2, 2.0)))
    assert timeline.last_backward_s.tolist() == [12.0, 10.0]
    assert float(timeline.bubble_fraction) == 6 / 24


def test_a_device_alone_sends_nothing() -> None:
    schedule = Schedule(kind=ScheduleKind.INTERLEAVED, num_devices=1, num_micro_batches=2, num_chunks=2)
    times = StageTimes(forward_s=np.ones(2), backward_s=np.ones(2), there_s=5.0, back_s=5.0, blocking=True)
    assert float(simulate(schedule, times).makespan_s) == 8.0


@pytest.mark.parametrize(
    ("kind", "num_micro_batches", "num_chunks"),
    [
        (ScheduleKind.ONE_F_ONE_B, 4, 2),
        (ScheduleKind.INTERLEAVED, 4, 1),
        (ScheduleKind.INTERLEAVED, 5, 2),
        (ScheduleKind.ONE_F_ONE_B, 0, 1),
    ],
)
def test_what_is_no_schedule(kind: ScheduleKind, num_micro_batches: int, num_chunks: int) -> None:
    with pytest.raises(InputError):
        Schedule(kind=kind, num_devices=2, num_micro_batches=num_micro_batches, num_chunks=num_chunks)


def test_times_of_other_stages_are_refused() -> None:
    schedule = Schedule(kind=ScheduleKind.ONE_F_ONE_B, num_devices=2, num_micro_batches=4)
    with pytest.raises(InputError, match="2 stages"):
        simulate(schedule, StageTimes(forward_s=np.ones(3), backward_s=np.ones(3)))


def _mapped(times: StageTimes, change: Callable[[FloatArray], FloatArray]) -> StageTimes:
    return StageTimes(
        forward_s=change(times.forward_s),
        backward_s=change(times.backward_s),
        weight_s=change(np.asarray(times.weight_s)),
        there_s=change(np.asarray(times.there_s)),
        back_s=change(np.asarray(times.back_s)),
        blocking=times.blocking,
    )
