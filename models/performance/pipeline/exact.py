r"""Exact makespans of many candidates, at a cost that does not grow with the number of micro-batches.

In the steady phase the order of the passes repeats after q micro-batches (1, interleaved: p). Simulate n of the N
micro-batches, and compare the last passes K of every device's steady phase with those one period before. If all, and
the arrivals of their outputs, are later by the same delta, then

    T(N) = T(n) + delta (N - n) / q.

Proof. What comes behind K waits for passes in K or behind K only: K is the last q v rounds of a forward and a backward
pass, and a pass waits for nothing further back (in rounds, the pass before on the device by 1, the gradient from the
next device by 0, the activation from the one before by 1, interleaved by 2; around the ring by p forward, and less than
none backward). Starts are maxima of sums, so that adding delta to all of K adds it to all that is behind. Hence the
passes of one more period are those of K later by delta, and what was behind K is later by delta, too. This again holds
for the next period. A device that does nothing but work is at least its work per period later each time, so that delta
is never below the period of the slowest device: a near miss of the comparison cannot hide a slower pace.

Candidates that have not settled are simulated with twice as many micro-batches, and so on until all N.
"""

from functools import lru_cache

import numpy as np

from models.performance.pipeline.schedule import PassKind, Schedule, ScheduleKind, pass_graph
from models.performance.pipeline.simulation import pass_ends
from models.performance.pipeline.times import PassTimes, StageTimes, pass_times
from stowplan.arrays import FloatArray, IntArray, Mask

# Differences relative to delta that are rounding.
_EQUAL = 1e-10
# Passes times candidates that are simulated at a time.
_CHUNK = 1 << 22


def exact_makespan_s(schedule: Schedule, times: StageTimes, extra_s: FloatArray | None = None) -> FloatArray:
    """Seconds from the start of an iteration until the last device is done, (...); to rounding that of `simulate`.

    Parameters
    ----------
    times
        (..., V)
    extra_s
        (..., V) what follows on the device when a virtual stage has its gradients; None: nothing.

    Raises
    ------
    InputError
        When the last axis of `times` is not that of the schedule's virtual stages.
    """
    of_passes = pass_times(schedule, times)
    num_virtual, num_candidates = of_passes.duration_s.shape[1:]
    extra = np.zeros((num_virtual, 1))
    if extra_s is not None:
        wide = np.broadcast_to(extra_s, (*of_passes.shape, num_virtual))
        extra = np.moveaxis(wide, -1, 0).reshape(num_virtual, -1)
    total = np.empty(num_candidates)
    left = np.arange(num_candidates)
    few = _first_count(schedule)
    while left.size:
        # A little more than all is not worth a second try.
        few = schedule.num_micro_batches if 1.5 * few >= schedule.num_micro_batches else few
        of_left = PassTimes(
            duration_s=of_passes.duration_s[..., left],
            transfer_s=None if of_passes.transfer_s is None else of_passes.transfer_s[..., left],
            shape=(left.size,),
        )
        found, settled = _extrapolated(schedule, few, of_left, extra[:, left] if extra_s is not None else extra)
        total[left] = found
        left, few = left[~settled], 2 * few
    return total.reshape(of_passes.shape)


def _first_count(schedule: Schedule) -> int:
    """Micro-batches that are simulated at first: there are three periods or more in every steady phase."""
    p = schedule.num_devices
    match schedule.kind:
        case ScheduleKind.GPIPE:
            return schedule.num_micro_batches
        case ScheduleKind.ZERO_BUBBLE:
            return 3 * p + 5
        case ScheduleKind.INTERLEAVED:
            return 5 * p
        case _:
            return 2 * p + 5


def _extrapolated(schedule: Schedule, few: int, times: PassTimes, extra: FloatArray) -> tuple[FloatArray, Mask]:
    """Makespans (C,) of all micro-batches from `few`, and whether they are exact."""
    part = schedule.with_micro_batches(few)
    graph, num_candidates = pass_graph(part), times.duration_s.shape[-1]
    total, settled = np.empty(num_candidates), np.ones(num_candidates, dtype=bool)
    step = max(1, _CHUNK // len(graph.kind))
    for first in range(0, num_candidates, step):
        chunk = slice(first, first + step)
        transfer = None if times.transfer_s is None else times.transfer_s[..., chunk]
        end, arrived = pass_ends(
            graph, PassTimes(duration_s=times.duration_s[..., chunk], transfer_s=transfer, shape=())
        )
        total[chunk] = (_last(end, graph.index) + extra[:, chunk if extra.shape[1] > 1 else slice(None)]).max(axis=0)
        if few < schedule.num_micro_batches:
            late, early = _steady_ends(part)
            delta = end[late] - end[early]
            spread = np.ptp(delta, axis=0)
            if transfer is not None:
                spread = np.maximum(spread, np.ptp(np.concatenate([delta, arrived[late] - arrived[early]]), axis=0))
            settled[chunk] = spread <= _EQUAL * delta.max(axis=0)
            total[chunk] += delta.max(axis=0) * ((schedule.num_micro_batches - few) // schedule.period)
    return total, settled


def _last(end: FloatArray, index: IntArray) -> FloatArray:
    """When virtual stages have their gradients (V, C)."""
    return np.asarray(end[index[PassKind.BACKWARD :, :, -1]].max(axis=0))


@lru_cache(maxsize=256)
def _steady_ends(schedule: Schedule) -> tuple[IntArray, IntArray]:
    """K, and the passes one period before them."""
    index = pass_graph(schedule).index
    rounds = schedule.period * schedule.num_chunks
    late, early = [], []
    for device in range(schedule.num_devices):
        order = schedule.order(device)
        # Behind the last forward pass comes its round's backward pass (and one for weights).
        end = int(np.flatnonzero(order[:, 0] == PassKind.FORWARD)[-1]) + schedule.num_kinds
        num_passes, period = (rounds + 2) * schedule.num_kinds, rounds * schedule.num_kinds
        passes = index[tuple(order.T)]
        late.append(passes[end - num_passes : end])
        early.append(passes[end - num_passes - period : end - period])
    return np.concatenate(late), np.concatenate(early)
