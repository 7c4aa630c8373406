"""A point of a relaxation at which parts of its classes are whole: parts and shares of their columns, in turns.

At prices of the rows in which the columns of a part differ, a part costs what its cheapest column does, and which parts
keep the other rows is a choice problem of few columns, rounded as others are (`solver.decomposition.rounding`). Of the
parts that are chosen a linear program has the shares, and other prices. At these alone a choice far away would be the
next one, and of its prices the first one again: each turn goes half the way to them. Parts that are had already may be
better than what is found so: they are tried last, unless prices prove that they are not.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from scipy import sparse

from solver.decomposition.dual import ReducedCosts, reduced_costs
from solver.decomposition.rounding import round_choice
from solver.decomposition.structure import ChoiceProblem
from stowplan.arrays import FloatVector, IntVector, Mask

# Turns, and those beyond which a point is enough that costs no more than it may; of that so much is nothing.
_MOST_TURNS, _USUAL_TURNS = 6, 2
_NOTHING = 0.01
# Parts that may be chosen beside one of each class and those that are chosen first: so many, and so many a class.
_EXTRA, _EXTRA_PER_CLASS = 20, 1
# A part that misses all or nothing by less is whole.
_SPLIT = 1e-6

Shares = Callable[[Mask], tuple[FloatVector | None, FloatVector]]
"""The best point (n,) with such columns (n,) alone, None where it exceeds a row, and its prices (m,)."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Whole:
    """part (n,): ascending numbers from 0 on of parts of the classes that must choose, each of one copy; -1 for columns
    of none, which come last. Of a part there may be all or nothing, of its columns shares. num_rows: of the first so
    many rows all columns of a part take the same, and those of none nothing. tolerance: what a point may cost beyond
    the bound; a dearer one is better than none. known (n,): columns of parts that are had already, at most one a
    class, and those of none."""

    part: IntVector
    num_rows: int
    tolerance: float
    known: Mask | None = None


def whole_point(
    problem: ChoiceProblem,
    whole: Whole,
    point: FloatVector,
    prices: FloatVector,
    shares: Shares,
    stop: Callable[[], bool],
) -> FloatVector | None:
    """The best point (n,) that is found near the `point` (n,) of the relaxation and its `prices` (m,); None without
    one."""
    present, heads = _of_parts(problem, whole)
    part = whole.part[whole.part >= 0]
    fraction: FloatVector = np.bincount(part, weights=point[: part.size], minlength=heads.size).astype(np.float64)
    if (np.abs(fraction - fraction.round()) <= _SPLIT).all():
        return point
    reduced = reduced_costs(problem, prices)
    bound = reduced.bound
    best, least, chosen = None, np.inf, fraction
    for turn in range(_MOST_TURNS):
        enough = bound + (whole.tolerance if turn >= _USUAL_TURNS else _NOTHING * whole.tolerance)
        if least <= enough or stop():
            break
        others = np.append(np.zeros(whole.num_rows), prices[whole.num_rows :])
        priced = (problem.cost + problem.coupling @ others)[: part.size]
        present = replace(present, cost=np.minimum.reduceat(priced, heads))
        now = _chosen(present, prices[: whole.num_rows], chosen, stop)
        if np.array_equal(now, chosen) and least > bound + whole.tolerance:
            now = _chosen(present, prices[: whole.num_rows], fraction, stop)
        if not now.size or np.array_equal(now, chosen):
            break
        chosen = now
        found, of_choice = shares(np.append(chosen > 0, [True])[whole.part])
        if found is None:
            break
        cost = problem.offset + float((problem.cost * found).sum())
        if cost < least:
            best, least = found, cost
        prices = 0.5 * (prices + of_choice)
    if best is None or whole.known is None or _least_of(problem, reduced, whole.known) >= least or stop():
        return best
    found, _ = shares(whole.known)
    return best if found is None or problem.offset + float((problem.cost * found).sum()) > least else found


def _least_of(problem: ChoiceProblem, reduced: ReducedCosts, kept: Mask) -> float:
    """A bound of what points with the columns `kept` (n,) alone cost; infinity where a class has none."""
    worse = np.minimum.reduceat(np.where(kept, reduced.columns, np.inf), problem.start[:-1])
    return reduced.bound + float(problem.copies @ np.minimum(worse, reduced.nothing))


def _of_parts(problem: ChoiceProblem, whole: Whole) -> tuple[ChoiceProblem, IntVector]:
    """The choice of parts without their costs, and where each begins among the columns."""
    heads = np.flatnonzero(np.diff(whole.part, prepend=-1) > 0)
    class_of = problem.class_of[heads]
    start = np.append(np.flatnonzero(np.diff(class_of, prepend=-1)), heads.size)
    num_classes = start.size - 1
    return ChoiceProblem(
        cost=np.zeros(heads.size),
        start=start,
        copies=np.ones(num_classes, dtype=np.int64),
        required=np.ones(num_classes, dtype=np.bool_),
        coupling=sparse.csr_array(problem.coupling[heads][:, : whole.num_rows]),
        limit=problem.limit[: whole.num_rows],
        rows=np.arange(whole.num_rows),
        offset=0.0,
        class_of=np.repeat(np.arange(num_classes), np.diff(start)),
        origin=np.arange(heads.size),
        origin_start=start[:-1],
    ), heads


def _chosen(
    present: ChoiceProblem, prices: FloatVector, fraction: FloatVector, stop: Callable[[], bool]
) -> FloatVector:
    """Of each part all or nothing, at prices of their rows and near fractions of all, among few of them; where few do
    not fit, among many; empty where these do not, either."""
    reduced = reduced_costs(present, prices)
    few = _EXTRA + _EXTRA_PER_CLASS * present.copies.size
    found = round_choice(present, prices, reduced, fraction, _never, stop, few)
    if found is None:
        found = round_choice(present, prices, reduced, fraction, _never, stop)
    return np.zeros(0) if found is None else found.astype(np.float64)


def _never(_: float) -> bool:
    return False
