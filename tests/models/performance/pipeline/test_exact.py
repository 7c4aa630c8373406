"""The shortcut over the steady phase against simulating all of it; its cost."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from models.performance.pipeline.exact import exact_makespan_s
from models.performance.pipeline.schedule import Schedule, ScheduleKind
from models.performance.pipeline.times import StageTimes
from tests.growth import work
from tests.models.performance.pipeline.scenes import IN_LINE, schedules, simulated_s, some_extra, some_times


@given(schedule=schedules(rounds=25), seed=st.integers(0, 2**32), blocking=st.booleans(), sends=st.floats(0.0, 3.0))
@settings(max_examples=100, deadline=None)
def test_agrees_with_the_whole_simulation(schedule: Schedule, seed: int, blocking: bool, sends: float) -> None:
    times = some_times(schedule, seed, (2, 5), blocking=blocking, sends=sends)
    extra = some_extra(schedule, seed, (5,))
    found = exact_makespan_s(schedule, times, extra)
    assert found.shape == (2, 5)
    np.testing.assert_allclose(found, simulated_s(schedule, times, extra), rtol=1e-9)


@given(schedule=schedules(rounds=25), seed=st.integers(0, 2**32), tolerance=st.floats(0.0, 0.1))
@settings(max_examples=60, deadline=None)
def test_keeps_its_tolerance(schedule: Schedule, seed: int, tolerance: float) -> None:
    times = some_times(schedule, seed, (10,), sends=0.2)
    extra = some_extra(schedule, seed, (10,))
    found = exact_makespan_s(schedule, times, extra, tolerance=tolerance)
    bounds = 0.5 * tolerance / (1.0 - 0.5 * tolerance) + 1e-9
    np.testing.assert_allclose(found, simulated_s(schedule, times, extra), rtol=bounds)


def test_a_stage_that_is_hardly_slower_counts_although_it_does_so_late() -> None:
    """Stage 3 is by 0.1 % the slowest, but waits long for its first input: it sets the pace only after many rounds."""
    schedule = Schedule(kind=ScheduleKind.ONE_F_ONE_B, num_devices=4, num_micro_batches=3000)
    forward, backward = np.array([1.0, 0.1, 0.1, 1.0]), np.array([1.0, 0.1, 0.1, 1.002])
    times = StageTimes(forward_s=forward, backward_s=backward)
    found = float(exact_makespan_s(schedule, times))
    assert found == pytest.approx(float(simulated_s(schedule, times)), rel=1e-12)
    assert found >= 3000 * 2.002


@pytest.mark.parametrize("kind", [kind for kind in ScheduleKind if kind is not ScheduleKind.GPIPE])
def test_many_micro_batches_cost_no_more(kind: ScheduleKind) -> None:
    num_chunks = 1 if kind in IN_LINE else 2
    times = StageTimes(forward_s=np.ones(4 * num_chunks), backward_s=np.full(4 * num_chunks, 2.0), weight_s=1.0)

    def cost(num_micro_batches: int) -> int:
        schedule = Schedule(kind=kind, num_devices=4, num_micro_batches=num_micro_batches, num_chunks=num_chunks)
        exact_makespan_s(schedule, times)
        return work(lambda: exact_makespan_s(schedule, times))

    assert cost(4096) == cost(256)
