"""Does a plan keep the rules of the Arena allocation, and is its objective what it claims? Knows no solver.

The objective is computed again from the plan, the throughputs and the snapshot, job by job, by the formulas of
`models.allocation.arena.utility`, with which it shares no code. Whether GPUs are legal is `models.placement.check`'s
part.
"""

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from models.allocation.arena.parameters import ArenaObjective, ArenaParameters
from models.allocation.block_check import Shape, allows, held_shape, kept_shape, node_sizes, point_rewards
from models.allocation.plan_check import coverage_violations, score_violations
from models.configurations import ConfigurationSet
from models.plan import JobAllocation, Plan
from models.wording import counted
from models.workload import Job, Snapshot
from stowplan.arrays import FloatMatrix, FloatVector
from stowplan.errors import Issue
from topology.cluster import Node, NodeState

# Job, and whether the term is the one for the points that it earns.
_Term = tuple[str | None, bool]

_POINT_TERMS = ("deadline_met", "wait_ended")
_LEAST_LEFT = 0.01


def allocation_violations(
    snapshot: Snapshot,
    parameters: ArenaParameters,
    configurations: ConfigurationSet,
    samples_per_s: FloatMatrix,
    plan: Plan,
    objective: float,
) -> list[Issue]:
    """Every rule of the allocation that the plan breaks, and every number of its score that is wrong.

    Parameters
    ----------
    configurations, samples_per_s
        The buddy blocks, and throughputs (J, C) on them, 0 where a job cannot run.
    """
    audit = _Audit(snapshot, parameters, configurations)
    known = [audit.speeds(job, row) for job, row in zip(snapshot.jobs, samples_per_s, strict=True)]
    rewards = audit.rewards(known)
    given = {allocation.job_id: (k, allocation) for k, allocation in enumerate(plan.allocations)}
    issues = list(coverage_violations(snapshot, plan))
    costs: dict[str, float] = {}
    num_counted = 0
    worst = 0.0
    met: dict[str, float] = {}
    for job, speeds in zip(snapshot.jobs, known, strict=True):
        k, allocation = given.get(job.id, (-1, None))
        if allocation is None:
            issues += audit.waiting_faults(job)
            costs[job.id] = audit.waiting_value(job, speeds)
        else:
            issues += audit.allocation_faults(f"/allocations/{k}", job, allocation, speeds)
            costs[job.id] = audit.value(job, allocation, speeds)
            if job.id in rewards and audit.is_known_in_time(job, allocation, speeds):
                met[job.id] = rewards[job.id]
        if audit.is_decided(job, speeds):
            num_counted += 1
            worst = max(worst, costs[job.id])
        elif audit.is_fairness:
            costs[job.id] = 0.0
    share = parameters.mean_weight / max(1, num_counted) if audit.is_fairness else 1.0
    terms: dict[_Term, float] = {(name, False): share * cost for name, cost in costs.items()}
    terms |= {(name, True): reward for name, reward in met.items()}
    if audit.is_fairness and num_counted:
        terms[None, False] = worst
    keys: list[_Term] = [(term.job_id, term.term in _POINT_TERMS) for term in plan.score]
    return [
        *issues,
        *score_violations(
            plan.score,
            keys,
            terms,
            objective,
            wanted="job, and one more per deadline that is met or wait that is ended",
            whose=lambda term: repr(term.job_id or "the worst job"),
        ),
    ]


