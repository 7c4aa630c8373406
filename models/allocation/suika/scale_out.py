"""Scale-outs by marginal benefit, round by round (Suika Algorithm 2, lines 4 to 14).

Each round, the job and the scale-out of most benefit among all running jobs are applied, until what is best is below
the threshold. Planning is what takes time, so that a job is asked again only when it has to be:
- It was scaled out, and nothing else in its offer reaches the threshold from there. Until then the larger candidates of
  the offer stand: Algorithm 1 has come to them over the plan that the job has now, or over a better one.
- Another job has taken a GPU that it looked at, and its offer was the best of all. What is left for it is further away,
  so that the old offer is an estimate from above; what it missed with a lower one, it gets in the last step.
- Nothing known reaches the threshold any more: then all jobs with such offers are asked again, before the rounds end.
So in the end every job has been asked in the state that it is in, and has nothing that reaches the threshold.

Every candidate that reaches the threshold is remembered, with the chain of scale-outs that leads to it from the job's
settled plan: these are the columns of the integer program, see `models.allocation.suika.ilp`.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from models.allocation.suika.benefit import benefit
from models.allocation.suika.planner import Candidate, Gpu, Planner
from models.allocation.suika.state import ClusterState, RunningJob, node_gpus
from models.parallel_plan import ParallelPlan
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


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ScaleOuts:
    """What the rounds found; `applied`: job id -> the column that it ended with."""

    columns: Sequence[Column]
    applied: Mapping[str, Column]
    num_rounds: int


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Asked:
    """What a job is offered in its present plan: candidates, new GPUs counted from that plan, and the best column.

    is_stale: others have taken some of the GPUs in the horizon since.
    """

    is_stale: bool = False
    horizon: frozenset[Gpu] = frozenset()
    candidates: tuple[Candidate, ...] = ()
    worth: float = 0.0
    best: Column | None = None


@dataclass(slots=True, kw_only=True, eq=False)
class _Rounds:
    """`state` changes with every round; `columns` by (job, new GPUs, throughput)."""

    state: ClusterState
    planner: Planner
    tau: float
    settled: Mapping[str, RunningJob]
    columns: dict[tuple[str, frozenset[Gpu], float], Column] = field(default_factory=dict)
    applied: dict[str, Column] = field(default_factory=dict)
    asked: dict[str, _Asked] = field(default_factory=dict)

    def best(self) -> Column | None:
        """The column of most worth; among equals that of the job that comes first."""
        self._ask([job_id for job_id in self.state.running if job_id not in self.asked])
        while True:
            offers = [(job_id, self.asked[job_id]) for job_id in self.state.running]
            best_id, best = max(offers, key=lambda offer: offer[1].worth, default=("", _Asked()))
            if best.best is not None and not best.is_stale:
                return best.best
            stale = [job_id for job_id, asked in offers if asked.is_stale]
            if not stale:
                return None
            self._ask(stale if best.best is None else [best_id])

    def apply(self, column: Column) -> None:
        """Scale the job out, and forget the offers that this changes."""
        job_id = column.job_id
        before, asked = self.state.running[job_id], self.asked[job_id]
        added = column.added - (self.applied[job_id].added if job_id in self.applied else frozenset())
        after = replace(before, plan=column.build(), throughput=column.throughput, expansions=column.expansions)
        self.state.running[job_id] = after
        self.state.take(before.gpu_type, added)
        self.applied[job_id] = column
        for other, offer in self.asked.items():
            if offer.horizon & added:
                self.asked[other] = replace(offer, is_stale=True)
        larger = tuple(
            replace(candidate, added=candidate.added - added)
            for candidate in asked.candidates
            if candidate.added > added
        )
        rest = self._rated(after, larger, asked.horizon - added)
        if rest.best is not None:
            self.asked[job_id] = rest
        else:
            del self.asked[job_id]

    def _ask(self, job_ids: Sequence[str]) -> None:
        """Ask these jobs what they can have of the GPUs that are released now."""
        asking = [self.state.running[job_id] for job_id in job_ids]
        released = {kind: self.state.released(kind) for kind in {running.gpu_type for running in asking}}
        for running in asking:
            self.asked[running.job.id] = _Asked()
            if running.room > 0 and released[running.gpu_type]:
                offer = self.planner.expand(running.job, running.plan, released[running.gpu_type])
                self.asked[running.job.id] = self._rated(running, offer.candidates, offer.horizon)

    def _rated(self, running: RunningJob, candidates: tuple[Candidate, ...], horizon: frozenset[Gpu]) -> _Asked:
        """The offer with the best of its candidates, those below the threshold or above the job's bounds left out."""
        worth, best = 0.0, None
        job_id = running.job.id
        grown = frozenset(running.plan.gpus) - frozenset(self.settled[job_id].plan.gpus)
        for candidate in candidates:
            gain = benefit(running.plan.num_gpus, len(candidate.added), running.throughput, candidate.throughput)
            if gain < self.tau or len(candidate.added) > running.room:
                continue
            column = self._remember(running, candidate, grown | candidate.added, gain)
            if best is None or running.job.weight * gain > worth:
                worth, best = running.job.weight * gain, column
        return _Asked(horizon=horizon, candidates=candidates, worth=worth, best=best)

    def _remember(self, running: RunningJob, candidate: Candidate, added: frozenset[Gpu], gain: float) -> Column:
        job_id = running.job.id
        column = Column(
            job_id=job_id,
            added=added,
            throughput=candidate.throughput,
            expansions=(*running.expansions, Expansion(gpus=node_gpus(candidate.added), benefit=gain)),
            build=candidate.build,
        )
        self.columns[job_id, added, candidate.throughput] = column
        return column


def scale_out(state: ClusterState, planner: Planner, tau: float, max_rounds: int) -> ScaleOuts:
    """Run the rounds, on a copy of the settled state."""
    rounds = _Rounds(state=state.copy(), planner=planner, tau=tau, settled=dict(state.running))
    num_rounds = 0
    while num_rounds < max_rounds and (column := rounds.best()) is not None:
        rounds.apply(column)
        num_rounds += 1
    # A column that was met again may stand for the one that was applied.
    known = {id(column) for column in rounds.columns.values()}
    others = [column for column in rounds.applied.values() if id(column) not in known]
    return ScaleOuts(columns=(*rounds.columns.values(), *others), applied=rounds.applied, num_rounds=num_rounds)
