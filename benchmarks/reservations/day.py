"""A cluster from its first job to the start of a large one, event by event, through the controller.

Until the large job is told, nobody knows of it: that part is simulated once, and every variant goes on from its end.
"""

import math
from collections.abc import Container, Sequence
from dataclasses import dataclass, field

from benchmarks.reservations.arrivals import GPUS_PER_NODE, Drawn, Source
from benchmarks.reservations.variants import LARGE, Present, Says, Variant, job_of, last_moves, nodes_by_forecast
from executor.control.actions import Place, Stop
from executor.control.controller import Controller, Step
from executor.control.events import Arrival, CalendarChange, Completion
from executor.control.options import ControlOptions
from executor.simulation.backend import SimulatedBackend
from executor.simulation.progress import SimulationState, Submission
from executor.simulation.traced import TracedDurations
from executor.simulation.truth import TruthParameters
from models.allocation.gang.parameters import GangParameters
from models.plan import JobMove
from models.workload import NodeGpus
from topology.calendar import CalendarEntry, EntryKind
from topology.cluster import Cluster
from workloads.trace import Trace, TraceJob

HOUR_S = 3600.0


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Day:
    """told_s, start_s: when the large job of `num_nodes` nodes is told, and when it starts. by_topology: the nodes that
    Arnold chooses. round_s: plan every so many seconds. num_rows: instants from `told_s` on at which is looked."""

    source: Source
    cluster: Cluster
    arrivals: tuple[Drawn, ...]
    num_nodes: int
    by_topology: tuple[str, ...]
    told_s: float
    start_s: float
    epsilon: float
    round_s: float
    num_rows: int = 25


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """allocation: share of all nodes with jobs; retention: share of the planned nodes; at equal distances from when the
    job is told until it starts. idle_node_h: hours in which planned nodes had no job. evicted, evicted_nodes: jobs on
    planned nodes when it starts, and how many of these nodes. waited_s: mean over the jobs that arrived
    meanwhile, until it starts for those that still wait then, which are num_waiting of num_arrived. busy_node_h: hours
    of all nodes with jobs. wrong: of those evicted, how many were admitted after the job was told. moved, moved_nodes:
    jobs that were moved away just before it starts, and how many nodes they have."""

    allocation: tuple[float, ...]
    retention: tuple[float, ...]
    idle_node_h: float
    busy_node_h: float
    evicted: int
    evicted_nodes: int
    wrong: int
    waited_s: float
    num_arrived: int
    num_waiting: int
    num_minipods: int
    moved: int
    moved_nodes: int


@dataclass(slots=True)
class _Watch:
    """Which nodes have a job, and for how long the planned ones, and all, have had none."""

    planned: frozenset[str]
    now_s: float
    nodes_of: dict[str, tuple[str, ...]] = field(default_factory=dict)
    arrived_s: dict[str, float] = field(default_factory=dict)
    started_s: dict[str, float] = field(default_factory=dict)
    num_busy: int = 0
    num_kept_busy: int = 0
    busy_s: float = 0.0
    kept_busy_s: float = 0.0

    def pass_to(self, at_s: float) -> None:
        self.busy_s += self.num_busy * (at_s - self.now_s)
        self.kept_busy_s += self.num_kept_busy * (at_s - self.now_s)
        self.now_s = at_s

    def take(self, job_id: str, nodes: tuple[str, ...]) -> None:
        self.nodes_of[job_id] = nodes
        self._count(nodes, 1)

    def leave(self, job_id: str) -> None:
        self._count(self.nodes_of.pop(job_id, ()), -1)

    def note(self, step: Step) -> None:
        for event in step.events:
            if isinstance(event, Arrival):
                self.arrived_s[event.job.id] = event.at_s
            elif isinstance(event, Completion):
                self.leave(event.job_id)
        for action in () if step.decision is None else step.decision.actions:
            if isinstance(action, Stop):
                raise AssertionError(f"job {action.job_id!r} is stopped before the large job starts")
            if isinstance(action, Place):
                given = action.allocation
                self.leave(given.job_id)
                self.take(given.job_id, tuple(part.node for part in given.gpus))
                self.started_s[given.job_id] = step.at_s

    def rates(self, day: Day) -> tuple[float, float]:
        """Allocation and retention."""
        return self.num_busy / len(day.cluster.nodes), self.num_kept_busy / len(self.planned)

    def _count(self, nodes: Sequence[str], sign: int) -> None:
        self.num_busy += sign * len(nodes)
        self.num_kept_busy += sign * sum(node in self.planned for node in nodes)


def warm_up(day: Day) -> SimulationState:
    """What the cluster is like when the large job is told."""
    backend = _backend(day, Says.NOTHING)
    controller = Controller(backend, _options(day, day.epsilon))
    while backend.now_s < day.told_s:
        if controller.step() is None:
            raise AssertionError("the jobs end before the large one is told")
    return backend.state()


def present(day: Day, state: SimulationState) -> list[Present]:
    """The jobs that run in a state."""
    drawn = {job.id: job for job in day.arrivals}
    return [
        Present(drawn=drawn[job.job_id], age_s=state.now_s - (job.started_s or 0.0), gpus=job.allocation.gpus)
        for job in state.jobs
        if job.allocation is not None
    ]


