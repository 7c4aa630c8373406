"""What a plan of `horizon` is worth, for the check: recomputed job by job from the times at which schedules end."""

import math
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate

from models.allocation.horizon.parameters import HorizonParameters
from models.workload import Job, Snapshot

# Relative: jobs with as much left by weight, however that was rounded.
_EQUAL = 1e-9
Key = tuple[str, str | None]
"""Term and job."""


class Worth:
    """The terms of the objective. fair_s: how long what is left of a job takes on its share of the cluster, by id, for
    jobs of which that is known; see `fair_share`. together_s: how long all GPUs take for it, by id of those that are
    planned. horizon_s: when the last interval ends."""

    def __init__(
        self,
        snapshot: Snapshot,
        parameters: HorizonParameters,
        fair_s: Mapping[str, float],
        together_s: Mapping[str, float],
        horizon_s: float,
    ) -> None:
        self._parameters = parameters
        self._jobs = {job.id: job for job in snapshot.jobs}
        self._all_weight = math.fsum(job.weight for job in snapshot.jobs)
        share = fair_share(snapshot)
        power = parameters.fairness
        per_s = {}
        for job in snapshot.jobs:
            left_s = fair_s.get(job.id, 0.0)
            whole_s = max(parameters.interval_s, left_s + job.attained_gpu_s / share)
            per_s[job.id] = whole_s**-power if left_s > 0 or power == 0 else 0.0
        mean = math.fsum(self.weight(job) * per_s[job.id] for job in snapshot.jobs)
        self._counted = {name: value / mean if mean > 0 else 1.0 for name, value in per_s.items()}
        self._horizon_s, self._lost_s = horizon_s, self._backlog(together_s)

    def _backlog(self, together_s: Mapping[str, float]) -> Mapping[str, float]:
        """What all jobs lose with the whole work of each, where that is counted: they wait for those with no more."""
        efficiency = self._parameters.backlog_efficiency
        if efficiency is None:
            return {}
        value = {name: self.weight(self._jobs[name]) * self._counted[name] for name in together_s}
        ratio = {name: time_s / value[name] for name, time_s in together_s.items() if time_s > 0 and value[name] > 0}
        ordered = sorted(ratio, key=ratio.__getitem__)
        ratios = [ratio[name] for name in ordered]
        behind = [*accumulate(value[name] for name in reversed(ordered))]
        return {
            name: together_s[name] / efficiency * behind[len(ordered) - bisect_left(ratios, own * (1 - _EQUAL)) - 1]
            for name, own in ratio.items()
        }

    def weight(self, job: Job) -> float:
        """What a second of the job is worth."""
        return job.weight / self._all_weight if self._all_weight > 0 else 0.0

    def terms(self, job: Job, ends_s: Sequence[tuple[float, float]], left: float | None) -> Iterator[tuple[str, float]]:
        """Of a job that ends at times with shares; `left`: of its work at the horizon, None where it goes on alone."""
        it, weight = self._parameters, self.weight(job)
        latest_s = math.inf if left is None else self._horizon_s
        mean_s = math.fsum(share * min(latest_s, end_s) for share, end_s in ends_s)
        behind_s = (left or 0.0) * self._lost_s.get(job.id, 0.0)
        yield "completion_time", (1.0 - it.tail) * (weight * self._counted[job.id] * mean_s + behind_s)
        due_s = job.deadline_s
        if it.lateness > 0 and due_s is not None:
            late_s = math.fsum(share * max(0.0, end_s - due_s) for share, end_s in ends_s)
            yield "lateness", it.lateness * weight * late_s

    def lost(self, job: Job, fastest_s: float, done: float) -> Iterator[tuple[str, float]]:
        """Of a job that has done a part of what is left when the first interval ends, and would take `fastest_s` for
        all of it."""
        it = self._parameters
        if it.throughput > 0:
            lost_s = min(fastest_s, it.interval_s) - done * fastest_s
            yield "lost_throughput", it.throughput * self.weight(job) * max(0.0, lost_s)

    def tail(self, ends_s: Mapping[str, float]) -> Iterator[tuple[Key, float]]:
        """Of jobs that end at times on average: the mean of the longest of all weight, piece by piece."""
        it = self._parameters
        if it.tail == 0:
            return
        times = sorted(
            (
                (self._counted[name] * (self._jobs[name].age_s + end_s), self.weight(self._jobs[name]))
                for name, end_s in ends_s.items()
            ),
            reverse=True,
        )
        left = whole = 1.0 - it.tail_level
        value_s = 0.0
        for time_s, weight in times:
            part = min(left, weight)
            value_s += part * time_s
            left -= part
        yield ("tail", None), it.tail * value_s / whole

    def most(self, latest_s: Mapping[str, float]) -> float:
        """What all terms add up to at most, where no job ends later than at `latest_s`."""
        jobs = self._jobs
        found = [value for name, end_s in latest_s.items() for _, value in self.terms(jobs[name], [(1.0, end_s)], None)]
        found.append((1.0 - self._parameters.tail) * math.fsum(self._lost_s.values()))
        if self._parameters.throughput > 0:
            weight = math.fsum(self.weight(job) for job in jobs.values())
            found.append(self._parameters.throughput * self._parameters.interval_s * weight)
        if self._parameters.tail > 0:
            longest_s = (self._counted[name] * (jobs[name].age_s + end_s) for name, end_s in latest_s.items())
            found.append(self._parameters.tail * max(longest_s, default=0.0))
        return math.fsum(found)


def fair_share(snapshot: Snapshot) -> float:
    """GPUs of the cluster for each job, at least one."""
    num_gpus = sum(node.num_gpus for node in snapshot.cluster.nodes)
    return max(1.0, num_gpus / max(1, len(snapshot.jobs)))
