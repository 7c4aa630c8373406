"""How much is left of a job, where a plan goes by it. Light: imports no solver and no modelling layer."""

from collections.abc import Iterator

from models.performance.goodput.spec import ThroughputTable
from models.workload import Job
from stowplan.errors import Issue


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
