"""The virtual cluster on which a decision is simulated before anything is changed (Suika section 3.2.3)."""

import math
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace

from models.allocation.suika.benefit import gpu_sizes
from models.allocation.suika.planner import Planner
from models.parallel_plan import Gpu, ParallelPlan
from models.placement.occupancy import Occupancy, gpus_of, occupancy
from models.workload import Adaptivity, Expansion, Job, NodeGpus, Snapshot
from topology.cluster import Node, NodeState


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RunningJob:
    """A job that runs in the virtual cluster; `expansions` are part of its plan, oldest first."""

    job: Job
    gpu_type: str
    plan: ParallelPlan
    throughput: float
    expansions: tuple[Expansion, ...] = ()

    @property
    def held(self) -> int:
        """GPUs that serve the basic demand."""
        return self.plan.num_gpus - sum(len(part.gpus) for grown in self.expansions for part in grown.gpus)

    @property
    def room(self) -> float:
        """GPUs that the job may still get; below 0, those that it has too many."""
        most = self.job.min_gpus if self.job.adaptivity is Adaptivity.RIGID else self.job.max_gpus
        return math.inf if most is None else most - self.plan.num_gpus

    @property
    def num_within_bounds(self) -> int:
        """How many expansions, oldest first, leave the job within its bounds."""
        kept = len(self.expansions)
        while kept > 0 and self.room + len(gpus_in(self.expansions[kept:])) < 0:
            kept -= 1
        return kept


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Machines:
    """What does not change during a decision.

    sizes: what a GPU of each type counts. capacity: all GPUs that jobs have or can have, in these units.
    """

    nodes: Mapping[str, Node]
    paths: Mapping[str, tuple[str, ...]]
    sizes: Mapping[str, float]
    capacity: float

    def size(self, gpu_type: str, count: int) -> float:
        """||R|| of `count` GPUs."""
        return self.sizes[gpu_type] * count


@dataclass(slots=True, kw_only=True, eq=False)
class ClusterState:
    """Jobs that run, by id in the order of the snapshot, and free GPUs that may be given away, by type and node.

    fixed: jobs that keep their GPUs whatever happens (not preemptible, or without a plan to change). stuck: ids of jobs
    that were found to have no legal plan on fewer GPUs; all copies share it.
    """

    machines: Machines
    running: dict[str, RunningJob] = field(default_factory=dict)
    fixed: dict[str, Job] = field(default_factory=dict)
    free: dict[str, dict[str, frozenset[int]]] = field(default_factory=dict)
    stuck: set[str] = field(default_factory=set)

    def copy(self) -> "ClusterState":
        """A state that can be changed without changing this one."""
        free = {kind: dict(nodes) for kind, nodes in self.free.items()}
        return replace(self, running=dict(self.running), fixed=dict(self.fixed), free=free)

    def released(self, gpu_type: str) -> list[Gpu]:
        """Free GPUs of a type, in the order of the cluster."""
        return [(node, gpu) for node, gpus in self.free[gpu_type].items() if gpus for gpu in sorted(gpus)]

    def num_released(self, gpu_type: str) -> int:
        """How many these are."""
        return sum(map(len, self.free[gpu_type].values()))

    def take(self, gpu_type: str, gpus: Iterable[Gpu]) -> None:
        """GPUs are no longer free."""
        for node, indices in by_node(gpus).items():
            self.free[gpu_type][node] = self.free[gpu_type][node] - indices

    def give_back(self, gpu_type: str, gpus: Iterable[Gpu]) -> None:
        """GPUs are free again, where their node takes work."""
        for node, indices in by_node(gpus).items():
            if self.machines.nodes[node].state is NodeState.UP:
                self.free[gpu_type][node] = self.free[gpu_type][node] | indices

    def undo(self, job_id: str, keep: int, planner: Planner) -> bool:
        """Take back all but the first `keep` expansions of a job; False, and nothing done, when no plan is left."""
        running = self.running[job_id]
        lost = gpus_in(running.expansions[keep:])
        rest = frozenset(running.plan.gpus) - lost
        plan = planner.shrink(running.job, running.plan, lost)
        if plan is None or frozenset(plan.gpus) != rest:
            # A plan that leaves GPUs idle would let the job fall below its basic demand.
            plan = planner.derived_plan(running.job, rest)
        if plan is None:
            self.stuck.add(job_id)
            return False
        self.running[job_id] = replace(
            running,
            plan=plan,
            throughput=planner.throughput(running.job, plan),
            expansions=running.expansions[:keep],
        )
        self.give_back(running.gpu_type, lost)
        return True

    def intensity(self) -> float:
        """U: basic demands of the jobs that run over all resources; 1 for a cluster without any."""
        size = self.machines.size
        parts = [size(running.gpu_type, running.held) for running in self.running.values()]
        for job in self.fixed.values():
            gpus = current_gpus(job) - gpus_in(job.expansions)
            parts += [size(self.machines.nodes[node].gpu_type, 1) for node, _ in gpus]
        basic = math.fsum(parts)
        return min(1.0, basic / self.machines.capacity) if self.machines.capacity > 0 else 1.0


