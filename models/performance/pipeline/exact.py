r"""Makespans of many candidates, exact or within a tolerance, at a cost that seldom grows with the micro-batches.

In the steady phase the order of the passes repeats after q micro-batches (1, interleaved: p). Simulate n of the N
micro-batches, and compare the last passes K of every device's steady phase, and the arrivals of their outputs, with
those one period before. If all are later by at least delta_min and at most delta_max, then

    T(n) + delta_min (N - n) / q <= T(N) <= T(n) + delta_max (N - n) / q.

Proof. What comes behind K waits for passes in K or behind K only: K is more than the last q v rounds of a forward and a
backward pass, and a pass waits for nothing further back (in rounds: for the pass before on its device 1, for the
gradient from the next device 0, for the activation from the one before 1, interleaved 2; around the ring at most p;
for the B of a W at most p - 1; of zbv, whose turns are two rounds, at most a turn).
Ends are sums of durations and of maxima of ends, so that what is behind K is later by delta_min to delta_max if all of
K is. Hence the passes of one more period, which are to K as K is to what is one period before, are later by delta_min
to delta_max, and so is what was behind K. The same holds for the next period.

Candidates whose bounds are too far apart, as where two stages are almost equally slow, are simulated with twice as
many micro-batches, and so on until all N.
"""

from functools import lru_cache

import numpy as np

from models.performance.pipeline.schedule import PassKind, Schedule, ScheduleKind, pass_graph
from models.performance.pipeline.simulation import pass_ends
from models.performance.pipeline.times import PassTimes, StageTimes, pass_times
from stowplan.arrays import FloatArray, IntArray

# Differences relative to delta that are rounding.
_EQUAL = 1e-10
# Passes times candidates that are simulated at a time.
_CHUNK = 1 << 22


def exact_makespan_s(
    schedule: Schedule, times: StageTimes, extra_s: FloatArray | None = None, *, tolerance: float = 0.0
) -> FloatArray:
    """Seconds from the start of an iteration until the last device is done, (...).

    Parameters
    ----------
    times
        (..., V)
    extra_s
        (..., V) what follows on the device when a virtual stage has its gradients; None: nothing.
    tolerance
        How far the bounds may be apart, relative to the upper one; the answer is between them, off by half of it at
        most. 0: to rounding what `simulate` says.

    Raises
    ------
    InputError
        When the last axis of `times` is not that of the schedule's virtual stages, or more than 2^21 passes would be
        simulated.
    """
    of_passes = pass_times(schedule, times)
    num_virtual, num_candidates = of_passes.duration_s.shape[1:]
    wide = np.broadcast_to(0.0 if extra_s is None else extra_s, (*of_passes.shape, num_virtual))
    extra = np.moveaxis(wide, -1, 0).reshape(num_virtual, -1)
    total, left, few = np.empty(num_candidates), np.arange(num_candidates), _first_count(schedule)
    while left.size:
        # A little more than all is not worth a second try.
        few = schedule.num_micro_batches if 1.5 * few >= schedule.num_micro_batches else few
        lower, upper = _bounds(schedule, few, of_passes.at(left), extra[:, left])
        total[left] = 0.5 * (lower + upper)
        left, few = left[upper - lower > max(tolerance, _EQUAL) * upper], 2 * few
    return total.reshape(of_passes.shape)


def _first_count(schedule: Schedule) -> int:
    """Micro-batches that are simulated at first: there are three periods or more in every steady phase."""
    p = schedule.num_devices
    match schedule.kind:
        case ScheduleKind.GPIPE:
            return schedule.num_micro_batches
        case ScheduleKind.ZERO_BUBBLE:
            return 3 * p + 5
        case ScheduleKind.INTERLEAVED | ScheduleKind.INTERLEAVED_ZERO_BUBBLE:
            return 5 * p
        case _:
            return 2 * p + 5


def _bounds(schedule: Schedule, few: int, times: PassTimes, extra: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Lower and upper bound of makespans (C,) of all micro-batches from `few`; equal where these are all."""
    part = schedule.with_micro_batches(few)
    graph, num_candidates = pass_graph(part), times.duration_s.shape[-1]
    lower, upper = np.empty((2, num_candidates))
    step = max(1, _CHUNK // len(graph.kind))
    for first in range(0, num_candidates, step):
        chunk = np.arange(first, min(first + step, num_candidates))
        end, arrived = pass_ends(graph, times.at(chunk))
        # When virtual stages have their gradients.
        last = end[graph.index[PassKind.BACKWARD :, :, -1]].max(axis=0)
        lower[chunk] = upper[chunk] = (last + extra[:, chunk]).max(axis=0)
        if few < schedule.num_micro_batches:
            late, early = _steady_ends(part)
            later = end[late] - end[early]
            if times.transfer_s is not None:
                later = np.concatenate([later, arrived[late] - arrived[early]])
            periods = (schedule.num_micro_batches - few) // schedule.period
            lower[chunk] += periods * later.min(axis=0)
            upper[chunk] += periods * later.max(axis=0)
    return lower, upper


@lru_cache(maxsize=64)
def _steady_ends(schedule: Schedule) -> tuple[IntArray, IntArray]:
    """K, and the passes one period before them."""
    index = pass_graph(schedule).index
    rounds = schedule.period * schedule.num_chunks
    late, early = [], []
    for device in range(schedule.num_devices):
        order = schedule.order(device)
        forward = order[:, 0] == PassKind.FORWARD
        if schedule.kind is ScheduleKind.ZBV:
            # Two rounds begin with the first chunk, as long as it has forward passes.
            end = int(np.flatnonzero(forward & (order[:, 1] == device))[-1]) + 2 * schedule.num_kinds
        else:
            # Behind the last forward pass comes its round's backward pass (and one for weights).
            end = int(np.flatnonzero(forward)[-1]) + schedule.num_kinds
        num_passes, period = (rounds + 2) * schedule.num_kinds, rounds * schedule.num_kinds
        passes = index[tuple(order.T)]
        late.append(passes[end - num_passes : end])
        early.append(passes[end - num_passes - period : end - period])
    return np.concatenate(late), np.concatenate(early)
