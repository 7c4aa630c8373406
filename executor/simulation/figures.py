"""Figures of a replay, over all jobs that were submitted. What did not end by the horizon is censored: it counts until
then."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from executor.simulation.progress import Progress, Span
from stowplan.arrays import FloatVector

_S_PER_HOUR = 3600.0
_LEAST_S = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRecord:
    """A job, with times of the replay.

    num_gpus: what it asked for. ended_s: None where it is censored; completion_s: from submission to end or horizon,
    waited_s of which it had no GPUs. restarts: how often it got GPUs again, or others, by `Change` (started: it had
    none); num_failures: how often it broke. gpu_s: GPU seconds of it. alone_s: from submission to end with the cluster
    to itself. met_deadline: None where it has none. unfairness: time to completion over
    `fair_completion_s` (finish-time fairness). spans: which GPUs it had when.
    """

    id: str
    num_gpus: int
    submitted_s: float
    started_s: float | None
    ended_s: float | None
    completion_s: float
    waited_s: float
    restarts: Mapping[str, int]
    num_failures: int
    gpu_s: float
    alone_s: float
    met_deadline: bool | None
    unfairness: float
    spans: tuple[Span, ...] = ()

    @property
    def num_restarts(self) -> int:
        """Of all kinds."""
        return sum(self.restarts.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class Distribution:
    """Of a figure over jobs or decisions; all 0 where there are none."""

    mean: float
    median: float
    p95: float
    p99: float
    most: float


@dataclass(frozen=True, slots=True, kw_only=True)
class DecisionFigures:
    """How often the policy was asked, and not asked because no plan could have changed anything or no round was due.
    cpu_s: CPU seconds of planning."""

    num_planned: int
    num_skipped: int
    total_cpu_s: float
    cpu_s: Distribution


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayResult:
    """What a policy made of a trace.

    parameters: those of the policy that are not as usual. completion_s: from submission to end (JCT),
    weighted_completion_s its mean by GPUs asked for; waited_s: queueing. floor_completion_s: mean of the jobs each
    alone on the cluster, until the horizon like all others: no policy can be below. makespan_s: from the first
    submission to the last end, or the horizon where jobs are censored. utilisation: share of GPU time in which a
    GPU had a job, until then. gpu_hours: of jobs. restarts: of a job on average, by `Change`. num_deadlines: jobs
    that have one, num_deadlines_met of which ended in time. most_unfair: the largest unfairness of a job,
    unfair_share: how many jobs are above 1. num_left_out: jobs of the trace that were no part of the replay.
    other_cpu_s: CPU time of the replay beside planning. stopped_s: when it was stopped before its end, which counts as
    the horizon then.
    """

    trace: str
    policy: str
    parameters: Mapping[str, str]
    seed: int
    num_gpus: int
    horizon_s: float | None
    num_jobs: int
    num_finished: int
    num_left_out: int
    completion_s: Distribution
    weighted_completion_s: float
    floor_completion_s: float
    waited_s: Distribution
    makespan_s: float
    utilisation: float
    gpu_hours: float
    restarts: Mapping[str, float]
    failures: int
    num_deadlines: int
    num_deadlines_met: int
    most_unfair: float
    unfair_share: float
    decisions: DecisionFigures
    other_cpu_s: float
    jobs: tuple[JobRecord, ...]
    stopped_s: float | None = None

    @property
    def name(self) -> str:
        """The policy, with what is unusual about it."""
        return ", ".join([self.policy, *(f"{key} {value}" for key, value in self.parameters.items())])

    @property
    def num_restarts(self) -> float:
        """Of a job on average, of all kinds."""
        return math.fsum(self.restarts.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What a job asked for, and what it would reach alone on `alone_gpus`: see `JobRecord`. deadline_s counts from the
    submission."""

    num_gpus: int
    alone_s: float
    alone_gpus: int
    deadline_s: float | None = None


def job_records(
    progresses: Sequence[Progress], asked: Mapping[str, Asked], end_s: float, num_gpus: int
) -> tuple[JobRecord, ...]:
    """What became of the jobs; `end_s` of the replay, on a cluster of `num_gpus`."""
    ends_s = [end_s if progress.ended_s is None else progress.ended_s for progress in progresses]
    present = mean_present([progress.submitted_s for progress in progresses], ends_s).tolist()
    return tuple(
        _job_record(
            progress, asked[progress.job_id], ends_s[k], fair_completion_s(asked[progress.job_id], num_gpus, present[k])
        )
        for k, progress in enumerate(progresses)
    )


def _job_record(progress: Progress, asked: Asked, end_s: float, fair_s: float) -> JobRecord:
    completion_s = end_s - progress.submitted_s
    deadline_s = asked.deadline_s
    return JobRecord(
        id=progress.job_id,
        num_gpus=asked.num_gpus,
        submitted_s=progress.submitted_s,
        started_s=progress.started_s,
        ended_s=progress.ended_s,
        completion_s=completion_s,
        waited_s=max(0.0, completion_s - progress.held_s),
        restarts=progress.restarts,
        num_failures=progress.num_failures,
        gpu_s=progress.gpu_s,
        alone_s=asked.alone_s,
        met_deadline=None if deadline_s is None else progress.ended_s is not None and completion_s <= deadline_s,
        unfairness=completion_s / fair_s,
        spans=progress.spans,
    )


def fair_completion_s(asked: Asked, num_gpus: int, present: float) -> float:
    """How long a job takes on its share of the cluster, where `present` jobs are there on average while it is.

    Themis (NSDI'20) divides the time that a job takes by this: above 1 it would have fared better with a share of its
    own. A job that wants more GPUs than its share is taken to slow down in proportion, and one that takes less than a
    second to take one.
    """
    share = num_gpus / max(1.0, present)
    return max(_LEAST_S, asked.alone_s) * max(1.0, asked.alone_gpus / share)


def mean_present(submitted_s: Sequence[float], ends_s: Sequence[float]) -> FloatVector:
    """Jobs that are there on average from the submission of each to its end."""
    starts: FloatVector = np.array(submitted_s, dtype=np.float64)
    ends: FloatVector = np.array(ends_s, dtype=np.float64)
    if not starts.size:
        return starts
    times = np.concatenate([starts, ends])
    order = np.argsort(times, kind="stable")
    times = times[order]
    present = np.cumsum(np.concatenate([np.ones(starts.size), -np.ones(ends.size)])[order])
    # The integral of the number of jobs up to each time.
    until = np.concatenate([[0.0], np.cumsum(present[:-1] * np.diff(times))])
    whole = np.interp(ends, times, until) - np.interp(starts, times, until)
    return np.where(ends > starts, whole / np.where(ends > starts, ends - starts, 1.0), 1.0)


def distribution(values: Iterable[float]) -> Distribution:
    """How values are spread."""
    given: FloatVector = np.array(list(values), dtype=np.float64)
    if not given.size:
        return Distribution(mean=0.0, median=0.0, p95=0.0, p99=0.0, most=0.0)
    median, p95, p99 = np.percentile(given, [50, 95, 99])
    return Distribution(
        mean=float(given.mean()), median=float(median), p95=float(p95), p99=float(p99), most=float(given.max())
    )


def makespan_of(jobs: Sequence[JobRecord]) -> float:
    """From the first submission to the last end."""
    if not jobs:
        return 0.0
    return max(job.submitted_s + job.completion_s for job in jobs) - min(job.submitted_s for job in jobs)


def hours(gpu_s: Iterable[float]) -> float:
    """GPU hours of GPU seconds."""
    return math.fsum(gpu_s) / _S_PER_HOUR
