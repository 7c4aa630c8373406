"""Who keeps which nodes how, and what jobs say of how long they last.

bin-pack      nobody keeps anything; jobs say nothing
best-effort   the nodes that Arnold would choose, as a soft entry: whoever can be preempted may use them
               (reserving-and-packing)
arnold-blind  those nodes are closed to all who do not end in time; jobs say nothing, so that nobody does
arnold        the same; jobs say the end of the class of ten minutes that is predicted (Algorithm 1, line 14)
ours          nodes that `ahead` chooses by forecasts of the jobs that run; jobs come with their quantiles, and are
               admitted by the one at 1 - epsilon
ours-sure     the same with epsilon 0: only who is known to end in time
ours-moving   as ours with an epsilon of 0.02; who is there too long is moved to free nodes, as `ahead` says just before
              the start
mixed         Arnold's nodes, admission of ours: tells what is due to the nodes and what to the quantiles
oracle        as ours; everything that is said is what comes true
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, auto

from benchmarks.reservations.arrivals import GPUS_PER_NODE, Drawn, Source
from models.forecast.lasting import Lasting
from models.placement.ahead.parameters import AheadParameters
from models.placement.arnold.parameters import ArnoldParameters
from models.plan import JobMove, Plan, PlanRequest
from models.planning import plan
from models.workload import Job, NodeGpus, Parallelism, Snapshot
from solver.options import SolveOptions
from topology.calendar import CalendarEntry, EntryKind
from topology.cluster import Cluster

LARGE = "pre-training"
_ALPHA = 0.3
_STAGES = 8
# Long enough to be there for all that is looked at.
_LASTS_S = 30 * 86_400.0
# For how long before the start jobs are moved, and the largest of them, in nodes.
_LAST_S = 60.0
_MOVED_NODES = 16
# Some seconds of planning; proving more takes a minute.
_OPTIONS = SolveOptions(relative_gap=0.05, time_limit_s=20.0)


class Says(Enum):
    """What is known of how long a job lasts: nothing, a class of ten minutes, quantiles, or what comes true."""

    NOTHING = auto()
    CLASS = auto()
    QUANTILES = auto()
    TRUTH = auto()


@dataclass(frozen=True, slots=True, kw_only=True)
class Variant:
    """says: of jobs that arrive. hard: how nodes are kept (None: they are not). ahead: nodes are chosen by what is
    forecast of running jobs, else by topology alone. epsilon: None for that of the day. moves: jobs that are there too
    long are moved just before the start."""

    name: str
    says: Says
    hard: bool | None
    ahead: bool = False
    epsilon: float | None = None
    moves: bool = False


VARIANTS: Mapping[str, Variant] = {
    variant.name: variant
    for variant in (
        Variant(name="bin-pack", says=Says.NOTHING, hard=None),
        Variant(name="best-effort", says=Says.NOTHING, hard=False),
        Variant(name="arnold-blind", says=Says.NOTHING, hard=True),
        Variant(name="arnold", says=Says.CLASS, hard=True),
        Variant(name="mixed", says=Says.QUANTILES, hard=True),
        Variant(name="ours", says=Says.QUANTILES, hard=True, ahead=True),
        Variant(name="ours-sure", says=Says.QUANTILES, hard=True, ahead=True, epsilon=0.0),
        Variant(name="ours-moving", says=Says.QUANTILES, hard=True, ahead=True, epsilon=0.02, moves=True),
        Variant(name="oracle", says=Says.TRUTH, hard=True, ahead=True),
    )
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Present:
    """A job that runs when the large one is told, for how long it has, and where."""

    drawn: Drawn
    age_s: float
    gpus: tuple[NodeGpus, ...]


def job_of(drawn: Drawn, source: Source, says: Says) -> Job:
    """A job as it arrives. Who must leave when the large job comes, does."""
    return Job(id=drawn.id, min_gpus=drawn.num_nodes * GPUS_PER_NODE, lasting=_said(drawn, source, says))


def large_job(num_nodes: int, in_s: float) -> Job:
    """The job that is told ahead, which starts so many seconds from now."""
    return Job(
        id=LARGE,
        parallelism=Parallelism(tp=GPUS_PER_NODE, pp=_STAGES, dp=num_nodes // _STAGES),
        earliest_start_s=in_s,
        latest_start_s=in_s,
        lasting=Lasting(probabilities=(1.0,), seconds=(_LASTS_S,)),
    )


def nodes_by_topology(cluster: Cluster, num_nodes: int) -> tuple[str, ...]:
    """The nodes that Arnold chooses, whoever is there."""
    job = Job(id=LARGE, parallelism=large_job(num_nodes, 0.0).parallelism)
    found = _planned(Snapshot(cluster=cluster, jobs=(job,)), ArnoldParameters(alpha=_ALPHA))
    return tuple(part.node for part in found.allocations[0].gpus)


def nodes_by_forecast(
    cluster: Cluster, present: Sequence[Present], source: Source, num_nodes: int, in_s: float, *, exact: bool
) -> tuple[str, ...]:
    """The nodes that `ahead` chooses. exact: by what comes true, else by forecasts of those who run at their age."""
    if exact:
        lasting = [
            Lasting(probabilities=(1.0,), seconds=(max(0.0, job.drawn.duration_s - job.age_s),)) for job in present
        ]
    else:
        lasting = _left(present, source)
    snapshot = Snapshot(cluster=cluster, jobs=(large_job(num_nodes, in_s), *_running(present, lasting)))
    # Nobody is moved hours ahead.
    found = _planned(snapshot, AheadParameters(alpha=_ALPHA, moved_nodes=0))
    (placed,) = found.ahead
    return tuple(node.node for node in placed.nodes)


def last_moves(
    cluster: Cluster, present: Sequence[Present], source: Source, planned: Sequence[str]
) -> tuple[JobMove, ...]:
    """Who is moved where just before the large job starts on its nodes."""
    entry = CalendarEntry(name=LARGE, kind=EntryKind.RESERVATION, from_s=_LAST_S, nodes=tuple(planned))
    jobs = large_job(len(planned), _LAST_S), *_running(present, _left(present, source))
    snapshot = Snapshot(cluster=cluster, jobs=jobs, calendar=(entry,))
    (placed,) = _planned(snapshot, AheadParameters(alpha=_ALPHA, moved_nodes=_MOVED_NODES)).ahead
    return placed.moves


def _left(present: Sequence[Present], source: Source) -> list[Lasting]:
    return source.left([job.drawn.number for job in present], [job.age_s for job in present])


def _running(present: Sequence[Present], lasting: Sequence[Lasting]) -> tuple[Job, ...]:
    return tuple(
        Job(id=job.drawn.id, current=job.gpus, min_gpus=job.drawn.num_nodes * GPUS_PER_NODE, lasting=left)
        for job, left in zip(present, lasting, strict=True)
    )


def _planned(snapshot: Snapshot, parameters: ArnoldParameters | AheadParameters) -> Plan:
    outcome = plan(PlanRequest(snapshot=snapshot, parameters=parameters, options=_OPTIONS))
    if outcome.plan is None:
        raise AssertionError(f"the large job has no plan: {outcome.certificate}")
    return outcome.plan


def _said(drawn: Drawn, source: Source, says: Says) -> Lasting | None:
    if says is Says.CLASS:
        return source.classed(drawn.number)
    if says is Says.QUANTILES:
        return source.forecast(drawn.number)
    return Lasting(probabilities=(1.0,), seconds=(drawn.duration_s,)) if says is Says.TRUTH else None
