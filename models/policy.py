"""What every policy offers to `models.planning`, and nothing about any of them."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

from solver.solve import solve

from models.clock import PhaseClock
from models.plan import Plan
from solver.monitor import SolveMonitor
from solver.options import SolveOptions
from solver.problem import MatrixProblem, Vector
from solver.result import SolveResult
from stowplan.errors import Issue


class Formulation(ABC):
    """A snapshot turned into an optimisation problem, able to read the answer back.

    Built by a policy's `formulate`; it keeps what it needs to extract, and is used once.
    """

    problem: MatrixProblem
    warm_start: Vector | None = None
    warnings: Sequence[Issue] = ()

    def solve(self, options: SolveOptions, monitor: SolveMonitor) -> SolveResult:
        """Solve the problem. The default hands the matrix form to the backend that the options name."""
        return solve(self.problem, options, monitor)

    @abstractmethod
    def extract(self, incumbent: Vector, clock: PhaseClock) -> Plan:
        """Turn the point `incumbent` (n,) of the problem into a plan on concrete GPUs."""

    @abstractmethod
    def violations(self, plan: Plan, objective: float) -> list[Issue]:
        """Everything that is wrong with the plan or its claimed objective, found without any solver."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Resume:
    """The last incumbent (n,) and bound that a killed worker reported: enough to finish without solving again."""

    incumbent: Vector
    bound: float | None
    elapsed_s: float
