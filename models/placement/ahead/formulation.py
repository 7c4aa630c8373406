"""Planning ahead as a policy: from a snapshot to starts and nodes of its waiting pre-training jobs."""

from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from models.clock import PhaseClock
from models.formulation import Formulation
from models.placement.ahead.building import AheadProblem, ahead_problem
from models.placement.ahead.check import plan_violations
from models.placement.ahead.concession import left_out
from models.placement.ahead.extraction import ahead_plan
from models.placement.ahead.instance import AheadInstance
from models.placement.ahead.parameters import AheadParameters
from models.placement.ahead.point import Layout
from models.placement.ahead.search import AheadAnswer, AheadSearch
from models.placement.ahead.size import num_terms
from models.placement.arnold.budget import Budget
from models.placement.arnold.policy import NothingToPlan
from models.plan import Plan, UnplacedJob
from models.workload import Snapshot
from solver.monitor import SolveMonitor
from solver.options import SolveOptions
from solver.problem import MatrixProblem
from solver.registry import AUTO, EXACT
from solver.result import Limit, SolveResult, SolveStatistics, TerminationReason
from solver.sense import Sense
from solver.solve import solve
from stowplan import __version__
from stowplan.arrays import FloatVector
from stowplan.errors import Issue, Severity

if TYPE_CHECKING:
    from solver.compilers.pyomo import PyomoCompilation

# What is declared and compiled in a second, and the share of the limit for it.
_TERMS_PER_S, _DECLARING = 100_000, 0.5
# Beyond that, nobody waits for the program to be declared where the search has found nothing.
_MOST_DECLARED = 50_000
# Or where it has found a plan, and the gap is open.
_MOST_CLOSED = 5_000


class AheadFormulation(Formulation):
    """One planning ahead. The search needs no model, so it is declared on demand."""

    def __init__(self, ahead: AheadProblem) -> None:
        self.ahead = ahead

    @cached_property
    def instance(self) -> AheadInstance:
        """The numbers."""
        return self.ahead.instance

    @cached_property
    def layout(self) -> Layout:
        """Where the columns are."""
        return Layout(self.instance)

    @cached_property
    def compiled(self) -> "PyomoCompilation":
        """The declared model in matrix form, with its variables."""
        # Loaded here: Pyomo takes seconds to load, and the search answers without a model.
        from models.placement.ahead.declaration import ahead_model
        from solver.compilers.pyomo import compile_pyomo

        return compile_pyomo(ahead_model(self.instance))

    @cached_property
    def problem(self) -> MatrixProblem:  # type: ignore[override]  # declared when somebody asks for it
        """The model in matrix form."""
        return self.compiled.problem

    def solve(self, options: SolveOptions, monitor: SolveMonitor) -> SolveResult:
        """Search; a small program is solved where that leaves a gap, or where the options name a general solver."""
        budget = Budget(options=options, monitor=monitor)
        if options.solver not in (AUTO, EXACT):
            declared = self._declared(budget)
            if declared is not None:
                return declared
            self.warnings = (_not_declared(num_terms(self.instance), options.time_limit_s),)
        answer = AheadSearch(self.instance, budget).run()
        result = self._result(budget, answer)
        is_open = result.termination in (TerminationReason.FEASIBLE, TerminationReason.NO_SOLUTION_FOUND)
        most = _MOST_DECLARED if answer.placings is None else _MOST_CLOSED
        if not is_open or budget.ended_by is not None or options.solver != AUTO or self.layout.num_columns > most:
            return result
        declared = self._declared(budget) or result
        is_closed = declared.termination in (TerminationReason.OPTIMAL, TerminationReason.INFEASIBLE)
        return declared if is_closed or answer.placings is None else result

    def _declared(self, budget: Budget) -> SolveResult | None:
        """Declare the program and solve it in what is left of the limit; None where to declare it takes too much."""
        if num_terms(self.instance) > _TERMS_PER_S * _DECLARING * budget.remaining_s:
            return None
        problem = self.problem
        if budget.remaining_s <= 0:
            return None
        return solve(problem, replace(budget.options, time_limit_s=budget.remaining_s), budget.monitor)

    def _result(self, budget: Budget, answer: AheadAnswer) -> SolveResult:
        limit: Limit | None = None
        bound = float(answer.bound) if np.isfinite(answer.bound) else None
        if answer.placings is not None:
            close = bound is not None and answer.cost - bound <= budget.options.relative_gap * abs(answer.cost) + 1e-9
            reason = TerminationReason.OPTIMAL if close else TerminationReason.FEASIBLE
            limit = None if close else budget.ended_by
        elif answer.bound == np.inf:
            reason = TerminationReason.INFEASIBLE
        else:
            reason, limit = TerminationReason.NO_SOLUTION_FOUND, budget.ended_by or Limit.OTHER
        return SolveResult(
            termination=reason,
            limit=limit,
            sense=Sense.MINIMIZE,
            incumbent=None if answer.placings is None else self.layout.point(answer.placings),
            objective=None if answer.placings is None else float(answer.cost),
            bound=bound,
            statistics=SolveStatistics(
                solve_s=budget.elapsed_s,
                solve_cpu_s=budget.elapsed_cpu_s,
                first_incumbent_s=budget.first_incumbent_s,
                num_columns=self.layout.num_columns,
            ),
            solver=EXACT,
            solver_version=__version__,
            message="jobs placed one after the other; bound by what each start costs alone where nodes suffice for all",
        )

    def conflicts(self, time_limit_s: float) -> tuple[str, ...]:  # noqa: ARG002 - what is short is said by `unplaced`
        """Name no rows: `unplaced` says what would help."""
        return ()

    def unplaced(self) -> tuple[UnplacedJob, ...]:
        """The jobs that have no start, and the least that would give them one."""
        return left_out(self.ahead)

    def extract(self, incumbent: FloatVector, clock: PhaseClock) -> Plan:
        """Nodes for every cell of every job, and what its other starts would cost."""
        with clock.phase("place"):
            return ahead_plan(self.ahead, self.layout.placings(incumbent))

    def violations(self, plan: Plan, objective: float) -> list[Issue]:
        """Check without any solver; the plan may be better than `objective`, never worse."""
        return plan_violations(self.ahead.snapshot, self.ahead.parameters, plan, objective)


def _not_declared(terms: int, limit_s: float) -> Issue:
    detail = (
        f"the program has about {terms} terms, and to declare it takes too much of the limit of {limit_s:g} s: "
        "answered by the search, with its bound; give more time, or fewer starts (num_starts)"
    )
    return Issue(code="not_declared", pointer="/options/solver", detail=detail, severity=Severity.WARNING)


def formulate_ahead(snapshot: Snapshot, parameters: AheadParameters, clock: PhaseClock) -> Formulation:
    """Build the formulation.

    Raises
    ------
    InputError
        When there is no job to plan ahead, or one that cannot be.
    """
    if not snapshot.jobs:
        return NothingToPlan()
    with clock.phase("performance"):
        formulation = AheadFormulation(ahead_problem(snapshot, parameters))
    with clock.phase("build"):
        # Built when it is first asked for.
        _ = formulation.instance
    return formulation
