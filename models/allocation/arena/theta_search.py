r"""Eq. 7 by its theta: the best plan under a limit T on all costs is a choice problem, which prices of capacity solve.

With share s = mu/K, and c_i the cost of job i,

    f(T) = T + s min sum_i c_i   over plans in which every c_i <= T

is at least the objective of the plan that it finds, and its least value over the T that some job can cost is the
optimum. The program of one T has no theta and no finish times: pairs that cost more than T are not there, and a job
that costs more while it waits must be launched.

Prices u of the placeability rows at one T bound f at every other T, since jobs are independent given prices: with the
allowed options o of job i (its pairs, and to wait), their costs c_io, and what they take a_o of the rows with limits b,

    f(T) >= T + sum_i min_(o: c_io <= T) (s c_io + u a_o) - u b

in which the minima of all T are read off the options of each job in the order of their costs. So few T are solved: the
one with the least bound, until the best plan is within the gap of it. What is below the least T at which every job has
an option is never asked. Where a T has no plan, prices that prove it do so for all T up to where the cheapest options
take no more than there is,

    sum_i min_(o: c_io <= T) u a_o <= u b
"""

import time
from dataclasses import dataclass, replace

import numpy as np
from scipy import sparse

from models.allocation.arena.assembly import baseline, choosing
from models.allocation.arena.instance import ArenaInstance
from models.wording import counted
from solver.decomposition.dual import DualPoint, maximise_dual
from solver.decomposition.structure import ChoiceProblem, find_structure
from solver.feasibility import FEASIBILITY_TOLERANCE, violations
from solver.monitor import Progress, SolveMonitor
from solver.options import SolveOptions
from solver.problem import MatrixProblem
from solver.result import Limit, SolveResult, TerminationReason
from solver.solve import solve
from stowplan.arrays import FloatMatrix, FloatVector, IntMatrix, IntVector

# Share of the gap that the program of one T may keep open.
_SHARE_OF_GAP = 0.5
# Programs of one T after which the integer program of Eq. 7 is left to the solver.
_MOST_SOLVED = 40
_ANSWERS = (TerminationReason.OPTIMAL, TerminationReason.INFEASIBLE)
_LEAST_TIME_S = 1e-3
# Relative: sums of the same numbers in another order differ by this.
_ROUNDING = 1e-12


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Options:
    """What each planned job may choose, to wait included, in the order of cost.

    costs: float64 (J', K), what a job costs then, inf where it has no more options; shares: float64 (J', K), its part
    of the objective beside theta, the constant left out; columns: int64 (J', K), the pair, -1 to wait.
    """

    costs: FloatMatrix
    shares: FloatMatrix
    columns: IntMatrix


