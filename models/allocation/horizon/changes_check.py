"""What is left of jobs, and what their starts and changes lose, for the check: recomputed job by job, by the rules in
`instance`, `backlog` and `changes`."""

import math
from collections.abc import Callable, Container, Mapping, Sequence
from statistics import median

from models.allocation.horizon.outlook import Shape
from models.allocation.work_left import remaining_samples, residual_s
from models.workload import Job

NOWHERE: Shape = ("", 0, 0, 0.0)
# A job is taken to hold GPUs for so many times what the change to them costs, however young it is.
_LEAST_HELD = 3.0


class Changes:
    """Of jobs, some of which run, by id. seconds: what is left, by job and shape; kept: the shape in which a job may
    stay, of all `shapes` that there are."""

    def __init__(
        self,
        price: float,
        runs: Container[str],
        seconds: Mapping[str, Mapping[Shape, float]],
        kept: Callable[[Job], Shape | None],
        shapes: Container[Shape],
    ) -> None:
        self._price = price
        self._runs = runs
        self._seconds = seconds
        self._kept = kept
        self._shapes = shapes

    def first_start_s(self, job: Job) -> float:
        """What it pays before it works at all: the price of a change where it runs and cannot go on as it is."""
        moves = job.id in self._runs and self._kept(job) not in self._seconds[job.id]
        return job.restart_cost_s * (self._price if moves else 1.0)

    def start_s(self, job: Job, horizon_s: float) -> float:
        """What its first GPUs cost, or other ones."""
        return self.change_s(job, horizon_s) if job.id in self._runs else job.restart_cost_s

    def change_s(self, job: Job, horizon_s: float) -> float:
        """What a change costs with those that follow it until the job ends where it is, or until the horizon."""
        once_s = job.restart_cost_s * self._price
        if once_s == 0:
            return 0.0
        seconds, kept = self._seconds[job.id], self._kept(job)
        if kept is not None and kept in self._shapes:
            left_s = seconds.get(kept, math.inf)
        else:
            left_s = min(seconds.values(), default=math.inf)
        held_s = max(job.age_s / (1 + job.num_restarts), _LEAST_HELD * once_s)
        return once_s * max(1.0, min(left_s, horizon_s) / held_s)


def work_left(
    jobs: Sequence[Job],
    speeds: Mapping[str, Mapping[Shape, float]],
    runs: Container[str],
    has: Callable[[Job], Shape | None],
) -> Mapping[str, float]:
    """What is left of every job, in the unit of its goodput; `has`: the shape of one that runs."""
    unit = {
        name: min(known.values()) / min(shape[2] for shape in known) if known else 0.0 for name, known in speeds.items()
    }
    said = {}
    for job in jobs:
        known = speeds[job.id]
        if (samples := remaining_samples(job)) is not None:
            said[job.id] = samples
        elif (life_s := residual_s(job)) is not None:
            own = job.reservation
            reserved = [known[shape] for shape in known if own and (shape[0], shape[2]) == (own.gpu_type, own.num_gpus)]
            speed = min(reserved or known.values(), default=0.0)
            if job.id in runs:
                shape, held = has(job), sum(len(part.gpus) for part in job.current or ())
                speed = known.get(shape or NOWHERE, unit[job.id] * held)
            said[job.id] = life_s * speed
    ratios = [said[job.id] / unit[job.id] / job.weight for job in jobs if job.id in said and unit[job.id] * job.weight]
    typical = median(ratios) if ratios else 1.0
    return {job.id: said.get(job.id, unit[job.id] * max(typical * job.weight, job.attained_gpu_s)) for job in jobs}


def together_s(able: Mapping[str, Mapping[Shape, float]], usable: Mapping[str, int]) -> Mapping[str, float]:
    """How long all GPUs, `usable` by type, take for jobs of which so much is left, by id; 0 where one cannot run. Types
    count by the mean of how fast jobs are on one of their GPUs, over where that is the fastest."""
    least: dict[str, dict[str, float]] = {}
    for name, known in able.items():
        of_job: dict[str, float] = {}
        for (gpu_type, _, num_gpus, _), time_s in known.items():
            if usable.get(gpu_type):
                of_job[gpu_type] = min(of_job.get(gpu_type, math.inf), time_s * num_gpus)
        if of_job and min(of_job.values()) > 0:
            least[name] = of_job
    worth = {
        gpu_type: math.fsum(min(of_job.values()) / of_job[gpu_type] for of_job in least.values() if gpu_type in of_job)
        for gpu_type in usable
    }
    # Sums stand for means: the number of jobs cancels.
    all_gpus = math.fsum(usable[gpu_type] * value for gpu_type, value in worth.items())
    found = {
        name: min(gpu_s * worth[gpu_type] for gpu_type, gpu_s in of_job.items()) / all_gpus
        for name, of_job in least.items()
    }
    return {name: found.get(name, 0.0) for name in able}
