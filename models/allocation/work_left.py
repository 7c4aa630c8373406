"""How much is left of a job, where a plan goes by it. Light: imports no solver and no modelling layer."""

from collections.abc import Iterator, Sequence

import numpy as np

from models.performance.goodput.spec import GoodputModel, GoodputObservations, GoodputTable, ThroughputTable
from models.workload import Job
from stowplan.arrays import FloatVector
from stowplan.errors import Issue


def batch_size(job: Job) -> int | None:
    """Samples of an iteration by the job's model, or else by its throughput table; None where neither says."""
    if job.model is not None:
        return job.model.global_batch
    return job.performance.batch_size if isinstance(job.performance, ThroughputTable) else None


def samples_left(jobs: Sequence[Job]) -> FloatVector:
    """Samples (J,) of the remaining iterations, 0 where these or the batch are not known."""
    return np.array([(batch_size(job) or 0) * (job.remaining_iterations or 0.0) for job in jobs], dtype=np.float64)


def remaining_samples(job: Job) -> float | None:
    """The same of one job, None where it is not known; where goodput is modelled, in steps of the initial batch."""
    if job.remaining_iterations is None or isinstance(job.performance, GoodputTable):
        return None
    if isinstance(job.performance, GoodputModel | GoodputObservations):
        return job.performance.batch.initial * job.remaining_iterations
    samples = batch_size(job)
    return None if samples is None else samples * job.remaining_iterations


def residual_s(job: Job) -> float | None:
    """Mean of the seconds that a job lasts from now, or from its start while it waits (mean residual life), by its
    distribution or else what is said; None where nobody knows."""
    life_s = job.remaining_s if job.lasting is None else job.lasting.mean_s
    # 0 says that it is overdue.
    return life_s or None


def work_issues(pointer: str, job: Job, whose: str) -> Iterator[Issue]:
    """What is missing to know the work that is left; `pointer` is the job's, `whose` what goes by it."""
    if job.remaining_iterations is None:
        yield Issue(
            code="missing_remaining_iterations",
            pointer=f"{pointer}/remaining_iterations",
            detail=f"{whose} needs to know how many iterations job {job.id!r} has left",
        )
    if isinstance(job.performance, ThroughputTable) and job.model is None and job.performance.batch_size is None:
        yield Issue(
            code="missing_batch_size",
            pointer=f"{pointer}/performance/batch_size",
            detail=f"{whose} needs the samples of an iteration of job {job.id!r}",
        )
