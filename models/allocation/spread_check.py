"""Which share of the inter-node bandwidth do nodes have, where they are and at best? Knows no solver.

Computed again from the paths of the nodes, from the coarsest tier down; shares no code with `topology.bandwidth`.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache

from models.configurations import ConfigurationSet
from models.plan import JobAllocation, Plan
from models.wording import counted
from stowplan.errors import Issue
from stowplan.living import found_once
from topology.cluster import Cluster, Node, NodeState


class SpreadAudit:
    """Shares of groups of nodes of one cluster."""

    def __init__(self, cluster: Cluster) -> None:
        self._fractions = [cluster.core_bandwidth_fraction, *(tier.bandwidth_fraction for tier in cluster.tiers)]
        self._nodes = {node.id: node for node in cluster.nodes}
        by_type: dict[str, list[Node]] = {kind.name: [] for kind in cluster.gpu_types}
        for node in cluster.nodes:
            if node.state is not NodeState.DOWN:
                by_type[node.gpu_type].append(node)
        largest = {name: max((node.num_gpus for node in nodes), default=0) for name, nodes in by_type.items()}
        self._whole = {
            name: [node for node in nodes if node.num_gpus == largest[name]] for name, nodes in by_type.items()
        }
        self.at_best = lru_cache(maxsize=None)(self._at_best)

    def here(self, allocation: JobAllocation) -> float:
        """Share of the nodes of an allocation: that of its worst pair."""
        if len(allocation.gpus) < 2:
            return 1.0
        return self.of(part.node for part in allocation.gpus)

    def of(self, names: Iterable[str]) -> float:
        """Share of the nodes with these ids."""
        return self._least([self._nodes[name] for name in names if name in self._nodes], 0)

    def _at_best(self, gpu_type: str, num_nodes: int) -> float:
        """The largest share that so many whole nodes of a type can have."""
        if num_nodes == 1:
            return 1.0
        return max(share for share in self._fractions if self._most_nodes(self._whole[gpu_type], 0, share) >= num_nodes)

    def _least(self, nodes: Sequence[Node], depth: int) -> float:
        """Of nodes with `depth` units in common."""
        if len(nodes) < 2:
            return 1.0
        if depth == len(self._fractions) - 1:
            return self._fractions[depth]
        units = _units(nodes, depth)
        between = self._fractions[depth] if len(units) > 1 else 1.0
        return min(between, *(self._least(unit, depth + 1) for unit in units))

    def _most_nodes(self, nodes: Sequence[Node], depth: int, share: float) -> int:
        """How many of nodes with `depth` units in common can be taken so that any two have the share."""
        if depth == len(self._fractions) - 1:
            return len(nodes) if self._fractions[depth] >= share else 1
        rooms = [self._most_nodes(unit, depth + 1, share) for unit in _units(nodes, depth)]
        return sum(rooms) if self._fractions[depth] >= share else max(rooms)


spread_audit = found_once(SpreadAudit)


@found_once
def _planned_shares(configurations: ConfigurationSet) -> Mapping[tuple[str, int, int], float]:
    """The share with which each GPU type, nodes and GPUs are planned."""
    known = zip(
        configurations.type_index.tolist(),
        configurations.num_nodes.tolist(),
        configurations.num_gpus.tolist(),
        configurations.bandwidth_fraction.tolist(),
        strict=True,
    )
    return {(configurations.gpu_types[t], n, m): fraction for t, n, m, fraction in known}


def spread_violations(configurations: ConfigurationSet, plan: Plan, audit: SpreadAudit) -> Iterator[Issue]:
    """Allocations whose configuration was not planned with the share of the bandwidth that it has at best."""
    planned = _planned_shares(configurations)
    for k, allocation in enumerate(plan.allocations):
        # Most are on one node.
        if len(allocation.gpus) < 2:
            continue
        shape = allocation.gpu_type, len(allocation.gpus), allocation.num_gpus
        if shape in planned:
            right = audit.at_best(shape[0], shape[1])
            if planned[shape] != right:
                yield Issue(
                    code="wrong_bandwidth_fraction",
                    pointer=f"/allocations/{k}",
                    detail=f"{counted(shape[1], 'node')} of type {shape[0]!r} are planned with {planned[shape]} of the "
                    f"bandwidth between nodes; at best they have {right}",
                )


def _units(nodes: Sequence[Node], depth: int) -> list[list[Node]]:
    units: dict[str, list[Node]] = {}
    for node in nodes:
        units.setdefault(node.path[depth], []).append(node)
    return list(units.values())
