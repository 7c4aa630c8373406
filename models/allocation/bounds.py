"""Bounds of a job that no allocation policy can plan with. Light: imports no solver and no modelling layer."""

from models.wording import counted
from models.workload import Adaptivity, Job
from stowplan.errors import Issue


def bound_issues(pointer: str, job: Job) -> list[Issue]:
    """Faults of counts and GPU types; `pointer` is the job's."""
    issues = type_issues(pointer, job)
    if job.adaptivity is not Adaptivity.RIGID or job.max_gpus in (None, job.min_gpus):
        return issues
    fault = Issue(
        code="rigid_bounds",
        pointer=f"{pointer}/max_gpus",
        detail=f"job {job.id!r} is rigid: it needs exactly min_gpus = {counted(job.min_gpus, 'GPU')}, so max_gpus "
        f"must be the same or left out, not {job.max_gpus}",
    )
    return [fault, *issues]


def type_issues(pointer: str, job: Job) -> list[Issue]:
    """A choice of GPU types without any; `pointer` is the job's."""
    if job.gpu_types != ():
        return []
    return [
        Issue(
            code="no_gpu_type",
            pointer=f"{pointer}/gpu_types",
            detail=f"job {job.id!r} allows no GPU type; name at least one, or leave the field out for any",
        )
    ]
