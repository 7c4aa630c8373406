"""Arnold as a policy: from a snapshot to the placement of its one waiting pre-training job."""

from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from scipy import sparse

from models.clock import PhaseClock
from models.formulation import Formulation, resumed_result
from models.placement.arnold.assignment import arrange, improved, own_split, pick_nodes, whole_nodes
from models.placement.arnold.budget import Budget
from models.placement.arnold.constructive import construct
from models.placement.arnold.exact.search import solve_exactly
from models.placement.arnold.instance import ArnoldInstance, arnold_instance
from models.placement.arnold.labels import counts_of, labels_of, minipods_per_row
from models.placement.arnold.parameters import ArnoldParameters, SpreadObjective
from models.placement.arnold.search_answer import Report, SearchAnswer
from models.placement.arnold.search_formulation import SearchFormulation
from models.placement.arnold.selection import Affinity, Selection, select
from models.placement.arnold.validation import selection_issues
from models.plan import Plan, Resume
from models.workload import Snapshot
from solver.monitor import SolveMonitor
from solver.options import SolveOptions
from solver.problem import MatrixProblem
from solver.registry import AUTO, EXACT
from solver.result import SolveResult
from solver.sense import Sense
from stowplan.arrays import FloatVector, IntMatrix
from stowplan.errors import Issue, raise_for_errors

if TYPE_CHECKING:
    import pyomo.environ as pyo


# A point of a larger model has gigabytes, and declaring it takes minutes.
_MOST_COLUMNS = 1_000_000


class ArnoldFormulation(SearchFormulation):
    """Eqs. 4-10 for one job: `exact` answers at once, `formulation` declares the paper's MIP for general solvers."""

    def __init__(
        self, *, snapshot: Snapshot, parameters: ArnoldParameters, selection: Selection, affinity: Affinity
    ) -> None:
        super().__init__(snapshot=snapshot, parameters=parameters, selection=selection, affinity=affinity)
        self.instance = arnold_instance(
            selection.matrix, self.unit, affinity.alpha, selection.pool.minipods, selection.room
        )

    def declare(self) -> "pyo.ConcreteModel":
        """Declare the paper's MIP."""
        from models.placement.arnold.paper.formulation import arnold_model

        return arnold_model(self.instance, strengthen=self.parameters.strengthen)

    @cached_property
    def constructed(self) -> IntMatrix | None:
        """Constructive solution (G, g), None when too few nodes are free."""
        return construct(self.instance)

    @cached_property
    def warm_start(self) -> FloatVector | None:  # type: ignore[override]  # a general solver starts here, others need none
        """The constructive solution as a point (n,)."""
        return None if self.constructed is None else self.point(self.constructed)

    def solve(self, options: SolveOptions, monitor: SolveMonitor) -> SolveResult:
        """Solve exactly, or from the constructive start by a general solver; the incumbent is in whole nodes.

        Minipods that an incumbent opens but does not need are closed, so that the objective is the plan's.
        """
        result = super().solve(options, monitor)
        if result.solver == EXACT or result.incumbent is None:
            return result
        point = self.point(improved(self.instance, self.labels(result.incumbent), self.constructed))
        return replace(result, incumbent=point, objective=self.problem.value(point))

    @property
    def valued(self) -> ArnoldInstance:
        """The instance."""
        return self.instance

    def search(self, budget: Budget, report: Report) -> SearchAnswer:
        """The optimum by reasoning on the largest spread."""
        return solve_exactly(self.instance, budget, report)

    def conflicts(self, time_limit_s: float) -> tuple[str, ...]:  # noqa: ARG002 - known without a search
        """The capacities of all minipods and one group more than fits into them: no row of these can be left out."""
        rows = [self.model.capacity[j] for j in self.model.j]
        num_that_fit = int(self.instance.free_nodes.sum()) // self.instance.group_size
        groups = [self.model.allocation[i] for i in self.model.i if i <= num_that_fit]
        return () if self.instance.has_room else tuple(row.name for row in [*rows, *groups])

    def extract(self, incumbent: FloatVector, clock: PhaseClock) -> Plan:
        """Nodes for every cell, from the minipods of the groups."""
        with clock.phase("place"):
            minipods = arrange(self.labels(incumbent), self.unit)
            return self.plan(minipods, pick_nodes(minipods, self.selection.pool.nodes, self.unit))

    def labels(self, incumbent: FloatVector) -> IntMatrix:
        """Minipods of the groups (G, g), at least as good as `incumbent`: a point (n,), or what `handed_on` made."""
        instance = self.instance
        if not self._is_point(incumbent):
            return incumbent.astype(np.int64).reshape(instance.num_groups, instance.group_size)
        shape = (instance.num_groups, instance.num_minipods)
        y, s, p, _ = np.split(incumbent, np.cumsum([shape[1], shape[0] * shape[1], shape[0] * shape[1]]))
        own = own_split(instance, p.reshape(shape), y > 0.5)
        return labels_of(whole_nodes(instance, (s > 0.5).reshape(shape), y > 0.5) if own is None else own)

    def point(self, solution: IntMatrix) -> FloatVector:
        """The point (n,) of the problem that stands for `solution` (G, g), in the order of its declaration."""
        counts = counts_of(solution, self.instance.num_minipods)
        selected, shares, widest = counts > 0, counts / self.instance.group_size, minipods_per_row(solution).max()
        return np.concatenate([selected.any(axis=0), selected.ravel(), shares.ravel(), [widest]]).astype(np.float64)

    @property
    def num_columns(self) -> int:
        """Columns of the declared model, y, s, p and T."""
        return self.instance.num_minipods * (1 + 2 * self.instance.num_groups) + 1

    def resumed(self, resume: Resume, options: SolveOptions) -> SolveResult:
        """The result that the killed worker would have returned; a solution that is no point is checked by itself."""
        if self._is_point(resume.incumbent):
            return super().resumed(resume, options)
        free, found = self.instance.free_nodes, resume.incumbent
        legal = (
            np.isin(found, np.arange(free.size)).all()
            and (np.bincount(found.astype(np.int64), minlength=free.size) <= free).all()
        )
        objective = self.instance.objective(self.labels(found)) if legal else None
        return resumed_result(resume, options, Sense.MINIMIZE, objective)

    def handed_on(self, solution: IntMatrix) -> FloatVector:
        """The point, or, where the model is too large to be declared, `solution` itself, an entry per node."""
        return self.point(solution) if self._has_points else solution.ravel().astype(np.float64)

    @property
    def _has_points(self) -> bool:
        """Whether answers of the search are points; solutions themselves must not be taken for one."""
        return self.num_columns <= _MOST_COLUMNS or self.num_columns == self.instance.num_nodes

    def _is_point(self, incumbent: FloatVector) -> bool:
        return self._has_points or incumbent.shape != (self.instance.num_nodes,)


