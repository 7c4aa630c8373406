"""Whose degrees of parallelism are kept, and whether a plan keeps them. Light: imports no planner.

A job that says them (`parallelism`) and may have just the GPUs that they need trains with them, and with no others.
"""

from collections.abc import Iterator

import numpy as np

from models.parallel_plan import ParallelPlan
from models.plan import Change, Plan
from models.roll import roll_of, some_say
from models.wording import counted
from models.workload import Adaptivity, Job, Parallelism, Snapshot
from stowplan.errors import Issue, Severity


def keeps_degrees(job: Job) -> bool:
    """Whether the job has degrees, a model that alone says how fast these are, and no other count of GPUs."""
    if job.parallelism is None or job.model is None or job.performance is not None:
        return False
    is_rigid = job.adaptivity is Adaptivity.RIGID or job.max_gpus == job.min_gpus
    return is_rigid and job.min_gpus == job.parallelism.num_gpus


def degrees_of(plan: ParallelPlan) -> Parallelism | None:
    """Degrees of a plan whose stages have all the same."""
    found = {Parallelism(tp=stage.tp, pp=plan.pp, dp=stage.dp) for stage in plan.stages}
    return found.pop() if len(found) == 1 else None


def degree_warnings(snapshot: Snapshot, policy: str) -> Iterator[Issue]:
    """Warn of degrees that are not kept, as the job may have other counts of GPUs, or says itself how fast it is."""
    if not some_say(snapshot, "parallelism"):
        return
    jobs = snapshot.jobs
    are_left = roll_of(snapshot).each(
        "are degrees left",
        np.bool_,
        lambda rows: (jobs[k].parallelism is not None and not keeps_degrees(jobs[k]) for k in rows),
    )
    left = np.flatnonzero(are_left).tolist()
    if left:
        first, contradicted = jobs[left[0]], ""
        if first.model is not None and first.performance is None and first.parallelism is not None:
            most = "none" if first.max_gpus is None else first.max_gpus
            contradicted = f"; of job {first.id!r} this is {first.parallelism.num_gpus}, min_gpus {first.min_gpus} and "
            contradicted += f"max_gpus {most}"
        yield Issue(
            code="ignored_field",
            pointer=f"/jobs/{left[0]}/parallelism",
            detail=f"is not kept by {policy}, and is given for {counted(len(left), 'job')}; it is kept of jobs with a "
            f"model, no performance, and min_gpus and max_gpus of tp x pp x dp{contradicted}",
            severity=Severity.WARNING,
        )


def degree_violations(snapshot: Snapshot, plan: Plan) -> Iterator[Issue]:
    """Plans of other degrees than their jobs ask for, or none; what runs on is as it runs."""
    if not some_say(snapshot, "parallelism"):
        return
    kept = roll_of(snapshot).each(
        "keeps degrees", np.bool_, lambda rows: (keeps_degrees(snapshot.jobs[k]) for k in rows)
    )
    jobs = {snapshot.jobs[k].id: snapshot.jobs[k] for k in np.flatnonzero(kept).tolist()}
    for k, item in enumerate(plan.allocations if jobs else ()):
        job, chosen = jobs.get(item.job_id), item.parallel_plan
        if job is None or (item.change is Change.KEPT and chosen == job.parallel_plan):
            continue
        if chosen is None or degrees_of(chosen) != job.parallelism:
            yield Issue(
                code="wrong_parallelism",
                pointer=f"/allocations/{k}/parallel_plan",
                detail=f"is {chosen.notation() if chosen else 'missing'}; job {job.id!r} asks for {job.parallelism}",
            )
