"""What can be wrong with a snapshot under ElasticFlow. Light: imports no solver and no modelling layer."""

from collections.abc import Iterator

from models.allocation.admission import weight_issues
from models.allocation.bounds import bound_issues
from models.allocation.elasticflow.parameters import ElasticFlowParameters
from models.allocation.work_left import work_issues
from models.performance.goodput.check import performance_issues
from models.performance.goodput.spec import ThroughputTable
from models.placement.occupancy import occupancy
from models.workload import Job, Snapshot
from stowplan.errors import Issue


def policy_issues(snapshot: Snapshot, parameters: ElasticFlowParameters) -> list[Issue]:  # noqa: ARG001 - every policy's
    """Every error and warning of this snapshot; pointers as in `snapshot_issues`."""
    gpu_types = {kind.name for kind in snapshot.cluster.gpu_types}
    pinned = occupancy(snapshot).pinned
    issues: list[Issue] = []
    for k, job in enumerate(snapshot.jobs):
        pointer = f"/jobs/{k}"
        issues += bound_issues(pointer, job)
        if job.performance is not None:
            issues += performance_issues(job.performance, f"{pointer}/performance", gpu_types)
        if job.id not in pinned:
            issues += _job_issues(pointer, job)
            if job.deadline_s is not None:
                issues += work_issues(pointer, job, "a deadline")
    weights = {k: job.weight for k, job in enumerate(snapshot.jobs) if job.deadline_s is not None and job.weight > 0}
    return [*issues, *weight_issues(snapshot.jobs, weights, "deadline")]


def _job_issues(pointer: str, job: Job) -> Iterator[Issue]:
    if job.reservation is not None:
        yield Issue(
            code="reservation_not_supported",
            pointer=f"{pointer}/reservation",
            detail=f"job {job.id!r} has a reservation; ElasticFlow gives GPUs by deadlines: give it a deadline_s, and "
            "min_gpus, max_gpus and gpu_types",
        )
    if job.performance is None:
        yield Issue(
            code="missing_performance",
            pointer=f"{pointer}/performance",
            detail=f"job {job.id!r} says nothing of its speed; give a throughput table",
        )
    elif not isinstance(job.performance, ThroughputTable):
        yield Issue(
            code="throughput_table_required",
            pointer=f"{pointer}/performance",
            detail=f"ElasticFlow compares samples/s at a fixed batch: job {job.id!r} needs a throughput table",
        )
