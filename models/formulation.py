"""What the formulation of every policy offers to `models.planning`, and nothing about any of them."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import replace

from models.clock import PhaseClock
from models.plan import Plan, Resume, UnplacedJob
from solver.feasibility import violations
from solver.monitor import SolveMonitor
from solver.options import SolveOptions
from solver.problem import MatrixProblem
from solver.result import Limit, SolveResult, SolveStatistics, TerminationReason
from solver.sense import Sense
from solver.solve import solve
from stowplan import __version__
from stowplan.arrays import FloatVector
from stowplan.errors import Issue


class Formulation(ABC):
    """A snapshot turned into an optimisation problem, able to read the answer back.

    Built by a policy's `formulate`; it keeps what it needs to extract, and is used once.
    """

    problem: MatrixProblem
    warm_start: FloatVector | None = None
    warnings: Sequence[Issue] = ()

    def solve(self, options: SolveOptions, monitor: SolveMonitor) -> SolveResult:
        """Solve the problem. The default hands the matrix form to the backend that the options name, with the warm
        start of the formulation unless the options bring one."""
        if options.warm_start is None and self.warm_start is not None:
            options = replace(options, warm_start=self.warm_start)
        return solve(self.problem, options, monitor)

    def resumed(self, resume: Resume, options: SolveOptions) -> SolveResult:
        """The result that the killed worker would have returned, had it been asked in time."""
        problem = self.problem
        legal = resume.incumbent.shape == (problem.num_columns,) and not violations(problem, resume.incumbent)
        objective = problem.value(resume.incumbent) if legal else None
        return resumed_result(resume, options, problem.sense, objective, problem)

    def named(self) -> MatrixProblem:
        """The problem with names of rows and columns, for export and explanations."""
        return self.problem

    def conflicts(self, time_limit_s: float) -> tuple[str, ...]:
        """Names of rows and bounds that exclude each other, asked for when the problem is infeasible; empty when none
        are found in time. The default searches the matrix form."""
        # SCIP finds them; whoever has a plan does not load it.
        from solver.infeasibility import conflicting_rows

        return conflicting_rows(self.named(), time_limit_s)

    def unplaced(self) -> tuple[UnplacedJob, ...]:
        """Jobs that fit nowhere, and what would help, asked for when the problem is infeasible; empty where the
        conflicts have to do."""
        return ()

    def prices(self, result: SolveResult) -> Mapping[str, float]:  # noqa: ARG002 - most models price nothing
        """What one more unit of each scarce resource is worth, by row name; empty where the solver did not price."""
        return {}

    @abstractmethod
    def extract(self, incumbent: FloatVector, clock: PhaseClock) -> Plan:
        """Turn the point `incumbent` (n,) of the problem into a plan on concrete GPUs."""

    @abstractmethod
    def violations(self, plan: Plan, objective: float) -> list[Issue]:
        """Everything that is wrong with the plan or its claimed objective, found without any solver."""


def resumed_result(
    resume: Resume, options: SolveOptions, sense: Sense, objective: float | None, problem: MatrixProblem | None = None
) -> SolveResult:
    """The result of a killed worker, whose last incumbent is worth `objective`; None: it is not legal.

    `problem` where it was declared.
    """
    return SolveResult(
        termination=TerminationReason.NO_SOLUTION_FOUND if objective is None else TerminationReason.FEASIBLE,
        limit=Limit.DEADLINE,
        sense=sense,
        incumbent=None if objective is None else resume.incumbent,
        objective=objective,
        bound=resume.bound,
        statistics=SolveStatistics(
            solve_s=resume.elapsed_s,
            num_columns=None if problem is None else problem.num_columns,
            num_rows=None if problem is None else problem.num_rows,
        ),
        solver=options.solver,
        solver_version=__version__,
        message="finished from the last incumbent of a worker that was killed at its deadline",
    )
