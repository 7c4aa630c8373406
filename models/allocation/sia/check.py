"""Does a plan keep the rules of the Sia allocation, and is its objective what it claims? Knows no solver.

The objective is computed again from the plan, the goodput matrix and the snapshot, job by job, by the formulas of
section 3.4, and shares no code with `utility`. Whether the GPUs are legal is `models.placement.check`'s part.
"""

import math
from collections import Counter
from collections.abc import Iterator, Mapping

import numpy as np

from models.allocation.block_check import kept_shape, node_sizes
from models.allocation.plan_check import coverage_violations, score_violations
from models.allocation.sia.completion_check import CompletionAudit
from models.allocation.sia.parameters import SiaObjective, SiaParameters
from models.configurations import ConfigurationSet
from models.performance.goodput.matrix import GoodputMatrix
from models.plan import JobAllocation, Plan
from models.wording import counted
from models.workload import Adaptivity, Job, Snapshot
from stowplan.arrays import FloatVector, Mask
from stowplan.errors import Issue
from topology.cluster import Node, NodeState

_RESTART_FLOOR = 0.01

_Shape = tuple[str, int, int]
"""GPU type, nodes and GPUs."""


def allocation_violations(
    snapshot: Snapshot,
    parameters: SiaParameters,
    configurations: ConfigurationSet,
    matrix: GoodputMatrix,
    plan: Plan,
    objective: float,
) -> list[Issue]:
    """Every rule of the allocation that the plan breaks, and every number of its score that is wrong."""
    nodes = {node.id: node for node in snapshot.cluster.nodes}
    allocations = {allocation.job_id: (k, allocation) for k, allocation in enumerate(plan.allocations)}
    audit = _Audit(snapshot, parameters, configurations, matrix, nodes)
    issues = [*coverage_violations(snapshot, plan), *_capacity_violations(snapshot, nodes, plan)]
    expected: dict[str | None, float] = {}
    for job, goodput in zip(snapshot.jobs, matrix.goodput, strict=True):
        if job.id not in allocations:
            expected[job.id] = audit.left_out(job)
        else:
            k, allocation = allocations[job.id]
            issues += audit.allocation_faults(f"/allocations/{k}", job, allocation, goodput)
            expected[job.id] = audit.utility(job, allocation, goodput)
    keys = [term.job_id for term in plan.score]
    return [*issues, *score_violations(plan.score, keys, expected, objective, wanted="job")]