def nodes_of(day: Day, state: SimulationState, variant: Variant) -> tuple[str, ...]:
    """The nodes that a variant plans."""
    if not variant.ahead:
        return day.by_topology
    return nodes_by_forecast(
        day.cluster,
        present(day, state),
        day.source,
        day.num_nodes,
        day.start_s - day.told_s,
        exact=variant.says is Says.TRUTH,
    )


def run(day: Day, state: SimulationState, variant: Variant, planned: Sequence[str]) -> Outcome:
    """From when the large job is told until just before it starts."""
    calendars = []
    if variant.hard is not None:
        entry = CalendarEntry(
            name=LARGE, kind=EntryKind.RESERVATION, from_s=day.start_s, nodes=tuple(planned), hard=variant.hard
        )
        calendars = [CalendarChange(at_s=day.told_s, entries=(entry,))]
    backend = _backend(day, variant.says, calendars, state)
    epsilon = day.epsilon if variant.epsilon is None else variant.epsilon
    controller = Controller(backend, _options(day, epsilon))
    watch = _Watch(planned=frozenset(planned), now_s=day.told_s)
    for job in present(day, state):
        watch.take(job.drawn.id, tuple(part.node for part in job.gpus))
    before = set(watch.nodes_of)
    every_s = (day.start_s - day.told_s) / (day.num_rows - 1)
    rates = [watch.rates(day)]
    while (step := controller.step()) is not None and step.at_s < day.start_s:
        while step.at_s > day.told_s + len(rates) * every_s:
            rates.append(watch.rates(day))
        watch.pass_to(step.at_s)
        watch.note(step)
    watch.pass_to(day.start_s)
    # Who ends at that very moment is off in time.
    for event in () if step is None or step.at_s > day.start_s else step.events:
        if isinstance(event, Completion):
            watch.leave(event.job_id)
    moved = _move(day, watch, state) if variant.moves else ()
    while len(rates) < day.num_rows:
        rates.append(watch.rates(day))
    return _outcome(day, watch, before, rates, moved)


def _move(day: Day, watch: _Watch, state: SimulationState) -> tuple[JobMove, ...]:
    """Move jobs from the planned nodes as `ahead` says."""
    drawn = {job.id: job for job in day.arrivals}
    started_s = {job.job_id: job.started_s or 0.0 for job in state.jobs} | watch.started_s
    gpus = tuple(range(GPUS_PER_NODE))
    running = [
        Present(
            drawn=drawn[job_id],
            age_s=day.start_s - started_s[job_id],
            gpus=tuple(NodeGpus(node=node, gpus=gpus) for node in nodes),
        )
        for job_id, nodes in watch.nodes_of.items()
    ]
    moves = last_moves(day.cluster, running, day.source, sorted(watch.planned))
    for move in moves:
        watch.leave(move.job_id)
        watch.take(move.job_id, move.to_nodes)
    return moves


def _outcome(
    day: Day,
    watch: _Watch,
    before: Container[str],
    rates: Sequence[tuple[float, float]],
    moves: Sequence[JobMove],
) -> Outcome:
    """Figures at the end; `before`: jobs that ran when the large one was told."""
    there = {job_id: sum(node in watch.planned for node in nodes) for job_id, nodes in watch.nodes_of.items()}
    evicted = {job_id: count for job_id, count in there.items() if count}
    waited_s = [
        min(watch.started_s.get(job_id, day.start_s), day.start_s) - at_s
        for job_id, at_s in watch.arrived_s.items()
        if at_s > day.told_s
    ]
    minipods = {node.id: node.path[0] for node in day.cluster.nodes}
    hours = (day.start_s - day.told_s) / HOUR_S
    return Outcome(
        allocation=tuple(rate for rate, _ in rates),
        retention=tuple(rate for _, rate in rates),
        idle_node_h=len(watch.planned) * hours - watch.kept_busy_s / HOUR_S,
        busy_node_h=watch.busy_s / HOUR_S,
        evicted=len(evicted),
        evicted_nodes=sum(evicted.values()),
        wrong=sum(job_id not in before for job_id in evicted),
        waited_s=math.fsum(waited_s) / max(1, len(waited_s)),
        num_arrived=len(waited_s),
        num_waiting=sum(job_id not in watch.started_s for job_id in watch.arrived_s),
        num_minipods=len({minipods[node] for node in watch.planned}),
        moved=len(moves),
        moved_nodes=sum(len(move.to_nodes) for move in moves),
    )


def _backend(
    day: Day, says: Says, calendars: Sequence[CalendarChange] = (), state: SimulationState | None = None
) -> SimulatedBackend:
    jobs = tuple(
        TraceJob(id=job.id, submit_s=job.at_s, num_gpus=job.num_nodes * GPUS_PER_NODE, duration_s=job.duration_s)
        for job in day.arrivals
    )
    return SimulatedBackend(
        day.cluster,
        [Submission(at_s=job.at_s, job=job_of(job, day.source, says)) for job in day.arrivals],
        TracedDurations(Trace(name=day.source.name, jobs=jobs), TruthParameters(), 0),
        changes=calendars,
        state=state,
    )


def _options(day: Day, epsilon: float) -> ControlOptions:
    return ControlOptions(parameters=GangParameters(epsilon=epsilon), round_s=day.round_s)
