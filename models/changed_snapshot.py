"""A snapshot that is another one but for some jobs and nodes: only these are looked at."""

from collections.abc import Iterator, Set

import numpy as np

from models.placement.occupancy import node_index
from models.roll import roll_of, row_of
from models.workload import Job, Snapshot, checked_snapshot, snapshot_issues
from topology.cluster import Cluster

_NOWHERE, _SEVERAL = -1, -2


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
    touched = {part.node for job in new if not _stays(job, base) for part in job.current or ()}
    if cluster is not base.cluster:
        pairs = zip(base.cluster.nodes, cluster.nodes, strict=True)
        touched |= {node.id for before, node in pairs if node is not before}
    if touched:
        known -= {id(base.jobs[row]) for row in _rows_on(base, touched)}
        new = [job for job in jobs if id(job) not in known]
    after = checked_snapshot(cluster, jobs)
    if len(row_of(after)) < len(jobs) or snapshot_issues(cluster, tuple(new)):
        # Looked at in full, it says what is wrong and where, or that this was a warning.
        return Snapshot(cluster=cluster, jobs=jobs)
    return after


def _stays(job: Job, base: Snapshot) -> bool:
    """Whether a job is where it was, as is whatever else was there: of two jobs of one name all are looked at."""
    row = row_of(base).get(job.id)
    return row is not None and base.jobs[row].current is job.current


def _rows_on(snapshot: Snapshot, nodes: Set[str]) -> Iterator[int]:
    """Jobs that run on one of the nodes. Most are on one, if on any, and are not looked at."""
    jobs, index = snapshot.jobs, node_index(snapshot.cluster)

    def hosts(rows: list[int]) -> Iterator[int]:
        for parts in (jobs[row].current or () for row in rows):
            yield _NOWHERE if not parts else index[parts[0].node] if len(parts) == 1 else _SEVERAL

    host = roll_of(snapshot).each("host", np.int64, hosts, same=(snapshot.cluster,))
    # Behind the nodes are the jobs without one, and those with several.
    is_asked = np.zeros(len(index) + 2, dtype=np.bool_)
    is_asked[[index[node] for node in nodes if node in index]] = True
    yield from np.flatnonzero(is_asked[host]).tolist()
    for row in np.flatnonzero(host == _SEVERAL).tolist():
        if any(part.node in nodes for part in jobs[row].current or ()):
            yield row
