"""What differs between two plans, value beside value. Light: imports no solver and no modelling layer.

Every row has the values of both plans, so that the difference of a plan from itself has no rows, and that of two plans
taken the other way round has the same rows with the values exchanged.
"""

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Set
from dataclasses import dataclass, fields
from enum import StrEnum
from typing import Any

from models.plan import Plan, PlanOutcome, PlanRequest, PretrainingPlacement
from models.policies import policy_of
from models.workload import Job, Snapshot
from solver.sense import Sense

# Between two sums of the same numbers.
_ROUNDING = 1e-9
# Fields of jobs that weight their terms.
_WEIGHTING = ("weight", "priority")


class JobChange(StrEnum):
    """What another plan makes of a job; what is worst for it stands in front.

    started, stopped: it has GPUs, or a start, in the other plan only, or in the first one only. retyped: other GPU
    type. rescaled: other count. moved: it runs now, and gets other nodes. elsewhere: other nodes for one that waits:
    nobody is moved, and both may be equally good. later, earlier: it is planned ahead and starts at another time.
    same: nothing of all this, but another goodput.
    """

    STOPPED = "stopped"
    LATER = "later"
    RETYPED = "retyped"
    RESCALED = "rescaled"
    MOVED = "moved"
    STARTED = "started"
    EARLIER = "earlier"
    ELSEWHERE = "elsewhere"
    SAME = "same"


@dataclass(frozen=True, slots=True, kw_only=True)
class JobPlace:
    """What a job has in a plan: GPUs per node, from now, or from `start_s` for what is planned ahead."""

    gpu_type: str
    num_gpus: int
    nodes: Mapping[str, int]
    start_s: float | None = None
    goodput: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class JobDifference:
    """One job that the plans treat differently; None: it gets nothing. `reason` is why the other plan leaves it out."""

    job_id: str
    change: JobChange
    base: JobPlace | None
    other: JobPlace | None
    reason: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ValueDifference:
    """A number in both plans; 0 where a plan has nothing of that name."""

    name: str
    base: float
    other: float

    @property
    def difference(self) -> float:
        """Of the other plan from the base."""
        return self.other - self.base


@dataclass(frozen=True, slots=True, kw_only=True)
class SpreadDifference:
    """Placement of one pre-training job in both plans; None: there is none."""

    job_id: str
    base: PretrainingPlacement | None
    other: PretrainingPlacement | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectiveDifference:
    """The objectives of both plans.

    `difference` is None where the two are not of one function; `notes` say why, or what else to know. Between `least`
    and `most` lies the difference of the best plans that there are, by the bounds of both; None where one is missing.
    """

    base: float | None
    other: float | None
    difference: float | None
    least: float | None
    most: float | None
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanDifference:
    """What differs. `gpus`: those that jobs have now, by type. `goodput_ratio`: geometric mean, over the jobs whose
    goodput both plans tell, of the other to the base; None where there is no such job."""

    objective: ObjectiveDifference
    terms: tuple[ValueDifference, ...]
    jobs: tuple[JobDifference, ...]
    gpus: tuple[ValueDifference, ...]
    spreads: tuple[SpreadDifference, ...]
    goodput_ratio: float | None

    @property
    def is_empty(self) -> bool:
        """Whether the plans give the same."""
        return not (self.terms or self.jobs or self.gpus or self.spreads)

    @property
    def num_by_change(self) -> Mapping[JobChange, int]:
        """How many jobs there are of each change."""
        return Counter(job.change for job in self.jobs)


@dataclass(frozen=True, slots=True, kw_only=True)
class Planned:
    """A request and what planning it ended with."""

    request: PlanRequest
    outcome: PlanOutcome


