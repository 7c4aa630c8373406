"""Arnold by Eq. 2 itself: rows and columns of the communication matrix alike (see `true_spread`)."""

from functools import cached_property

import numpy as np
import pyomo.environ as pyo

from models.clock import PhaseClock
from models.placement.arnold.assignment import pick_nodes
from models.placement.arnold.budget import Budget
from models.placement.arnold.parameters import ArnoldParameters
from models.placement.arnold.placement_formulation import PlacementFormulation, asks_for_exact, search_result
from models.placement.arnold.selection import Affinity, Selection
from models.placement.arnold.true_spread.instance import TrueSpreadInstance
from models.placement.arnold.true_spread.models import cell_model, cell_point
from models.placement.arnold.true_spread.search import cells_on, solve_true_spread
from models.plan import Plan
from models.workload import Snapshot
from solver.monitor import SolveMonitor
from solver.options import SolveOptions
from solver.result import SolveResult
from stowplan.arrays import FloatVector, IntMatrix


class TrueSpreadFormulation(PlacementFormulation):
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

    @cached_property
    def warm_start(self) -> FloatVector | None:  # type: ignore[override]  # a general solver starts here, others need none
        """What the search of ours knows without any solve."""
        labels = solve_true_spread(
            self.instance, Budget(options=SolveOptions(), monitor=SolveMonitor(), may_solve=False), lambda *_: None
        ).labels
        return None if labels is None else cell_point(self.instance, labels)

    def solve(self, options: SolveOptions, monitor: SolveMonitor) -> SolveResult:
        """Search, or hand the cells to the general solver that the options name."""
        if not asks_for_exact(options):
            return super().solve(options, monitor)
        budget, instance = Budget(options=options, monitor=monitor), self.instance

        def report(labels: IntMatrix, bound: float) -> None:
            budget.tell(objective=instance.objective(labels), bound=bound, incumbent=cell_point(instance, labels))

        answer = solve_true_spread(instance, budget, report)
        return search_result(
            budget,
            point=None if answer.labels is None else cell_point(instance, answer.labels),
            objective=answer.objective,
            bound=answer.bound,
            proven=answer.proven,
            message=answer.certificate,
        )

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
            return self.plan(minipods, pick_nodes(minipods, self.selection.pool, self.unit))

    def labels(self, incumbent: FloatVector) -> IntMatrix:
        """Minipod of every cell (R, C) of the point `incumbent` (n,): whole cells within its supports."""
        instance = self.instance
        rows, columns, minipods = instance.num_rows, instance.num_columns, instance.num_minipods
        z, u, x, _ = np.split(incumbent, np.cumsum([rows * minipods, columns * minipods, rows * columns * minipods]))
        own: IntMatrix = x.reshape(rows, columns, minipods).argmax(axis=2)
        if np.isin(x, (0, 1)).all() and (np.bincount(own.ravel(), minlength=minipods) <= instance.free_nodes).all():
            return own
        return cells_on(instance, (z > 0.5).reshape(rows, minipods), (u > 0.5).reshape(columns, minipods))
