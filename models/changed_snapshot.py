"""A snapshot that is another one but for some jobs and nodes: only these are looked at."""

from models.roll import row_of
from models.workload import Job, Snapshot, checked_snapshot, snapshot_issues
from topology.cluster import Cluster


def snapshot_after(base: Snapshot, cluster: Cluster, jobs: tuple[Job, ...]) -> Snapshot:
    """The snapshot of these jobs, of which those that are the very objects of `base` have been looked at with it.

    `cluster`: that of `base`, but for state of nodes and what is in use on them. Neither snapshot has a calendar.
    Legal is what `Snapshot` finds so: whatever two jobs could both have is on nodes of one that is new, or on nodes
    that are others now.

    Raises
    ------
    InputError
        As `Snapshot` does, when it is not legal.
    """
    known = set(map(id, base.jobs))
    new = [job for job in jobs if id(job) not in known]
    touched = {part.node for job in new for part in job.current or ()}
    if cluster is not base.cluster:
        pairs = zip(base.cluster.nodes, cluster.nodes, strict=True)
        touched |= {node.id for before, node in pairs if node is not before}
    if touched:
        new = [
            job
            for job in jobs
            # Most jobs are on one node, if on any.
            if (
                (parts := job.current) and (parts[0].node in touched or any(part.node in touched for part in parts[1:]))
            )
            or id(job) not in known
        ]
    after = checked_snapshot(cluster, jobs)
    if len(row_of(after)) < len(jobs) or snapshot_issues(cluster, tuple(new)):
        # Looked at in full, it says what is wrong and where, or that this was a warning.
        return Snapshot(cluster=cluster, jobs=jobs)
    return after