def difference(base: Planned, other: Planned, asked: str | None = None) -> PlanDifference | None:
    """Compare two plans; None where one of the two has no plan.

    `asked`: a job whose terms count otherwise in the other plan, because it was asked for where it is
    (`models.what_if.placing`): they are left out of `terms`, and the objectives are not subtracted.
    """
    one, two = base.outcome.plan, other.outcome.plan
    if one is None or two is None:
        return None
    before, after = _places(base.request.snapshot, one), _places(other.request.snapshot, two)
    running = {job.id for job in base.request.snapshot.jobs if job.current}
    return PlanDifference(
        objective=_objective(base, other, asked),
        terms=tuple(_values(_terms(one, asked), _terms(two, asked))),
        jobs=tuple(_jobs(before, after, running, {job.job_id: job.reason for job in two.unplaced})),
        gpus=tuple(_values(_gpus(one), _gpus(two))),
        spreads=tuple(_spreads(one, two)),
        goodput_ratio=_goodput_ratio(before, after),
    )


def incomparable(base: PlanRequest, other: PlanRequest) -> str | None:
    """Why the objectives of two requests are not of one function; None: they are, as those of a heuristic and of the
    program that bounds it are."""
    one, two = base.parameters, other.parameters
    if type(one) is not type(two):
        return f"the objectives of {base.policy} and {other.policy} measure different things: they are not subtracted"
    methods = policy_of(one).variant
    names = [name for name in _fields(one) if name not in methods and getattr(one, name) != getattr(two, name)]
    if names:
        return f"under other parameters ({', '.join(names)}) the objective is another function: it is not subtracted"
    return None


def _fields(parameters: Any) -> list[str]:
    return [field.name for field in fields(parameters)]


def _objective(base: Planned, other: Planned, asked: str | None) -> ObjectiveDifference:
    one, two = base.outcome.objective, other.outcome.objective
    reason = incomparable(base.request, other.request)
    if reason is None and asked is not None:
        reason = f"the terms of {asked} count otherwise where it is asked for: see what the others lose"
    if reason is not None or one is None or two is None:
        why = () if reason is None else (reason,)
        return ObjectiveDifference(base=one, other=two, difference=None, least=None, most=None, notes=why)
    bounds = base.outcome.bound, other.outcome.bound
    least = most = None
    if bounds[0] is not None and bounds[1] is not None:
        # The best objective lies between what was found and the bound.
        low, high = sorted((one, bounds[0])), sorted((two, bounds[1]))
        least, most = high[0] - low[1], high[1] - low[0]
    notes = tuple(_weighting_notes(base.request, other.request))
    return ObjectiveDifference(base=one, other=two, difference=two - one, least=least, most=most, notes=notes)


def _weighting_notes(base: PlanRequest, other: PlanRequest) -> Iterator[str]:
    """What of the difference is not done by the plans."""
    before, after = ({job.id: job for job in request.snapshot.jobs} for request in (base, other))
    weighted = [name for name in before.keys() & after.keys() if _weights(before[name]) != _weights(after[name])]
    if weighted:
        yield f"terms are weighted differently of: {_listed(weighted)}"
    alone = before.keys() ^ after.keys()
    if alone:
        yield f"only one of the two counts: {_listed(alone)}"


def _weights(job: Job) -> tuple[float, ...]:
    return tuple(getattr(job, name) for name in _WEIGHTING)


def _listed(names: Iterable[str], most: int = 5) -> str:
    listed = sorted(names)
    rest = len(listed) - most
    return ", ".join(listed[:most]) + (f" and {rest} more" if rest > 0 else "")


def _places(snapshot: Snapshot, plan: Plan) -> dict[str, JobPlace]:
    """Job id -> what it has; what starts later too, on whole nodes."""
    sizes = {node.id: node.num_gpus for node in snapshot.cluster.nodes} if plan.ahead else {}
    found = {
        item.job_id: JobPlace(
            gpu_type=item.gpu_type,
            num_gpus=item.num_gpus,
            nodes={part.node: len(part.gpus) for part in item.gpus},
            goodput=item.expected_goodput,
        )
        for item in plan.allocations
    }
    for placed in plan.ahead:
        nodes = {host: sizes[host] for host in placed.placement.hosts}
        found[placed.placement.job_id] = JobPlace(
            gpu_type=placed.gpu_type, num_gpus=sum(nodes.values()), nodes=nodes, start_s=placed.start_s
        )
    return found


