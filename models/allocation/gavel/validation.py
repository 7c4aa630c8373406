"""What can be wrong with a snapshot under Gavel. Light: imports no solver and no modelling layer."""

from collections.abc import Iterator

from models.allocation.bounds import type_issues
from models.allocation.gavel.parameters import GavelObjective, GavelParameters
from models.allocation.work_left import work_issues
from models.performance.goodput.check import performance_issues
from models.performance.goodput.spec import ThroughputTable
from models.placement.occupancy import occupancy
from models.workload import Job, Snapshot
from stowplan.errors import Issue


def policy_issues(snapshot: Snapshot, parameters: GavelParameters) -> list[Issue]:
    """Every error and warning of this snapshot under these parameters; pointers as in `snapshot_issues`."""
    gpu_types = {kind.name for kind in snapshot.cluster.gpu_types}
    pinned = occupancy(snapshot).pinned
    issues: list[Issue] = []
    for k, job in enumerate(snapshot.jobs):
        pointer = f"/jobs/{k}"
        issues += type_issues(pointer, job)
        if job.performance is not None:
            issues += performance_issues(job.performance, f"{pointer}/performance", gpu_types)
        if job.id in pinned:
            continue
        issues += _job_issues(pointer, job)
        if parameters.objective is GavelObjective.MAKESPAN:
            issues += _work_issues(pointer, job)
    return issues


def _job_issues(pointer: str, job: Job) -> Iterator[Issue]:
    if job.reservation is not None:
        yield Issue(
            code="reservation_not_supported",
            pointer=f"{pointer}/reservation",
            detail=f"job {job.id!r} has a reservation; Gavel shares GPUs in time: give it a larger "
            "weight, and gpu_types",
        )
    if job.performance is not None and not isinstance(job.performance, ThroughputTable):
        yield Issue(
            code="throughput_table_required",
            pointer=f"{pointer}/performance",
            detail=f"Gavel compares samples/s at a fixed batch: job {job.id!r} needs a throughput table, or no "
            "performance where only its size is known",
        )


def _work_issues(pointer: str, job: Job) -> Iterator[Issue]:
    """What is left of a job, and the samples of an iteration, where the objective needs them."""
    if job.performance is None:
        if job.remaining_s is None:
            yield Issue(
                code="missing_remaining_s",
                pointer=f"{pointer}/remaining_s",
                detail=f"the objective makespan needs to know how long job {job.id!r} has to run yet, or a throughput "
                "table and remaining_iterations",
            )
    else:
        yield from work_issues(pointer, job, "the objective makespan")
