"""Which running jobs may be moved before a start, what that costs, and where to.

A job may be moved when it can be preempted, has at most `moved_nodes` nodes, all of one kind and such as are planned,
and neither a reservation of its own nor GPUs reserved: those stay. It is moved as a whole, to whole nodes of the same
kind on which nothing runs now, and which nothing in the calendar closes from the start until it is over with
probability 1 - epsilon. The move costs what it is expected to lose by its restart, at the price of evictions, and for
each new node what it would cost the planned job to keep it free until the start.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from models.access import Access
from models.placement.ahead.future import probabilities_within
from models.placement.ahead.instance import AheadInstance, Mover, Moves
from models.placement.ahead.moves import loosened_cost
from models.placement.occupancy import occupancy
from models.windows import ends_s, lasting_of
from models.workload import Job
from stowplan.arrays import FloatMatrix, FloatVector, Mask

if TYPE_CHECKING:
    from models.placement.ahead.building import AheadProblem, NodeClass
    from models.placement.ahead.wanted import WantedJob

_HOUR_S = 3600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class MovableJob:
    """A job at `position` of the snapshot, with its GPUs, on nodes of one kind: GPU type, and GPUs of a node."""

    position: int
    num_gpus: int
    kind: tuple[str, int]
    mover: Mover


def movable_jobs(problem: "AheadProblem") -> tuple[MovableJob, ...]:
    """The jobs that may be moved, in the order of the snapshot."""
    snapshot, parameters = problem.snapshot, problem.parameters
    if not parameters.moved_nodes:
        return ()
    kinds = {node: (each.gpu_type, each.num_gpus) for each in problem.classes for node in each.nodes}
    access = Access(snapshot, parameters.epsilon)
    running = occupancy(snapshot).running
    found = []
    for position, job in enumerate(snapshot.jobs):
        parts = job.current or ()
        if job.id not in running or not 0 < len(parts) <= parameters.moved_nodes or not _may_move(job):
            continue
        known = {kinds.get(part.node) for part in parts}
        kind = known.pop()
        if known or kind is None or access.must_leave(job):
            continue
        until_s = ends_s(job, access.windows.confidence)
        found.append(
            MovableJob(
                position=position,
                num_gpus=sum(len(part.gpus) for part in parts),
                kind=kind,
                mover=Mover(id=job.id, num_nodes=len(parts), until_s=until_s),
            )
        )
    return tuple(found)


def _may_move(job: Job) -> bool:
    return job.preemptible and job.reservation is None and job.calendar_entry is None


def movers_by_class(classes: "tuple[NodeClass, ...]", movable: tuple[MovableJob, ...]) -> tuple[tuple[int, ...], ...]:
    """Positions among `movable` of the jobs on each class; empty where some job stays."""
    number = {each.position: i for i, each in enumerate(movable)}
    found = []
    for each in classes:
        movers = [number.get(k) for k, _ in each.occupants]
        found.append(() if None in movers else tuple(i for i in movers if i is not None))
    return tuple(found)


class Moving:
    """What moves cost at T instants."""

    def __init__(
        self, problem: "AheadProblem", skeleton: AheadInstance, instants: FloatVector, busy: FloatMatrix
    ) -> None:
        """`skeleton`: the instance without jobs. `busy`: what a node of each class costs because of evictions and
        restarts, (C, T)."""
        self._problem, self._skeleton, self._instants, self._busy = problem, skeleton, instants, busy

    def at(
        self, wanted: "WantedJob", k: int, cost: FloatVector, cleared_more: FloatVector, node_cost: FloatVector
    ) -> Moves | None:
        """Moves for a job that starts at instant k; None where they gain nothing.

        Parameters
        ----------
        cost
            What a node of each class costs when all jobs are left there, (C,), also where it may not be used.
        cleared_more
            What it costs more to use it when all are moved, (C,); infinity: it may not be used.
        node_cost
            As `cost`; infinity where it may not be used as it is.
        """
        if not self._skeleton.movers:
            return None
        kind = (wanted.gpu_type, wanted.gpus_per_node)
        open_until_s = np.where(self._free[kind], self._open_until_s[:, k], -np.inf)
        target_cost = np.where(open_until_s > self._instants[k], cost, np.inf)
        longest_s = open_until_s.max(initial=-np.inf)
        may_move = self._of_kind[kind] & (self._skeleton.mover_until_s <= longest_s)
        move_cost = np.where(may_move, self._move_cost[:, k], np.inf)
        moves = Moves(
            move_cost=move_cost,
            cleared_cost=cost - self._busy[:, k] + cleared_more,
            target_cost=target_cost,
            open_until_s=open_until_s,
        )
        # By these costs no choice of moves is better than none, whoever is planned beside.
        return moves if (loosened_cost(self._skeleton, node_cost, moves) < node_cost).any() else None

    @cached_property
    def _kinds(self) -> set[tuple[str, int]]:
        return {(each.gpu_type, each.gpus_per_node) for each in self._problem.wanted}

    @cached_property
    def _free(self) -> Mapping[tuple[str, int], Mask]:
        """Whether nodes of each class are of a kind, and nothing runs there, (C,)."""
        classes = self._problem.classes
        return {
            kind: np.array([not each.occupants and (each.gpu_type, each.num_gpus) == kind for each in classes])
            for kind in self._kinds
        }

    @cached_property
    def _of_kind(self) -> Mapping[tuple[str, int], Mask]:
        """Whether each mover is on nodes of a kind, (I,)."""
        movable = self._problem.movable
        return {kind: np.array([each.kind == kind for each in movable]) for kind in self._kinds}

    @cached_property
    def _move_cost(self) -> FloatMatrix:
        """What each move costs at each instant, new nodes aside, (I, T)."""
        price, jobs = self._problem.parameters.restart_price_per_gpu_hour, self._problem.snapshot.jobs
        rows = []
        for each in self._problem.movable:
            job = jobs[each.position]
            over = probabilities_within(lasting_of(job), self._instants)
            rows.append(price * (1.0 - over) * each.num_gpus * job.restart_cost_s / _HOUR_S)
        return np.array(rows)

    @cached_property
    def _open_until_s(self) -> FloatMatrix:
        """Until when nodes of each class that are open at each instant stay open, minus infinity elsewhere, (C, T)."""
        known: dict[object, FloatVector] = {}
        for each in self._problem.classes:
            if each.closed not in known:
                until_s = np.full(self._instants.size, math.inf)
                for closed in each.closed:
                    later = np.where(closed.begin_s <= self._instants, -math.inf, closed.begin_s)
                    until_s = np.where(closed.end_s > self._instants, np.minimum(until_s, later), until_s)
                known[each.closed] = until_s
        return np.array([known[each.closed] for each in self._problem.classes])
