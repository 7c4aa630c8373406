"""Data of one planning ahead, free of any modelling layer, and what a solution is worth.

Nodes that are alike at every possible start (same minipod, same costs, same windows) form a class: which of them a job
gets makes no difference, and who gets how many at which time decides whether all get theirs, since intervals that never
ask for more nodes of a class than it has can be dealt out to its nodes one after the other.

Small jobs that run may be moved, as a whole, to nodes on which nothing runs, when a planned job starts at the latest. A
class is cleared when all jobs on it are moved. Who comes to the nodes of a moved job stays there: they are given to no
planned job after that.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy import sparse

from stowplan.arrays import FloatVector, IntMatrix, IntVector, Mask


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """One 3D plan of a job as the fabric sees it: `num_groups` scheduling units of `group_size` nodes each."""

    num_groups: int
    group_size: int

    @property
    def num_nodes(self) -> int:
        """Nodes that the job needs, spares aside."""
        return self.num_groups * self.group_size


@dataclass(frozen=True, slots=True, kw_only=True)
class Mover:
    """A running job that may be moved, from `num_nodes` nodes to as many; it lasts until `until_s` from now."""

    id: str
    num_nodes: int
    until_s: float


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Moves:
    """What moves cost at the start of an option, for I movers and C classes.

    move_cost: float64 (I,), of each mover, nodes aside; infinity: it stays. cleared_cost: float64 (C,), of a node from
    which all jobs were moved; infinity: they cannot all be. target_cost: float64 (C,), of a node that a moved job gets;
    infinity: not free. open_until_s: float64 (C,), until when a node stays open from the start on.
    """

    move_cost: FloatVector
    cleared_cost: FloatVector
    target_cost: FloatVector
    open_until_s: FloatVector


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Option:
    """A way to run a job: a plan, a start and, with it, an end; seconds from now.

    cost: what it costs whatever the nodes. node_cost: float64 (C,), of a node of each class; infinity: not usable.
    plan: number of the plan among those of the job. moves: None where moving jobs does not help.
    """

    shape: Shape
    start_s: float
    end_s: float
    cost: float
    node_cost: FloatVector
    plan: int = 0
    moves: Moves | None = None


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
    movers: I jobs that may be moved. class_movers: positions of those on each class, when all jobs there are movers.

    Raises
    ------
    ValueError
        When shapes disagree or a job has no option: a bug of whoever built it.
    """

    minipods: tuple[str, ...]
    class_minipod: IntVector
    class_size: IntVector
    jobs: tuple[AheadJob, ...]
    movers: tuple[Mover, ...] = ()
    class_movers: tuple[tuple[int, ...], ...] = ()

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

    @cached_property
    def on_class(self) -> sparse.csr_array:
        """Which movers are on each class, (C, I), ones."""
        rows = [c for c, movers in enumerate(self.class_movers) for _ in movers]
        columns = [i for movers in self.class_movers for i in movers]
        shape = (self.class_size.size, len(self.movers))
        return sparse.csr_array((np.ones(len(rows)), (rows, columns)), shape=shape)

    @cached_property
    def mover_nodes(self) -> IntVector:
        """Nodes of each mover, (I,)."""
        return np.array([mover.num_nodes for mover in self.movers], dtype=np.int64)

    @cached_property
    def mover_until_s(self) -> FloatVector:
        """Until when each mover lasts, (I,)."""
        return np.array([mover.until_s for mover in self.movers])


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Relocation:
    """Movers that are moved for a job, to how many nodes of which class: (mover, class, nodes); and the classes that
    this clears, (C,)."""

    to: tuple[tuple[int, int, int], ...]
    cleared: Mask

    @property
    def movers(self) -> frozenset[int]:
        """Who is moved."""
        return frozenset(mover for mover, _, _ in self.to)

    @property
    def targets(self) -> IntVector:
        """Nodes of each class that moved jobs get, (C,)."""
        found = np.zeros(self.cleared.size, dtype=np.int64)
        for _, c, count in self.to:
            found[c] += count
        return found


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Placing:
    """What a job gets: an option, nodes of each class int64 (C,), spares included, the nodes of its groups by minipod,
    int64 (G, M), and who is moved for it."""

    option: int
    nodes: IntVector
    counts: IntMatrix
    relocation: Relocation | None = None


def placing_cost(job: AheadJob, placing: Placing) -> float:
    """What a placing costs: its option, its nodes, who is moved, and Eq. 4 with the job's prices."""
    option = job.options[placing.option]
    used = placing.nodes > 0
    spread = int(np.count_nonzero(placing.counts, axis=1).max())
    num_minipods = int(np.count_nonzero(placing.counts.any(axis=0)))
    costs, moved = option.node_cost, 0.0
    if placing.relocation is not None and option.moves is not None:
        costs = np.where(placing.relocation.cleared, option.moves.cleared_cost, costs)
        moved = relocation_cost(option.moves, placing.relocation)
    nodes = float(placing.nodes[used] @ costs[used])
    return option.cost + nodes + moved + job.minipod_weight * num_minipods + job.spread_weight * spread


def relocation_cost(moves: Moves, relocation: Relocation) -> float:
    """What it costs to move these jobs, their new nodes included."""
    jobs = math.fsum(float(moves.move_cost[i]) for i in relocation.movers)
    return jobs + math.fsum(count * float(moves.target_cost[c]) for _, c, count in relocation.to)


def stays(option: Option, placing: Placing) -> Iterator[tuple[float, float, IntVector]]:
    """From when until when a placing takes how many nodes of each class (C,): those of the job, those of moved ones."""
    yield option.start_s, option.end_s, placing.nodes
    if placing.relocation is not None:
        yield option.start_s, math.inf, placing.relocation.targets
