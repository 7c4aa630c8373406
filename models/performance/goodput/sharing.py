"""Observations that jobs of one application share: a job that never ran has the model of those that did.

Jobs whose `GoodputObservations` name the same application in `shared_with` are fitted to what all of them have
observed. Batch range and gradient statistics stay each job's own: step times do not depend on them.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from models.performance.goodput.spec import GoodputObservations
from models.roll import has_observations
from models.workload import Job, Snapshot
from stowplan.errors import Issue


def with_shared_observations(jobs: Sequence[Job]) -> Sequence[Job]:
    """The jobs, each with the observations of its application: its own largest batches and replicas come first."""
    observed = [known for job in jobs if isinstance(known := job.performance, GoodputObservations)]
    pools: dict[str, list[GoodputObservations]] = {}
    for known in observed:
        if known.shared_with is not None:
            pools.setdefault(known.shared_with, []).append(known)
    if not pools:
        return jobs
    pooled = {name: _pooled(members) for name, members in pools.items()}
    return [_with_pool(job, pooled) for job in jobs]


def shared_jobs(snapshot: Snapshot) -> Sequence[Job]:
    """`with_shared_observations` of the jobs of a snapshot; the very jobs where none shares any."""
    return with_shared_observations(snapshot.jobs) if has_observations(snapshot) else snapshot.jobs


def sharing_issues(jobs: Sequence[Job]) -> Iterator[Issue]:
    """Jobs of applications that nobody has observed; `jobs` have what is shared."""
    for k, job in enumerate(jobs):
        known = job.performance
        if isinstance(known, GoodputObservations) and known.shared_with is not None and not known.observations:
            yield Issue(
                code="nothing_observed",
                pointer=f"/jobs/{k}/performance/observations",
                detail=f"is empty, and no job here that shares with {known.shared_with!r} has observations; one "
                "of them must have some",
            )


def _pooled(members: Sequence[GoodputObservations]) -> GoodputObservations:
    """What all have observed, each point once; where they differ, the first says what memory allows."""
    first = members[0]
    batches: dict[str, int] = {}
    replicas: dict[str, int] = {}
    for member in reversed(members):
        batches.update(member.max_local_batch)
        replicas.update(member.gpus_per_replica)
    points = dict.fromkeys(point for member in members for point in member.observations)
    return replace(first, observations=tuple(points), max_local_batch=batches, gpus_per_replica=replicas)


def _with_pool(job: Job, pooled: Mapping[str, GoodputObservations]) -> Job:
    own = job.performance
    if not isinstance(own, GoodputObservations) or own.shared_with is None:
        return job
    pool = pooled[own.shared_with]
    return replace(
        job,
        performance=replace(
            own,
            observations=pool.observations,
            max_local_batch={**pool.max_local_batch, **own.max_local_batch},
            gpus_per_replica={**pool.gpus_per_replica, **own.gpus_per_replica},
        ),
    )
