"""A point near the linear relaxation: choices rounded, then moved one copy at a time until every row is kept.

A *move* takes one copy of a class from one option to another; choosing nothing is an option of optional classes. With
reduced costs r and slacks s of the coupling rows at prices u, a choice costs

    L(u) + sum of the r of what is chosen + u s

so that moves between options of small r are cheap, and what is left of priced rows costs. Rows that are exceeded pay
a penalty beyond their price. The best single move is made while one helps; then the best pair of moves, of which the
second often undoes what the first one breaks.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from solver.decomposition.dual import ReducedCosts
from solver.decomposition.structure import ChoiceProblem
from stowplan.arrays import FloatMatrix, FloatVector, IntVector, Mask

# Options beside one of each class that are moved between, moves between them, moves that are paired, moves made.
_MOST_EXTRA = 2000
_MOST_MOVES = 20_000
_PAIRED = 96
_MOST_STEPS = 1000
# What exceeding a row costs, in units of its price; more where rows stay exceeded.
_PENALTIES = (1.0, 10.0, 100.0)
# A row without a price is worth this share of what the columns in it cost for what they take.
_LEAST_PRICE = 0.01
_ROUNDING = 1e-9


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Moves:
    """M moves between the options of `_Options`.

    source, target, class_of (M,); costs (M,): change of the cost; takes (M, m): change of what rows are used;
    worse (M,): change of the reduced costs.
    """

    source: IntVector
    target: IntVector
    class_of: IntVector
    costs: FloatVector
    takes: FloatMatrix
    worse: FloatVector


def round_choice(
    problem: ChoiceProblem,
    prices: FloatVector,
    reduced: ReducedCosts,
    fraction: FloatVector,
    is_enough: Callable[[float], bool],
    stop: Callable[[], bool] = lambda: False,
) -> IntVector | None:
    """Counts (n,) that keep every row, of low cost; None where none are found.

    Parameters
    ----------
    prices, reduced
        Multipliers (m,) and what options cost at them.
    fraction
        Choice probabilities (n,), nearly a solution of the linear relaxation.
    is_enough
        Whether a value, of the minimising form, is good enough to end with.
    stop
        Asked between steps; ends it early.
    """
    start = _rounded(problem, fraction)
    options = _options(problem, reduced, start)
    if options is None or stop():
        return None
    moves = _moves(problem, prices, reduced, options)
    descent = _Descent(problem, prices, moves, start)
    for penalty in _PENALTIES:
        descent.run(penalty, is_enough, stop)
        if descent.is_feasible:
            return descent.counts[: problem.cost.size]
        if stop():
            break
    return None


def _rounded(problem: ChoiceProblem, fraction: FloatVector) -> IntVector:
    """Counts (n + K,), nothing behind the columns: fractions rounded down, the rest by largest remainder."""
    num_classes = problem.copies.size
    wanted = problem.copies[problem.class_of] * fraction
    nothing = np.where(problem.required, 0.0, problem.copies - np.add.reduceat(wanted, problem.start[:-1]))
    every = np.concatenate([wanted, np.maximum(nothing, 0.0)])
    class_of = np.concatenate([problem.class_of, np.arange(num_classes)])
    counts = np.floor(every + _ROUNDING).astype(np.int64)
    missing = problem.copies - np.bincount(class_of, counts, num_classes).astype(np.int64)
    remainder = every - counts
    # A class that misses q copies gives one to each of its q largest remainders.
    near = np.flatnonzero((missing[class_of] > 0) & (remainder > 0))
    near = near[np.lexsort([-remainder[near], class_of[near]])]
    rank = np.arange(near.size) - np.searchsorted(class_of[near], class_of[near])
    counts[near[rank < missing[class_of[near]]]] += 1
    # What rounding errors leave over goes to the first column.
    missing = problem.copies - np.bincount(class_of, counts, num_classes).astype(np.int64)
    counts[problem.start[:-1]] += np.maximum(missing, 0)
    return counts


def _options(problem: ChoiceProblem, reduced: ReducedCosts, start: IntVector) -> IntVector | None:
    """Options (of n + K) that are moved between: the cheapest ones, and those that are chosen; class by class. None
    where there would be too many moves between the chosen ones alone."""
    every = np.concatenate([reduced.columns, reduced.nothing])
    class_of = np.concatenate([problem.class_of, np.arange(problem.copies.size)])
    is_chosen = start > 0
    extra = _MOST_EXTRA
    while True:
        # By rank, not by value: of equal ones there may be any number.
        number = min(every.size, problem.copies.size + extra) if extra else 0
        taken = is_chosen.copy()
        taken[np.argpartition(every, number - 1)[:number] if number else []] = True
        options = np.flatnonzero(taken & (np.isfinite(every) | is_chosen))
        if (np.bincount(class_of[options]).astype(float) ** 2).sum() <= _MOST_MOVES + problem.copies.size:
            return options[np.argsort(class_of[options], kind="stable")]
        if not extra:
            return None
        extra //= 2


def _moves(problem: ChoiceProblem, prices: FloatVector, reduced: ReducedCosts, options: IntVector) -> _Moves:
    """All moves within a class."""
    n = problem.cost.size
    class_of = np.where(options < n, problem.class_of[np.minimum(options, n - 1)], options - n)
    size = np.bincount(class_of, minlength=problem.copies.size)
    first = np.cumsum(size) - size
    # From every option to all of its class but itself: those before it, and those behind it.
    others = size[class_of] - 1
    source = np.repeat(np.arange(options.size), others)
    target = np.arange(source.size) - np.repeat(np.cumsum(others) - others - first[class_of], others)
    target += target >= source
    usage = np.zeros((options.size, problem.limit.size))
    is_column = options < n
    usage[is_column] = problem.coupling[options[is_column]].toarray()
    every = np.concatenate([reduced.columns, reduced.nothing])[options]
    worse, takes = every[target] - every[source], usage[target] - usage[source]
    return _Moves(
        source=options[source],
        target=options[target],
        class_of=class_of[source],
        costs=worse - takes @ prices,
        takes=takes,
        worse=worse,
    )


class _Descent:
    """Counts (n + K,) that change move by move."""

    def __init__(self, problem: ChoiceProblem, prices: FloatVector, moves: _Moves, start: IntVector) -> None:
        self._moves = moves
        self._single = problem.copies[moves.class_of] == 1
        self.counts = start
        columns = start[: problem.cost.size]
        self._slack = problem.limit - problem.coupling.T @ columns
        self._value = problem.offset + float(problem.cost @ columns)
        self._tolerance = _ROUNDING * np.maximum(1.0, np.abs(problem.limit))
        taken = np.bincount(problem.coupling.indices, np.abs(problem.coupling.data), problem.limit.size)
        worth = float(np.abs(problem.cost).sum()) / np.maximum(taken, _ROUNDING)
        self._price = np.maximum(prices, _LEAST_PRICE * worth)

    @property
    def is_feasible(self) -> bool:
        """Whether every row is kept."""
        return bool((self._slack >= -self._tolerance).all())

    def run(self, penalty: float, is_enough: Callable[[float], bool], stop: Callable[[], bool]) -> None:
        """Move until no move helps, or the value is enough."""
        price = penalty * self._price
        for _ in range(_MOST_STEPS):
            if stop() or (self.is_feasible and is_enough(self._value)):
                return
            active = np.flatnonzero(self.counts[self._moves.source] > 0)
            if not active.size:
                return
            gain = self._change(self._moves.costs[active], self._moves.takes[active], price)
            best = int(gain.argmin())
            least = -_ROUNDING * max(1.0, abs(self._value))
            if gain[best] < least:
                self._make(int(active[best]))
                continue
            pair = self._best_pair(active, gain, price, least)
            if pair is None:
                return
            for move in pair:
                self._make(move)

    def _change(self, costs: FloatVector, takes: FloatMatrix, price: FloatVector) -> FloatVector:
        """How cost and penalties change by moves (N,) that take (N, m)."""
        exceeded = float(np.maximum(-self._slack, 0.0) @ price)
        return np.asarray(costs + np.maximum(takes - self._slack, 0.0) @ price - exceeded)

    def _best_pair(
        self, active: IntVector, gain: FloatVector, price: FloatVector, least: float
    ) -> tuple[int, int] | None:
        moves = self._moves
        if active.size > 2 * _PAIRED:
            nearest = np.argpartition(gain, _PAIRED)[:_PAIRED]
            cheapest = np.argpartition(moves.worse[active], _PAIRED)[:_PAIRED]
            active = active[np.union1d(nearest, cheapest)]
        first, second = np.triu_indices(active.size, 1)
        one, other = active[first], active[second]
        allowed = self._are_apart(one, other)
        one, other = one[allowed], other[allowed]
        if not one.size:
            return None
        both = self._change(moves.costs[one] + moves.costs[other], moves.takes[one] + moves.takes[other], price)
        best = int(both.argmin())
        return (int(one[best]), int(other[best])) if both[best] < least else None

    def _are_apart(self, one: IntVector, other: IntVector) -> Mask:
        """Pairs of moves that can both be made."""
        moves = self._moves
        same_copy = (moves.class_of[one] == moves.class_of[other]) & self._single[one]
        last_one = (moves.source[one] == moves.source[other]) & (self.counts[moves.source[one]] < 2)
        return np.asarray(~(same_copy | last_one))

    def _make(self, move: int) -> None:
        moves = self._moves
        self.counts[moves.source[move]] -= 1
        self.counts[moves.target[move]] += 1
        self._slack = self._slack - moves.takes[move]
        self._value += float(moves.costs[move])
