"""Schedules and times for tests."""

import numpy as np
from hypothesis import strategies as st

from models.performance.pipeline.schedule import Schedule, ScheduleKind
from models.performance.pipeline.simulation import simulate
from models.performance.pipeline.times import StageTimes
from stowplan.arrays import FloatArray

IN_LINE = (ScheduleKind.GPIPE, ScheduleKind.ONE_F_ONE_B, ScheduleKind.ZERO_BUBBLE)


@st.composite
def schedules(draw: st.DrawFn, kinds: tuple[ScheduleKind, ...] = tuple(ScheduleKind), rounds: int = 4) -> Schedule:
    """Small schedules; `rounds`: at most as many micro-batches as that times the devices, or three times that."""
    kind, num_devices = draw(st.sampled_from(kinds)), draw(st.integers(1, 5))
    interleaved = kind in (ScheduleKind.INTERLEAVED, ScheduleKind.INTERLEAVED_ZERO_BUBBLE)
    return Schedule(
        kind=kind,
        num_devices=num_devices,
        num_micro_batches=draw(st.integers(1, rounds)) * num_devices
        if interleaved
        else draw(st.integers(1, 3 * rounds)),
        num_chunks=draw(st.integers(2, 3)) if interleaved else 1 + (kind is ScheduleKind.ZBV),
    )


def some_times(
    schedule: Schedule, seed: int, shape: tuple[int, ...] = (), *, blocking: bool = False, sends: float = 2.0
) -> StageTimes:
    """Uneven ones; half of the gradients are of weights, transfers up to `sends`."""
    rng = np.random.default_rng(seed)
    forward, backward, there, back = rng.uniform(0.0, 1.0, (4, *shape, schedule.num_virtual))
    return StageTimes(
        forward_s=0.6 + 0.8 * forward,
        backward_s=1.2 + 1.6 * backward,
        weight_s=0.6 + 0.8 * backward,
        there_s=sends * there * rng.choice([0.0, 0.1, 1.0]),
        back_s=sends * back * rng.choice([0.0, 0.1, 1.0]),
        blocking=blocking,
    )


def some_extra(schedule: Schedule, seed: int, shape: tuple[int, ...] = ()) -> FloatArray:
    """What stages do when they have their gradients."""
    return np.random.default_rng(seed + 1).uniform(0.0, 4.0, (*shape, schedule.num_virtual))


def simulated_s(schedule: Schedule, times: StageTimes, extra_s: FloatArray | float = 0.0) -> FloatArray:
    """Makespans by the simulator."""
    return np.asarray((simulate(schedule, times).last_backward_s + extra_s).max(axis=-1))
