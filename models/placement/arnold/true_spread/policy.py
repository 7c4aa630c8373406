"""Arnold by Eq. 2 itself: rows and columns of the communication matrix alike (see `true_spread`)."""

import numpy as np
import pyomo.environ as pyo

from models.clock import PhaseClock
from models.placement.arnold.assignment import pick_nodes
from models.placement.arnold.budget import Budget
from models.placement.arnold.parameters import ArnoldParameters
from models.placement.arnold.search_answer import Report, SearchAnswer
from models.placement.arnold.search_formulation import SearchFormulation
from models.placement.arnold.selection import Affinity, Selection
from models.placement.arnold.true_spread.instance import TrueSpreadInstance
from models.placement.arnold.true_spread.models import cell_model, cell_point
from models.placement.arnold.true_spread.search import cells_on, solve_true_spread
from models.plan import Plan
from models.workload import Snapshot
from stowplan.arrays import FloatVector, IntMatrix


class TrueSpreadFormulation(SearchFormulation):
    """Eq. 2 for one job: a search with bounds of our own, or `cell_model` for general solvers."""

    def __init__(
        self, *, snapshot: Snapshot, parameters: ArnoldParameters, selection: Selection, affinity: Affinity
    ) -> None:
        super().__init__(snapshot=snapshot, parameters=parameters, selection=selection, affinity=affinity)
        self.instance = TrueSpreadInstance(
            num_rows=selection.matrix.num_rows,
            num_columns=selection.matrix.num_columns,
            minipods=selection.pool.minipods,
            free_nodes=selection.room,
            alpha=affinity.alpha,
        )

    def declare(self) -> pyo.ConcreteModel:
        """Declare a minipod for every cell."""
        return cell_model(self.instance)

    @property
    def valued(self) -> TrueSpreadInstance:
        """The instance."""
        return self.instance

    def search(self, budget: Budget, report: Report) -> SearchAnswer:
        """Level by level of the row spread."""
        return solve_true_spread(self.instance, budget, report)

    def point(self, solution: IntMatrix) -> FloatVector:
        """The point (n,) of `cell_model` for the minipods of all cells (R, C)."""
        return cell_point(self.instance, solution)

    def conflicts(self, time_limit_s: float) -> tuple[str, ...]:  # noqa: ARG002 - known without a search
        """The capacities of all minipods and one cell more than fits into them: no row of these can be left out."""
        if self.instance.has_room:
            return ()
        cells = list(self.model.cell.values())[: int(self.instance.free_nodes.sum()) + 1]
        return tuple(row.name for row in [*self.model.capacity.values(), *cells])

    def extract(self, incumbent: FloatVector, clock: PhaseClock) -> Plan:
        """Nodes for every cell."""
        with clock.phase("place"):
            minipods = self.labels(incumbent)
            return self.plan(minipods, pick_nodes(minipods, self.selection.pool.nodes, self.unit))

    def labels(self, incumbent: FloatVector) -> IntMatrix:
        """Minipod of every cell (R, C) of the point `incumbent` (n,): whole cells within its supports."""
        instance = self.instance
        rows, columns, minipods = instance.num_rows, instance.num_columns, instance.num_minipods
        z, u, x, _ = np.split(incumbent, np.cumsum([rows * minipods, columns * minipods, rows * columns * minipods]))
        own: IntMatrix = x.reshape(rows, columns, minipods).argmax(axis=2)
        if np.isin(x, (0, 1)).all() and (np.bincount(own.ravel(), minlength=minipods) <= instance.free_nodes).all():
            return own
        return cells_on(instance, (z > 0.5).reshape(rows, minipods), (u > 0.5).reshape(columns, minipods))
