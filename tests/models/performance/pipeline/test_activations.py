"""Peaks by hand; `test_simulation` compares them with what two simulators count."""

import numpy as np
import pytest

from models.performance.iteration.times import schedule_of
from models.performance.pipeline.activations import held_chunks, peak_chunks
from models.performance.pipeline.schedule import PassKind, Schedule, ScheduleKind
from models.pipeline_schedule import PipelineSchedule, in_flight, waiting


@pytest.mark.parametrize(
    ("kind", "num_micro_batches", "peaks"),
    [
        (ScheduleKind.GPIPE, 8, [8, 8, 8, 8]),
        (ScheduleKind.ONE_F_ONE_B, 8, [4, 3, 2, 1]),
        (ScheduleKind.ONE_F_ONE_B, 2, [2, 2, 2, 1]),
        (ScheduleKind.ZERO_BUBBLE, 8, [4, 4, 4, 4]),
        (ScheduleKind.ZERO_BUBBLE, 3, [3, 3, 3, 3]),
    ],
)
def test_peaks(kind: ScheduleKind, num_micro_batches: int, peaks: list[int]) -> None:
    schedule = Schedule(kind=kind, num_devices=4, num_micro_batches=num_micro_batches)
    assert peak_chunks(schedule).tolist() == peaks


@pytest.mark.parametrize(("num_devices", "num_chunks"), [(4, 2), (8, 3), (2, 5)])
def test_first_device_of_interleaved_holds_what_is_published(num_devices: int, num_chunks: int) -> None:
    """p micro-batches times 1 + (p - 1) / (p v) (Korthikanti et al. 2022); fewer where there are too few of them."""
    schedule = Schedule(
        kind=ScheduleKind.INTERLEAVED,
        num_devices=num_devices,
        num_micro_batches=3 * num_devices,
        num_chunks=num_chunks,
    )
    of_layers = peak_chunks(schedule)[0] / num_chunks
    assert of_layers == pytest.approx(num_devices * (1 + (num_devices - 1) / (num_devices * num_chunks)))
    few = schedule.with_micro_batches(num_devices)
    assert peak_chunks(few)[0] == num_devices * num_chunks


def test_what_is_held_of_each_chunk() -> None:
    """Device 1 of the interleaved drawing of `test_simulation`: a0 a1 b0 B0 b1 B1 A0 A1."""
    schedule = Schedule(kind=ScheduleKind.INTERLEAVED, num_devices=2, num_micro_batches=2, num_chunks=2)
    held = [[1, 0], [2, 0], [2, 1], [2, 1], [2, 1], [2, 1], [2, 0], [1, 0]]
    assert held_chunks(schedule, 1).tolist() == held


@pytest.mark.parametrize(
    ("kind", "num_chunks", "num_micro_batches", "peaks"),
    [
        (ScheduleKind.INTERLEAVED_ZERO_BUBBLE, 2, 12, [8, 8, 8, 8]),
        (ScheduleKind.INTERLEAVED_ZERO_BUBBLE, 3, 4, [12, 12, 12, 12]),
        (ScheduleKind.ZBV, 2, 12, [8, 8, 8, 8]),
        (ScheduleKind.ZBV, 2, 3, [4, 5, 6, 6]),
    ],
)
def test_schedules_that_split_the_backward_pass_hold_as_much_on_all_devices(
    kind: ScheduleKind, num_chunks: int, num_micro_batches: int, peaks: list[int]
) -> None:
    """p micro-batches in whole stages, as the first device of 1F1B; less only where there are too few of them."""
    schedule = Schedule(kind=kind, num_devices=4, num_micro_batches=num_micro_batches, num_chunks=num_chunks)
    assert peak_chunks(schedule).tolist() == peaks


@pytest.mark.parametrize(("num_devices", "num_chunks"), [(2, 2), (4, 2), (4, 3), (7, 2)])
@pytest.mark.parametrize("schedule", [PipelineSchedule.ZERO_BUBBLE, PipelineSchedule.ZBV])
def test_gradients_that_wait_for_their_weights(schedule: PipelineSchedule, num_devices: int, num_chunks: int) -> None:
    """The fullest moment of every device, gradients being 0.6 of activations; but for those of one chunk at work."""
    if schedule is PipelineSchedule.ZBV:
        num_chunks = 2
    order = schedule_of(schedule, num_devices, num_chunks, 4 * num_devices)
    for device in range(num_devices):
        kinds = order.order(device)[:, 0]
        done = {kind: np.cumsum(kinds == kind) for kind in PassKind}
        kept = done[PassKind.FORWARD] - done[PassKind.WEIGHT]
        pending = done[PassKind.BACKWARD] - done[PassKind.WEIGHT]
        fullest = float((kept + 0.6 * pending).max()) / num_chunks
        said = in_flight(num_devices, device, num_chunks, schedule) + waiting(num_devices, device, num_chunks, schedule)
        assert said - 1e-9 <= fullest <= said + 0.6 / num_chunks + 1e-9