class _Audit:
    """Evaluates one job at a time."""

    def __init__(
        self,
        snapshot: Snapshot,
        parameters: SiaParameters,
        configurations: ConfigurationSet,
        matrix: GoodputMatrix,
        nodes: Mapping[str, Node],
    ) -> None:
        self._parameters = parameters
        self._costs = parameters.objective is SiaObjective.GIVEN_COSTS
        self._nodes = nodes
        self._types = np.array(configurations.gpu_types)[configurations.type_index]
        self._num_gpus = configurations.num_gpus
        self._index = {
            (str(kind), int(n), int(m)): c
            for c, (kind, n, m) in enumerate(
                zip(self._types, configurations.num_nodes, configurations.num_gpus, strict=True)
            )
        }
        self._node_size = node_sizes(self._index)
        self._completion: CompletionAudit | None = None
        if parameters.objective is SiaObjective.COMPLETION_TIME:
            rows = [self._speeds(job, goodput) for job, goodput in zip(snapshot.jobs, matrix.goodput, strict=True)]
            kept = [self._index.get(shape, -1) if (shape := self._kept(job)) else -1 for job in snapshot.jobs]
            runs = [self._runs(job) for job in snapshot.jobs]
            self._completion = CompletionAudit(snapshot.jobs, rows, kept, runs, parameters)
        is_minimised = parameters.objective is SiaObjective.GOODPUT and parameters.fairness_power < 0
        self.sign = 1 if self._costs or is_minimised else -1

    def utility(self, job: Job, allocation: JobAllocation, goodput: FloatVector) -> float:
        """What the allocation adds to the objective; 0 where the shape or its goodput is unknown (pinned jobs)."""
        c = self._index.get(_shape(allocation), -1)
        if c < 0 or goodput[c] <= 0:
            return 0.0
        if self._costs:
            return job.weight * float(goodput[c])
        if self._completion is not None:
            return self._completion.utility(job, c)
        speeds = self._speeds(job, goodput)
        if speeds is None:
            return math.nan
        value = float(speeds[0][c]) * self._restart_factor(job, allocation)
        return job.weight * math.pow(value, self._parameters.fairness_power)

    def left_out(self, job: Job) -> float:
        """What a job adds that gets nothing: one that runs pays for its restart where suspensions have a price."""
        if self._completion is not None:
            return -self._completion.left_out(job)
        value = self.sign * self._parameters.queue_penalty * job.weight
        if self._costs or not self._parameters.price_suspension or not self._runs(job):
            return value
        return value / math.pow(self._change_factor(job), abs(self._parameters.fairness_power))

    def allocation_faults(
        self, pointer: str, job: Job, allocation: JobAllocation, goodput: FloatVector
    ) -> Iterator[Issue]:
        """An allocation must be a configuration that the job can run on, no larger than the doubling rule allows."""
        if self._is_pinned(job):
            return
        c = self._index.get(_shape(allocation), -1)
        if c < 0 or goodput[c] <= 0:
            yield Issue(
                code="not_runnable",
                pointer=pointer,
                detail=f"job {job.id!r} cannot run on {counted(allocation.num_gpus, 'GPU')} of type "
                f"{allocation.gpu_type!r} over {counted(len(allocation.gpus), 'node')}",
            )
            return
        if not self._parameters.double_at_most or job.reservation is not None:
            return
        smallest = self._num_gpus[self._row(job, goodput) & (self._types == allocation.gpu_type)].min(initial=2**62)
        running = sum(len(part.gpus) for part in job.current or ()) if self._runs(job) else 0
        if allocation.num_gpus > max(int(smallest), 2 * running):
            yield Issue(
                code="more_than_doubled",
                pointer=pointer,
                detail=f"job {job.id!r} grows from {running} to {allocation.num_gpus} GPUs; at most twice",
            )

    def _row(self, job: Job, goodput: FloatVector) -> Mask:
        """Configurations (C,) over which the row is normalised."""
        upper = job.min_gpus if job.adaptivity is Adaptivity.RIGID else job.max_gpus
        own = (goodput > 0) & (self._num_gpus >= job.min_gpus)
        if upper is not None:
            own &= self._num_gpus <= upper
        if job.gpu_types is not None:
            own &= np.isin(self._types, job.gpu_types)
        return np.asarray(own)

    def _speeds(self, job: Job, goodput: FloatVector) -> tuple[FloatVector, float] | None:
        """Goodputs (C,) over that of one of its slowest GPUs, and that goodput; None where it cannot run anywhere."""
        own = self._row(job, goodput)
        kept = self._index.get(self._held(job), -1) if self._is_pinned(job) else -1
        if kept >= 0 and goodput[kept] > 0:
            own[kept] = True
        if not own.any():
            return None
        slowest = float(goodput[own].min()) / float(self._num_gpus[own].min())
        return np.where(own, goodput / slowest, 0.0), slowest

    def _restart_factor(self, job: Job, allocation: JobAllocation) -> float:
        """Eq. 3, unless the job waits or stays in a shape that it may keep."""
        if not self._runs(job) or self._may_stay(job, allocation):
            return 1.0
        return self._change_factor(job)

    def _change_factor(self, job: Job) -> float:
        age_s, cost_s = job.age_s, self._parameters.restart_price * job.restart_cost_s
        if age_s + cost_s == 0:
            return 1.0
        return max(_RESTART_FLOOR, (age_s - job.num_restarts * cost_s) / (age_s + cost_s))

    def _may_stay(self, job: Job, allocation: JobAllocation) -> bool:
        return self._is_pinned(job) or _shape(allocation) == self._kept(job)

    def _kept(self, job: Job) -> _Shape | None:
        """The shape in which a job that runs may stay."""
        if not self._runs(job):
            return None
        return self._held(job) if self._is_pinned(job) else kept_shape(job, self._nodes, self._node_size)

    def _held(self, job: Job) -> _Shape:
        """What a job runs on."""
        parts = job.current or ()
        return self._nodes[parts[0].node].gpu_type, len(parts), sum(len(part.gpus) for part in parts)

    def _runs(self, job: Job) -> bool:
        return bool(job.current) and all(
            self._nodes[part.node].state is not NodeState.DOWN for part in job.current or ()
        )

    def _is_pinned(self, job: Job) -> bool:
        return not job.preemptible and self._runs(job)


def _shape(allocation: JobAllocation) -> _Shape:
    return allocation.gpu_type, len(allocation.gpus), allocation.num_gpus


def _capacity_violations(snapshot: Snapshot, nodes: Mapping[str, Node], plan: Plan) -> Iterator[Issue]:
    """GPUs per type: allocations on nodes that are not down, beside outside work."""
    capacity: Counter[str] = Counter()
    for node in nodes.values():
        if node.state is not NodeState.DOWN:
            capacity[node.gpu_type] += node.num_gpus - len(node.gpus_in_use)
    given: Counter[str] = Counter()
    for allocation in plan.allocations:
        given[allocation.gpu_type] += allocation.num_gpus
    for kind in snapshot.cluster.gpu_types:
        if given[kind.name] > capacity[kind.name]:
            yield Issue(
                code="over_capacity",
                pointer="/allocations",
                detail=f"{given[kind.name]} GPUs of type {kind.name!r} are given away; there are {capacity[kind.name]}",
            )
