"""How the cost of schedules grows with micro-batches and stages; `test_exact` has the makespans that do not."""

import numpy as np
import pytest

from models.performance.pipeline.formulas import pipeline_makespan_s
from models.performance.pipeline.schedule import Schedule, ScheduleKind, pass_graph
from models.performance.pipeline.simulation import simulate
from models.performance.pipeline.times import StageTimes
from stowplan.errors import InputError
from tests.growth import work
from tests.models.performance.pipeline.scenes import IN_LINE, some_times


@pytest.mark.parametrize("kind", ScheduleKind)
@pytest.mark.parametrize(("more_devices", "more_micro_batches"), [(2, 1), (1, 2)])
def test_simulation_grows_with_the_passes(kind: ScheduleKind, more_devices: int, more_micro_batches: int) -> None:
    def cost(num_devices: int, num_micro_batches: int) -> int:
        schedule = Schedule(
            kind=kind,
            num_devices=num_devices,
            num_micro_batches=num_micro_batches,
            num_chunks=1 if kind in IN_LINE else 2,
        )
        times = some_times(schedule, 0)
        pass_graph.cache_clear()
        return work(lambda: simulate(schedule, times))

    assert cost(8 * more_devices, 64 * more_micro_batches) <= 2.3 * cost(8, 64)


@pytest.mark.parametrize("kind", [ScheduleKind.ONE_F_ONE_B, ScheduleKind.ZERO_BUBBLE])
def test_closed_forms_grow_with_the_stages_only(kind: ScheduleKind) -> None:
    def cost(num_stages: int, num_micro_batches: int) -> int:
        each = np.linspace(1.0, 2.0, num_stages)
        times = StageTimes(forward_s=each, backward_s=2.0 * each, weight_s=each, there_s=0.1, back_s=0.1)
        return work(lambda: pipeline_makespan_s(kind, times, num_micro_batches, each[::-1]))

    assert cost(16, 4096) == cost(16, 64)
    assert cost(32, 4096) <= 2.3 * cost(16, 4096)


def test_what_is_too_much_to_simulate() -> None:
    schedule = Schedule(kind=ScheduleKind.GPIPE, num_devices=16, num_micro_batches=100_000)
    ones = np.ones(16)
    with pytest.raises(InputError, match="3,200,000 passes"):
        simulate(schedule, StageTimes(forward_s=ones, backward_s=ones))
