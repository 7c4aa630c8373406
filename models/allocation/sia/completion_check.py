"""What a plan is worth under the objective `completion_time`, computed again. Shares no code with `completion`."""

import math
from bisect import bisect_left
from collections.abc import Sequence
from itertools import accumulate
from statistics import median

import numpy as np

from models.allocation.sia.parameters import SiaParameters
from models.performance.goodput.spec import GoodputTable, ThroughputTable
from models.workload import Job
from stowplan.arrays import FloatVector

_LEAST_HELD = 3.0
_FLOOR = 0.01


class CompletionAudit:
    """Evaluates jobs among all jobs.

    Parameters
    ----------
    jobs
        All jobs.
    speeds
        Of every job its speeds (C,), 0 where it cannot run, and the goodput that is speed 1; None: it cannot run.
    kept
        Of every job the configuration in which it may stay, -1 for none.
    runs
        Which jobs run now.
    parameters
        Those of the plan.
    """

    def __init__(
        self,
        jobs: Sequence[Job],
        speeds: Sequence[tuple[FloatVector, float] | None],
        kept: Sequence[int],
        runs: Sequence[bool],
        parameters: SiaParameters,
    ) -> None:
        self._parameters = parameters
        able = {
            job.id: (job, known, stay, moves)
            for job, known, stay, moves in zip(jobs, speeds, kept, runs, strict=True)
            if known is not None
        }
        ratios = {
            name: left / known[1] / job.weight
            for name, (job, known, _, _) in able.items()
            if (left := _samples(job)) is not None
        }
        typical = median(ratios.values()) if ratios else 0.0
        keys = {name: ratios.get(name, typical) for name in able}
        order = sorted(keys, key=lambda name: keys[name])
        before = [0.0, *accumulate(able[name][0].weight for name in order)]
        ascending = [keys[name] for name in order]
        self._rows: dict[str, FloatVector] = {}
        for name, (job, (speed, _), stay, moves) in able.items():
            share = 1.0 - before[bisect_left(ascending, keys[name])] / before[-1]
            row = share * speed
            left_s = keys[name] * job.weight
            for c in np.flatnonzero(speed).tolist():
                if moves and c != stay:
                    row[c] *= self._lasting(job, left_s / float(speed[c]))
            self._rows[name] = row
        self._most = math.fsum(float(row.max(initial=0.0)) for row in self._rows.values())

    def utility(self, job: Job, c: int) -> float:
        """What configuration c adds."""
        return float(self._rows[job.id][c]) if job.id in self._rows else math.nan

    def left_out(self, job: Job) -> float:
        """What leaving the job out takes off."""
        longest_s = self._parameters.longest_wait_s
        return 1.0 + self._most if longest_s is not None and job.age_s >= longest_s else 0.0

    def _lasting(self, job: Job, left_s: float) -> float:
        """The share of the time on other GPUs in which the job works there."""
        cost_s = self._parameters.restart_price * job.restart_cost_s
        if cost_s == 0:
            return 1.0
        held_s = min(cost_s + left_s, max(job.age_s / (1 + job.num_restarts), _LEAST_HELD * cost_s))
        return max(_FLOOR, 1.0 - cost_s / held_s)


def _samples(job: Job) -> float | None:
    """What is left of the job, in samples."""
    if job.remaining_iterations is None or isinstance(job.performance, GoodputTable):
        return None
    if isinstance(job.performance, ThroughputTable):
        each = job.performance.batch_size
    elif job.performance is not None:
        each = job.performance.batch.initial
    else:
        each = job.model.global_batch if job.model is not None else None
    return None if each is None else each * job.remaining_iterations
