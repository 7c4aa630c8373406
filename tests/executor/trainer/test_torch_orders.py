"""Zero-bubble schedules are those of torch, pass by pass: its own tables for every rank."""

from types import SimpleNamespace

import pytest
from torch.distributed.pipelining.schedules import (
    ScheduleInterleavedZeroBubble,
    ScheduleZBVZeroBubble,
    _ComputationType,
)

from models.performance.pipeline.schedule import PassKind, Schedule, ScheduleKind

_KINDS = {
    _ComputationType.FORWARD: PassKind.FORWARD,
    _ComputationType.BACKWARD_INPUT: PassKind.BACKWARD,
    _ComputationType.BACKWARD_WEIGHT: PassKind.WEIGHT,
}
_CLASSES = {
    ScheduleKind.INTERLEAVED_ZERO_BUBBLE: ScheduleInterleavedZeroBubble,
    ScheduleKind.ZBV: ScheduleZBVZeroBubble,
}


def torch_order(schedule: Schedule, device: int) -> list[list[int]]:
    """What torch has a rank do; a schedule of its own needs stages in a process group, the table needs sizes only."""
    p, count = schedule.num_devices, schedule.num_micro_batches
    rounds = max(1, count // p)
    sizes = SimpleNamespace(
        n_local_stages=schedule.num_chunks,
        num_stages=schedule.num_virtual,
        pp_group_size=p,
        _n_microbatches=count,
        number_of_rounds=rounds,
        microbatches_per_round=count // rounds,
    )
    actions = _CLASSES[schedule.kind]._calculate_single_rank_operations(sizes, device)
    return [
        [_KINDS[action.computation_type], action.stage_index, action.microbatch_index]
        for action in actions
        if action is not None
    ]


@pytest.mark.parametrize("num_devices", range(1, 8))
@pytest.mark.parametrize(
    ("kind", "num_chunks"),
    [*((ScheduleKind.INTERLEAVED_ZERO_BUBBLE, chunks) for chunks in (2, 3, 4)), (ScheduleKind.ZBV, 2)],
)
def test_orders(kind: ScheduleKind, num_chunks: int, num_devices: int) -> None:
    step = 1 if kind is ScheduleKind.ZBV else num_devices
    for count in range(step, 4 * num_devices + 1, step):
        schedule = Schedule(kind=kind, num_devices=num_devices, num_micro_batches=count, num_chunks=num_chunks)
        for device in range(num_devices):
            assert schedule.order(device).tolist() == torch_order(schedule, device)
