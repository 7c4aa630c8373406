"""Jobs that are slower where they were placed than their configuration promised.

A configuration (nodes, GPUs, GPU type) promises what a job reaches where so many nodes of the cluster spread least over
its tiers. What is free, and jobs that stay where they are, may leave it nodes with less bandwidth between them.
"""

from collections.abc import Iterator, Mapping, Sequence

from models.configurations import ConfigurationSet
from models.performance.goodput.spec import GoodputTable, ThroughputTable
from models.plan import JobAllocation
from models.workload import Snapshot
from stowplan.errors import Issue, Severity
from topology.bandwidth import fractions_of, group_fraction

_ROUNDING = 1e-9


def placement_warnings(
    snapshot: Snapshot,
    configurations: ConfigurationSet,
    allocations: Sequence[JobAllocation],
    promised: Mapping[str, tuple[int, float]],
) -> Iterator[Issue]:
    """Warn of every job whose placement costs it speed; pointers as in `snapshot_issues`.

    Parameters
    ----------
    promised
        Job id -> its configuration and its goodput there; jobs that are missing were promised nothing.
    """
    fractions = fractions_of(snapshot.cluster)
    if min(fractions) == max(fractions):
        return
    path_of = {node.id: node.path for node in snapshot.cluster.nodes}
    index = {job.id: k for k, job in enumerate(snapshot.jobs)}
    for allocation in allocations:
        c, goodput = promised.get(allocation.job_id, (-1, 0.0))
        # Of a pinned job the goodput need not be known.
        if c < 0 or goodput <= 0 or len(allocation.gpus) < 2:
            continue
        here = group_fraction(fractions, [path_of[part.node] for part in allocation.gpus])
        best = float(configurations.bandwidth_fraction[c])
        if here >= best:
            continue
        k = index[allocation.job_id]
        is_table = isinstance(snapshot.jobs[k].performance, ThroughputTable | GoodputTable)
        factor = goodput / (allocation.expected_goodput or goodput)
        if factor <= 1.0 + _ROUNDING and not is_table:
            continue
        cost = "of which its table knows nothing" if is_table else f"so that it is {factor:.3g} times slower"
        yield Issue(
            code="slower_where_it_is",
            pointer=f"/jobs/{k}",
            detail=f"job {allocation.job_id!r} is on nodes with {here:g} of the inter-node bandwidth between them; "
            f"{configurations.label(c)} can have {best:g} on this cluster, {cost}",
            severity=Severity.WARNING,
        )
