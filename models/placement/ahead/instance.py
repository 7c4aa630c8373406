"""Data of one planning ahead, free of any modelling layer, and what a solution is worth.

Nodes that are alike at every possible start (same minipod, same costs, same windows) form a class: which of them a job
gets makes no difference, and who gets how many at which time decides whether all get theirs, since intervals that never
ask for more nodes of a class than it has can be dealt out to its nodes one after the other.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from stowplan.arrays import FloatVector, IntMatrix, IntVector


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """One 3D plan of a job as the fabric sees it: `num_groups` scheduling units of `group_size` nodes each."""

    num_groups: int
    group_size: int

    @property
    def num_nodes(self) -> int:
        """Nodes that the job needs, spares aside."""
        return self.num_groups * self.group_size


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Option:
    """A way to run a job: a plan, a start and, with it, an end; seconds from now.

    cost: what it costs whatever the nodes. node_cost: float64 (C,), of a node of each class; infinity: not usable.
    plan: number of the plan among those of the job.
    """

    shape: Shape
    start_s: float
    end_s: float
    cost: float
    node_cost: FloatVector
    plan: int = 0


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class AheadJob:
    """A job to be planned, and the ways to run it.

    minipod_weight, spread_weight: prices of a minipod used and of a minipod more under the unit that is spread most
    (Eq. 4). num_spares: nodes kept back in every minipod used.
    """

    id: str
    options: tuple[Option, ...]
    minipod_weight: float
    spread_weight: float
    num_spares: int = 0


@dataclass(frozen=True, kw_only=True, eq=False)
class AheadInstance:
    """Jobs to be planned on C classes of nodes in M minipods.

    minipods: M labels. class_minipod: int64 (C,), positions of minipods; class_size: int64 (C,), nodes of each class.

    Raises
    ------
    ValueError
        When shapes disagree or a job has no option: a bug of whoever built it.
    """

    minipods: tuple[str, ...]
    class_minipod: IntVector
    class_size: IntVector
    jobs: tuple[AheadJob, ...]

    def __post_init__(self) -> None:
        if self.class_minipod.shape != self.class_size.shape or (self.class_size < 1).any():
            raise ValueError("every class needs a minipod and at least one node")
        for job in self.jobs:
            if not job.options or any(option.node_cost.shape != self.class_size.shape for option in job.options):
                raise ValueError(f"job {job.id!r} needs options with a cost for every class")

    @cached_property
    def change_points(self) -> tuple[float, ...]:
        """Instants at which jobs may begin, ascending; between two of them nobody needs more nodes than before."""
        return tuple(sorted({option.start_s for job in self.jobs for option in job.options}))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Placing:
    """What a job gets: an option, nodes of each class int64 (C,), spares included, and the nodes of its groups by
    minipod, int64 (G, M)."""

    option: int
    nodes: IntVector
    counts: IntMatrix


def placing_cost(job: AheadJob, placing: Placing) -> float:
    """What a placing costs: its option, its nodes, and Eq. 4 with the job's prices."""
    option = job.options[placing.option]
    used = placing.nodes > 0
    spread = int(np.count_nonzero(placing.counts, axis=1).max())
    num_minipods = int(np.count_nonzero(placing.counts.any(axis=0)))
    nodes = float(placing.nodes[used] @ option.node_cost[used])
    return option.cost + nodes + job.minipod_weight * num_minipods + job.spread_weight * spread
