"""Decomposition: blocks that choose, a few rows that couple; exact, with HiGHS for what stays open.

1. find blocks and coupling rows, merge equal blocks (`decomposition.structure`);
2. maximise the Lagrangian dual in the few multipliers (`decomposition.dual`): a bound for the whole problem, or the
   proof that it has no solution;
3. round its choice probabilities to a point (`decomposition.rounding`); with many blocks that closes most gaps;
4. solve the core that small reduced costs leave open (`decomposition.core`) as a MIP; widen until the gap is closed
   or the core holds everything that can still matter.

How much of a problem is searched is thus found for each: what is left once bound and point are known. A problem of
another shape goes to HiGHS whole, and so does a small one of which nearly all is left and nothing was merged. Of few
columns all that can matter is written down where that is little (`decomposition.table`); else HiGHS has them, too.
Beside a point that is known prices leave little of a few more columns (`decomposition.enumeration`), and prices that
come with a problem, those of one that was nearly the same, are tried as they are before any are looked for.
"""

import itertools
import time
from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from solver.backends.base import NativeOutcome, ProgressFeed, conclude
from solver.backends.highs import HighsBackend
from solver.decomposition.core import Core, build_core, threshold_for, whole_core
from solver.decomposition.dual import DualPoint, ReducedCosts, best_choice, dual_at, maximise_dual, reduced_costs
from solver.decomposition.enumeration import best_of_core
from solver.decomposition.relaxation import solve_relaxation
from solver.decomposition.rounding import round_choice
from solver.decomposition.structure import ChoiceProblem, find_structure
from solver.decomposition.table import solve_by_table
from solver.feasibility import violations
from solver.monitor import Progress, SolveMonitor
from solver.options import SolveOptions
from solver.preparation import contradictions
from solver.problem import MatrixProblem
from solver.result import Limit, SolveResult, SolveStatistics, TerminationReason
from stowplan.arrays import FloatVector, IntVector

# So few columns are solved before they are looked at, with and without a first point; of so few blocks no rounded point
# is near the bound.
_FEWEST_COLUMNS = 100
_FEW_COLUMNS = 500
_FEW_BLOCKS = 80
# Up to so many columns after merging the linear relaxation is solved by simplex.
_LINEAR = 5000
# Share of the gap that the bound may lack of the linear relaxation when a point is looked for.
_DUAL_SHARE = 0.1
# Share of split blocks among those that choose from which no rounded point is near the bound.
_SCATTERED = 0.25
# Share of the columns, beside one of each block, that is few to search; how near the bound a good point may be, and of
# how many blocks for every coupling row the relaxation splits few.
_FEW_LEFT = 0.25
_NEAR = 0.005
_SPLIT = 4
# Options beside the best one of each class in the first core, and how much wider each further core is.
_FIRST_EXTRA = 150
_WIDENING = 4
_NARROW_CORES = 2
# The same in the core whose relaxation sharpens prices.
_SHARPENING_EXTRA = 1000
# A core that holds all that matters is solved at once where it is not this much larger than a narrow one.
_NARROW_ENOUGH = 5
# A core of few columns is searched where it is smaller than this share of the problem, or has merged what is equal.
_SMALLER = 0.75
_LEAST_TIME_S = 1e-3
# Relative to a value: sums of the same numbers in another order differ by this.
_ROUNDING = 1e-12


