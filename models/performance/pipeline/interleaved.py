r"""A lower bound of interleaved makespans in closed form: the paths of `formulas` that stay at one device.

Device d makes its forward passes 0, 1, ... over chunks in the order of the schedule, w_d of them ahead. f_d(k) is the
sum of the first k + 1, f_{c,d} one of chunk c; likewise b backwards in time, as the schedule is the same then. As for
1F1B a path comes to M with its first gradient, stays, and leaves behind its last forward pass:

    E_M = max_{i<=j>=M} ( sum_{k<i} f_{0,k} + f_i(w_j) + sum_{i<k<=j} f_{c(w_j),k} + sum_{M<=k<=j} b_{v-1,k} )

Between, M works without pause. Where chunks of a device are alike, this is the makespan itself in most cases. Where
they differ, the slowest device is another one in each phase of the schedule, and paths that go from one to the other
are longer. Measured (`python -m benchmarks pipeline-schedules`): 0 to 1 % below the makespan in the median, 15 % at
worst. So it is for leaving plans out; `exact` ranks those that stay.
"""

from dataclasses import dataclass

import numpy as np

from models.performance.pipeline.schedule import Schedule, ScheduleKind
from models.performance.pipeline.times import StageTimes, pass_times
from stowplan.arrays import FloatArray, IntArray
from stowplan.errors import InputError


def interleaved_lower_bound_s(schedule: Schedule, times: StageTimes, extra_s: FloatArray | None = None) -> FloatArray:
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
        When the schedule is not interleaved, or the last axis of `times` not that of its virtual stages.
    """
    if schedule.kind is not ScheduleKind.INTERLEAVED:
        raise InputError(f"{schedule.kind} is not interleaved")
    of_passes, p, v = pass_times(schedule, times), schedule.num_devices, schedule.num_chunks
    shape = (2, v, p, -1)
    transfer = np.zeros_like(of_passes.duration_s) if of_passes.transfer_s is None else of_passes.transfer_s
    forward, backward = of_passes.duration_s.reshape(shape)
    # Of the transfers those between devices of one chunk: of the gradient, into the device.
    there, back = transfer.reshape(shape)
    before_there = np.concatenate([np.zeros_like(there[:, :1]), there[:, :-1]], axis=1)
    before_back = np.concatenate([np.zeros_like(back[:, :1]), back[:, 1:]], axis=1)
    total, ends = schedule.num_micro_batches * v, np.zeros((p, 1))
    if extra_s is not None:
        wide = np.broadcast_to(extra_s, (*of_passes.shape, p * v))
        first_back = np.cumsum(backward[0] + before_back[0], axis=0) - backward[0]
        ends = np.maximum.accumulate(np.moveaxis(wide, -1, 0).reshape(p * v, -1)[:p] - first_back, axis=0)
    ahead = np.array([min(schedule.warm_up(d), total - 1) for d in range(p)])
    groups, rest = np.divmod(ahead + 1, p * v)
    ahead_of_chunk = groups[:, None] * p + np.clip(rest[:, None] - p * np.arange(v), 0, p)
    last_chunk = (ahead % (p * v)) // p
    work = schedule.num_micro_batches * (forward + backward).sum(axis=0)
    come = _Way(passes=forward, sent=before_there, back=backward[-1], sent_back=before_back[-1])
    leave = _Way(passes=backward, sent=before_back, back=forward[-1], sent_back=before_there[-1])
    paths = come.longest(ahead_of_chunk, last_chunk, np.zeros((p, 1)))
    paths = paths + leave.longest(ahead_of_chunk, last_chunk, ends)
    paths += work - np.einsum("dv,vdc->dc", ahead_of_chunk, forward + backward) - forward[-1] - backward[-1]
    turning = np.array([schedule.warm_up(d) <= total - 2 for d in range(p)])
    direct = come.start() + work + leave.start() + ends
    return np.asarray(np.maximum(np.where(turning[:, None], paths, 0.0), direct).max(axis=0).reshape(of_passes.shape))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Way:
    """One direction: `passes` (v, p, C) of chunks, `sent` (v, p, C) into the device from the one before, `back` and
    `sent_back` (p, C) of the other direction's first chunk."""

    passes: FloatArray
    sent: FloatArray
    back: FloatArray
    sent_back: FloatArray

    def start(self) -> FloatArray:
        """When a device has its first input (p, C)."""
        return np.asarray(np.cumsum(self.passes[0] + self.sent[0], axis=0) - self.passes[0])

    def longest(self, ahead: IntArray, last_chunk: IntArray, begin: FloatArray) -> FloatArray:
        """E (p, C), with `begin` (p, C) in front of the first pass.

        ahead, last_chunk: of the first w + 1 passes of devices, how many are of each chunk (p, v), and of which one the
        last is (p,).
        """
        start = self.start() + begin
        ends = []
        for j, chunk in enumerate(last_chunk.tolist()):
            along = np.cumsum((self.passes[chunk] + self.sent[chunk])[: j + 1], axis=0)
            waited = np.tensordot(ahead[j], self.passes[:, : j + 1], axes=1)
            ends.append((start[: j + 1] + waited - along).max(axis=0) + along[j])
        back = np.cumsum(self.back + self.sent_back, axis=0)
        return np.asarray(np.maximum.accumulate((ends + back)[::-1], axis=0)[::-1] - back + self.back)