def by_node(gpus: Iterable[Gpu]) -> dict[str, frozenset[int]]:
    """GPU indices per node, nodes in the order of their first GPU."""
    found: dict[str, set[int]] = {}
    for node, gpu in gpus:
        found.setdefault(node, set()).add(gpu)
    return {node: frozenset(indices) for node, indices in found.items()}


def node_gpus(gpus: Collection[Gpu]) -> tuple[NodeGpus, ...]:
    """GPUs in the public form, by node id."""
    return tuple(NodeGpus(node=node, gpus=tuple(sorted(indices))) for node, indices in sorted(by_node(gpus).items()))


def gpus_in(expansions: Iterable[Expansion]) -> frozenset[Gpu]:
    """All GPUs of some expansions."""
    return frozenset((part.node, gpu) for grown in expansions for part in grown.gpus for gpu in part.gpus)


def current_gpus(job: Job) -> frozenset[Gpu]:
    """Where the job runs."""
    return frozenset((part.node, gpu) for part in job.current or () for gpu in part.gpus)


def initial_state(snapshot: Snapshot, planner: Planner) -> tuple[ClusterState, list[Job]]:
    """The snapshot as a state, and the jobs that do not run in it.

    A running job that cannot stay where it is (a drained node, a GPU type that it does not allow) loses the expansions
    that are in the way, else waits again, before those that never ran. Expansions above `max_gpus` are taken back.
    """
    taken = occupancy(snapshot)
    state = ClusterState(machines=_machines(snapshot, taken))
    for kind in snapshot.cluster.gpu_types:
        state.free[kind.name] = {}
    for node, mask in zip(snapshot.cluster.nodes, taken.free_masks, strict=True):
        state.free[node.gpu_type][node.id] = frozenset(gpus_of(mask))
    displaced: list[Job] = []
    for job in snapshot.jobs:
        if job.id in taken.pinned:
            state.fixed[job.id] = job
        elif job.id in taken.running and not _settle(state, job, planner):
            displaced.append(job)
    known = state.running.keys() | state.fixed.keys() | {job.id for job in displaced}
    return state, [*displaced, *(job for job in snapshot.jobs if job.id not in known)]


def _settle(state: ClusterState, job: Job, planner: Planner) -> bool:
    """Let a running job stay with its plan, as far as it may; False when it has to leave."""
    gpus = current_gpus(job)
    nodes = {node: state.machines.nodes[node] for node, _ in gpus}
    gpu_type = next(iter(nodes.values())).gpu_type
    up = {name for name, node in nodes.items() if node.state is NodeState.UP}
    blocked = [k for k, grown in enumerate(job.expansions) if any(part.node not in up for part in grown.gpus)]
    may_stay = all(node in up for node, _ in gpus - gpus_in(job.expansions))
    if not may_stay or (job.gpu_types is not None and gpu_type not in job.gpu_types):
        return False
    plan = job.parallel_plan or planner.derived_plan(job, gpus)
    state.take(gpu_type, [gpu for gpu in gpus if gpu[0] in up])
    throughput = None if plan is None else planner.assessed(job, plan)
    if plan is None or throughput is None:
        if blocked:
            state.give_back(gpu_type, gpus)
        else:
            state.fixed[job.id] = job
        return not blocked
    running = RunningJob(job=job, gpu_type=gpu_type, plan=plan, throughput=throughput, expansions=job.expansions)
    state.running[job.id] = running
    kept = min([len(job.expansions), *blocked[:1], running.num_within_bounds])
    if kept == len(job.expansions) or state.undo(job.id, kept, planner):
        return True
    del state.running[job.id]
    state.give_back(gpu_type, gpus)
    return False


def _machines(snapshot: Snapshot, taken: Occupancy) -> Machines:
    nodes = {node.id: node for node in snapshot.cluster.nodes}
    sizes = gpu_sizes(snapshot.cluster)
    capacity = sum(
        sizes[node.gpu_type] * mask.bit_count()
        for node, mask in zip(snapshot.cluster.nodes, taken.free_masks, strict=True)
    )
    capacity += sum(
        sizes[nodes[node].gpu_type] for job in snapshot.jobs if job.id in taken.pinned for node, _ in current_gpus(job)
    )
    return Machines(nodes=nodes, paths={node.id: node.path for node in nodes.values()}, sizes=sizes, capacity=capacity)


def expansions_by_utility(jobs: Iterable[RunningJob]) -> list[tuple[str, int]]:
    """(job id, index) of every expansion, the least worth first; among equals the last given."""
    found = [
        (running.job.weight * grown.benefit, -k, running.job.id)
        for running in jobs
        for k, grown in enumerate(running.expansions)
    ]
    return [(job_id, -index) for _, index, job_id in sorted(found, key=lambda item: item[:2])]