class _Audit:
    """Evaluates one job at a time."""

    def __init__(self, snapshot: Snapshot, parameters: ArenaParameters, configurations: ConfigurationSet) -> None:
        self._parameters = parameters
        self._jobs = snapshot.jobs
        self._nodes = {node.id: node for node in snapshot.cluster.nodes}
        self._room = _room(snapshot, self._nodes)
        self._shapes = [
            (configurations.gpu_types[t], int(n), int(m))
            for t, n, m in zip(
                configurations.type_index, configurations.num_nodes, configurations.num_gpus, strict=True
            )
        ]
        self._node_size = node_sizes(self._shapes)
        self._held_shapes = {job.id: held_shape(job, self._nodes) for job in snapshot.jobs}
        self._present_shapes = {job.id: self._look_up_present(job) for job in snapshot.jobs}
        self.is_fairness = parameters.objective is ArenaObjective.FINISH_TIME_FAIRNESS

    def speeds(self, job: Job, row: FloatVector) -> dict[Shape, float]:
        """Samples/s of the shapes that the job's bounds, types and adaptivity allow (a pinned one: its own too)."""
        own = self._held(job) if self._is_pinned(job) else None
        return {
            shape: speed
            for shape, speed in zip(self._shapes, row.tolist(), strict=True)
            if speed > 0 and (shape == own or allows(job, shape[0], shape[2]))
        }

    def is_decided(self, job: Job, speeds: Mapping[Shape, float]) -> bool:
        """Whether the plan decides about the job: it must run, or there is a shape that it may be given."""
        if self._is_pinned(job):
            return False
        return self._runs(job) or job.reservation is not None or any(self._is_offered(job, s, speeds) for s in speeds)

    def rewards(self, known: Sequence[Mapping[Shape, float]]) -> dict[str, float]:
        """What each job adds that meets its deadline, or waits no longer: its points, each worth more than all
        throughput."""
        earning = [job for job in self._jobs if self._earns(job)]
        if not earning:
            return {}
        normalise = self._parameters.normalise
        most = math.fsum(
            self._weight(job) * self._urgency(job, speeds) * (1.0 if normalise else max(speeds.values()))
            for job, speeds in zip(self._jobs, known, strict=True)
            if speeds
        )
        return point_rewards({job.id: self._weight(job) for job in earning}, most)

    def _earns(self, job: Job) -> bool:
        """Whether the job has points to earn."""
        if self._parameters.objective is ArenaObjective.DEADLINES:
            return job.deadline_s is not None
        if self._parameters.objective is not ArenaObjective.COMPLETION_TIME or self._held(job) is not None:
            return False
        longest_s = self._parameters.longest_wait_s
        return longest_s is not None and job.age_s >= longest_s

    def _urgency(self, job: Job, speeds: Mapping[Shape, float]) -> float:
        """How much more the job counts for the time that it needs yet, where it is fastest."""
        if self._parameters.objective is not ArenaObjective.COMPLETION_TIME:
            return 1.0
        left = _samples(job) / max(speeds.values()) / self._parameters.horizon_s
        return math.pow(max(left, _LEAST_LEFT), -self._parameters.urgency)

    def is_known_in_time(self, job: Job, allocation: JobAllocation, speeds: Mapping[Shape, float]) -> bool:
        """Whether the throughput of the allocation is known, and the job meets its deadline with it."""
        shape = _shape(allocation)
        return shape in speeds and self._is_in_time(job, shape, speeds)

    def value(self, job: Job, allocation: JobAllocation, speeds: Mapping[Shape, float]) -> float:
        """Gain or cost of the allocation, without what the deadline adds; 0 where its throughput is not known (pinned
        jobs)."""
        shape = _shape(allocation)
        if shape not in speeds:
            return 0.0
        if self.is_fairness:
            delay_s = self._restart_s(job, shape)
            return self._weight(job) * (delay_s + _samples(job) / speeds[shape]) / self._unit(job, shape, speeds)
        if not self._is_in_time(job, shape, speeds):
            return 0.0
        share = max(0.0, 1.0 - self._restart_s(job, shape) / self._parameters.horizon_s)
        best = max(speeds.values()) if self._parameters.normalise else 1.0
        return self._weight(job) * self._urgency(job, speeds) * share * speeds[shape] / best

    def waiting_value(self, job: Job, speeds: Mapping[Shape, float]) -> float:
        """What a job that gets nothing adds."""
        if not self.is_fairness or not speeds:
            return 0.0
        late_s = {s: self._parameters.horizon_s + _samples(job) / speed for s, speed in speeds.items()}
        return self._weight(job) * max(late_s[s] / self._unit(job, s, speeds) for s in speeds)

    def waiting_faults(self, job: Job) -> Iterator[Issue]:
        """A launched job must go on."""
        if self._runs(job):
            yield Issue(
                code="launched_job_suspended",
                pointer="/allocations",
                detail=f"job {job.id!r} runs and must be given something",
            )

    def allocation_faults(
        self, pointer: str, job: Job, allocation: JobAllocation, speeds: Mapping[Shape, float]
    ) -> Iterator[Issue]:
        """An allocation must be a buddy block that the job can run on, of a count that is offered, in time."""
        kinds = {self._nodes[part.node].gpu_type for part in allocation.gpus if part.node in self._nodes}
        if kinds != {allocation.gpu_type}:
            yield Issue(
                code="mixed_gpu_types",
                pointer=f"{pointer}/gpus",
                detail=f"job {job.id!r} gets GPUs of the types {sorted(kinds)}; all must be {allocation.gpu_type!r}",
            )
        if self._is_pinned(job):
            return
        shape = _shape(allocation)
        if not self._is_buddy_block(shape):
            yield Issue(
                code="no_buddy_block",
                pointer=pointer,
                detail=f"{counted(allocation.num_gpus, 'GPU')} of type {allocation.gpu_type!r} over "
                f"{counted(len(allocation.gpus), 'node')}: no power of two inside a node, and no power of two of "
                "whole nodes",
            )
        elif shape not in speeds:
            yield Issue(
                code="not_runnable",
                pointer=pointer,
                detail=f"job {job.id!r} cannot run on {counted(allocation.num_gpus, 'GPU')} of type "
                f"{allocation.gpu_type!r}",
            )
        elif job.reservation is None:
            yield from self._offer_faults(pointer, job, shape, speeds)

    def _offer_faults(self, pointer: str, job: Job, shape: Shape, speeds: Mapping[Shape, float]) -> Iterator[Issue]:
        if not self._is_counted(job, shape):
            yield Issue(
                code="count_not_offered",
                pointer=f"{pointer}/num_gpus",
                detail=f"the counts offered are {list(self._parameters.counts or ())}, not {shape[2]}",
            )
        if not self._is_in_time(job, shape, speeds) and not self._is_late_now(job, speeds):
            yield Issue(
                code="deadline_missed",
                pointer=pointer,
                detail=f"job {job.id!r} would finish after its deadline in {job.deadline_s} s on this block",
            )

    def _is_offered(self, job: Job, shape: Shape, speeds: Mapping[Shape, float]) -> bool:
        """Whether a waiting job without reservation may be given the shape, as far as it alone is concerned."""
        kind, num_nodes, num_gpus = shape
        room = self._room.get(kind, _Room())
        size = self._node_size[kind]
        fits = room.most_free >= num_gpus if num_gpus < size else room.num_whole[size] >= num_nodes
        return fits and self._is_counted(job, shape) and self._is_in_time(job, shape, speeds)

    def _is_counted(self, job: Job, shape: Shape) -> bool:
        counts = self._parameters.counts
        return counts is None or shape[2] in counts or self._present(job) == shape

    def _is_late_now(self, job: Job, speeds: Mapping[Shape, float]) -> bool:
        """Whether the job runs and does not, or cannot, go on in time as it is."""
        present = self._present(job)
        return self._runs(job) and (
            present is None or present not in speeds or not self._is_in_time(job, present, speeds)
        )

    def _is_in_time(self, job: Job, shape: Shape, speeds: Mapping[Shape, float]) -> bool:
        if self._parameters.objective is not ArenaObjective.DEADLINES or job.deadline_s is None:
            return True
        return self._restart_s(job, shape) + _samples(job) / speeds[shape] <= job.deadline_s

    def _unit(self, job: Job, shape: Shape, speeds: Mapping[Shape, float]) -> float:
        return _samples(job) / max(speeds.values()) if self._parameters.normalise else float(shape[2])

    def _weight(self, job: Job) -> float:
        rank = job.priority
        if self._parameters.promotion_after_s is not None and not self._runs(job) and not self._is_pinned(job):
            rank = max(1, rank - int(job.age_s // self._parameters.promotion_after_s))
        return job.weight / math.pow(self._parameters.priority_ratio, rank - 1)

    def _restart_s(self, job: Job, shape: Shape) -> float:
        return job.restart_cost_s if self._held(job) is not None and self._present(job) != shape else 0.0

    def _is_buddy_block(self, shape: Shape) -> bool:
        kind, num_nodes, num_gpus = shape
        size = self._node_size[kind]
        if num_nodes == 1:
            return num_gpus == size or (num_gpus < size and num_gpus & (num_gpus - 1) == 0)
        return num_gpus == num_nodes * size and num_nodes & (num_nodes - 1) == 0

    def _present(self, job: Job) -> Shape | None:
        """The shape in which a running job may stay; None where it waits or has to move."""
        return self._present_shapes[job.id]

    def _look_up_present(self, job: Job) -> Shape | None:
        if self._is_pinned(job):
            return self._held(job)
        kept = kept_shape(job, self._nodes, self._node_size)
        return kept if kept is not None and self._is_buddy_block(kept) else None

    def _held(self, job: Job) -> Shape | None:
        """Type, nodes and GPUs on which the job runs; None when it waits."""
        return self._held_shapes[job.id]

    def _runs(self, job: Job) -> bool:
        return self._held(job) is not None and job.preemptible

    def _is_pinned(self, job: Job) -> bool:
        return self._held(job) is not None and not job.preemptible


@dataclass(slots=True)
class _Room:
    """Of one type: the most GPUs that a plan may hand out on one node, and nodes of each size with all GPUs free."""

    most_free: int = 0
    num_whole: Counter[int] = field(default_factory=Counter)


def _room(snapshot: Snapshot, nodes: Mapping[str, Node]) -> dict[str, _Room]:
    """What each type has for the jobs that the plan decides about."""
    taken = Counter({node.id: len(node.gpus_in_use) for node in nodes.values()})
    for job in snapshot.jobs:
        parts = job.current or ()
        if not job.preemptible and all(nodes[part.node].state is not NodeState.DOWN for part in parts):
            for part in parts:
                taken[part.node] += len(part.gpus)
    room: dict[str, _Room] = {}
    for node in nodes.values():
        free = node.num_gpus - taken[node.id] if node.state is NodeState.UP else 0
        of_type = room.setdefault(node.gpu_type, _Room())
        of_type.most_free = max(of_type.most_free, free)
        of_type.num_whole[free] += free == node.num_gpus
    return room


def _samples(job: Job) -> float:
    """Samples that remain: batch size times iterations."""
    table_batch = getattr(job.performance, "batch_size", None) or 0
    batch = table_batch if job.model is None else job.model.global_batch
    return batch * (job.remaining_iterations or 0.0)


def _shape(allocation: JobAllocation) -> Shape:
    return allocation.gpu_type, len(allocation.gpus), allocation.num_gpus
