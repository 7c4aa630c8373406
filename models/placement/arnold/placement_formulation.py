"""What the formulations of Arnold share: the model is declared when somebody asks for it, and the way back to nodes."""

from abc import abstractmethod
from functools import cached_property
from typing import TYPE_CHECKING

from models.formulation import Formulation
from models.placement.arnold.check import plan_violations
from models.placement.arnold.extraction import arnold_plan
from models.placement.arnold.parameters import ArnoldParameters
from models.placement.arnold.selection import Affinity, Selection, minipod_tier
from models.placement.arnold.validation import crowded_out
from models.plan import Plan, UnplacedJob
from models.workload import Snapshot
from solver.problem import MatrixProblem
from stowplan.arrays import IntMatrix
from stowplan.collection import without_collection
from stowplan.errors import Issue

if TYPE_CHECKING:
    import pyomo.environ as pyo

    from solver.compilers.pyomo import PyomoCompilation


class PlacementFormulation(Formulation):
    """One job on the minipods of a snapshot. The exact algorithms need no model, so it is declared on demand."""

    def __init__(
        self, *, snapshot: Snapshot, parameters: ArnoldParameters, selection: Selection, affinity: Affinity
    ) -> None:
        self.snapshot = snapshot
        self.parameters = parameters
        self.selection = selection
        self.affinity = affinity
        self.unit = parameters.scheduling_unit
        self.tier = minipod_tier(snapshot, parameters)

    @abstractmethod
    def declare(self) -> "pyo.ConcreteModel":
        """Declare the model that general solvers get, and that is exported."""

    @cached_property
    def model(self) -> "pyo.ConcreteModel":
        """The declared model."""
        return self.declare()

    @cached_property
    def compiled(self) -> "PyomoCompilation":
        """The model in matrix form, with its variables."""
        # Loaded here: Pyomo takes seconds to load, and the exact algorithms mostly answer without a model.
        from solver.compilers.pyomo import compile_pyomo

        return compile_pyomo(self.model)

    @cached_property
    def problem(self) -> MatrixProblem:  # type: ignore[override]  # declared when somebody asks for it
        """The model in matrix form."""
        return self.compiled.problem

    def unplaced(self) -> tuple[UnplacedJob, ...]:
        """The job: it fits nowhere when too few nodes are free, and for nothing else."""
        return (crowded_out(self.selection),)

    def violations(self, plan: Plan, objective: float) -> list[Issue]:
        """Check without any solver; the plan may be better than `objective`, never worse."""
        with without_collection():
            return plan_violations(self.snapshot, plan, self.tier, objective, self.parameters)

    def plan(self, minipods: IntMatrix, cells: tuple[tuple[str, ...], ...]) -> Plan:
        """Plan from minipod indices (rows, columns) and the node in every cell."""
        with without_collection():
            return arnold_plan(self.snapshot, self.selection, self.parameters, self.affinity, minipods, cells)
