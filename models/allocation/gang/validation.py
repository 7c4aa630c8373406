"""What can be wrong with a snapshot under gang. Light: imports no solver and no modelling layer.

More demand than there are GPUs, or a job that fits nowhere, is no fault of the input: such jobs are unplaced, with the
reason.
"""

from collections.abc import Iterator

from models.allocation.bounds import type_issues
from models.allocation.gang.parameters import Backfill, GangParameters
from models.allocation.quota_warnings import queue_warnings
from models.wording import counted
from models.workload import Job, Snapshot
from stowplan.errors import Issue, Severity


def policy_issues(snapshot: Snapshot, parameters: GangParameters) -> list[Issue]:
    """Every error and warning of this snapshot under these parameters; pointers as in `snapshot_issues`."""
    issues = [issue for k, job in enumerate(snapshot.jobs) for issue in _job_issues(f"/jobs/{k}", job)]
    return [*issues, *_time_warnings(snapshot, parameters), *queue_warnings(snapshot, parameters.quotas)]


def _job_issues(pointer: str, job: Job) -> Iterator[Issue]:
    yield from type_issues(pointer, job)
    if job.reservation is not None:
        yield Issue(
            code="reservation_not_supported",
            pointer=f"{pointer}/reservation",
            detail=f"job {job.id!r} has a reservation; gang starts jobs in order: give it a smaller priority, and "
            "gpu_types",
        )
    held = sum(len(part.gpus) for part in job.current or ())
    if job.current and held != job.min_gpus:
        yield Issue(
            code="size_mismatch",
            pointer=f"{pointer}/min_gpus",
            detail=f"job {job.id!r} runs on {counted(held, 'GPU')} and keeps them; should it have to start again, its "
            f"size is min_gpus = {job.min_gpus}",
            severity=Severity.WARNING,
        )


def _time_warnings(snapshot: Snapshot, parameters: GangParameters) -> Iterator[Issue]:
    """Jobs whose end is not known, where backfill goes by it."""
    if parameters.backfill is Backfill.NONE or parameters.default_remaining_s is not None:
        return
    silent = [k for k, job in enumerate(snapshot.jobs) if job.remaining_s is None]
    if silent:
        yield Issue(
            code="unknown_remaining_s",
            pointer=f"/jobs/{silent[0]}/remaining_s",
            detail=f"is not given for {counted(len(silent), 'job')}: nobody can be promised their GPUs, and they are "
            "backfilled only where they are in nobody's way; give it, or the parameter default_remaining_s",
            severity=Severity.WARNING,
        )
