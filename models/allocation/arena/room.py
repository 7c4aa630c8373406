"""Room for a block: which launched jobs change theirs, and to what, so that it fits (Algorithm 1, lines 12-16).

Changes are of few kinds: from one configuration to another. All changes of a kind free the same and take the same, so
that only the best of each kind matters. They are kept from step to step: a move concerns the kinds that leave its two
configurations, and under Eq. 7 those of the jobs that what is worst off concerns. So are the ways that a search has
found: they are the same until the slack is another, or one of the changes that could free what the block lacks.

Few blocks need a search. What changes save per GPU that they free bounds what the ways to a block can save: they free
all that it lacks, and by no change that saves more for it than the best one.
"""

from collections.abc import Callable, Iterable, Sequence, Set
from dataclasses import dataclass

import numpy as np

from models.allocation.arena.assignment import Assignment, Moves, Way
from stowplan.arrays import FloatMatrix, FloatVector, IntMatrix, IntVector, Mask

_NOBODY = -1


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Changes:
    """gains: float64 (k,) and jobs: int64 (k,), of the best change of each kind of a site, -inf where nobody can change
    so. savings: float64 (k,), the most that a change of the kind saves; rates: float64 (k,), the same per GPU that it
    can free there."""

    gains: FloatVector
    jobs: IntVector
    savings: FloatVector
    rates: FloatVector


@dataclass(slots=True, kw_only=True, eq=False)
class _Site:
    """Rows in which blocks lack room. rows: int64 (r,); units: int64 (r,), GPUs per unit of each.

    kinds: int64 (k,), ascending, the changes that free something there; sources: the configurations that they leave.
    freed: int64 (m, k), by each; a change fits once the slack (m,) covers what it takes beyond that. relieving: int64
    (r, k), the same in the rows; num_freed: int64 (k,), GPUs that it can free there. fixed: int64 (f,), the rows in
    which none of them frees anything; freed_fixed: int64 (f, k). changes: the best ones, None where they are to be
    looked up anew. version: grows when they change.
    """

    rows: IntVector
    units: IntVector
    kinds: IntVector
    sources: frozenset[int]
    freed: IntMatrix
    relieving: IntMatrix
    num_freed: IntVector
    fixed: IntVector
    freed_fixed: IntMatrix
    changes: _Changes | None = None
    version: int = 0


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Found:
    """Ways that hold at one slack, version of a site's changes, and depth."""

    standing: tuple[bytes, int, int]
    ways: Sequence[Way]


