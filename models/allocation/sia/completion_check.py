"""What a plan is worth under the objective `completion_time`, computed again. Shares no code with `completion`."""

import math
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
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
        self._known = {
            name: _Known(
                job=job,
                speed=speed,
                share=1.0 - before[bisect_left(ascending, keys[name])] / before[-1],
                left_s=keys[name] * job.weight,
                kept=stay,
                runs=moves,
            )
            for name, (job, (speed, _), stay, moves) in able.items()
        }

    def utility(self, job: Job, c: int) -> float:
        """What configuration c adds."""
        known = self._known.get(job.id)
        return math.nan if known is None else float(self._values(known)[c])

    def left_out(self, job: Job) -> float:
        """What leaving the job out takes off."""
        longest_s = self._parameters.longest_wait_s
        return self._more_than_all if longest_s is not None and job.age_s >= longest_s else 0.0

    @cached_property
    def _more_than_all(self) -> float:
        return 1.0 + math.fsum(float(self._values(known).max()) for known in self._known.values())

    def _values(self, known: "_Known") -> FloatVector:
        """What every configuration (C,) adds."""
        values = known.share * known.speed
        cost_s = self._parameters.restart_price * known.job.restart_cost_s
        if not known.runs or cost_s == 0:
            return values
        held_s = max(known.job.age_s / (1 + known.job.num_restarts), _LEAST_HELD * cost_s)
        ends_s = known.left_s / np.where(known.speed > 0, known.speed, 1.0)
        lasting = np.maximum(_FLOOR, 1.0 - cost_s / np.minimum(cost_s + ends_s, held_s))
        if known.kept >= 0:
            lasting[known.kept] = 1.0
        return np.asarray(values * lasting)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Known:
    """A job that can run. speed: (C,). share: of weight that waits for it. left_s: on its slowest GPU. kept: the
    configuration in which it may stay, -1 for none."""

    job: Job
    speed: FloatVector
    share: float
    left_s: float
    kept: int
    runs: bool


def _samples(job: Job) -> float | None:
    """What is left of the job, in samples."""
    if job.remaining_iterations is None or isinstance(job.performance, GoodputTable):
        return None
    table_batch = getattr(job.performance, "batch_size", None)
    each = table_batch if job.model is None else job.model.global_batch
    if job.performance is not None and not isinstance(job.performance, ThroughputTable):
        each = job.performance.batch.initial
    return None if each is None else each * job.remaining_iterations
