"""What the placements with a search of ours share: it answers, or starts the general solver that the options name."""

from abc import abstractmethod
from functools import cached_property
from typing import Protocol

from models.placement.arnold.budget import Budget
from models.placement.arnold.placement_formulation import PlacementFormulation
from models.placement.arnold.search_answer import Report, SearchAnswer
from solver.monitor import SolveMonitor
from solver.options import SolveOptions
from solver.registry import AUTO, EXACT
from solver.result import Limit, SolveResult, SolveStatistics, TerminationReason
from solver.sense import Sense
from stowplan import __version__
from stowplan.arrays import FloatVector, IntMatrix


class Valued(Protocol):
    """An instance that knows the objective of a solution."""

    def objective(self, solution: IntMatrix, /) -> float:
        """The weighted sum that is minimised."""


class SearchFormulation(PlacementFormulation):
    """A formulation whose search finds and proves without the model."""

    @property
    @abstractmethod
    def valued(self) -> Valued:
        """The instance that is searched."""

    @abstractmethod
    def search(self, budget: Budget, report: Report) -> SearchAnswer:
        """Find the optimum, or the best within the budget; `report` gets every better solution with the bound."""

    @abstractmethod
    def point(self, solution: IntMatrix) -> FloatVector:
        """The point (n,) of the problem that stands for a solution."""

    @property
    def num_columns(self) -> int | None:
        """Columns of the declared model where they are known without it."""
        return None

    def handed_on(self, solution: IntMatrix) -> FloatVector:
        """What an answer and its progress carry as incumbent: the point."""
        return self.point(solution)

    @cached_property
    def warm_start(self) -> FloatVector | None:  # type: ignore[override]  # a general solver starts here, others need none
        """What the search knows without any solve."""
        budget = Budget(options=SolveOptions(), monitor=SolveMonitor(), may_solve=False)
        solution = self.search(budget, lambda *_: None).solution
        return None if solution is None else self.point(solution)

    def solve(self, options: SolveOptions, monitor: SolveMonitor) -> SolveResult:
        """Search, or hand the model to the general solver that the options name."""
        if options.solver not in (AUTO, EXACT):
            return super().solve(options, monitor)
        budget = Budget(options=options, monitor=monitor)

        def report(solution: IntMatrix, bound: float) -> None:
            budget.tell(objective=self.valued.objective(solution), bound=bound, incumbent=self.handed_on(solution))

        answer = self.search(budget, report)
        incumbent = None if answer.solution is None else self.handed_on(answer.solution)
        return _result(budget, answer, incumbent, self.num_columns)


def _result(budget: Budget, answer: SearchAnswer, point: FloatVector | None, num_columns: int | None) -> SolveResult:
    """Proven infeasible without a point, else optimal when the gap asked for is proven."""
    limit: Limit | None = None
    objective, bound = answer.objective, answer.bound
    if point is None or objective is None or bound is None:
        reason = TerminationReason.INFEASIBLE
    elif answer.proven or objective - bound <= budget.options.relative_gap * abs(objective):
        reason = TerminationReason.OPTIMAL
    else:
        reason, limit = TerminationReason.FEASIBLE, budget.ended_by
    return SolveResult(
        termination=reason,
        limit=limit,
        sense=Sense.MINIMIZE,
        incumbent=point,
        objective=objective,
        bound=bound,
        statistics=SolveStatistics(
            solve_s=budget.elapsed_s,
            solve_cpu_s=budget.elapsed_cpu_s,
            first_incumbent_s=budget.first_incumbent_s,
            num_nodes=budget.num_nodes,
            num_columns=None if point is None else num_columns or point.size,
        ),
        solver=EXACT,
        solver_version=__version__,
        message=answer.certificate,
    )
