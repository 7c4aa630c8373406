"""What is said of queues beside quotas. Light: imports no solver and no modelling layer."""

from collections.abc import Iterator, Mapping

from models.wording import counted
from models.workload import Snapshot
from stowplan.errors import Issue, Severity


def queue_warnings(snapshot: Snapshot, quotas: Mapping[str, int]) -> Iterator[Issue]:
    """Queues without a quota beside some that have one: said once, at the first job."""
    if not quotas:
        return
    unlimited = [k for k, job in enumerate(snapshot.jobs) if job.queue is not None and job.queue not in quotas]
    if unlimited:
        yield Issue(
            code="queue_without_quota",
            pointer=f"/jobs/{unlimited[0]}/queue",
            detail=f"is {snapshot.jobs[unlimited[0]].queue!r}, which has no quota, and so are the queues of "
            f"{counted(len(unlimited), 'job')} in all; there are quotas for {sorted(quotas)}",
            severity=Severity.WARNING,
        )