class Room:
    """The best change of each kind at the present standing of an assignment, and ways to make room by such changes.

    The K configurations that some job is offered have numbers of their own here; kinds are `before * K + after`.
    Whoever applies moves to the assignment says so to `moved`.
    """

    def __init__(self, assignment: Assignment, depth: int) -> None:
        """`depth`: most changes of a search, for which so many of the best of each kind are kept."""
        self._assignment = assignment
        self._size = assignment.offered.size
        self._every = np.arange(self._size)
        self._number = {c: k for k, c in enumerate(assignment.offered.tolist())}
        demand = assignment.demand[:, assignment.offered]
        before, self._after = np.divmod(np.arange(self._size**2), max(1, self._size))
        self._freed: IntMatrix = demand[:, before] - demand[:, self._after]
        # The moves of a search before its last one are left out of the best of each kind.
        num_best = max(1, depth)
        self._gains: FloatMatrix = np.full((self._size**2, num_best), -np.inf)
        self._jobs: IntMatrix = np.full((self._size**2, num_best), _NOBODY)
        self._savings: FloatVector = np.full(self._size**2, -np.inf)
        self._stale = set(range(self._size))
        self._worst = assignment.two_largest()
        rows = [np.flatnonzero(column).tobytes() for column in demand.T]
        different = list(dict.fromkeys(rows))
        self._sites = [self._site(np.frombuffer(key, dtype=np.int64)) for key in different]
        self._site_of: IntVector = np.full(assignment.demand.shape[1], -1)
        self._site_of[assignment.offered] = [different.index(key) for key in rows]
        self._bounds: FloatMatrix = np.zeros((len(different), 2))
        self._bounded: list[tuple[bytes, int] | None] = [None] * len(different)
        self._found: dict[int, _Found] = {}

    def moved(self, concerned: Iterable[int]) -> None:
        """Jobs have moved, away from and to the configurations `concerned`."""
        self._stale.update(self._number[c] for c in concerned)
        if self._assignment.is_min_max:
            before, self._worst = self._worst, self._assignment.two_largest()
            if before != self._worst:
                self._stale.update(self._number[c] for c in self._shaken(before[0], self._worst[0]))

    def best_fitting(self) -> tuple[float, Moves]:
        """The change that gains most of those that fit, and what it gains; (-inf, {}) where nothing fits."""
        self._refresh()
        kinds = np.flatnonzero(self._gains[:, 0] > -np.inf)
        kinds = kinds[_fitting(self._freed[:, kinds], self._assignment.slack)]
        if not kinds.size:
            return -np.inf, {}
        kind = int(kinds[self._gains[kinds, 0].argmax()])
        return float(self._gains[kind, 0]), {int(self._jobs[kind, 0]): self._target(kind)}

    def most_saved(self, blocks: IntVector, depth: int, mover: int | None = None) -> FloatVector:
        """What the moves of any way of `ways` to each of the `blocks` (b,), or of `ways_for` for a `mover`, save at
        most together; 0 where there is room without, -inf where no change makes any.

        What they free is at least what is lacking. So, where every change costs, they cost at least as much as if all
        of it were freed at the least cost per GPU.
        """
        self._refresh()
        assignment = self._assignment
        slack = assignment.slack if mover is None else assignment.slack_without(mover)
        short = assignment.units @ np.maximum(assignment.demand[:, blocks] - slack[:, None], 0)
        where = self._site_of[blocks]
        standing = slack.tobytes()
        for k in set(where.tolist()):
            self._bound(k, slack, standing)
        rate, largest = self._bounds[where].T
        saved = np.where(rate < 0.0, rate * np.maximum(short, 1), depth * largest)
        return np.where(short > 0, saved, 0.0)

    def ways(self, c: int, depth: int, must_stop: Callable[[], bool]) -> Sequence[Way]:
        """Ways to make room for configuration `c` by at most `depth` changes; they do not depend on who wants it."""
        self._refresh()
        site = self._sites[self._site_of[c]]
        standing = (self._assignment.slack.tobytes(), site.version, depth)
        found = self._found.get(c)
        if found is None or found.standing != standing:
            found = _Found(standing=standing, ways=self._search(c, site, depth, None, must_stop))
            self._found[c] = found
        return found.ways

    def ways_for(self, mover: int, c: int, depth: int, must_stop: Callable[[], bool]) -> Sequence[Way]:
        """The same for a launched job that leaves its own block for it."""
        self._refresh()
        return self._search(c, self._sites[self._site_of[c]], depth, mover, must_stop)

    def _search(
        self, c: int, site: _Site, depth: int, mover: int | None, must_stop: Callable[[], bool]
    ) -> Sequence[Way]:
        """No change where `c` fits; else, after every number of cheap steps, one that closes the rest of the shortage
        alone."""
        assignment, units = self._assignment, site.units
        slack = assignment.slack if mover is None else assignment.slack_without(mover)
        demand = assignment.demand[site.rows, c]
        lacking = demand - slack[site.rows]
        short = int(units @ np.maximum(0, lacking))
        if not short:
            return [assignment.way({})]
        changes = self._changes(site)
        moves: dict[int, int] = {}
        found: list[Way] = []
        for step in range(depth):
            if must_stop():
                break
            gains, jobs = changes.gains, changes.jobs
            moved = moves.keys() if mover is None else {*moves, mover}
            if moved:
                gains, jobs = self._without(site, changes, moved)
            fits = (gains > -np.inf) & _fitting(site.freed, slack)
            relief = short - units @ np.maximum(0, lacking[:, None] - site.relieving)
            useful = (fits & (relief > 0)).nonzero()[0]
            relief, gains = relief[useful], gains[useful]
            closes = relief == short
            closing = closes.nonzero()[0]
            if closing.size:
                k = useful[closing[gains[closing].argmax()]]
                found.append(assignment.way({**moves, int(jobs[k]): self._target(site.kinds[k])}))
            if step == depth - 1 or closing.size == useful.size:
                break
            cheapest = int(np.where(closes, -np.inf, gains / relief).argmax())
            k = useful[cheapest]
            moves[int(jobs[k])] = self._target(site.kinds[k])
            slack, short = slack + site.freed[:, k], short - int(relief[cheapest])
            lacking = lacking - site.relieving[:, k]
        return found

    def _without(self, site: _Site, changes: _Changes, moved: Set[int]) -> tuple[FloatVector, IntVector]:
        """What the best change of each kind (k,) gains, and whose it is, jobs `moved` left out."""
        gains, jobs = changes.gains, changes.jobs
        taken = _is_any(jobs, moved).nonzero()[0]
        if not taken.size:
            return gains, jobs
        gains, jobs, kinds = gains.copy(), jobs.copy(), site.kinds[taken]
        if len(moved) < self._jobs.shape[1]:
            next_jobs = self._jobs[kinds]
            first = (~_is_any(next_jobs, moved)).argmax(axis=1)
            gains[taken], jobs[taken] = self._gains[kinds, first], next_jobs[np.arange(taken.size), first]
            return gains, jobs
        before = kinds // self._size
        for source in set(before.tolist()):
            best, whose, _ = self._best(source, moved)
            own, after = taken[before == source], self._after[kinds[before == source]]
            gains[own], jobs[own] = best[after, 0], whose[after, 0]
        return gains, jobs

    def _shaken(self, before: float, now: float) -> set[int]:
        """Configurations with jobs to whose changes the largest cost makes a difference, which was another one before:
        those of jobs that cost so much, and of jobs that could come to cost more.

        Where the largest cost has fallen, no change gains more than before, so that the best are the best still, unless
        one of themselves gains less.
        """
        assignment = self._assignment
        costs, chosen = assignment.costs, assignment.chosen
        seen = (costs == before) | (costs == now)
        if now > before:
            new = assignment.offered_costs
            seen |= ((new > before) & (new < np.inf)).any(axis=0)
            return set(chosen[seen].tolist()) - {_NOBODY}
        dearer = (assignment.offered_costs[self._after[:, None], self._jobs] > now) & (self._jobs != _NOBODY)
        kinds = np.flatnonzero(dearer.any(axis=1))
        sources = assignment.offered[kinds // max(1, self._size)]
        return {*chosen[seen].tolist(), *sources.tolist()} - {_NOBODY}

    def _site(self, rows: IntVector) -> _Site:
        kinds = np.flatnonzero((self._freed[rows] > 0).any(axis=0))
        freed, units = self._freed[:, kinds], self._assignment.units[rows]
        fixed = np.flatnonzero((freed <= 0).all(axis=1))
        return _Site(
            rows=rows,
            units=units,
            kinds=kinds,
            sources=frozenset((kinds // self._size).tolist()),
            freed=freed,
            relieving=freed[rows],
            num_freed=units @ np.maximum(freed[rows], 0),
            fixed=fixed,
            freed_fixed=freed[fixed],
        )

    def _changes(self, site: _Site) -> _Changes:
        """Those of a site as things stand."""
        if site.changes is None:
            savings = self._savings[site.kinds]
            site.changes = _Changes(
                gains=self._gains[site.kinds, 0],
                jobs=self._jobs[site.kinds, 0],
                savings=savings,
                rates=savings / site.num_freed,
            )
        return site.changes

    def _bound(self, k: int, slack: IntVector, standing: bytes) -> None:
        """Look up the most that a change saves per GPU that it can free at site k, and alone, of those that may come to
        fit: in the rows that no change of the site frees, what does not fit now never will."""
        site = self._sites[k]
        if self._bounded[k] == (standing, site.version):
            return
        changes = self._changes(site)
        fits = _fitting(site.freed_fixed, slack[site.fixed])
        self._bounds[k] = changes.rates.max(initial=-np.inf, where=fits), changes.savings.max(initial=0.0, where=fits)
        self._bounded[k] = (standing, site.version)

    def _target(self, kind: int) -> int:
        """The configuration that a kind of change ends with."""
        return int(self._assignment.offered[self._after[kind]])

    def _refresh(self) -> None:
        """Look up the best changes again where they may be others. Most often they are not, where only the largest cost
        is another one."""
        changed = set()
        for before in self._stale:
            own = slice(before * self._size, (before + 1) * self._size)
            gains, jobs, savings = self._best(before, frozenset())
            known = ((jobs, self._jobs[own]), (gains, self._gains[own]), (savings, self._savings[own]))
            if not all((one == other).all() for one, other in known):
                self._gains[own], self._jobs[own], self._savings[own] = gains, jobs, savings
                changed.add(before)
        self._stale.clear()
        for site in self._sites if changed else ():
            if not changed.isdisjoint(site.sources):
                site.changes = None
                site.version += 1

    def _best(self, before: int, left_out: Set[int]) -> tuple[FloatMatrix, IntMatrix, FloatVector]:
        """What changes from `before` to each configuration gain, the best first (K, n), -inf where there are no more,
        and whose they are, of equal ones the first job's; and the most that one saves (K,)."""
        num_best = self._jobs.shape[1]
        gains, found = np.full((self._size, num_best), -np.inf), np.full((self._size, num_best), _NOBODY)
        jobs = (self._assignment.chosen == self._assignment.offered[before]).nonzero()[0]
        if left_out:
            jobs = jobs[~_is_any(jobs, left_out)]
        if not jobs.size:
            return gains, found, np.full(self._size, -np.inf)
        savings, left = self._assignment.gains(jobs)
        most_saved = savings.max(axis=1)
        left[before] = -np.inf
        for rank in range(min(num_best, jobs.size)):
            best = left.argmax(axis=1)
            at = (self._every, best)
            gains[:, rank] = left[at]
            found[:, rank] = jobs[best]
            left[at] = -np.inf
        found[gains == -np.inf] = _NOBODY
        return gains, found, most_saved


def _fitting(freed: IntMatrix, slack: IntVector) -> Mask:
    """Which changes (k,) that free `freed` (m, k) fit where `slack` (m,) is left."""
    return np.asarray(np.logical_and.reduce(freed >= -slack[:, None], axis=0))


def _is_any(jobs: IntMatrix, of: Set[int]) -> Mask:
    """Which of the jobs, of any shape, are among `of`, which are few."""
    found = np.zeros(jobs.shape, dtype=np.bool_)
    for job in of:
        found |= jobs == job
    return found
