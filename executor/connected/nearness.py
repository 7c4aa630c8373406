"""Jobs wait a moment for nodes that are closer together than those that are free first.

On a full cluster nodes come free one by one, and a decision has those to choose from that are free just then: whatever
chooses among them, a job of several nodes starts on more units of the fabric than it needs as soon as any nodes are
free. Within a second or two a neighbour often follows.
"""

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from executor.connected.planning import verify_placed
from executor.control.controller import Planner
from models.placement.nodes import nearest_nodes
from models.plan import Change, JobAllocation, Plan, PlanOutcome, PlanRequest, UnplacedJob
from models.wording import counted
from solver.result import TerminationReason, relative_gap_of
from solver.sense import Sense
from topology.arrays import cluster_arrays
from topology.cluster import Cluster, NodeState


class NearNodesFirst:
    """A planner: what another one plans, but jobs that would start on more units than they need wait for closer nodes,
    each for `wait_s` at most from the moment when it could have started.

    Nobody else gets their nodes in the same plan. A plan in which running jobs lose or change GPUs is carried out as it
    is: they would have made way for a job that then waits. now_s: the clock of the connection.
    """

    def __init__(self, planner: Planner, wait_s: float, now_s: Callable[[], float]) -> None:
        self._planner, self._wait_s, self._now_s = planner, wait_s, now_s
        # Job -> when it could have started at first.
        self._since_s: dict[str, float] = {}

    @property
    def due_s(self) -> float | None:
        """When the first of those that wait waits no longer; None where none does."""
        return min(self._since_s.values()) + self._wait_s if self._since_s else None

    def __call__(self, request: PlanRequest) -> PlanOutcome:
        """Plan.

        Raises
        ------
        UnverifiedPlanError
            When what is left of the plan breaks a rule: a bug of ours.
        """
        outcome = self._planner(request)
        if outcome.plan is None:
            return outcome
        now_s, before, self._since_s = self._now_s(), self._since_s, {}
        if _somebody_pays(outcome.plan):
            return outcome
        fabric = _Fabric(request.snapshot.cluster)
        kept, waiting = [], []
        for item in outcome.plan.allocations:
            since_s = before.get(item.job_id, now_s)
            if item.change is Change.STARTED and now_s < since_s + self._wait_s and fabric.is_apart(item):
                self._since_s[item.job_id] = since_s
                waiting.append(_unplaced(item, self._wait_s))
            else:
                kept.append(item)
        if not waiting:
            return outcome
        score = tuple(term for term in outcome.plan.score if term.job_id not in self._since_s)
        unplaced = (*outcome.plan.unplaced, *waiting)
        planned = replace(outcome.plan, allocations=tuple(kept), unplaced=unplaced, score=score)
        verify_placed(request.snapshot, planned, "once jobs were held back for nearer nodes")
        return _held_back(outcome, planned, len(waiting))


def _somebody_pays(plan: Plan) -> bool:
    """Whether a job that runs loses GPUs, or gets others."""
    is_mere_start = all(item.change in (Change.STARTED, Change.KEPT) for item in plan.allocations)
    return not is_mere_start or any(item.preempted for item in plan.unplaced)


def _held_back(outcome: PlanOutcome, planned: Plan, num_jobs: int) -> PlanOutcome:
    """An outcome with what is left of its plan: what was proven of the whole is a bound for it."""
    objective = sum(term.value for term in planned.score)
    return replace(
        outcome,
        termination=TerminationReason.FEASIBLE,
        objective=objective,
        relative_gap=relative_gap_of(Sense(outcome.sense), objective, outcome.bound),
        plan=planned,
        certificate=f"{counted(num_jobs, 'job')} held back for nearer nodes, of a plan that was: {outcome.certificate}",
    )


class _Fabric:
    """The units of the nodes of a cluster; what is asked of them of many jobs is computed once."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._units = cluster_arrays(cluster).units
        self._position = {node.id: k for k, node in enumerate(cluster.nodes)}
        self._least: dict[tuple[str, int], tuple[int, ...]] = {}

    def is_apart(self, item: JobAllocation) -> bool:
        """Whether a job is on more units of some tier than its number of nodes needs where no other job runs."""
        if len(item.gpus) == 1:
            return False
        asked = item.gpu_type, len(item.gpus)
        if asked not in self._least:
            nodes = enumerate(self._cluster.nodes)
            ours = [k for k, node in nodes if node.gpu_type == item.gpu_type and node.state is NodeState.UP]
            near = nearest_nodes(np.array(ours, dtype=np.int64), len(item.gpus), self._units, ())
            self._least[asked] = self._spread(near)
        return self._spread([self._position[part.node] for part in item.gpus]) > self._least[asked]

    def _spread(self, nodes: list[int]) -> tuple[int, ...]:
        """Over how many units of each tier nodes are spread, the coarsest first."""
        return tuple(len(np.unique(column)) for column in self._units[nodes].T)


def _unplaced(item: JobAllocation, wait_s: float) -> UnplacedJob:
    return UnplacedJob(
        job_id=item.job_id,
        reason="nodes_apart",
        detail=f"job {item.job_id!r} waits up to {wait_s:g} s for nodes that are closer together",
        counts={"nodes": len(item.gpus)},
        remedy="wait, or let it start on any nodes (no wait for closer ones)",
        preempted=False,
    )
