"""What a plan changes for a job, read off where it runs before and after."""

from models.placement.occupancy import Slices
from models.plan import Change
from topology.cluster import Cluster


def change_of(cluster: Cluster, before: Slices | None, after: Slices) -> Change:
    """The kind of change; `before` None for a job that does not run."""
    if before is None:
        return Change.STARTED
    if before == after:
        return Change.KEPT
    if gpu_type_of(cluster, before) != gpu_type_of(cluster, after):
        return Change.RETYPED
    if num_gpus_of(before) != num_gpus_of(after):
        return Change.RESCALED
    return Change.KEPT if sorted(before) == sorted(after) else Change.MOVED


def gpu_type_of(cluster: Cluster, slices: Slices) -> str:
    """GPU type of the first node; all are of one type."""
    return cluster.nodes[slices[0][0]].gpu_type


def num_gpus_of(slices: Slices) -> int:
    """GPUs on all nodes."""
    return sum([mask.bit_count() for _, mask in slices])