class ThetaSearch:
    """One solve of Eq. 7; `point` is the best plan that it has found, also where `run` gives up."""

    def __init__(
        self, instance: ArenaInstance, problem: MatrixProblem, options: SolveOptions, monitor: SolveMonitor
    ) -> None:
        """`problem` is what `assemble` made of the instance; theta is its last column."""
        self._started = time.perf_counter()
        self._started_cpu = time.process_time()
        self._instance = instance
        self._problem = problem
        self._options = options
        self._monitor = monitor
        self._base = baseline(instance)
        self._values = instance.pair_values
        self._num_rows = problem.num_rows - int(instance.counted.sum())
        self._rows = problem.matrix.tocsr()[: self._num_rows, :-1].tocsc()
        self._choices = self._listed()
        # What theta may be: from the least at which every job has an option, what some option costs.
        every = np.unique(self._choices.costs[np.isfinite(self._choices.costs)])
        self._thetas: FloatVector = every[every >= self._choices.costs[:, 0].max(initial=0.0)]
        self._bounds = self._thetas.copy()
        self._kept: IntVector = np.zeros(0, dtype=np.int64)
        self._prices: FloatVector | None = None
        self.point: FloatVector | None = None
        self._value = np.inf
        self._first_incumbent_s: float | None = None
        self._num_nodes = 0
        self._num_solved = 0

    def run(self) -> SolveResult | None:
        """The result of the whole problem; None where some job has no option, or few programs of one T do not do."""
        if not self._thetas.size:
            return None
        self._price(np.zeros(self._num_rows))
        if self._options.warm_start is not None:
            self._offer(self._options.warm_start[:-1])
        # How far to go beyond a theta that prices do not refute, and that has no plan even so.
        stride, known, where = 0, self._thetas.size, 0
        for _ in range(_MOST_SOLVED):
            problem, result = self._solved(where)
            if result.termination is TerminationReason.INFEASIBLE:
                self._bounds[: where + 1] = np.inf
                if not stride:
                    self._refute(problem, result)
                if int(self._bounds.argmin()) == where + 1:
                    stride = max(1, 2 * stride)
            else:
                self._learn(where, problem, result)
                known = min(known, where)
            where = int(self._bounds.argmin())
            if self._is_closed() or np.isinf(self._bounds[where]) or result.limit is not None:
                return self._ended(result)
            if result.termination not in _ANSWERS:
                return None
            if stride and where < known:
                # Between a theta without a plan and one with: plans begin not far above what prices refute.
                where = min(where + stride - 1, (where + known) // 2)
        return None

    def _listed(self) -> _Options:
        instance = self._instance
        jobs = np.flatnonzero(instance.counted)
        may_wait = ~instance.required[jobs]
        rows = np.concatenate([np.searchsorted(jobs, instance.pair_jobs), np.flatnonzero(may_wait)])
        costs = np.concatenate([self._values, self._base[jobs[may_wait]]])
        shares = np.concatenate([self._problem.objective[:-1], np.zeros(int(may_wait.sum()))])
        columns = np.concatenate([np.arange(self._values.size), np.full(int(may_wait.sum()), -1)])
        order = np.lexsort([costs, rows])
        row = rows[order]
        place = np.arange(row.size) - np.searchsorted(row, row)
        shape = (jobs.size, int(place.max(initial=0)) + 1)

        listed = _Options(
            costs=np.full(shape, np.inf), shares=np.full(shape, np.inf), columns=np.full(shape, -1, dtype=np.int64)
        )
        listed.costs[row, place] = costs[order]
        listed.shares[row, place] = shares[order]
        listed.columns[row, place] = columns[order]
        return listed

    def _least_shares(self, prices: FloatVector) -> FloatVector:
        """What plans under each theta (k,) cost at least beside it, by prices (rows,) of the program of one T."""
        return self._problem.offset + self._least(self._choices.shares, prices)

    def _least(self, shares: FloatMatrix, prices: FloatVector) -> FloatVector:
        """Under each theta (k,) the least that options with `shares` (J', K) cost at prices (rows,), beyond what the
        rows are worth at them."""
        choices = self._choices
        charged = np.append(self._rows.T @ prices, 0.0)[choices.columns]
        best = np.minimum.accumulate(shares + charged, axis=1)
        falls = np.diff(best, axis=1, prepend=0.0)
        falls[:, 0] = best[:, 0]
        there = np.isfinite(choices.costs)
        # The options below the first theta are there under every theta.
        when = np.searchsorted(self._thetas, choices.costs[there])
        sums = np.bincount(when, falls[there], self._thetas.size).cumsum()
        limits = self._problem.row_upper[: self._num_rows]
        priced = prices > 0
        paid = float(limits[priced] @ prices[priced])
        size = np.abs(best[:, 0]).sum() + paid
        return np.asarray(sums - paid - _ROUNDING * size)

    def _solved(self, where: int) -> tuple[MatrixProblem, SolveResult]:
        """The program of one T, over the pairs `_kept`, and its result."""
        theta = float(self._thetas[where])
        self._kept = np.flatnonzero(self._values <= theta)
        self._num_solved += 1
        options = replace(
            self._options,
            time_limit_s=self._left_s(),
            relative_gap=_SHARE_OF_GAP * self._options.relative_gap,
            warm_start=None,
            prices=self._given_prices() if self._prices is None else self._prices,
        )
        problem = self._limited(theta)
        result = solve(problem, options, SolveMonitor(canceled=self._monitor.canceled))
        self._num_nodes += result.statistics.num_nodes or 0
        return problem, result

    def _left_s(self) -> float:
        return max(_LEAST_TIME_S, self._options.time_limit_s - (time.perf_counter() - self._started))

    def _given_prices(self) -> FloatVector | None:
        given = self._options.prices
        return None if given is None else given[: self._num_rows]

    def _limited(self, theta: float) -> MatrixProblem:
        instance, problem, kept = self._instance, self._problem, self._kept
        must = instance.counted & ~instance.required & (self._base > theta)
        choosers = np.flatnonzero(choosing(instance))
        row_lower = problem.row_lower[: self._num_rows].copy()
        row_lower[: choosers.size] = must[choosers]
        # A job with one pair has no row.
        must[choosers] = False
        return replace(
            problem,
            objective=problem.objective[kept],
            matrix=sparse.csc_array(self._rows[:, kept]),
            row_lower=row_lower,
            row_upper=problem.row_upper[: self._num_rows],
            lower=must[instance.pair_jobs[kept]].astype(np.float64),
            upper=np.ones(kept.size),
            integrality=np.ones(kept.size, dtype=np.bool_),
        )

    def _learn(self, where: int, problem: MatrixProblem, result: SolveResult) -> None:
        """Take in the point of one T, its bound, and what its prices say of all others."""
        if result.bound is not None:
            least = self._thetas[: where + 1] + result.bound
            self._bounds[: where + 1] = np.maximum(self._bounds[: where + 1], least)
        prices = self._relaxed(problem) if result.prices is None else result.prices
        if prices is not None:
            self._prices = np.maximum(prices, 0.0)
            self._price(self._prices)
        if result.incumbent is not None:
            pairs = np.zeros(self._values.size)
            pairs[self._kept] = result.incumbent
            self._offer(pairs)

    def _price(self, prices: FloatVector) -> None:
        """Take in what prices (rows,) say of every theta."""
        self._bounds = np.maximum(self._bounds, self._thetas + self._least_shares(prices))

    def _refute(self, problem: MatrixProblem, result: SolveResult) -> None:
        """Leave out every theta at which what has to run takes more than there is, by the prices that prove it of the
        program of one T, and by more than the tolerance of points."""
        prices = self._refuting(problem) if result.prices is None else np.maximum(result.prices, 0.0)
        if prices is None:
            return
        shares = np.where(np.isfinite(self._choices.costs), 0.0, np.inf)
        limits = self._problem.row_upper[: self._num_rows]
        beyond = FEASIBILITY_TOLERANCE * float(np.maximum(np.abs(limits), 1.0) @ prices)
        self._bounds[self._least(shares, prices) > beyond] = np.inf

    def _refuting(self, problem: MatrixProblem) -> FloatVector | None:
        """Prices (rows,) at which a program of one T without a plan has none, where the solver had none."""
        structure = find_structure(problem)
        if structure is None:
            return None
        ends = time.perf_counter() + self._left_s()
        dual = maximise_dual(structure, stop=lambda: time.perf_counter() > ends)
        return self._of_rows(structure, dual)

    def _relaxed(self, problem: MatrixProblem) -> FloatVector | None:
        """Prices (rows,) of the relaxation of the program of one T, where the solver had none."""
        # It loads HiGHS, which whoever reads requests does without.
        from solver.decomposition.relaxation import solve_relaxation

        structure = find_structure(problem)
        linear = None if structure is None else solve_relaxation(structure, self._left_s())
        return None if structure is None or linear is None else self._of_rows(structure, linear)

    def _of_rows(self, structure: ChoiceProblem, dual: DualPoint) -> FloatVector:
        prices = np.zeros(self._num_rows)
        np.add.at(prices, structure.rows, dual.multipliers)
        return prices

    def _offer(self, pairs: FloatVector) -> None:
        """A choice of pairs (P,), with theta as small as it can be."""
        costs = self._base.copy()
        np.add.at(costs, self._instance.pair_jobs, pairs * (self._values - self._base[self._instance.pair_jobs]))
        point = np.append(pairs, costs.max(initial=0.0, where=self._instance.counted))
        value = self._problem.value(point)
        if value >= self._value or violations(self._problem, point):
            return
        self.point, self._value = point, value
        elapsed_s = time.perf_counter() - self._started
        if self._first_incumbent_s is None:
            self._first_incumbent_s = elapsed_s
        self._monitor.on_progress(Progress(elapsed_s=elapsed_s, objective=value, bound=self._bound(), incumbent=point))

    def _bound(self) -> float | None:
        bound = min(float(self._bounds.min()), self._value)
        return bound if np.isfinite(bound) else None

    def _is_closed(self) -> bool:
        gap = (self._options.relative_gap + _ROUNDING) * abs(self._value)
        return self.point is not None and self._value - float(self._bounds.min()) <= gap

    def _ended(self, last: SolveResult) -> SolveResult:
        """The result of the whole problem, after the program of one T that was solved last."""
        prices = None
        if self._prices is not None:
            prices = np.zeros(self._problem.num_rows)
            prices[: self._num_rows] = self._prices
        if self.point is None:
            is_infeasible = bool(np.isinf(self._bounds).all())
            termination = TerminationReason.INFEASIBLE if is_infeasible else TerminationReason.NO_SOLUTION_FOUND
        else:
            is_optimal = self._is_closed()
            termination = TerminationReason.OPTIMAL if is_optimal else TerminationReason.FEASIBLE
        has_limit = termination in (TerminationReason.FEASIBLE, TerminationReason.NO_SOLUTION_FOUND)
        return replace(
            last,
            termination=termination,
            limit=(last.limit or Limit.OTHER) if has_limit else None,
            incumbent=self.point,
            objective=None if self.point is None else self._value,
            bound=None if termination is TerminationReason.INFEASIBLE else self._bound(),
            statistics=replace(
                last.statistics,
                solve_s=time.perf_counter() - self._started,
                solve_cpu_s=time.process_time() - self._started_cpu,
                first_incumbent_s=self._first_incumbent_s,
                num_nodes=self._num_nodes,
                num_columns=self._problem.num_columns,
                num_rows=self._problem.num_rows,
                num_nonzeros=self._problem.matrix.nnz,
            ),
            message=f"{counted(self._num_solved, 'value')} of theta solved; {last.message}",
            prices=prices,
        )
