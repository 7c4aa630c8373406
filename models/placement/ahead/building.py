"""From a snapshot to the instance: which nodes are alike, when jobs may start, what every node costs then."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from models.forecast.lasting import Lasting
from models.placement.ahead.future import free_within, idle_between, probabilities_within
from models.placement.ahead.instance import AheadInstance, AheadJob, Option, Shape
from models.placement.ahead.moving import MovableJob, Moving, movable_jobs, movers_by_class
from models.placement.ahead.parameters import AheadParameters
from models.placement.ahead.promise import keeps_start, promised_start_s
from models.placement.ahead.wanted import DAY_S, WantedJob, WantedPlan, tier_of, wanted_jobs
from models.placement.arnold.instance import affinity_weights
from models.placement.occupancy import occupancy
from models.windows import lasting_of, resolved
from models.workload import Job, Snapshot
from stowplan.arrays import FloatMatrix, FloatVector, IntVector, Mask
from topology.cluster import NodeState

_HOUR_S = 3600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class _Closed:
    """When an entry of the calendar closes nodes to jobs that do not belong to it; those that it names, or others that
    are of its shape."""

    name: str
    begin_s: float
    end_s: float
    is_named: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeClass:
    """Nodes that are alike: `nodes` in the order in which they are handed out.

    occupants: positions of the jobs that run there, each with its GPUs on every node of the class.
    """

    minipod: int
    gpu_type: str
    num_gpus: int
    occupants: tuple[tuple[int, int], ...]
    closed: tuple[_Closed, ...]
    nodes: tuple[str, ...]


@dataclass(frozen=True, kw_only=True, eq=False)
class AheadProblem:
    """A snapshot as it is planned ahead. `classes` are those of the instance."""

    snapshot: Snapshot
    parameters: AheadParameters
    wanted: tuple[WantedJob, ...]
    minipods: tuple[str, ...]
    classes: tuple[NodeClass, ...]

    @cached_property
    def instance(self) -> AheadInstance:
        """Its numbers."""
        starts = start_times(self)
        instants = np.unique(np.concatenate(starts))
        expected = _Expected(self, instants)
        skeleton = AheadInstance(
            movers=tuple(each.mover for each in self.movable),
            class_movers=movers_by_class(self.classes, self.movable),
            minipods=self.minipods,
            class_minipod=np.array([each.minipod for each in self.classes], dtype=np.int64),
            class_size=np.array([len(each.nodes) for each in self.classes], dtype=np.int64),
            jobs=(),
        )
        moving = Moving(self, skeleton, instants, expected.busy)
        jobs = [
            self._job(wanted, instants, np.searchsorted(instants, own), expected, moving)
            for wanted, own in zip(self.wanted, starts, strict=True)
        ]
        return replace(skeleton, jobs=tuple(jobs))

    @cached_property
    def movable(self) -> tuple[MovableJob, ...]:
        """The running jobs that may be moved: the movers of the instance."""
        return movable_jobs(self)

    def _job(
        self, wanted: WantedJob, instants: FloatVector, own: IntVector, expected: "_Expected", moving: Moving
    ) -> AheadJob:
        parameters, job = self.parameters, wanted.job
        minipod_weight, spread_weight = affinity_weights(wanted.affinity.alpha, parameters.scheduling_unit)
        costs, change = expected.cost(wanted), self.node_change(wanted)
        options: list[Option] = []
        for number, plan in enumerate(wanted.plans):
            num_groups, group_size = plan.matrix.groups(parameters.scheduling_unit)
            usable, clearable = expected.usable(wanted, plan)
            for k in own.tolist():
                node_cost = np.where(usable[:, k], costs[:, k] + change, np.inf)
                option = Option(
                    shape=Shape(num_groups=num_groups, group_size=group_size),
                    start_s=float(instants[k]),
                    end_s=float(instants[k]) + plan.duration_s,
                    cost=self.time_cost(wanted, plan, float(instants[k])),
                    node_cost=node_cost,
                    plan=number,
                    moves=moving.at(wanted, k, costs[:, k], np.where(clearable[:, k], change, np.inf), node_cost),
                )
                options.append(option)
        return AheadJob(
            id=job.id,
            options=tuple(options),
            minipod_weight=minipod_weight * parameters.spread_price * job.weight,
            spread_weight=spread_weight * parameters.spread_price * job.weight,
            num_spares=parameters.spare_nodes_per_minipod,
        )

    def time_cost(self, wanted: WantedJob, plan: WantedPlan, start_s: float) -> float:
        """Price of starting late and, where the plan is chosen, of how long the job lasts by it."""
        return math.fsum(self.time_terms(wanted, plan, start_s).values())

    def time_terms(self, wanted: WantedJob, plan: WantedPlan, start_s: float) -> dict[str, float]:
        """The summands of the objective that follow from the start and the plan."""
        day_price = self.parameters.lateness_price_per_day * wanted.job.weight
        is_chosen = wanted.job.parallelism is None and math.isfinite(plan.duration_s)
        terms = {
            "lateness": day_price * (start_s - wanted.earliest_s) / DAY_S,
            "training": day_price * plan.duration_s / DAY_S if is_chosen else 0.0,
        }
        if wanted.reservation is not None:
            kept = keeps_start(wanted.reservation, start_s)
            terms["start_change"] = 0.0 if kept else self.parameters.start_change_price * wanted.job.weight
        return terms

    def node_change(self, wanted: WantedJob) -> FloatVector:
        """Price of a node of each class that the reservation of the job does not name, (C,)."""
        entry = wanted.reservation
        price = self.parameters.node_change_price * wanted.job.weight
        if entry is None or not entry.nodes:
            return np.zeros(len(self.classes))
        return np.array([0.0 if entry.name in {own.name for own in each.closed} else price for each in self.classes])


def ahead_problem(snapshot: Snapshot, parameters: AheadParameters) -> AheadProblem:
    """Read a snapshot; raises InputError as `wanted_jobs` does."""
    wanted = wanted_jobs(snapshot, parameters)
    kinds = {(each.gpu_type, each.gpus_per_node) for each in wanted}
    minipods, classes = _classes(snapshot, tier_of(snapshot, parameters), kinds)
    return AheadProblem(
        snapshot=snapshot, parameters=parameters, wanted=tuple(wanted), minipods=minipods, classes=classes
    )


def start_times(problem: AheadProblem) -> list[FloatVector]:
    """Starts that are looked at for each job, ascending, at most `num_starts`.

    The one that was promised; the earliest and the latest; when entries of the calendar begin and end, and when other
    planned jobs end that start as early as they may; of what is left of the number one half evenly over the window, a
    whole number of days apart where that fits, and one half evenly over the nodes that are as likely as not to become
    free in it.
    """
    return [_starts(problem, wanted) for wanted in problem.wanted]


def _starts(problem: AheadProblem, wanted: WantedJob) -> FloatVector:
    first, last, most = wanted.earliest_s, wanted.latest_s, problem.parameters.num_starts
    others = [each.earliest_s + plan.duration_s for each in problem.wanted if each is not wanted for plan in each.plans]
    entries = [time_s for entry in problem.snapshot.calendar for time_s in (entry.begin_s, entry.end_s)]
    before = [time_s - plan.duration_s for time_s in entries if math.isfinite(time_s) for plan in wanted.plans]
    turns = {time_s for time_s in (*others, *entries, *before) if first < time_s < last}
    promised = [] if wanted.reservation is None else [promised_start_s(wanted.reservation)]
    first_of_all = [time_s for time_s in promised if first <= time_s <= last]
    known = list(dict.fromkeys([*first_of_all, first, last, *sorted(turns)]))[:most]
    left = most - len(known)
    num_days = math.ceil((last - first) / DAY_S / max(1, left // 2))
    even = np.arange(first, last, max(1, num_days) * DAY_S)[: left // 2]
    freed = np.sort([time_s for time_s in _half_times(problem, wanted) if first < time_s < last])
    num_freed = min(freed.size, left - even.size)
    ends = freed[np.linspace(0, freed.size - 1, num_freed).astype(np.int64)] if num_freed > 0 else freed[:0]
    return np.unique(np.concatenate([known, even, ends]))[:most]


def _half_times(problem: AheadProblem, wanted: WantedJob) -> Iterator[float]:
    """By when each node is free with probability one half, as far as its jobs know."""
    jobs = problem.snapshot.jobs
    for each in problem.classes:
        if each.occupants and each.gpu_type == wanted.gpu_type:
            known = [lasting_of(jobs[k]) for k, _ in each.occupants]
            yield from [max(math.inf if one is None else one.quantile(0.5) for one in known)] * len(each.nodes)


class _Expected:
    """What is expected of C classes at T instants. busy: cost of a node because of evictions and restarts, (C, T)."""

    def __init__(self, problem: AheadProblem, instants: FloatVector) -> None:
        self._problem = problem
        self._instants = instants
        number: dict[tuple[tuple[int, int], ...], int] = {}
        rows = [number.setdefault(each.occupants, len(number)) for each in problem.classes]
        known = [self._of_occupants(occupants) for occupants in number]
        self._free, self._certain, self.busy, idle = (np.array(part)[rows] for part in zip(*known, strict=True))
        self._cost = self.busy + idle
        has_movers = [bool(movers) for movers in movers_by_class(problem.classes, problem.movable)]
        self._clearable: Mask = np.array(has_movers)[:, None] & (self._free < 1.0)

    def _of_occupants(
        self, occupants: tuple[tuple[int, int], ...]
    ) -> tuple[FloatVector, FloatVector, FloatVector, FloatVector]:
        """Probability that all are over, the least one of those that cannot be preempted, what a node costs because of
        evictions and restarts, and for being idle where the calendar closes nothing; (T,) each."""
        parameters, instants = self._problem.parameters, self._instants
        jobs = [self._problem.snapshot.jobs[k] for k, _ in occupants]
        lastings: list[Lasting | None] = [lasting_of(job) for job in jobs]
        free, certain, lost = free_within(lastings, instants), np.ones_like(instants), np.zeros_like(instants)
        for job, lasting, (_, num_gpus) in zip(jobs, lastings, occupants, strict=True):
            over = probabilities_within(lasting, instants)
            if job.preemptible:
                lost += (1.0 - over) * num_gpus * job.restart_cost_s / _HOUR_S
            else:
                certain = np.minimum(certain, over)
        busy = parameters.eviction_price_per_node * (1.0 - free) + parameters.restart_price_per_gpu_hour * lost
        idle = parameters.idle_price_per_node_hour * idle_between(lastings, np.zeros_like(instants), instants) / _HOUR_S
        return free, certain, busy, idle

    def cost(self, wanted: WantedJob) -> FloatMatrix:
        """What a node of each class costs the job when it starts at each instant, (C, T)."""
        price = self._problem.parameters.idle_price_per_node_hour / _HOUR_S
        cost: FloatMatrix = self._cost.copy()
        saved: dict[object, FloatVector] = {}
        for c, each in enumerate(self._problem.classes):
            if each.closed:
                key = each.occupants, each.closed
                if key not in saved:
                    opened_s = np.array([opened(each, wanted.job, time_s) for time_s in self._instants.tolist()])
                    lastings = [lasting_of(job) for job in jobs_on(self._problem, each)]
                    saved[key] = idle_between(lastings, np.zeros_like(opened_s), opened_s)
                cost[c] -= price * saved[key]
        return cost

    def usable(self, wanted: WantedJob, plan: WantedPlan) -> tuple[Mask, Mask]:
        """Whether the job may take nodes of each class when it starts by the plan at each instant, (C, T): as they are,
        and when all jobs there are moved, which may be there still."""
        parameters, classes, instants = self._problem.parameters, self._problem.classes, self._instants
        size = wanted.gpus_per_node
        usable: Mask = self._certain >= 1.0 - parameters.epsilon - 1e-12
        if parameters.start_probability is not None:
            usable &= self._free >= node_probability(parameters.start_probability, wanted.num_nodes)
        is_open = np.repeat(
            np.array([each.gpu_type == wanted.gpu_type and each.num_gpus == size for each in classes])[:, None],
            instants.size,
            axis=1,
        )
        ends = instants + plan.duration_s
        closing: dict[tuple[_Closed, ...], Mask] = {}
        for c, each in enumerate(classes):
            if each.closed and each.closed not in closing:
                others = [closed for closed in each.closed if closed.name != wanted.job.calendar_entry]
                meets = [(closed.begin_s < ends) & (instants < closed.end_s) for closed in others]
                closing[each.closed] = ~np.any(meets, axis=0) if meets else np.ones_like(instants, dtype=np.bool_)
            if each.closed:
                is_open[c] &= closing[each.closed]
        return usable & is_open, self._clearable & is_open


def opened(each: NodeClass, job: Job, start_s: float) -> float:
    """Since when nodes of a class are open to all before a job starts: what names them closes them before, or now."""
    others = (closed.end_s for closed in each.closed if closed.is_named and closed.name != job.calendar_entry)
    return max((end_s for end_s in others if 0.0 < end_s <= start_s), default=0.0)


def node_probability(probability: float, num_nodes: int) -> float:
    """Probability with which each of so many nodes must be free, that all are with `probability`."""
    return float(probability ** (1.0 / num_nodes))


def _classes(
    snapshot: Snapshot, tier: str, kinds: set[tuple[str, int]]
) -> tuple[tuple[str, ...], tuple[NodeClass, ...]]:
    """Minipods with nodes of the `kinds` (GPU type, GPUs) that may ever be taken, and these nodes in classes."""
    nodes = snapshot.cluster.nodes
    depth = next(k for k, known in enumerate(snapshot.cluster.tiers) if known.name == tier) + 1
    on = _occupants(snapshot)
    closed = _closed(snapshot)
    members: dict[tuple[tuple[str, ...], str, int, tuple[tuple[int, int], ...], tuple[_Closed, ...]], list[int]] = {}
    for n, node in enumerate(nodes):
        if node.state is NodeState.UP and not node.gpus_in_use and (node.gpu_type, node.num_gpus) in kinds:
            key = (node.path[:depth], node.gpu_type, node.num_gpus, tuple(on.get(n, ())), tuple(closed.get(n, ())))
            members.setdefault(key, []).append(n)
    prefixes = sorted({key[0] for key in members})
    position = {prefix: j for j, prefix in enumerate(prefixes)}
    classes = [
        NodeClass(
            minipod=position[prefix],
            gpu_type=gpu_type,
            num_gpus=num_gpus,
            occupants=occupants,
            closed=entries,
            nodes=tuple(nodes[n].id for n in sorted(found, key=lambda n: (nodes[n].path, nodes[n].id))),
        )
        for (prefix, gpu_type, num_gpus, occupants, entries), found in members.items()
    ]
    return tuple("/".join(prefix) for prefix in prefixes), tuple(sorted(classes, key=lambda each: each.minipod))


def _occupants(snapshot: Snapshot) -> Mapping[int, Sequence[tuple[int, int]]]:
    """Jobs on each node, by position, with their GPUs there."""
    running = occupancy(snapshot).running
    on: dict[int, list[tuple[int, int]]] = {}
    for k, job in enumerate(snapshot.jobs):
        for n, mask in running.get(job.id, ()):
            on.setdefault(n, []).append((k, mask.bit_count()))
    return on


def _closed(snapshot: Snapshot) -> Mapping[int, Sequence[_Closed]]:
    """What closes each node."""
    entries = [entry for entry in snapshot.calendar if not entry.is_over]
    nodes_of = resolved(snapshot, entries).positions if entries else {}
    closed: dict[int, list[_Closed]] = {}
    for entry in sorted(entries, key=lambda entry: entry.name):
        known = _Closed(name=entry.name, begin_s=entry.begin_s, end_s=entry.end_s, is_named=entry.shape is None)
        for n in nodes_of[entry.name]:
            closed.setdefault(n, []).append(known)
    return closed


def jobs_on(problem: AheadProblem, each: NodeClass) -> list[Job]:
    """The jobs that run on nodes of a class."""
    return [problem.snapshot.jobs[k] for k, _ in each.occupants]
