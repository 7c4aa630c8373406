"""Room for a block: which launched jobs change theirs, and to what, so that it fits (Algorithm 1, lines 12-16).

Changes are of few kinds: from one configuration to another. All changes of a kind free the same and take the same, so
that only the best of each kind matters. They are kept from step to step: a move concerns the kinds that leave its two
configurations, and under Eq. 7 all of them where it concerns the job that is worst off.
"""

from collections.abc import Callable, Collection, Iterator, Set
from dataclasses import dataclass

import numpy as np

from models.allocation.arena.assignment import Assignment, Moves
from stowplan.arrays import FloatMatrix, FloatVector, IntMatrix, IntVector, Mask

_NOBODY = -1


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Want:
    """What a configuration needs. rows: int64 (r,), those in which it takes something; demand: int64 (r,), how much;
    kinds: int64 (k,), ascending, the changes that free something there."""

    rows: IntVector
    demand: IntVector
    kinds: IntVector


class Room:
    """The best change of each kind at the present standing of an assignment, and ways to make room by such changes.

    Kinds are numbered `before * C + after`. Whoever applies moves to the assignment says so to `moved`.
    """

    def __init__(self, assignment: Assignment, depth: int) -> None:
        """`depth`: most changes of a search, for which so many of the next best of each kind are kept."""
        self._assignment = assignment
        self._size = len(assignment.instance.configurations)
        before, after = np.divmod(np.arange(self._size**2), self._size)
        self._freed = assignment.demand[:, before] - assignment.demand[:, after]
        self._gains: FloatMatrix = np.full((self._size**2, depth + 1), -np.inf)
        self._jobs: IntMatrix = np.full((self._size**2, depth + 1), _NOBODY)
        self._stale = set(range(self._size))
        self._wants: dict[int, _Want] = {}
        self._ways: dict[int, list[Moves]] = {}
        self._fits: Mask | None = None

    def moved(self, moves: Moves, before: Collection[int]) -> None:
        """Jobs have moved, away from the configurations `before` (-1: from none)."""
        self._ways.clear()
        self._fits = None
        self._stale |= {*before, *moves.values()} - {_NOBODY}

    def all_moved(self) -> None:
        """What every change gains may be another."""
        self._stale.update(range(self._size))

    def best_fitting(self) -> tuple[float, Moves]:
        """The change that gains most of those that fit, and what it gains; (-inf, {}) where nothing fits."""
        self._refresh()
        gain = np.where(self._fitting(), self._gains[:, 0], -np.inf)
        kind = int(gain.argmax()) if gain.size else 0
        if not gain.size or gain[kind] == -np.inf:
            return -np.inf, {}
        return float(gain[kind]), {int(self._jobs[kind, 0]): kind % self._size}

    def ways(self, c: int, depth: int, must_stop: Callable[[], bool]) -> list[Moves]:
        """Ways to make room for configuration `c` by at most `depth` changes; they do not depend on who wants it."""
        if c not in self._ways:
            self._ways[c] = list(self._search(c, depth, None, must_stop))
        return self._ways[c]

    def ways_for(self, mover: int, c: int, depth: int, must_stop: Callable[[], bool]) -> list[Moves]:
        """The same for a launched job that leaves its own block for it."""
        return list(self._search(c, depth, mover, must_stop))

    def _search(self, c: int, depth: int, mover: int | None, must_stop: Callable[[], bool]) -> Iterator[Moves]:
        """No change where `c` fits; else, after every number of cheap steps, one that closes the rest of the shortage
        alone."""
        assignment, want = self._assignment, self._want(c)
        slack = assignment.slack if mover is None else assignment.slack_without(mover)
        units = assignment.units[want.rows]
        short = int(units @ np.maximum(0, want.demand - slack[want.rows]))
        moves: dict[int, int] = {}
        if not short:
            yield moves
            return
        self._refresh()
        for step in range(depth):
            if must_stop():
                return
            kinds, gain, jobs = self._possible(want.kinds, slack, moves.keys() if mover is None else {*moves, mover})
            left = slack[want.rows, None] + self._freed[want.rows[:, None], kinds]
            relief = short - units @ np.maximum(0, want.demand[:, None] - left)
            closing = np.flatnonzero(relief == short)
            if closing.size:
                k = closing[gain[closing].argmax()]
                yield {**moves, int(jobs[k]): int(kinds[k]) % self._size}
            useful = np.flatnonzero((relief > 0) & (relief < short))
            if step == depth - 1 or not useful.size:
                return
            k = useful[(gain[useful] / relief[useful]).argmax()]
            moves[int(jobs[k])] = int(kinds[k]) % self._size
            slack, short = slack + self._freed[:, kinds[k]], short - int(relief[k])

    def _possible(
        self, kinds: IntVector, slack: IntVector, moved: Set[int]
    ) -> tuple[IntVector, FloatVector, IntVector]:
        """Those of the kinds (k,) that fit where `slack` (m,) is free, with what the best change of each gains, and
        whose it is, jobs `moved` left out."""
        if not moved:
            kinds = kinds[self._fitting()[kinds]]
            return kinds, self._gains[kinds, 0], self._jobs[kinds, 0]
        gain, jobs = self._gains[kinds, 0], self._jobs[kinds, 0]
        for before in {int(self._assignment.chosen[job]) for job in moved}:
            first, last = np.searchsorted(kinds, (before * self._size, (before + 1) * self._size))
            if first < last:
                gain[first:last], jobs[first:last] = self._next_best(kinds[first:last], moved)
        there = np.flatnonzero(gain > -np.inf)
        fits = there[(slack[:, None] + self._freed[:, kinds[there]] >= 0).all(axis=0)]
        return kinds[fits], gain[fits], jobs[fits]

    def _fitting(self) -> Mask:
        """Kinds (C^2,) that some launched job can change by, and that fit as things stand."""
        if self._fits is None:
            fits = self._gains[:, 0] > -np.inf
            fits[fits] = (self._assignment.slack[:, None] + self._freed[:, fits] >= 0).all(axis=0)
            self._fits = fits
        return self._fits

    def _want(self, c: int) -> _Want:
        if c not in self._wants:
            rows = np.flatnonzero(self._assignment.demand[:, c])
            kinds = np.flatnonzero((self._freed[rows] > 0).any(axis=0))
            self._wants[c] = _Want(rows=rows, demand=self._assignment.demand[rows, c], kinds=kinds)
        return self._wants[c]

    def _refresh(self) -> None:
        for before in self._stale:
            own = slice(before * self._size, (before + 1) * self._size)
            self._gains[own], self._jobs[own] = self._best(before, frozenset())
        self._stale.clear()

    def _next_best(self, kinds: IntVector, moved: Set[int]) -> tuple[FloatVector, IntVector]:
        """The best changes of kinds (k,) that leave one configuration, jobs `moved` left out."""
        if len(moved) >= self._jobs.shape[1]:
            gains, jobs = self._best(int(kinds[0]) // self._size, moved)
            return gains[kinds % self._size, 0], jobs[kinds % self._size, 0]
        jobs = self._jobs[kinds]
        is_left = np.ones(jobs.shape, dtype=np.bool_)
        for job in moved:
            is_left &= jobs != job
        row, first = np.arange(kinds.size), is_left.argmax(axis=1)
        return self._gains[kinds, first], jobs[row, first]

    def _best(self, before: int, left_out: Set[int]) -> tuple[FloatMatrix, IntMatrix]:
        """What changes from `before` to each configuration gain, the best first (C, n), -inf where there are no more,
        and whose they are."""
        num_best = self._jobs.shape[1]
        gains, found = np.full((self._size, num_best), -np.inf), np.full((self._size, num_best), _NOBODY)
        jobs = np.flatnonzero(self._assignment.chosen == before)
        if left_out:
            jobs = jobs[~np.isin(jobs, list(left_out))]
        if not jobs.size:
            return gains, found
        all_gains = self._assignment.gains(jobs).T
        all_gains[before] = -np.inf
        best = np.argsort(-all_gains, axis=1, kind="stable")[:, :num_best]
        gains[:, : best.shape[1]], found[:, : best.shape[1]] = np.take_along_axis(all_gains, best, axis=1), jobs[best]
        return gains, found
