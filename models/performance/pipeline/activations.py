"""How many micro-batches' activations a device holds at most: from the start of F until B (zero-bubble: W) has ended.

                chunks held by device d of p
    gpipe       N
    1f1b        min(N, p - d)
    interleaved min(N v, 2 (p - 1 - d) + (v - 1) p + 1): on device 0 the activations of p micro-batches times
                1 + (p - 1) / (p v) of its layers (Korthikanti et al. 2022, section 4.2.1)
    zero-bubble min(N, p): p - d that wait for B, and d that wait for W only
    interleaved-zero-bubble min(N v, p v): p v - d that wait for B, and d that wait for W only
    zbv         min(2 p, 2 N, N + 1 + d)

It depends on the order of the passes, not on their times.
"""

import numpy as np

from models.performance.pipeline.schedule import PassKind, Schedule, ScheduleKind
from stowplan.arrays import IntArray


def peak_chunks(schedule: Schedule) -> IntArray:
    """Activations of chunks that devices hold at most (p,), each of one micro-batch."""
    total = schedule.num_micro_batches * schedule.num_chunks
    ahead = np.array([schedule.warm_up(device) for device in range(schedule.num_devices)])
    if schedule.kind is ScheduleKind.ZBV:
        last_in = schedule.num_micro_batches + 1 + np.arange(schedule.num_devices)
        return np.asarray(np.minimum(last_in, min(2 * schedule.num_devices, total)))
    late = np.arange(schedule.num_devices) if schedule.splits_backward else 0
    return np.asarray(np.minimum(ahead + 1 + late, total))


def held_chunks(schedule: Schedule, device: int) -> IntArray:
    """Activations of every chunk that a device holds while it works on each of its passes, (n, v)."""
    kind, stage, _ = schedule.order(device).T
    frees = PassKind.WEIGHT if schedule.splits_backward else PassKind.BACKWARD
    of_chunk = stage[:, None] // schedule.num_devices == np.arange(schedule.num_chunks)
    taken = np.cumsum(of_chunk & (kind == PassKind.FORWARD)[:, None], axis=0)
    freed = of_chunk & (kind == frees)[:, None]
    return np.asarray(taken - np.cumsum(freed, axis=0) + freed)
