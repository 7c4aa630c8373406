"""What is said of jobs that wait for longer than they should."""

from collections.abc import Iterable, Iterator, Sequence

from models.workload import Job
from stowplan.errors import Issue, Severity


def wait_warnings(jobs: Sequence[Job], left_out: Iterable[int], longest_s: float) -> Iterator[Issue]:
    """Warn of jobs that a plan leaves out, `left_out`, though they were to wait no longer than `longest_s`."""
    for i in left_out:
        yield Issue(
            code="waits_too_long",
            pointer=f"/jobs/{i}/age_s",
            detail=f"job {jobs[i].id!r} was submitted {jobs[i].age_s:.0f} s ago and waits on; longest_wait_s is "
            f"{longest_s:g}",
            severity=Severity.WARNING,
        )
