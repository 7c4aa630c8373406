"""Scale-outs by marginal benefit, round by round (Suika Algorithm 2, lines 4 to 14).

Each round, the job and the scale-out of most benefit among all running jobs are applied, until what is best is below
the threshold. Planning is what takes time, so that a job is asked only when it may be the best of all. Until then it
stands there with an estimate, hardly ever below what it can have:
- Its outlook: what it could have if all released GPUs lay in its nodes and in whole nodes beside them. It depends on
  the job's plan alone, and is known from earlier events as a rule.
- Its last offer, when another job has taken a GPU that it looked at: what is left for it is further away.
- After its own scale-out, the larger candidates of its offer, while one of them reaches the threshold: Algorithm 1 has
  come to them over the plan that the job has now, or over a better one.
In the end no job has anything that reaches the threshold, as far as these tell. Algorithm 1 is no exact search, so that
a little is missed where it finds more on fewer or worse GPUs; the gap to the integer program shows it.

Every candidate that reaches the threshold is remembered, with the chain of scale-outs that leads to it from the job's
settled plan: together with the first offers of all jobs, these are the columns of the integer program, see
`models.allocation.suika.ilp`.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from heapq import heappop, heappush

from models.allocation.suika.benefit import benefit
from models.allocation.suika.planner import Candidate, Planner
from models.allocation.suika.state import ClusterState, RunningJob, node_gpus
from models.parallel_plan import Gpu, ParallelPlan
from models.workload import Expansion


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Column:
    """One way to scale a job out.

    added: GPUs beyond those of the settled plan. expansions: all of the job, old ones first. build: its plan.
    """

    job_id: str
    added: frozenset[Gpu]
    throughput: float
    expansions: tuple[Expansion, ...]
    build: Callable[[], ParallelPlan]

    @property
    def key(self) -> "ColumnKey":
        """What tells columns apart."""
        return self.job_id, self.added, self.throughput


ColumnKey = tuple[str, frozenset[Gpu], float]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ScaleOuts:
    """What the rounds found; `applied`: job id -> the column that it ended with."""

    columns: Sequence[Column]
    applied: Mapping[str, Column]
    num_rounds: int


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Offered:
    """What a job is offered in its present plan: candidates, new GPUs counted from that plan, and the best column.

    is_estimate: `worth`, that of the best, is no more than an estimate.
    """

    is_estimate: bool = False
    horizon: frozenset[Gpu] = frozenset()
    candidates: tuple[Candidate, ...] = ()
    utility: float = 0.0
    best: Column | None = None


@dataclass(slots=True, kw_only=True, eq=False)
class _Rounds:
    """`state` changes with every round; `columns` by what tells them apart.

    by_utility: a heap of what was offered, also of what is so no longer: most utility first, then jobs in their order.
    without: jobs that have no offer yet. looking: those with an offer that looks at GPUs. A round looks at these alone.
    """

    state: ClusterState
    planner: Planner
    tau: float
    settled: Mapping[str, RunningJob]
    columns: dict[ColumnKey, Column] = field(default_factory=dict)
    applied: dict[str, Column] = field(default_factory=dict)
    offered: dict[str, _Offered] = field(default_factory=dict)
    by_utility: list[tuple[float, int, int, str, _Offered]] = field(default_factory=list)
    num_offers: int = 0
    positions: Mapping[str, int] = field(init=False)
    without: list[str] = field(init=False)
    looking: dict[str, frozenset[Gpu]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        # Scale-outs leave jobs in their order.
        self.without = list(self.state.running)
        self.positions = {job_id: position for position, job_id in enumerate(self.without)}

    def best(self) -> Column | None:
        """The column of most worth; among equals that of the job that comes first."""
        for job_id in self.without:
            self._offer(job_id, self._outlook(job_id))
        self.without.clear()
        while self.by_utility:
            *_, job_id, offered = self.by_utility[0]
            if self.offered.get(job_id) is not offered:
                heappop(self.by_utility)
                continue
            if not offered.is_estimate or offered.utility == 0:
                return offered.best
            # Fewer GPUs may be released than when it was estimated.
            outlook = self._outlook(job_id)
            self._offer(job_id, outlook if outlook.utility < offered.utility else self.ask(job_id))
        return None

    def _offer(self, job_id: str, offered: _Offered) -> None:
        """Put an offer in place of the one that a job has."""
        self.offered[job_id] = offered
        if offered.horizon:
            self.looking[job_id] = offered.horizon
        else:
            self.looking.pop(job_id, None)
        # The third number tells equal offers of one job apart, which have no order.
        self.num_offers += 1
        heappush(self.by_utility, (-offered.utility, self.positions[job_id], self.num_offers, job_id, offered))

    def apply(self, column: Column) -> None:
        """Scale the job out; offers that this changes become estimates."""
        job_id = column.job_id
        before, offered = self.state.running[job_id], self.offered.pop(job_id)
        self.looking.pop(job_id, None)
        added = column.added - (self.applied[job_id].added if job_id in self.applied else frozenset())
        after = replace(before, plan=column.build(), throughput=column.throughput, expansions=column.expansions)
        self.state.running[job_id] = after
        self.state.take(before.gpu_type, added)
        self.applied[job_id] = column
        for other in [other for other, horizon in self.looking.items() if not added.isdisjoint(horizon)]:
            # Its column may be gone.
            self._offer(other, replace(self.offered[other], is_estimate=True, best=None))
        larger = tuple(
            replace(candidate, added=candidate.added - added)
            for candidate in offered.candidates
            if candidate.added > added
        )
        rest = self._rated(after, larger, offered.horizon - added)
        if rest.best is None:
            self.without.append(job_id)
        else:
            self._offer(job_id, rest)

    def ask(self, job_id: str) -> _Offered:
        """What the job can have of the GPUs that are released now."""
        running = self.state.running[job_id]
        released = self.state.released(running.gpu_type)
        if running.room <= 0 or not released:
            return _Offered()
        offer = self.planner.expand(running.job, running.plan, released)
        return self._rated(running, offer.candidates, offer.horizon)

    def _outlook(self, job_id: str) -> _Offered:
        """What the job may hope for with as many GPUs as are released now."""
        running = self.state.running[job_id]
        most = int(min(running.room, self.state.num_released(running.gpu_type)))
        if most <= 0:
            return _Offered()
        best, fewer, num_gpus = 0.0, 0, running.plan.num_gpus
        for num_added, throughput in self.planner.outlook(running.job, running.plan):
            if fewer >= most:
                break
            # A step that is cut short brings no more than the whole of it.
            gain = benefit(num_gpus, min(num_added, most), running.throughput, throughput)
            best, fewer = max(best, gain), num_added
        return _Offered(is_estimate=True, utility=running.job.weight * best if best >= self.tau else 0.0)

    def _rated(self, running: RunningJob, candidates: tuple[Candidate, ...], horizon: frozenset[Gpu]) -> _Offered:
        """The offer with the best of its candidates, those below the threshold or above the job's bounds left out."""
        utility, best = 0.0, None
        job_id, num_gpus, room = running.job.id, running.plan.num_gpus, running.room
        grown = frozenset(running.plan.gpus) - frozenset(self.settled[job_id].plan.gpus)
        for candidate in candidates:
            gain = benefit(num_gpus, len(candidate.added), running.throughput, candidate.throughput)
            if gain < self.tau or len(candidate.added) > room:
                continue
            column = self._remember(running, candidate, grown | candidate.added, gain)
            if best is None or running.job.weight * gain > utility:
                utility, best = running.job.weight * gain, column
        return _Offered(horizon=horizon, candidates=candidates, utility=utility, best=best)

    def _remember(self, running: RunningJob, candidate: Candidate, added: frozenset[Gpu], gain: float) -> Column:
        job_id = running.job.id
        column = Column(
            job_id=job_id,
            added=added,
            throughput=candidate.throughput,
            expansions=(*running.expansions, Expansion(gpus=node_gpus(candidate.added), benefit=gain)),
            build=candidate.build,
        )
        self.columns[column.key] = column
        return column


def scale_out(state: ClusterState, planner: Planner, tau: float, max_rounds: int) -> ScaleOuts:
    """Run the rounds, on a copy of the settled state."""
    rounds = _Rounds(state=state.copy(), planner=planner, tau=tau, settled=dict(state.running))
    num_rounds = 0
    while num_rounds < max_rounds and (column := rounds.best()) is not None:
        rounds.apply(column)
        num_rounds += 1
    return ScaleOuts(columns=tuple(rounds.columns.values()), applied=rounds.applied, num_rounds=num_rounds)


def first_offers(state: ClusterState, planner: Planner, tau: float) -> Sequence[Column]:
    """What every job of the settled state is offered there, from the threshold on."""
    rounds = _Rounds(state=state, planner=planner, tau=tau, settled=state.running)
    for job_id in state.running:
        rounds.ask(job_id)
    return tuple(rounds.columns.values())