class DecompositionBackend:
    """Exact algorithm for multiple-choice problems with few coupling rows, such as Sia's Eq. 4."""

    name = "decomposition"

    def __init__(self) -> None:
        self._highs = HighsBackend()

    @property
    def version(self) -> str:
        """Version of the HiGHS library that solves the cores."""
        return f"HiGHS {self._highs.version}"

    def solve(self, problem: MatrixProblem, options: SolveOptions, monitor: SolveMonitor) -> SolveResult:
        """Solve `problem`; see the protocol. The result names HiGHS where it solved the problem whole."""
        is_started = options.warm_start is not None
        if problem.num_columns <= _FEW_COLUMNS:
            by_table = self._solved_by_table(problem, options, monitor)
            if by_table is not None:
                return by_table
            if not is_started or problem.num_columns <= _FEWEST_COLUMNS:
                return self._highs.solve(problem, options, monitor)
        structure = find_structure(problem)
        if structure is None or (_is_hardly_smaller(structure) and not is_started):
            return self._highs.solve(problem, options, monitor)
        search = _Search(self._highs, problem, structure, options, monitor)
        result = conclude(self, problem, search.run(), search.statistics())
        return replace(result, prices=search.prices())

    def _solved_by_table(
        self, problem: MatrixProblem, options: SolveOptions, monitor: SolveMonitor
    ) -> SolveResult | None:
        """The result where the problem is so small that no search is needed."""
        feed, cpu_s = ProgressFeed(monitor=monitor), time.process_time()
        start = options.warm_start
        is_known = start is not None and not violations(problem, start)
        outcome = solve_by_table(problem, start if is_known else None)
        if outcome is None:
            return None
        if outcome.point is not None:
            feed.incumbent(outcome.point, problem.value(outcome.point), outcome.bound, 0)
        statistics = SolveStatistics(
            load_s=0.0,
            solve_s=feed.elapsed_s(),
            solve_cpu_s=time.process_time() - cpu_s,
            first_incumbent_s=feed.first_incumbent_s,
            num_nodes=0,
        )
        return conclude(self, problem, outcome, statistics)


def _is_hardly_smaller(structure: ChoiceProblem) -> bool:
    """Whether HiGHS has nothing to gain from what is known of the problem."""
    num_blocks = int(structure.copies.sum())
    return structure.copies.size == num_blocks < _FEW_BLOCKS


