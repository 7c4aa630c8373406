r"""A lower bound of makespans in closed form where chunks of stages have passes of their own for weights: interleaved
zero-bubble and zbv, both as PyTorch orders them.

f_s, b_s, w_s of virtual stage s, u_d the last one of device d; W_d all work of the device. The first micro-batch is at
device d after sum_{s<d} f_s, and its first gradient after sum_s f_s + sum_{s>u_d} b_s. By then the device has made the
forward passes that the order puts before, a_d in time, and nothing else. Behind the last gradient of the inputs r_d is
left of its weights, and the gradient goes back to devices i < d, each of which ends with r_i and tau_i:

    T >= max_d  W_d - r_d + max( sum_{s<d} f_s,  sum_s f_s + sum_{s>u_d} b_s - a_d )
                + max_{i<=d} ( sum_{i<=s<d} b_s + r_i + tau_i )

            forward passes in a_d                      weights in r_d
    interleaved-zero-bubble  the first v p - d of the order     d + 1 of chunk 0
    zbv     2 p - 1 - d of chunk 0, d + 1 of chunk 1   d + 1 of chunk 0, d of chunk 1 (N < 2 p - 1: only i = d)

Transfers are part of the sums. The makespan is never below: all of these passes wait for one another. How far it is
above: `python -m benchmarks pipeline-schedules`.
"""

import numpy as np

from models.performance.pipeline.schedule import Schedule, ScheduleKind
from models.performance.pipeline.times import StageTimes, pass_times
from stowplan.arrays import FloatArray
from stowplan.errors import InputError


def split_lower_bound_s(schedule: Schedule, times: StageTimes, extra_s: FloatArray | None = None) -> FloatArray:
    """Seconds that the iteration takes at least, (...).

    Parameters
    ----------
    times
        (..., V)
    extra_s
        (..., V) what follows when a virtual stage has its gradients; of those of the first chunk only.

    Raises
    ------
    InputError
        When the schedule has no chunks or no passes for weights, or the last axis of `times` is not that of its virtual
        stages.
    """
    if schedule.num_chunks == 1 or not schedule.splits_backward:
        raise InputError(f"{schedule.kind} has no chunks with passes for weights")
    of_passes, p, count = pass_times(schedule, times), schedule.num_devices, schedule.num_micro_batches
    forward, backward, weight = of_passes.duration_s
    sent = np.zeros_like(of_passes.duration_s) if of_passes.transfer_s is None else of_passes.transfer_s
    there, back = np.cumsum(forward + sent[0], axis=0), np.cumsum(backward + sent[1], axis=0)
    # Virtual stages of chunks by device.
    chunk = np.arange(schedule.num_virtual).reshape(schedule.num_chunks, p)
    if schedule.kind is ScheduleKind.ZBV:
        chunk[1] = chunk[1, ::-1]
    device = np.arange(p)[:, None]
    work = count * (forward + backward + weight)[chunk].sum(axis=0)
    if schedule.kind is ScheduleKind.ZBV:
        ahead = np.minimum(np.stack([2 * p - 1 - device, device + 1]), count)
        left = np.stack([device + 1, device])
    else:
        first = np.arange(schedule.num_chunks)[:, None, None] * p
        ahead = np.clip(schedule.num_virtual - device - first, 0, p)
        left = np.where(first == 0, device + 1, 0)
    rest = (left * weight[chunk]).sum(axis=0)
    begin = (there - forward - sent[0])[:p]
    gradient = there[-1] + back[-1] - back[chunk[-1]] - (ahead * forward[chunk]).sum(axis=0)
    after = np.zeros((p, 1))
    if extra_s is not None:
        wide = np.broadcast_to(extra_s, (*of_passes.shape, schedule.num_virtual))
        after = np.moveaxis(wide, -1, 0).reshape(schedule.num_virtual, -1)[:p]
    ended = rest + after
    if schedule.kind is not ScheduleKind.ZBV or count >= 2 * p - 1:
        # Its own pass is part of a device's work, what it sends is not.
        until = (back - backward)[:p]
        ended = np.maximum.accumulate(ended - until, axis=0) + until
    return np.asarray((work - rest + np.maximum(begin, gradient) + ended).max(axis=0).reshape(of_passes.shape))
