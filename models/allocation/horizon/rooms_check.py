"""Do jobs lie where their placement classes promise, and is there room for those planned later? Knows no solver.

Recomputed from the paths of the nodes, from the coarsest tier down, by the rules in `rooms`; shares no code with it.
"""

from collections.abc import Collection, Iterator, Sequence
from functools import lru_cache

from models.allocation.horizon.outlook import Planned, Shape
from models.allocation.spread_check import SpreadAudit
from models.plan import JobAllocation
from models.workload import Job
from stowplan.errors import Issue
from topology.cluster import Cluster, Node, NodeState


class UnitAudit:
    """Units of a cluster and the nodes in them that planned jobs may ever have whole, `whole` by id; `shapes`: all
    configurations."""

    def __init__(self, cluster: Cluster, whole: Collection[str], shapes: Collection[Shape]) -> None:
        self._fractions = [cluster.core_bandwidth_fraction, *(tier.bandwidth_fraction for tier in cluster.tiers)]
        self._whole, self._shapes = whole, [shape for shape in shapes if shape[1] > 1]
        self._spread = SpreadAudit(cluster)
        up = [node for node in cluster.nodes if node.state is not NodeState.DOWN]
        sizes = {kind.name: [node.num_gpus for node in up if node.gpu_type == kind.name] for kind in cluster.gpu_types}
        self._nodes = {
            name: [node for node in up if node.gpu_type == name and node.num_gpus == max(known)]
            for name, known in sizes.items()
        }
        self.rooms = lru_cache(maxsize=None)(self._rooms)

    def largest(self, gpu_type: str, share: float) -> int:
        """The most nodes that may lie within a unit of a class."""
        return max(self.rooms(gpu_type, share), default=0)

    def limits(self) -> Iterator[tuple[str, float, int, int]]:
        """GPU type, share and k of every row, and its limit: of all classes but the laxest, and those that others imply
        as well."""
        for gpu_type in self._nodes:
            own = [shape for shape in self._shapes if shape[0] == gpu_type]
            shares = sorted({shape[3] for shape in own})
            for share in shares[1:]:
                rooms = self.rooms(gpu_type, share)
                for k in sorted({shape[1] for shape in own if shape[3] >= share}):
                    if any(room % k for room in rooms):
                        yield gpu_type, share, k, sum(room // k for room in rooms)

    def faults(self, job: Job, planned: Sequence[Planned], allocation: JobAllocation, stays: bool) -> Iterator[Issue]:
        """Nodes with less of the bandwidth than is planned with, and jobs that leave theirs unplanned."""
        promised = max((item.now[3] for item in planned if item.now is not None), default=0.0)
        here = self._spread.here(allocation)
        if here < promised:
            detail = f"lies on nodes with {here:g} of the inter-node bandwidth; it is planned to have {promised:g}"
            yield _fault("outside_its_class", job, detail)
        held = {part.node for part in job.current or ()}
        if stays and {part.node for part in allocation.gpus} != held:
            yield _fault("moved_unplanned", job, f"is planned to stay on {sorted(held)}, and is moved")

    def share_now(self, job: Job) -> float:
        """Of the nodes on which a job runs."""
        return self._spread.of({part.node for part in job.current or ()})

    def _rooms(self, gpu_type: str, share: float) -> tuple[int, ...]:
        """Nodes that there are in each unit of which any two nodes have the share."""
        return tuple(self._split(self._nodes[gpu_type], 0, share))

    def _split(self, nodes: Sequence[Node], depth: int, share: float) -> Iterator[int]:
        if self._fractions[depth] >= share:
            yield sum(node.id in self._whole for node in nodes)
        elif depth < len(self._fractions) - 1:
            units: dict[str, list[Node]] = {}
            for node in nodes:
                units.setdefault(node.path[depth], []).append(node)
            for unit in units.values():
                yield from self._split(unit, depth + 1, share)


def _fault(code: str, job: Job, detail: str) -> Issue:
    return Issue(code=code, pointer="/allocations", detail=f"job {job.id!r} {detail}")
