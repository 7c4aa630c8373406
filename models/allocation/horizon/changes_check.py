"""What is left of jobs, and what their starts and changes lose, for the check: recomputed job by job, by the rules in
`instance`, `backlog` and `changes`."""

import math
from collections.abc import Callable, Container, Mapping, Sequence
from statistics import median

from models.allocation.horizon.outlook import Shape
from models.allocation.work_left import remaining_samples
from models.workload import Job

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


def work_left(jobs: Sequence[Job], speeds: Mapping[str, Mapping[Shape, float]]) -> Mapping[str, float]:
    """What is left of every job, in the unit of its goodput."""
    unit = {
        name: min(known.values()) / min(shape[2] for shape in known) if known else 0.0 for name, known in speeds.items()
    }
    said = {job.id: samples for job in jobs if (samples := remaining_samples(job)) is not None}
    ratios = [said[job.id] / unit[job.id] / job.weight for job in jobs if job.id in said and unit[job.id] * job.weight]
    typical = median(ratios) if ratios else 1.0
    return {job.id: said.get(job.id, unit[job.id] * max(typical * job.weight, job.attained_gpu_s)) for job in jobs}


def together_s(able: Mapping[Shape, float], usable: Mapping[str, int]) -> float:
    """How long all GPUs, `usable` by type, take for a job of which so much is left, each as fast as where it helps
    most; 0 where it cannot run."""
    least: dict[str, float] = {}
    for (gpu_type, _, num_gpus, _), time_s in able.items():
        least[gpu_type] = min(least.get(gpu_type, math.inf), time_s * num_gpus)
    per_s = math.fsum(usable[gpu_type] / gpu_s for gpu_type, gpu_s in least.items() if gpu_s > 0)
    return 1.0 / per_s if per_s > 0 else 0.0
