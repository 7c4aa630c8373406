"""The linear relaxation of a choice problem with few coupling rows and very many columns: few of these are needed.

Prices u >= 0 (m,) of the coupling rows prove a bound L(u), see `solver.decomposition.dual`, and the relaxation is its
maximum. A linear program over few columns, those that are cheapest at some prices, is the maximum of a simpler function
that is nowhere below L: solve it, price all columns at its duals, take in those that pay, again (column generation).

Far from where columns are known that function is nothing like L, and its maximum useless. So prices stay in a box
around the best ones so far (the boxstep method: Marsten, Hogan and Blankenship, Operations Research 23, 1975; du Merle,
Villeneuve, Desrosiers and Hansen, Discrete Mathematics 194, 1999): what a row is exceeded by costs the box's upper
price, and what is left of it earns the lower one. The box moves to better prices, grows where it holds them back, and
shrinks when they are worse. The objective of a program whose box holds nothing back is that of a relaxation with fewer
columns, and no less than that of the whole; ends when L is within `tolerance` of it, or when it must stop. L holds in
any case.

In the first basis each class has its cheapest column and each row is exceeded or has something left, which is feasible:
HiGHS begins there, keeps its basis from one program to the next, and needs few pivots. First prices are those of a
sample of the classes, or given. What HiGHS refuses leaves the bound of the first prices.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

import highspy
import numpy as np
from scipy import sparse

from solver.backends.highs import load
from solver.decomposition.dual import ReducedCosts, best_choice, reduced_costs
from solver.decomposition.structure import ChoiceProblem
from solver.decomposition.whole import Whole, whole_point
from solver.preparation import objective_factor
from solver.problem import MatrixProblem
from solver.sense import Sense
from stowplan.arrays import FloatVector, IntVector, Mask
from stowplan.errors import BackendError

_MOST_ROUNDS = 100
# Relative to the objective: below this a reduced cost is rounding.
_LEAST_REDUCED = 1e-12
# Columns beside the cheapest one of each class that are known from the start: so many, and so many for each class.
_FIRST_EXTRA, _EXTRA_PER_CLASS = 200, 2
# Columns of a class that a round takes in.
_MOST_OF_CLASS = 16
# Classes of a sample, or one in how many, and what it may leave open of its objective.
_SAMPLE, _SAMPLED_SHARE, _SAMPLE_GAP = 70, 16, 1e-3
_WORTH_SAMPLING = 3
# The first box: this part of the prices and of what a row would cost that costs as much as all columns do.
_OF_PRICES, _OF_TYPICAL = 0.2, 0.01
_WITHOUT_PRICES = 0.1
_GROWTH, _SHRINKAGE = 4.0, 0.5
# With no more rows a round takes less than a millisecond, of which asking at every pivot takes a tenth.
_SHORT = 50
# In units of a row: more or less is rounding.
_USED = 1e-9
# Where parts are whole, how many times the dearest column it costs to exceed a row by what columns take of it; and how
# often columns are taken in for the shares of a choice.
_DEAR = 10.0
_MOST_TRIES = 3
_PRIMAL_SIMPLEX = int(highspy.simplex_constants.SimplexStrategy.kSimplexStrategyPrimal)
_DUAL_SIMPLEX = int(highspy.simplex_constants.SimplexStrategy.kSimplexStrategyDual)
# Prices beyond all costs by this say that no point keeps the rows.
_PROHIBITIVE = 1e4


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Sifted:
    """point (n,) of the relaxation and its objective, None where none was found that keeps all rows; rounded (n,): one
    that splits nothing, None where none was found or asked for; prices (m,) with the best bound, and what columns cost
    at them: reduced; taken (n,): columns that are in the last program, or cost little more."""

    point: FloatVector
    objective: float | None
    prices: FloatVector
    reduced: ReducedCosts
    taken: Mask
    num_rounds: int
    rounded: FloatVector | None = None


def sift(
    problem: ChoiceProblem,
    tolerance: float,
    prices: FloatVector | None = None,
    stop: Callable[[], bool] = lambda: False,
    whole: Whole | None = None,
) -> Sifted:
    """Solve the relaxation.

    Parameters
    ----------
    tolerance
        Absolute.
    whole
        What may not be split; then a point is looked for at which it is not.
    prices
        (m,) to start from: of a problem that was nearly the same. None: those of a sample, if there are many classes.
    stop
        Whether the time is over; asked before every round and, where a round may take long, at every pivot.
    """
    num_classes = problem.copies.size
    typical = _typical(problem)
    if prices is None and num_classes > _WORTH_SAMPLING * _SAMPLE:
        size = max(_SAMPLE, num_classes // _SAMPLED_SHARE)
        classes = np.sort(np.random.default_rng(0).choice(num_classes, size, replace=False))
        sample = problem.sampled(classes)
        prices = sift(sample, _SAMPLE_GAP * _size(sample), np.zeros(problem.limit.size), stop).prices
    start, half_width = np.zeros(problem.limit.size), _WITHOUT_PRICES * typical
    if prices is not None and prices.any():
        start, half_width = np.maximum(prices, 0.0), _OF_PRICES * prices + _OF_TYPICAL * typical
    try:
        sifting = _Sifting(problem, start, half_width, stop)
    except BackendError:
        return _unsolved(problem, start)
    sifted = sifting.run(tolerance)
    return sifted if whole is None else replace(sifted, rounded=sifting.round(whole))


def _unsolved(problem: ChoiceProblem, prices: FloatVector) -> Sifted:
    """What prices (m,) alone prove."""
    return Sifted(
        point=np.zeros(problem.cost.size),
        objective=None,
        prices=prices,
        reduced=reduced_costs(problem, prices),
        taken=np.ones(problem.cost.size, dtype=np.bool_),
        num_rounds=0,
    )


def _typical(problem: ChoiceProblem) -> FloatVector:
    """(m,) the price of each row at which what classes take of it, on average over their columns, costs as much as they
    do, all rows together: the order of prices, of which there may be no other sign."""
    takes = np.maximum(_taken(problem) * problem.copies.sum(), _USED)
    return np.asarray(_size(problem) / takes / max(1, problem.limit.size))


def _taken(problem: ChoiceProblem) -> FloatVector:
    """(m,) what columns take of each row on average."""
    return np.asarray(abs(problem.coupling).T @ np.ones(problem.cost.size) / max(1, problem.cost.size))


def _size(problem: ChoiceProblem) -> float:
    """What all classes cost where every one has its cheapest column: the order of the objective."""
    least = np.minimum.reduceat(np.abs(problem.cost), problem.start[:-1])
    return max(float(problem.copies @ least), np.finfo(np.float64).tiny)


class _Sifting:
    """One relaxation: the program over the columns that are taken in, and the box around the best prices.

    The program's columns are what rows are exceeded by (m), what is left of them (m), and those of the problem.
    """

    def __init__(
        self, problem: ChoiceProblem, prices: FloatVector, half_width: FloatVector, stop: Callable[[], bool]
    ) -> None:
        self._problem = problem
        self._stop = stop
        self._half_width = half_width
        self._prices = prices
        self._reduced = reduced_costs(problem, prices)
        self._extra = _FIRST_EXTRA + _EXTRA_PER_CLASS * problem.copies.size
        self._columns = np.flatnonzero(self._near())
        self._lower, self._upper = self._box()
        # Where costs are large HiGHS is told of a part of them: beyond 1e20 it takes them for infinite.
        self._factor = min(1.0, objective_factor(problem.cost))
        self._highs = self._loaded()
        self._objective: float | None = None
        self._values = np.zeros(0)

    def run(self, tolerance: float) -> Sifted:
        """Take in columns until the bound is within `tolerance` of the objective, or until it must stop."""
        num_rounds = 0
        while num_rounds < _MOST_ROUNDS and not self._stop():
            num_rounds += 1
            highspy.Highs.resetGlobalScheduler(True)
            self._highs.run()
            if self._highs.getModelStatus() != highspy.HighsModelStatus.kOptimal:
                break
            held_back, prices = self._read()
            reduced = reduced_costs(self._problem, prices)
            is_better = reduced.bound > self._reduced.bound
            if is_better:
                self._prices, self._reduced = prices, reduced
            if self._objective is not None and self._objective - self._reduced.bound <= tolerance:
                break
            pay = self._paying(reduced)
            if not pay.size and (not held_back.any() or self._is_hopeless(prices)):
                break
            self._add(pay)
            if is_better or not pay.size:
                self._half_width = np.where(held_back, _GROWTH, 1.0) * self._half_width
            else:
                self._half_width = _SHRINKAGE * self._half_width
            self._set_box(*self._box())
        taken = self._near()
        taken[self._columns] = True
        return Sifted(
            point=self._point(),
            objective=self._objective,
            prices=self._prices,
            reduced=self._reduced,
            taken=taken,
            num_rounds=num_rounds,
        )

    def shares(self, kept: Mask) -> tuple[FloatVector | None, FloatVector]:
        """The point (n,) of the columns `kept` (n,) alone, None where it exceeds a row, and its prices (m,)."""
        exceeded, prices = None, self._prices
        for _ in range(_MOST_TRIES):
            pay = self._paying(reduced_costs(self._problem, prices), kept)
            if not pay.size and exceeded is not None:
                break
            self._add(pay)
            most = np.where(kept[self._columns], np.inf, 0.0)
            columns = 2 * self._problem.limit.size + np.arange(most.size, dtype=np.int32)
            self._highs.changeColsBounds(most.size, columns, np.zeros(most.size), most)
            highspy.Highs.resetGlobalScheduler(True)
            self._highs.run()
            if self._highs.getModelStatus() != highspy.HighsModelStatus.kOptimal:
                return None, prices
            exceeded, prices = self._read()
        return None if exceeded is None or exceeded.any() else self._point(), prices

    def round(self, whole: Whole) -> FloatVector | None:
        """A point that splits no part, see `solver.decomposition.whole`: to exceed a row is dear then, and what is left
        of one earns nothing."""
        if self._objective is None:
            return None
        dearest = float(np.abs(self._problem.cost).max())
        highest = np.maximum(self._upper, _DEAR * dearest / np.maximum(_taken(self._problem), _USED))
        self._set_box(np.zeros_like(highest), highest)
        self._highs.setOptionValue("simplex_strategy", _DUAL_SIMPLEX)
        return whole_point(self._problem, whole, self._point(), self._prices, self.shares, self._stop)

    def _point(self) -> FloatVector:
        """(n,) the last that kept all rows."""
        point = np.zeros(self._problem.cost.size)
        point[self._columns[: self._values.size]] = self._values
        return point

    def _near(self) -> Mask:
        """(n,) columns that cost least at the best prices, at least one of each class that must choose."""
        reduced = self._reduced.columns
        position = min(reduced.size - 1, self._problem.copies.size + self._extra)
        return np.asarray(reduced <= max(0.0, float(np.partition(reduced, position)[position])))

    def _read(self) -> tuple[Mask, FloatVector]:
        """Note the point of the program; rows (m,) whose prices the box holds back, and these."""
        num_rows, num_classes = self._problem.limit.size, self._problem.copies.size
        solution = self._highs.getSolution()
        values = np.array(solution.col_value)
        # What is left of a row without a price earns nothing.
        left = np.where(self._lower > 0, values[num_rows : 2 * num_rows], 0.0)
        held_back = np.maximum(values[:num_rows], left) > _USED
        if not held_back.any():
            self._objective = float(self._highs.getInfo().objective_function_value) / self._factor
            self._values = values[2 * num_rows :]
        # Rounding may have given a price the wrong sign, which proves nothing.
        return held_back, np.maximum(-np.array(solution.row_dual)[num_classes:] / self._factor, 0.0)

    def _paying(self, reduced: ReducedCosts, allowed: Mask | None = None) -> IntVector:
        """Columns, of those that are `allowed` (n,), that cost less than all such of their class that are in the
        program; of many the cheapest."""
        problem = self._problem
        columns = reduced.columns if allowed is None else np.where(allowed, reduced.columns, np.inf)
        known = np.full(columns.size, np.inf)
        known[self._columns] = columns[self._columns]
        least = np.minimum(np.minimum.reduceat(known, problem.start[:-1]), reduced.nothing)
        rounding = _LEAST_REDUCED * max(1.0, abs(reduced.bound))
        pay = np.flatnonzero(columns < least[problem.class_of] - rounding)
        if pay.size > self._extra:
            pay = pay[columns[pay] <= np.partition(columns[pay], self._extra)[self._extra]]
        pay = pay[np.lexsort([columns[pay], problem.class_of[pay]])]
        rank = np.arange(pay.size) - np.searchsorted(problem.class_of[pay], problem.class_of[pay])
        return pay[rank < _MOST_OF_CLASS]

    def _is_hopeless(self, prices: FloatVector) -> bool:
        """Whether rows are exceeded at prices beyond all costs."""
        return bool(prices.max(initial=0.0) > _PROHIBITIVE * (1.0 + float(np.abs(self._problem.cost).max())))

    def _box(self) -> tuple[FloatVector, FloatVector]:
        """The least and the highest price of each row (m,) around the best ones."""
        return np.maximum(0.0, self._prices - self._half_width), self._prices + self._half_width

    def _set_box(self, lower: FloatVector, upper: FloatVector) -> None:
        """What is left of rows earns `lower` (m,), what they are exceeded by costs `upper` (m,)."""
        self._lower, self._upper = lower, upper
        both = np.arange(2 * lower.size, dtype=np.int32)
        self._highs.changeColsCost(both.size, both, self._factor * np.concatenate([upper, -lower]))

    def _loaded(self) -> highspy.Highs:
        """HiGHS with the first program and the first basis; primal simplex, which keeps it feasible as columns come in
        and the box moves, and no presolve, which would lose it."""
        problem, columns = self._problem, self._columns
        num_rows, num_classes = problem.limit.size, problem.copies.size
        starts, indices, values = self._entries(columns)
        rows = num_classes + np.arange(num_rows)
        num_columns = 2 * num_rows + columns.size
        copies = problem.copies.astype(np.float64)
        highs = load(
            MatrixProblem(
                name="relaxation",
                sense=Sense.MINIMIZE,
                objective=self._factor * np.concatenate([self._upper, -self._lower, problem.cost[columns]]),
                offset=self._factor * problem.offset,
                matrix=sparse.csc_array(
                    (
                        np.concatenate([np.full(num_rows, -1.0), np.ones(num_rows), values]),
                        np.concatenate([rows, rows, indices]),
                        np.concatenate([np.arange(2 * num_rows), 2 * num_rows + starts]),
                    ),
                    shape=(num_classes + num_rows, num_columns),
                ),
                row_lower=np.concatenate([np.where(problem.required, copies, -np.inf), np.full(num_rows, -np.inf)]),
                row_upper=np.concatenate([copies, problem.limit]),
                lower=np.zeros(num_columns),
                upper=np.full(num_columns, np.inf),
                integrality=np.zeros(num_columns, dtype=np.bool_),
            )
        )
        for name, value in (("presolve", "off"), ("threads", 1), ("simplex_strategy", _PRIMAL_SIMPLEX)):
            highs.setOptionValue(name, value)
        highs.setBasis(self._first_basis())
        if num_rows + num_classes > _SHORT:
            highs.cbSimplexInterrupt.subscribe(lambda event: event.interrupt() if self._stop() else None)
        return highs

    def _first_basis(self) -> highspy.HighsBasis:
        """Each class has its cheapest column, or none; each row is exceeded, or something is left of it."""
        problem, num_rows = self._problem, self._problem.limit.size
        counts = best_choice(problem, self._reduced)
        chosen = counts[self._columns] > 0
        exceeded = problem.coupling.T @ counts > problem.limit
        has_chosen = np.zeros(problem.copies.size, dtype=np.bool_)
        has_chosen[problem.class_of[self._columns[chosen]]] = True
        basic, lower, upper = (
            highspy.HighsBasisStatus.kBasic,
            highspy.HighsBasisStatus.kLower,
            highspy.HighsBasisStatus.kUpper,
        )
        basis = highspy.HighsBasis()
        basis.valid = True
        basis.col_status = [
            basic if is_basic else lower for is_basic in np.concatenate([exceeded, ~exceeded, chosen]).tolist()
        ]
        basis.row_status = [*(upper if is_chosen else basic for is_chosen in has_chosen.tolist()), *[upper] * num_rows]
        return basis

    def _add(self, columns: IntVector) -> None:
        if not columns.size:
            return
        starts, indices, values = self._entries(columns)
        self._highs.addCols(
            columns.size,
            self._factor * self._problem.cost[columns],
            np.zeros(columns.size),
            np.full(columns.size, np.inf),
            values.size,
            starts[:-1].astype(np.int32),
            indices.astype(np.int32),
            values,
        )
        self._columns = np.concatenate([self._columns, columns])

    def _entries(self, columns: IntVector) -> tuple[IntVector, IntVector, FloatVector]:
        """Starts (c+1,), rows and values of columns (c,) of the program: a 1 in the row of the class, then what they
        take of the others."""
        part = self._problem.coupling[columns]
        starts = part.indptr + np.arange(columns.size + 1)
        is_class = np.zeros(starts[-1], dtype=np.bool_)
        is_class[starts[:-1]] = True
        indices, values = np.empty(starts[-1], dtype=np.int64), np.ones(starts[-1])
        indices[is_class] = self._problem.class_of[columns]
        indices[~is_class] = part.indices + self._problem.copies.size
        values[~is_class] = part.data
        return starts.astype(np.int64), indices, values
