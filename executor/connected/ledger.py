"""Who has which GPUs of a cluster whose scheduler counts them: indices are ours, and stay as long as a job does."""

from collections.abc import Iterable, Mapping

from models.placement.occupancy import gpus_of, mask_of
from models.workload import NodeGpus
from topology.cluster import Cluster


class Ledger:
    """GPUs of jobs by node."""

    def __init__(self, cluster: Cluster) -> None:
        self._free = {node.id: (1 << node.num_gpus) - 1 & ~mask_of(node.gpus_in_use) for node in cluster.nodes}
        self._parts: dict[str, tuple[NodeGpus, ...]] = {}

    def of(self, job_id: str) -> tuple[NodeGpus, ...]:
        """What a job has."""
        return self._parts.get(job_id, ())

    def lowest(self, counts: Mapping[str, int]) -> tuple[NodeGpus, ...]:
        """The lowest free GPUs of nodes, so many of each as are free at most: others may have taken some."""
        parts = []
        for node, num in counts.items():
            gpus = gpus_of(self._free.get(node, 0))[:num]
            if gpus:
                parts.append(NodeGpus(node=node, gpus=tuple(gpus)))
        return tuple(parts)

    def take(self, job_id: str, parts: Iterable[NodeGpus]) -> None:
        """Give GPUs to a job; ValueError where they are not free."""
        parts = tuple(parts)
        for part in parts:
            mask = mask_of(part.gpus)
            if mask & ~self._free[part.node]:
                raise ValueError(f"GPUs {list(part.gpus)} of node {part.node!r} are not free")
            self._free[part.node] &= ~mask
        self._parts[job_id] = parts

    def release(self, job_id: str) -> None:
        """Take what a job has."""
        for part in self._parts.pop(job_id, ()):
            self._free[part.node] |= mask_of(part.gpus)
