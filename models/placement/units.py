"""Units of the fabric in which nodes have more of the bandwidth between nodes than across: which there are of a GPU
type, and how many of the nodes that whole-node configurations take are in each."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np

from stowplan.arrays import IntVector
from topology.bandwidth import fractions_of
from topology.cluster import Cluster, NodeState


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Level:
    """The nodes of a GPU type in groups, of which any two nodes of one have `fraction` of the bandwidth, or more.

    tier: what the groups are called, empty for all nodes. names: of the groups, as paths; units: positions of nodes,
    each (n,).
    """

    fraction: float
    tier: str
    names: Sequence[str]
    units: Sequence[IntVector]

    @property
    def most_nodes(self) -> int:
        """Of one group."""
        return max(unit.size for unit in self.units)


@dataclass(frozen=True, slots=True, kw_only=True)
class Homes:
    """Where a choice wants jobs. within: job id -> positions of the nodes that it may have; the choice can be placed so
    (see `models.allocation.horizon.classes`). moved: ids of running jobs that are to leave their GPUs."""

    within: Mapping[str, IntVector] = field(default_factory=dict)
    moved: frozenset[str] = frozenset()


def levels_of(cluster: Cluster, gpu_type: str) -> tuple[Level, ...]:
    """Levels whose fractions differ, the coarsest first, which is one group of all nodes that are not down and have as
    many GPUs as any of the type.

    Groups of a level lie within those of the one before. None where the type has no nodes, nor where a finer tier has
    less bandwidth than a coarser one: groups of nodes that have the most would not be units.
    """
    fractions = fractions_of(cluster)
    nodes = [(k, node) for k, node in enumerate(cluster.nodes) if node.gpu_type == gpu_type]
    nodes = [(k, node) for k, node in nodes if node.state is not NodeState.DOWN]
    if not nodes or any(finer < coarser for coarser, finer in pairwise(fractions)):
        return ()
    largest = max(node.num_gpus for _, node in nodes)
    found: list[Level] = []
    for depth, fraction in enumerate(fractions):
        units: dict[tuple[str, ...], list[int]] = {}
        for k, node in nodes:
            if node.num_gpus == largest:
                units.setdefault(node.path[:depth], []).append(k)
        level = Level(
            fraction=fraction,
            tier=cluster.tiers[depth - 1].name if depth else "",
            names=["/".join(path) for path in units],
            units=[np.array(unit, dtype=np.int64) for unit in units.values()],
        )
        if len(units) == 1:
            # No two nodes are further apart.
            found = [level]
        elif fraction > found[-1].fraction:
            found.append(level)
    return tuple(found)
