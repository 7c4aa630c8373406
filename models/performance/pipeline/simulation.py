"""When every pass of a schedule starts and ends: each as early as its device and its input allow (a longest path).

A pass starts when the pass before it on its device has ended and its input has arrived. An output arrives its transfer
after it is ready, and after that the link has carried the output before. All is vectorised over candidates and over
passes that do not wait for one another: P passes cost O(P) per candidate, in about 2 (N + p) v steps.
"""

from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from models.performance.pipeline.schedule import PassGraph, PassKind, Schedule, pass_graph
from models.performance.pipeline.times import PassTimes, StageTimes, pass_times
from stowplan.arrays import FloatArray, IntArray


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Timeline:
    """Passes of a schedule in time; K kinds of passes, V virtual stages, N micro-batches, p devices.

    Attributes
    ----------
    start_s, end_s
        (..., K, V, N) from the start of the iteration; where transfers block, `end_s` is when the output has arrived.
    makespan_s
        (...) the end of the last pass.
    last_backward_s
        (..., V) when a virtual stage has the gradients of its weights: what follows may hide until the makespan.
    bubble_fraction
        (...) share of the devices' time in which they neither compute nor wait for a transfer that blocks.
    """

    schedule: Schedule
    start_s: FloatArray
    end_s: FloatArray
    makespan_s: FloatArray
    last_backward_s: FloatArray
    bubble_fraction: FloatArray

    def of_device(self, device: int) -> tuple[IntArray, FloatArray, FloatArray]:
        """Passes of a device in their order: (n, 3) kind, virtual stage, micro-batch; start and end, (..., n)."""
        order = self.schedule.order(device)
        at = (..., *order.T)
        return order, self.start_s[at], self.end_s[at]


def simulate(schedule: Schedule, times: StageTimes) -> Timeline:
    """Time all passes.

    Raises
    ------
    InputError
        When the last axis of `times` is not that of the schedule's virtual stages, or there are more than 2^21 passes.
    """
    graph, of_passes = pass_graph(schedule), pass_times(schedule, times)
    end, _ = pass_ends(graph, of_passes)
    duration = of_passes.duration_s[:, :, None]
    end_s = end[graph.index]
    makespan_s = end_s.max(axis=(0, 1, 2))
    work_s = of_passes.duration_s.sum(axis=(0, 1)) * schedule.num_micro_batches
    all_s = schedule.num_devices * makespan_s
    idle = np.divide(all_s - work_s, all_s, out=np.zeros_like(all_s), where=all_s > 0)

    def shaped(values: FloatArray) -> FloatArray:
        return np.moveaxis(values, -1, 0).reshape((*of_passes.shape, *values.shape[:-1]))

    return Timeline(
        schedule=schedule,
        start_s=shaped(end_s - duration),
        end_s=shaped(end_s),
        makespan_s=shaped(makespan_s),
        last_backward_s=shaped(end_s[PassKind.BACKWARD :].max(axis=(0, 2))),
        bubble_fraction=shaped(idle),
    )


def pass_ends(graph: PassGraph, times: PassTimes) -> tuple[FloatArray, FloatArray]:
    """When the passes of a graph end, and when their outputs have arrived, (P, C) each."""
    num_virtual, num_candidates = times.duration_s.shape[1:]
    duration = times.duration_s.reshape(-1, num_candidates)
    row = graph.kind * num_virtual + graph.stage
    # The last row is nothing, which ends at 0.
    end = np.zeros((len(row) + 1, num_candidates))
    arrived = end
    transfer = None
    if times.transfer_s is not None:
        transfer, arrived = times.transfer_s.reshape(-1, num_candidates), np.zeros_like(end)
    for first, last in pairwise(graph.levels):
        now = end[first:last]
        np.maximum(end[graph.before[first:last]], arrived[graph.needs[first:last]], out=now)
        now += duration[row[first:last]]
        if transfer is not None:
            np.maximum(now, arrived[graph.sent_before[first:last]], out=arrived[first:last])
            arrived[first:last] += transfer[row[first:last]]
    return end[:-1], arrived[:-1]
