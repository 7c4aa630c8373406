"""Figures of a replay, over all jobs that were submitted. What did not end by the horizon is censored: it counts until
then."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from executor.simulation.backend import Progress
from stowplan.arrays import FloatVector

_S_PER_HOUR = 3600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRecord:
    """A job, with times of the replay.

    ended_s: None where it is censored; completion_s: from submission to end or horizon, waited_s of which it had no
    GPUs. num_restarts: how often it got GPUs again, or others; num_failures: how often it broke. gpu_s: GPU seconds of
    it. alone_s: from submission to end with the cluster to itself.
    """

    id: str
    num_gpus: int
    submitted_s: float
    started_s: float | None
    ended_s: float | None
    completion_s: float
    waited_s: float
    num_restarts: int
    num_failures: int
    gpu_s: float
    alone_s: float


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

    completion_s: from submission to end (JCT); waited_s: queueing. floor_completion_s: mean of the jobs each alone on
    the cluster, which no policy can be below. makespan_s: from the first submission to the last end, or the horizon
    where jobs are censored. utilisation: share of GPU time in which a GPU had a job, until then. gpu_hours: of jobs.
    restarts: a job on average. num_left_out: jobs of the trace that were no part of the replay. other_cpu_s: CPU time
    of the replay beside planning.
    """

    trace: str
    policy: str
    seed: int
    num_gpus: int
    horizon_s: float | None
    num_jobs: int
    num_finished: int
    num_left_out: int
    completion_s: Distribution
    floor_completion_s: float
    waited_s: Distribution
    makespan_s: float
    utilisation: float
    gpu_hours: float
    restarts: float
    failures: int
    decisions: DecisionFigures
    other_cpu_s: float
    jobs: tuple[JobRecord, ...]


def job_record(progress: Progress, num_gpus: int, end_s: float, alone_s: float) -> JobRecord:
    """What became of a job; `end_s` of the replay."""
    completion_s = (end_s if progress.ended_s is None else progress.ended_s) - progress.submitted_s
    return JobRecord(
        id=progress.job_id,
        num_gpus=num_gpus,
        submitted_s=progress.submitted_s,
        started_s=progress.started_s,
        ended_s=progress.ended_s,
        completion_s=completion_s,
        waited_s=max(0.0, completion_s - progress.held_s),
        num_restarts=max(0, progress.num_starts - 1),
        num_failures=progress.num_failures,
        gpu_s=progress.gpu_s,
        alone_s=alone_s,
    )


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
