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
from stowplan.arrays import FloatMatrix, FloatVector, IntVector, Mask, all_of

# Options beside one of each class that are moved between, unless fewer are asked for; moves between them, moves that
# are paired, moves made.
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
    """M moves between O options, class by class.

    option (O,): columns of the problem, and n + k for choosing nothing in class k; class_of, costs, worse (O,): their
    classes, costs and reduced costs; usage (O, m): of the coupling rows. source, target (M,): positions among the
    options; first (O + 1,): where those from each option begin. takes (M, m), adds (M,): how the usage of the rows and
    the cost change.
    """

    option: IntVector
    class_of: IntVector
    costs: FloatVector
    worse: FloatVector
    usage: FloatMatrix
    source: IntVector
    target: IntVector
    first: IntVector
    takes: FloatMatrix
    adds: FloatVector


def round_choice(
    problem: ChoiceProblem,
    prices: FloatVector,
    reduced: ReducedCosts,
    fraction: FloatVector,
    is_enough: Callable[[float], bool],
    stop: Callable[[], bool] = lambda: False,
    most_extra: int = _MOST_EXTRA,
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
    most_extra
        Options beside one of each class, and those that are chosen first, that are moved between.
    """
    start = _rounded(problem, fraction)
    if _suffices(problem, start, is_enough):
        return start[: problem.cost.size]
    options = _options(problem, reduced, start, most_extra)
    if options is None or stop():
        return None
    moves = _moves(problem, reduced, options)
    descent = _Descent(problem, prices, moves, start)
    for penalty in _PENALTIES:
        descent.run(penalty, is_enough, stop)
        if descent.is_feasible:
            return descent.counts
        if stop():
            break
    return None


def _suffices(problem: ChoiceProblem, start: IntVector, is_enough: Callable[[float], bool]) -> bool:
    """Whether the counts `start` (n + K,) keep every row, and cost little enough, as they are: to list moves takes
    several times as long."""
    counts = start[: problem.cost.size]
    slack = problem.limit - problem.used_by(counts)
    if not all_of(slack >= -_tolerance(problem)):
        return False
    chosen = counts.nonzero()[0]
    return is_enough(problem.offset + float((problem.cost[chosen] * counts[chosen]).sum()))


def _tolerance(problem: ChoiceProblem) -> FloatVector:
    """What rows (m,) may be exceeded by."""
    return np.asarray(_ROUNDING * np.maximum(1.0, np.abs(problem.limit)))


def _rounded(problem: ChoiceProblem, fraction: FloatVector) -> IntVector:
    """Counts (n + K,), nothing behind the columns: fractions rounded down, the rest by largest remainder."""
    n, heads = problem.cost.size, problem.start[:-1]
    every = np.empty(n + problem.copies.size)
    every[:n] = problem.copies[problem.class_of] * fraction
    nothing = problem.copies - np.add.reduceat(every[:n], heads)
    every[n:] = np.where(problem.required, 0.0, np.maximum(nothing, 0.0))
    counts = np.floor(every + _ROUNDING).astype(np.int64)
    missing = problem.copies - np.add.reduceat(counts[:n], heads) - counts[n:]
    if not missing.any():
        return counts
    class_of = np.concatenate([problem.class_of, np.arange(problem.copies.size)])
    remainder = every - counts
    # A class that misses q copies gives one to each of its q largest remainders.
    near = np.flatnonzero((missing[class_of] > 0) & (remainder > 0))
    near = near[np.lexsort([-remainder[near], class_of[near]])]
    rank = np.arange(near.size) - np.searchsorted(class_of[near], class_of[near])
    given = near[rank < missing[class_of[near]]]
    counts[given] += 1
    # What rounding errors leave over goes to the first column.
    missing -= np.bincount(class_of[given], minlength=missing.size)
    counts[heads] += np.maximum(missing, 0)
    return counts


def _options(
    problem: ChoiceProblem, reduced: ReducedCosts, start: IntVector, extra: int = _MOST_EXTRA
) -> IntVector | None:
    """Options (of n + K) that are moved between: the cheapest ones, and those that are chosen; class by class. None
    where there would be too many moves between the chosen ones alone."""
    every = np.concatenate([reduced.columns, reduced.nothing])
    class_of = np.concatenate([problem.class_of, np.arange(problem.copies.size)])
    is_chosen = start > 0
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


def _moves(problem: ChoiceProblem, reduced: ReducedCosts, options: IntVector) -> _Moves:
    """All moves within a class."""
    n = problem.cost.size
    is_column = options < n
    class_of = np.where(is_column, problem.class_of[np.minimum(options, n - 1)], options - n)
    size = np.bincount(class_of, minlength=problem.copies.size)
    first = np.cumsum(size) - size
    # From every option to all of its class but itself: those before it, and those behind it.
    others = size[class_of] - 1
    source = np.repeat(np.arange(options.size), others)
    target = np.arange(source.size) - np.repeat(np.cumsum(others) - others - first[class_of], others)
    target += target >= source
    usage = np.zeros((options.size, problem.limit.size))
    usage[is_column] = problem.coupling[options[is_column]].toarray()
    costs = np.zeros(options.size)
    costs[is_column] = problem.cost[options[is_column]]
    return _Moves(
        option=options,
        class_of=class_of,
        costs=costs,
        worse=np.concatenate([reduced.columns, reduced.nothing])[options],
        usage=usage,
        source=source,
        target=target,
        first=np.concatenate([[0], np.cumsum(others)]),
        # Rows by `take`, which is twice as fast.
        takes=usage.take(target, axis=0) - usage.take(source, axis=0),
        adds=costs[target] - costs[source],
    )


class _Descent:
    """Copies of the options that change move by move."""

    def __init__(self, problem: ChoiceProblem, prices: FloatVector, moves: _Moves, start: IntVector) -> None:
        self._moves = moves
        self._num_columns = problem.cost.size
        self._single = problem.copies[moves.class_of] == 1
        self._held = start[moves.option]
        self._can_move = self._held[moves.source] > 0
        # Neither here nor below by BLAS, whose threads go on for longer than this takes.
        self._slack = problem.limit - np.einsum("om,o->m", moves.usage, self._held)
        self._value = problem.offset + float((moves.costs * self._held).sum())
        self._tolerance = _tolerance(problem)
        taken = np.bincount(problem.coupling.indices, np.abs(problem.coupling.data), problem.limit.size)
        worth = float(np.abs(problem.cost).sum()) / np.maximum(taken, _ROUNDING)
        self._price = np.maximum(prices, _LEAST_PRICE * worth)

    @property
    def is_feasible(self) -> bool:
        """Whether every row is kept."""
        return bool((self._slack >= -self._tolerance).all())

    @property
    def counts(self) -> IntVector:
        """Counts (n,) of the columns."""
        counts = np.zeros(self._num_columns, dtype=np.int64)
        is_column = self._moves.option < self._num_columns
        counts[self._moves.option[is_column]] = self._held[is_column]
        return counts

    def run(self, penalty: float, is_enough: Callable[[float], bool], stop: Callable[[], bool]) -> None:
        """Move until no move helps, or the value is enough."""
        moves, price = self._moves, penalty * self._price
        for _ in range(_MOST_STEPS):
            if stop() or (self.is_feasible and is_enough(self._value)):
                return
            active = self._can_move.nonzero()[0]
            if not active.size:
                return
            exceeded = float(np.maximum(-self._slack, 0.0) @ price)
            takes = moves.takes[active]
            gain = moves.adds[active] - exceeded + np.einsum("nm,m->n", np.maximum(takes - self._slack, 0.0), price)
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

    def _best_pair(
        self, active: IntVector, gain: FloatVector, price: FloatVector, least: float
    ) -> tuple[int, int] | None:
        """Of two moves that together gain more than `least`, those that gain most; `gain` (N,): of one alone."""
        moves = self._moves
        if active.size > 2 * _PAIRED:
            worse = moves.worse[moves.target[active]] - moves.worse[moves.source[active]]
            nearest = np.argpartition(gain, _PAIRED)[:_PAIRED]
            cheapest = np.argpartition(worse, _PAIRED)[:_PAIRED]
            chosen = np.union1d(nearest, cheapest)
            active, gain = active[chosen], gain[chosen]
        both = np.add.outer(gain, gain)
        takes = moves.takes[active]
        # Moves are worth together what each is worth, but for the rows that both of them change.
        alone = np.maximum(takes - self._slack, 0.0)
        now = np.maximum(-self._slack, 0.0)
        for row in np.flatnonzero(np.count_nonzero(takes, axis=0) > 1).tolist():
            changing = np.flatnonzero(takes[:, row])
            beyond = np.maximum(np.add.outer(takes[changing, row], takes[changing, row] - self._slack[row]), 0.0)
            beyond -= np.add.outer(alone[changing, row], alone[changing, row] - now[row])
            both[changing[:, None], changing] += price[row] * beyond
        both[self._are_at_odds(active)] = np.inf
        one, other = divmod(int(both.argmin()), active.size)
        return (int(active[one]), int(active[other])) if both[one, other] < least else None

    def _are_at_odds(self, active: IntVector) -> Mask:
        """Pairs (N, N) of the moves `active` that cannot both be made; a move is no pair with itself."""
        source = self._moves.source[active]
        class_of = self._moves.class_of[source]
        same_copy = (class_of[:, None] == class_of) & self._single[source]
        last_one = (source[:, None] == source) & (self._held[source] < 2)
        at_odds = np.asarray(same_copy | last_one)
        np.fill_diagonal(at_odds, val=True)
        return at_odds

    def _make(self, move: int) -> None:
        source, target = int(self._moves.source[move]), int(self._moves.target[move])
        self._held[source] -= 1
        self._held[target] += 1
        for option in (source, target):
            self._can_move[self._moves.first[option] : self._moves.first[option + 1]] = self._held[option] > 0
        self._slack = self._slack + self._moves.usage[source] - self._moves.usage[target]
        self._value += float(self._moves.costs[target] - self._moves.costs[source])
