"""Arnold as a policy: from a snapshot to the placement of its one waiting pre-training job."""

from dataclasses import replace

import numpy as np
import pyomo.environ as pyo
from scipy import sparse

from models.clock import PhaseClock
from models.placement.arnold.assignment import improved, whole_nodes
from models.placement.arnold.check import plan_violations
from models.placement.arnold.constructive import construct
from models.placement.arnold.extraction import arnold_plan
from models.placement.arnold.formulation import arnold_model
from models.placement.arnold.instance import ArnoldInstance, IntMatrix, affinity_weights, max_spread
from models.placement.arnold.parameters import ArnoldParameters
from models.placement.arnold.selection import Affinity, Selection, minipod_tier, select
from models.placement.arnold.validation import selection_issues
from models.plan import Plan
from models.policy import Formulation
from models.workload import Snapshot
from solver.compilers.pyomo import compile_pyomo
from solver.monitor import SolveMonitor
from solver.options import SolveOptions
from solver.problem import MatrixProblem, Sense, Vector
from solver.result import SolveResult
from stowplan.errors import Issue, raise_for_errors


class ArnoldFormulation(Formulation):
    """The MIP of one job; see `formulation` for the mathematics and `assignment` for the way back."""

    def __init__(
        self, *, snapshot: Snapshot, parameters: ArnoldParameters, selection: Selection, affinity: Affinity
    ) -> None:
        self.snapshot = snapshot
        self.selection = selection
        self.affinity = affinity
        self.unit = parameters.scheduling_unit
        self.tier = minipod_tier(snapshot, parameters)
        self.instance = arnold_instance(selection, parameters, affinity.alpha)
        self.model = arnold_model(self.instance, strengthen=parameters.strengthen)
        self.compiled = compile_pyomo(self.model)
        self.problem = self.compiled.problem
        self.constructed = construct(self.instance)
        self.warm_start = None if self.constructed is None else self.point(self.constructed)

    def solve(self, options: SolveOptions, monitor: SolveMonitor) -> SolveResult:
        """Solve from the constructive start, and hand out the incumbent in whole nodes.

        Minipods that the incumbent opens but does not need are closed, so that the objective is the plan's.
        """
        result = super().solve(options, monitor)
        if result.incumbent is None:
            return result
        point = self.point(self.counts(result.incumbent))
        return replace(result, incumbent=point, objective=self.problem.value(point))

    def conflicts(self, time_limit_s: float) -> tuple[str, ...]:  # noqa: ARG002 - known without a search
        """The capacities of all minipods and one group more than fits into them: no row of these can be left out."""
        rows = [self.model.capacity[j] for j in self.model.j]
        num_that_fit = int(self.instance.free_nodes.sum()) // self.instance.group_size
        groups = [self.model.allocation[i] for i in self.model.i if i <= num_that_fit]
        return () if self.instance.has_room else tuple(row.name for row in [*rows, *groups])

    def extract(self, incumbent: Vector, clock: PhaseClock) -> Plan:
        """Nodes for every cell, from whole nodes per group and minipod."""
        with clock.phase("place"):
            return arnold_plan(self.snapshot, self.selection, self.unit, self.affinity, self.counts(incumbent))

    def violations(self, plan: Plan, objective: float) -> list[Issue]:
        """Check without any solver; the plan may be better than `objective`, never worse."""
        return plan_violations(self.snapshot, plan, self.tier, objective)

    def counts(self, incumbent: Vector) -> IntMatrix:
        """Whole nodes (G, M) that are at least as good as the point `incumbent` (n,)."""
        self.compiled.load(incumbent)
        shape = (self.instance.num_groups, self.instance.num_minipods)
        used = np.array([pyo.value(self.model.y[j]) > 0.5 for j in self.model.j])
        selected = np.array([pyo.value(self.model.s[i, j]) > 0.5 for i in self.model.i for j in self.model.j])
        counts = whole_nodes(self.instance, selected.reshape(shape), used)
        return improved(self.instance, counts, self.constructed)

    def point(self, counts: IntMatrix) -> Vector:
        """The point (n,) of the problem that stands for `counts` (G, M)."""
        model = self.model
        model.T.set_value(max_spread(counts))
        for k, j in enumerate(model.j):
            model.y[j].set_value(int(counts[:, k].any()))
            for i in model.i:
                model.s[i, j].set_value(int(counts[i, k] > 0))
                model.p[i, j].set_value(counts[i, k] / self.instance.group_size)
        return np.array([variable.value for variable in self.compiled.variables], dtype=np.float64)


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

    def extract(self, incumbent: Vector, clock: PhaseClock) -> Plan:  # noqa: ARG002 - every policy's signature
        """Hand out the empty plan."""
        return Plan(allocations=(), unplaced=(), score=())

    def violations(self, plan: Plan, objective: float) -> list[Issue]:
        """Find fault with anything but an empty plan of value 0."""
        if plan == Plan(allocations=(), unplaced=(), score=()) and objective == 0:
            return []
        return [Issue(code="plan_not_empty", pointer="", detail="there is no job to plan")]


def arnold_instance(selection: Selection, parameters: ArnoldParameters, alpha: float) -> ArnoldInstance:
    """Numbers of the MIP: groups of the scheduling unit, free nodes per minipod, weights."""
    num_groups, group_size = selection.matrix.groups(parameters.scheduling_unit)
    minipod_weight, spread_weight = affinity_weights(alpha, parameters.scheduling_unit)
    return ArnoldInstance(
        num_groups=num_groups,
        group_size=group_size,
        minipods=selection.pool.minipods,
        free_nodes=selection.pool.free_nodes,
        minipod_weight=minipod_weight,
        spread_weight=spread_weight,
    )


def formulate_arnold(snapshot: Snapshot, parameters: ArnoldParameters, clock: PhaseClock) -> Formulation:
    """Turn the snapshot into the MIP of its one waiting pre-training job.

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
        return ArnoldFormulation(snapshot=snapshot, parameters=parameters, selection=selection, affinity=affinity)