def _jobs(
    before: Mapping[str, JobPlace], after: Mapping[str, JobPlace], running: Set[str], reasons: Mapping[str, str]
) -> Iterator[JobDifference]:
    for name in sorted(before.keys() | after.keys()):
        one, two = before.get(name), after.get(name)
        if one != two:
            reason = reasons.get(name) if two is None else None
            change = _change(one, two, runs=name in running)
            yield JobDifference(job_id=name, change=change, base=one, other=two, reason=reason)


def _change(one: JobPlace | None, two: JobPlace | None, *, runs: bool) -> JobChange:
    if one is None or two is None:
        return JobChange.STARTED if one is None else JobChange.STOPPED
    if one.start_s != two.start_s:
        return JobChange.LATER if (two.start_s or 0.0) > (one.start_s or 0.0) else JobChange.EARLIER
    if one.gpu_type != two.gpu_type:
        return JobChange.RETYPED
    if one.num_gpus != two.num_gpus:
        return JobChange.RESCALED
    if one.nodes == two.nodes:
        return JobChange.SAME
    return JobChange.MOVED if runs else JobChange.ELSEWHERE


def _terms(plan: Plan, left_out: str | None) -> dict[str, float]:
    terms: dict[str, list[float]] = {}
    for term in plan.score:
        if left_out is None or term.job_id != left_out:
            terms.setdefault(term.term, []).append(term.value)
    return {name: math.fsum(values) for name, values in terms.items()}


def _gpus(plan: Plan) -> dict[str, float]:
    gpus: dict[str, float] = {}
    for item in plan.allocations:
        gpus[item.gpu_type] = gpus.get(item.gpu_type, 0.0) + item.num_gpus
    return gpus


def _values(before: Mapping[str, float], after: Mapping[str, float]) -> Iterator[ValueDifference]:
    for name in dict.fromkeys(sorted([*before, *after])):
        one, two = before.get(name, 0.0), after.get(name, 0.0)
        if not math.isclose(one, two, rel_tol=_ROUNDING, abs_tol=_ROUNDING):
            yield ValueDifference(name=name, base=one, other=two)


def _spreads(one: Plan, two: Plan) -> Iterator[SpreadDifference]:
    before, after = _pretraining(one), _pretraining(two)
    for name in sorted(before.keys() | after.keys()):
        if _spread_of(before.get(name)) != _spread_of(after.get(name)):
            yield SpreadDifference(job_id=name, base=before.get(name), other=after.get(name))


def _pretraining(plan: Plan) -> dict[str, PretrainingPlacement]:
    placements = [placed.placement for placed in plan.ahead]
    placements += [] if plan.pretraining is None else [plan.pretraining]
    return {placement.job_id: placement for placement in placements}


def _spread_of(placement: PretrainingPlacement | None) -> object:
    if placement is None:
        return None
    return placement.minipod_spread, placement.distance, placement.num_minipods_used


def _goodput_ratio(before: Mapping[str, JobPlace], after: Mapping[str, JobPlace]) -> float | None:
    pairs = [(before[name].goodput, after[name].goodput) for name in sorted(before.keys() & after.keys())]
    logs = [math.log(two / one) for one, two in pairs if one and two]
    return math.exp(math.fsum(logs) / len(logs)) if logs else None


def price(base: Planned, other: Planned, job_id: str | None) -> float | None:
    """What the other plan loses in the objective of the base, above 0 where it is worse.

    Without the terms of the job `job_id`, where one is named; None where the objectives are not of one function or
    there is no plan.
    """
    one, two = base.outcome.plan, other.outcome.plan
    if one is None or two is None or incomparable(base.request, other.request) is not None:
        return None
    before, after = (
        math.fsum(term.value for term in plan.score if job_id is None or term.job_id != job_id) for plan in (one, two)
    )
    # Not minus zero.
    return Sense(base.outcome.sense).sign * (after - before) + 0.0