class _Search:
    """One solve: bound, incumbent, and ever wider cores until they meet. Values are in minimising form."""

    def __init__(
        self,
        highs: HighsBackend,
        problem: MatrixProblem,
        structure: ChoiceProblem,
        options: SolveOptions,
        monitor: SolveMonitor,
    ) -> None:
        self._highs = highs
        self._problem = problem
        self._structure = structure
        self._options = options
        self._monitor = monitor
        self._feed = ProgressFeed(monitor=monitor)
        self._cpu_s = time.process_time()
        self._num_nodes = 0
        self._num_cores = 0
        self._core_size = 0
        self._bound = -np.inf
        self._is_refuted = False
        self._value = np.inf
        self._point: FloatVector | None = None
        self._counts: IntVector | None = None
        self._multipliers: FloatVector | None = None
        self._guess = None if options.prices is None else options.prices[structure.rows]

    def run(self) -> NativeOutcome:
        """Widen cores until the gap is closed, nothing is left out, or a limit ends it."""
        start = self._options.warm_start
        if start is not None and not violations(self._problem, start) and self._offer(start):
            self._counts = self._structure.counts_of(start)
        for core in self._cores():
            if self._is_hardly_smaller(core):
                return self._outcome(self._solve_whole())
            ending = self._solve(core)
            if ending is not None and not self._gap_is_closed():
                return self._outcome(ending)
            # At or below its floor the core's optimum is everybody's.
            if ending is None and self._value <= core.floor:
                return self._outcome(TerminationReason.OPTIMAL)
        if self._gap_is_closed():
            return self._outcome(TerminationReason.OPTIMAL)
        if self._is_refuted:
            return self._outcome(TerminationReason.INFEASIBLE)
        return self._outcome(Limit.INTERRUPTED if self._monitor.canceled.is_set() else Limit.TIME)

    def statistics(self) -> SolveStatistics:
        """What the search took so far; pricing counts as solving."""
        return SolveStatistics(
            solve_s=self._feed.elapsed_s(),
            solve_cpu_s=time.process_time() - self._cpu_s,
            first_incumbent_s=self._feed.first_incumbent_s,
            num_nodes=self._num_nodes,
        )

    def prices(self) -> FloatVector | None:
        """Multipliers (m,) of the problem's rows; None when nothing was priced."""
        if self._multipliers is None:
            return None
        prices = np.zeros(self._problem.num_rows)
        np.add.at(prices, self._structure.rows, self._multipliers)
        return prices

    def _cores(self) -> Iterator[Core]:
        """Cores from narrow to wide, none where the gap is closed. The last holds everything that can still matter."""
        structure = self._structure
        reduced = self._priced_near() if structure.copies.sum() < _FEW_BLOCKS else self._priced()
        if reduced is None:
            yield whole_core(structure)
            return
        extra = _FIRST_EXTRA
        for attempt in itertools.count():
            if self._is_done():
                return
            enough = self._beyond(reduced)
            narrow = threshold_for(reduced, structure.copies.size, extra)
            wider = threshold_for(reduced, structure.copies.size, _NARROW_ENOUGH * extra)
            # Where narrow cores do not close the gap, the linear relaxation is weak: branch on all that matters.
            is_last = attempt >= _NARROW_CORES or enough <= wider or structure.cost.size <= _LINEAR
            core = build_core(structure, reduced, enough if is_last else narrow)
            if is_last and self._is_enumerated(core, reduced, enough):
                return
            yield core
            extra *= _WIDENING

    def _is_enumerated(self, core: Core, reduced: ReducedCosts, beyond: float) -> bool:
        """Whether all points were looked at that could be better than the one that is known, which then is the best."""
        if self._point is None or not core.columns.size:
            return False
        found = best_of_core(self._structure, core, reduced, beyond)
        if found is None:
            return False
        for counts in found:
            self._take(counts)
        self._bound = max(self._bound, self._value)
        self._num_cores += 1
        self._core_size = core.columns.size
        return True

    def _unpriced(self) -> ReducedCosts | None:
        """Reduced costs where nothing is scarce, which every block's best option then proves; None where something
        is."""
        structure = self._structure
        without = np.zeros(structure.limit.size)
        reduced = reduced_costs(structure, without)
        favourites = best_choice(structure, reduced)
        if not (structure.coupling.T @ favourites <= structure.limit).all():
            return None
        self._multipliers, self._bound = without, reduced.bound
        self._take(favourites)
        return reduced

    def _priced_near(self) -> ReducedCosts | None:
        """Reduced costs of few blocks at prices that leave few options beside a point that is known: those that came
        with the problem, else those of its relaxation. None where there is no point, or they leave many."""
        structure = self._structure
        if self._point is None or _SPLIT * structure.limit.size > structure.copies.sum():
            return None
        reduced = self._unpriced()
        if reduced is not None:
            return reduced
        if self._guess is not None:
            multipliers = np.maximum(self._guess, 0.0)
            reduced = reduced_costs(structure, multipliers)
            if self._leaves_few(reduced, self._beyond(reduced)):
                self._multipliers, self._bound = multipliers, reduced.bound
                return reduced
        linear = self._linear()
        if linear is None:
            return None
        reduced = reduced_costs(structure, linear.multipliers)
        if self._leaves_few(reduced, self._beyond(reduced)):
            return reduced
        # A point that is better by far may leave few.
        return self._rounded(linear) if self._leaves_few(reduced, _NEAR * abs(reduced.bound)) else None

    def _leaves_few(self, reduced: ReducedCosts, beyond: float) -> bool:
        """Whether few columns are left of those that cost at most `beyond` more than the best ones of their blocks."""
        num_left = np.count_nonzero(reduced.columns <= beyond)
        return bool(num_left <= self._structure.copies.size + _FEW_LEFT * self._structure.cost.size)

    def _linear(self) -> DualPoint | None:
        """Prices of the linear relaxation by simplex; None where there are none, or not in time."""
        left_s = max(_LEAST_TIME_S, self._options.time_limit_s - self._feed.elapsed_s())
        linear = solve_relaxation(self._structure, left_s)
        if linear is not None:
            self._multipliers, self._bound = linear.multipliers, linear.bound
        return linear

    def _beyond(self, reduced: ReducedCosts) -> float:
        """Options that cost more than this cannot improve on the incumbent."""
        return self._value - reduced.bound + _ROUNDING * abs(self._value)

    def _priced(self) -> ReducedCosts | None:
        """Reduced costs at good prices, after rounding what blocks choose at them; None where there are no prices."""
        structure, guess = self._structure, self._guess
        reduced = self._unpriced()
        if reduced is not None:
            return reduced
        if guess is not None:
            # Where little has changed since they were found, they prove a point near them.
            dual = dual_at(structure, guess)
            reduced = self._rounded(dual)
            if self._is_done():
                return reduced
        if structure.cost.size <= _LINEAR:
            linear = self._linear()
            return None if linear is None or self._is_scattered(linear) else self._rounded(linear)
        lacking = _DUAL_SHARE * self._options.relative_gap
        if guess is not None:
            # Or better ones nearby do.
            dual = maximise_dual(structure, guess, self._must_stop, lacking, temperature=dual.temperature)
            reduced = self._rounded(dual)
            if self._is_done():
                return reduced
            guess = dual.multipliers
        dual = maximise_dual(structure, guess, self._must_stop, lacking)
        reduced = self._rounded(dual)
        if lacking > 0 and not self._is_done():
            dual = maximise_dual(structure, dual.multipliers, self._must_stop, temperature=dual.temperature)
            reduced = self._rounded(dual)
        return reduced if self._is_done() else self._sharpened(reduced)

    def _sharpened(self, reduced: ReducedCosts) -> ReducedCosts:
        """Reduced costs at the prices of the relaxation of a wide core, where these prove more: the smoothed dual ends
        some 1e-7 below its maximum, which is as much as narrow gaps are wide."""
        structure = self._structure
        core = build_core(structure, reduced, threshold_for(reduced, structure.copies.size, _SHARPENING_EXTRA))
        left_s = max(_LEAST_TIME_S, self._options.time_limit_s - self._feed.elapsed_s())
        linear = solve_relaxation(structure, left_s, core)
        return reduced if linear is None or linear.bound <= reduced.bound else self._rounded(linear)

    def _is_scattered(self, linear: DualPoint) -> bool:
        """Whether so few blocks choose that those of them that the relaxation splits are many: far from any point."""
        structure = self._structure
        is_split = (linear.fraction > _ROUNDING) & (linear.fraction < 1.0 - _ROUNDING)
        num_split = np.unique(structure.class_of[is_split]).size
        return bool(structure.copies.max() == 1 and num_split > _SCATTERED * linear.fraction.sum())

    def _rounded(self, dual: DualPoint) -> ReducedCosts:
        structure = self._structure
        self._multipliers = dual.multipliers
        reduced = reduced_costs(structure, dual.multipliers)
        self._bound = max(self._bound, reduced.bound)
        self._is_refuted = self._point is None and structure.refutes(dual.multipliers, reduced.bound)
        if not self._is_done():
            counts = round_choice(structure, dual.multipliers, reduced, dual.fraction, self._is_enough, self._must_stop)
            if counts is not None:
                self._take(counts)
        return reduced

    def _solve(self, core: Core) -> TerminationReason | Limit | None:
        """Solve a core; None to go on, otherwise what ends the search."""
        self._num_cores += 1
        self._core_size = core.columns.size
        if not core.columns.size:
            if contradictions(core.problem):
                return self._infeasible(core)
            self._take(core.lift(np.zeros(0)))
            self._raise_bound(core, core.problem.offset)
            return None
        options = replace(
            self._options,
            time_limit_s=max(_LEAST_TIME_S, self._options.time_limit_s - self._feed.elapsed_s()),
            relative_gap=self._options.relative_gap * (1.0 if self._value <= core.floor else 0.5),
            warm_start=None if self._counts is None else core.lower(self._counts),
        )
        inner = SolveMonitor(on_progress=lambda progress: self._watch(core, progress), canceled=self._monitor.canceled)
        result = self._highs.solve(core.problem, options, inner, target=self._target())
        self._num_nodes += result.statistics.num_nodes or 0
        if result.incumbent is not None:
            self._take(core.lift(result.incumbent))
        if result.bound is not None:
            self._raise_bound(core, result.bound)
        if result.termination is TerminationReason.INFEASIBLE:
            return self._infeasible(core)
        if result.termination is TerminationReason.OPTIMAL:
            return None
        return result.limit or result.termination

    def _is_hardly_smaller(self, core: Core) -> bool:
        """Whether HiGHS has nothing to gain from a core, whose rows it takes in another order, to its harm or not."""
        structure = self._structure
        is_small = structure.cost.size <= _LINEAR
        is_unmerged = bool(structure.copies.max() == 1)
        return is_small and is_unmerged and core.columns.size > _SMALLER * self._problem.num_columns

    def _solve_whole(self) -> TerminationReason | Limit:
        """Solve the problem as it was given, by the way that HiGHS goes by itself, from the best point known."""
        self._num_cores += 1
        self._core_size = self._structure.cost.size
        left_s = max(_LEAST_TIME_S, self._options.time_limit_s - self._feed.elapsed_s())
        inner = SolveMonitor(on_progress=self._watch_whole, canceled=self._monitor.canceled)
        start = self._options.warm_start if self._point is None else self._point
        result = self._highs.solve(self._problem, replace(self._options, time_limit_s=left_s, warm_start=start), inner)
        self._num_nodes += result.statistics.num_nodes or 0
        if result.incumbent is not None:
            self._offer(result.incumbent)
        if result.bound is not None:
            self._bound = max(self._bound, self._problem.sense.sign * result.bound)
        return TerminationReason.OPTIMAL if self._gap_is_closed() else result.limit or result.termination

    def _watch_whole(self, progress: Progress) -> None:
        if progress.incumbent is not None:
            self._offer(progress.incumbent)

    def _infeasible(self, core: Core) -> TerminationReason | None:
        """Without a solution the core only says that solutions cost more than its floor."""
        self._raise_bound(core, core.floor)
        return TerminationReason.INFEASIBLE if np.isinf(core.floor) else None

    def _raise_bound(self, core: Core, bound: float) -> None:
        proved = min(bound, core.floor)
        if np.isfinite(proved):
            self._bound = max(self._bound, proved)

    def _watch(self, core: Core, progress: Progress) -> None:
        """Pass on incumbents of a core as points of the problem."""
        if progress.incumbent is not None:
            self._take(core.lift(progress.incumbent))

    def _take(self, counts: IntVector) -> None:
        """A point in counts (n,) of the structure."""
        if self._offer(self._structure.expand(counts, self._problem.num_columns)):
            self._counts = counts

    def _offer(self, point: FloatVector) -> bool:
        sign = self._problem.sense.sign
        value = sign * self._problem.value(point)
        if value >= self._value:
            return False
        self._value, self._point = value, point
        bound = sign * self._bound if np.isfinite(self._bound) else None
        self._feed.incumbent(point, sign * value, bound, self._num_nodes)
        return True

    def _target(self) -> float:
        """Values up to here are within the gap of the bound."""
        gap = self._options.relative_gap
        return self._bound / (1.0 - gap if self._bound > 0 else 1.0 + gap) if gap < 1.0 else -np.inf

    def _outcome(self, ending: TerminationReason | Limit) -> NativeOutcome:
        structure = self._structure
        message = (
            f"{structure.copies.sum()} blocks in {structure.copies.size} classes, "
            f"{structure.limit.size} coupling rows; "
            f"{self._num_cores} cores, the last with {self._core_size} of {structure.cost.size} columns"
        )
        bound = self._problem.sense.sign * self._bound
        return NativeOutcome(ending=ending, point=self._point, bound=bound, message=message)

    def _gap_is_closed(self) -> bool:
        return self._point is not None and self._is_enough(self._value)

    def _is_enough(self, value: float) -> bool:
        return value - self._bound <= (self._options.relative_gap + _ROUNDING) * abs(value)

    def _must_stop(self) -> bool:
        return self._monitor.canceled.is_set() or self._feed.elapsed_s() > self._options.time_limit_s

    def _is_done(self) -> bool:
        return self._is_refuted or self._gap_is_closed() or self._must_stop()
