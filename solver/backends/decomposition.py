"""Decomposition: blocks that choose, a few rows that couple; exact, with HiGHS for what stays open.

1. find blocks and coupling rows, merge equal blocks (`decomposition.structure`);
2. maximise the Lagrangian dual in the few multipliers (`decomposition.dual`): a bound for the whole problem, or the
   proof that it has no solution;
3. round its choice probabilities to a point (`decomposition.rounding`); with many blocks that closes most gaps;
4. solve the core that small reduced costs leave open (`decomposition.core`) as a MIP; widen until the gap is closed
   or the core holds everything that can still matter.

How much of a problem is searched is thus found for each: what is left once bound and point are known. A problem of
another shape goes to HiGHS whole, and so does a small one of which nearly all is left and nothing was merged. Of few
columns all that can matter is written down where that is little (`decomposition.table`), unless prices and a point
come with them; else HiGHS has them, too.
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
from solver.decomposition.dual import ReducedCosts
from solver.decomposition.enumeration import best_of_core
from solver.decomposition.known import Known
from solver.decomposition.pricing import Pricing
from solver.decomposition.structure import ChoiceProblem, find_structure
from solver.decomposition.table import solve_by_table
from solver.feasibility import violations
from solver.monitor import Progress, SolveMonitor
from solver.options import SolveOptions
from solver.preparation import contradictions
from solver.problem import MatrixProblem
from solver.result import Limit, SolveResult, SolveStatistics, TerminationReason
from stowplan.arrays import FloatVector

# So few columns are solved before they are looked at, with and without a first point; of so few blocks no rounded point
# is near the bound.
_FEWEST_COLUMNS = 100
_FEW_COLUMNS = 500
_FEW_BLOCKS = 80
# Options beside the best one of each class in the first core, and how much wider each further core is.
_FIRST_EXTRA = 150
_WIDENING = 4
_NARROW_CORES = 2
# A core that holds all that matters is solved at once where it is not this much larger than a narrow one.
_NARROW_ENOUGH = 5
# A core of few columns is searched where it is smaller than this share of the problem, or has merged what is equal.
_SMALLER = 0.75


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
            # Beside a point, prices leave less than is written down without them, unless coupling rows are many.
            is_priced = is_started and options.prices is not None and problem.num_columns > _FEWEST_COLUMNS
            by_table = None if is_priced else self._solved_by_table(problem, options, monitor)
            if by_table is not None:
                return by_table
            if not is_started or problem.num_columns <= _FEWEST_COLUMNS:
                return self._highs.solve(problem, options, monitor)
        structure = find_structure(problem)
        if structure is None or (_is_hardly_smaller(structure) and not is_started):
            return self._highs.solve(problem, options, monitor)
        known = Known(problem, structure, options, monitor)
        search = _Search(self._highs, known)
        outcome = search.run()
        return conclude(self, problem, outcome, search.statistics(), known.prices)

    def _solved_by_table(
        self, problem: MatrixProblem, options: SolveOptions, monitor: SolveMonitor
    ) -> SolveResult | None:
        """The result where the problem is so small that no search is needed."""
        feed, cpu_s = ProgressFeed(monitor=monitor), time.process_time()
        outcome = solve_by_table(problem, _first_point(problem, options))
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


def _first_point(problem: MatrixProblem, options: SolveOptions) -> FloatVector | None:
    """The warm start (n,) where it keeps all rows and bounds."""
    start = options.warm_start
    if problem.point is not None or start is None:
        return problem.point
    return None if violations(problem, start) else start


def _is_hardly_smaller(structure: ChoiceProblem) -> bool:
    """Whether HiGHS has nothing to gain from what is known of the problem."""
    num_blocks = structure.num_blocks
    return structure.copies.size == num_blocks < _FEW_BLOCKS


class _Search:
    """One solve: bound, incumbent, and ever wider cores until they meet. Values are in minimising form."""

    def __init__(self, highs: HighsBackend, known: Known) -> None:
        self._highs = highs
        self._known = known
        self._problem = known.problem
        self._structure = known.structure
        self._options = known.options
        self._monitor = known.monitor
        self._pricing = Pricing(known)
        self._cpu_s = time.process_time()
        self._num_cores = 0
        self._core_size = 0

    def run(self) -> NativeOutcome:
        """Widen cores until the gap is closed, nothing is left out, or a limit ends it."""
        start = _first_point(self._problem, self._options)
        if start is not None:
            self._known.offer(start)
        for core in self._cores():
            if self._is_hardly_smaller(core):
                return self._outcome(self._solve_whole())
            ending = self._solve(core)
            if ending is not None and not self._known.gap_is_closed():
                return self._outcome(ending)
            # At or below its floor the core's optimum is everybody's.
            if ending is None and self._known.value <= core.floor:
                return self._outcome(TerminationReason.OPTIMAL)
        if self._known.gap_is_closed():
            return self._outcome(TerminationReason.OPTIMAL)
        if self._known.is_refuted:
            return self._outcome(TerminationReason.INFEASIBLE)
        return self._outcome(Limit.INTERRUPTED if self._monitor.canceled.is_set() else Limit.TIME)

    def statistics(self) -> SolveStatistics:
        """What the search took so far; pricing counts as solving."""
        return SolveStatistics(
            solve_s=self._known.feed.elapsed_s(),
            solve_cpu_s=time.process_time() - self._cpu_s,
            first_incumbent_s=self._known.feed.first_incumbent_s,
            num_nodes=self._known.num_nodes,
        )

    def _cores(self) -> Iterator[Core]:
        """Cores from narrow to wide, none where the gap is closed. The last holds everything that can still matter."""
        structure = self._structure
        reduced = self._pricing.near() if structure.num_blocks < _FEW_BLOCKS else self._pricing.good()
        if reduced is None:
            yield whole_core(structure)
            return
        extra = _FIRST_EXTRA
        for attempt in itertools.count():
            if self._known.is_done():
                return
            enough = self._known.beyond(reduced)
            # Where narrow cores do not close the gap, the linear relaxation is weak: branch on all that matters.
            is_last = (
                attempt >= _NARROW_CORES
                or self._pricing.is_quick
                or enough <= threshold_for(reduced, structure.copies.size, _NARROW_ENOUGH * extra)
            )
            threshold = enough if is_last else threshold_for(reduced, structure.copies.size, extra)
            core = build_core(structure, reduced, threshold)
            if is_last and self._is_enumerated(core, reduced, enough):
                return
            yield core
            extra *= _WIDENING

    def _is_enumerated(self, core: Core, reduced: ReducedCosts, beyond: float) -> bool:
        """Whether all points were looked at that could be better than the one that is known, which then is the best."""
        if self._known.point is None or not core.columns.size:
            return False
        found = best_of_core(self._structure, core, reduced, beyond)
        if found is None:
            return False
        for counts in found:
            self._known.take(counts)
        self._known.bound = max(self._known.bound, self._known.value)
        self._num_cores += 1
        self._core_size = core.columns.size
        return True

    def _solve(self, core: Core) -> TerminationReason | Limit | None:
        """Solve a core; None to go on, otherwise what ends the search."""
        self._num_cores += 1
        self._core_size = core.columns.size
        program = core.mip()
        if not core.columns.size:
            if contradictions(program):
                return self._infeasible(core)
            self._known.take(core.lift(np.zeros(0)))
            self._raise_bound(core, program.offset)
            return None
        counts = self._known.counts
        options = replace(
            self._options,
            time_limit_s=self._known.left_s,
            relative_gap=self._options.relative_gap * (1.0 if self._known.value <= core.floor else 0.5),
            warm_start=None if counts is None else core.lower(counts),
        )
        inner = SolveMonitor(on_progress=lambda progress: self._watch(core, progress), canceled=self._monitor.canceled)
        result = self._highs.solve(program, options, inner, target=self._known.target())
        self._known.num_nodes += result.statistics.num_nodes or 0
        if result.incumbent is not None:
            self._known.take(core.lift(result.incumbent))
        if result.bound is not None:
            self._raise_bound(core, result.bound)
        if result.termination is TerminationReason.INFEASIBLE:
            return self._infeasible(core)
        if result.termination is TerminationReason.OPTIMAL:
            return None
        return result.limit or result.termination

    def _is_hardly_smaller(self, core: Core) -> bool:
        """Whether HiGHS has nothing to gain from a core, whose rows it takes in another order, to its harm or not."""
        is_unmerged = bool(self._structure.copies.max() == 1)
        return self._pricing.is_quick and is_unmerged and core.columns.size > _SMALLER * self._problem.num_columns

    def _solve_whole(self) -> TerminationReason | Limit:
        """Solve the problem as it was given, by the way of HiGHS itself, from the best point that is known."""
        self._num_cores += 1
        self._core_size = self._structure.cost.size
        inner = SolveMonitor(on_progress=self._watch_whole, canceled=self._monitor.canceled)
        start = self._options.warm_start if self._known.point is None else self._known.point
        options = replace(self._options, time_limit_s=self._known.left_s, warm_start=start)
        result = self._highs.solve(self._problem, options, inner)
        self._known.num_nodes += result.statistics.num_nodes or 0
        if result.incumbent is not None:
            self._known.offer(result.incumbent)
        if result.bound is not None:
            self._known.bound = max(self._known.bound, self._problem.sense.sign * result.bound)
        return TerminationReason.OPTIMAL if self._known.gap_is_closed() else result.limit or result.termination

    def _watch_whole(self, progress: Progress) -> None:
        if progress.incumbent is not None:
            self._known.offer(progress.incumbent)

    def _infeasible(self, core: Core) -> TerminationReason | None:
        """Without a solution the core only says that solutions cost more than its floor."""
        self._raise_bound(core, core.floor)
        return TerminationReason.INFEASIBLE if np.isinf(core.floor) else None

    def _raise_bound(self, core: Core, bound: float) -> None:
        proved = min(bound, core.floor)
        if np.isfinite(proved):
            self._known.bound = max(self._known.bound, proved)

    def _watch(self, core: Core, progress: Progress) -> None:
        """Pass on incumbents of a core as points of the problem."""
        if progress.incumbent is not None:
            self._known.take(core.lift(progress.incumbent))

    def _outcome(self, ending: TerminationReason | Limit) -> NativeOutcome:
        structure = self._structure
        message = (
            f"{structure.num_blocks} blocks in {structure.copies.size} classes, "
            f"{structure.limit.size} coupling rows; "
            f"{self._num_cores} cores, the last with {self._core_size} of {structure.cost.size} columns"
        )
        bound = self._problem.sense.sign * self._known.bound
        return NativeOutcome(ending=ending, point=self._known.point, bound=bound, message=message)