class NothingToPlan(Formulation):
    """A snapshot without any job: an empty problem and an empty plan."""

    def __init__(self) -> None:
        nothing = np.zeros(0)
        self.problem = MatrixProblem(
            name="arnold",
            sense=Sense.MINIMIZE,
            objective=nothing,
            matrix=sparse.csc_array((0, 0)),
            row_lower=nothing,
            row_upper=nothing,
            lower=nothing,
            upper=nothing,
            integrality=np.zeros(0, dtype=np.bool_),
        )

    def solve(self, options: SolveOptions, monitor: SolveMonitor) -> SolveResult:
        """Answer at once; the exact algorithm of this policy has nothing to do here."""
        return super().solve(replace(options, solver=AUTO) if options.solver == EXACT else options, monitor)

    def extract(self, incumbent: FloatVector, clock: PhaseClock) -> Plan:  # noqa: ARG002 - every policy's signature
        """Hand out the empty plan."""
        return Plan(allocations=(), unplaced=(), score=())

    def violations(self, plan: Plan, objective: float) -> list[Issue]:
        """Find fault with anything but an empty plan of value 0."""
        if plan == Plan(allocations=(), unplaced=(), score=()) and objective == 0:
            return []
        return [Issue(code="plan_not_empty", pointer="", detail="there is no job to plan")]


def formulate_arnold(snapshot: Snapshot, parameters: ArnoldParameters, clock: PhaseClock) -> Formulation:
    """Turn the snapshot into the problem of its one waiting pre-training job.

    Raises
    ------
    InputError
        When the snapshot has jobs but not exactly one to plan, or it does not fit the cluster.
    """
    if not snapshot.jobs:
        return NothingToPlan()
    with clock.phase("performance"):
        selection = select(snapshot, parameters)
        raise_for_errors(selection_issues(selection, parameters), "snapshot")
        affinity = selection.affinity(parameters)
    with clock.phase("build"):
        return _kind(parameters)(snapshot=snapshot, parameters=parameters, selection=selection, affinity=affinity)


def _kind(parameters: ArnoldParameters) -> type[SearchFormulation]:
    # What loads Pyomo, which takes seconds, is loaded when it is asked for.
    if parameters.spread_objective is SpreadObjective.EQ2:
        from models.placement.arnold.true_spread.policy import TrueSpreadFormulation

        return TrueSpreadFormulation
    if parameters.tier_weights is not None:
        from models.placement.arnold.tiers.policy import TierFormulation

        return TierFormulation
    return ArnoldFormulation
