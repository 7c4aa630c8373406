"""A job on given GPUs or at a given time: the rules that forbid it, or the task whose plan has it there.

A pre-training job (policies `arnold` and `ahead`) is planned with all other nodes drained, or with the start as its
earliest and latest one: what the plan costs more than the base is the price of the wish, exactly, once lateness counts
from the window as it was (`with_lateness`).

Under other policies the job is planned as if it ran where it is asked for and could not be preempted, which every
policy honours; preemptible jobs that have these GPUs wait. Its own terms are then those of a job that stays, so that
the price is what the terms of the others lose.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from models.calendar_check import calendar_violations
from models.placement.ahead.parameters import AheadParameters
from models.placement.ahead.wanted import is_wanted
from models.placement.arnold.parameters import ArnoldParameters
from models.placement.check import placement_violations
from models.placement.occupancy import occupancy
from models.plan import Change, JobAllocation, PlanRequest
from models.policies import policy_of
from models.validation import request_issues
from models.what_if.difference import Planned
from models.what_if.variant import Variant, WantedPlace, applied
from models.wording import counted
from models.workload import Job, NodeGpus, Reservation, Snapshot
from stowplan.errors import InputError, Issue, Severity, pointer_of
from topology.cluster import NodeState

# Where checks point at the one allocation that they get, and what they are made to point at.
_AT, _PLACE = "/allocations/0", "/place/nodes"
_NO_RESERVATIONS = "reservation_not_supported"
_DAY_S = 86_400.0


@dataclass(frozen=True, slots=True, kw_only=True)
class VariantTask:
    """What is to be planned for a variant; None where rules forbid the place that it asks for, which `forbidden` are.

    The pointers of these are relative to the variant.
    """

    request: PlanRequest | None
    forbidden: tuple[Issue, ...] = ()


def variant_task(variant: Variant, request: PlanRequest) -> VariantTask:
    """Give the task of a variant of `request`.

    Raises
    ------
    InputError
        When the variant is wrong; pointers are relative to it.
    """
    changed = applied(variant, request)
    if variant.place is None:
        return VariantTask(request=changed)
    _refuse_faults(changed, variant.place)
    forbidden = tuple(_forbidding(changed, variant.place))
    if forbidden:
        return VariantTask(request=None, forbidden=forbidden)
    return VariantTask(request=_placed(changed, variant.place))


def own_terms_change(request: PlanRequest) -> bool:
    """Whether the terms of the job that is asked for count otherwise because it is; see above."""
    return not isinstance(request.parameters, ArnoldParameters | AheadParameters)


def with_lateness(planned: Planned, job_id: str, earliest_s: float) -> Planned:
    """Give a plan for a start that was asked for, with the job's lateness counted from `earliest_s`, which it was
    planned without: a constant more in the objective, the bound and the term."""
    outcome, parameters, job = planned.outcome, planned.request.parameters, _job(planned.request.snapshot, job_id)
    if not isinstance(parameters, AheadParameters) or outcome.plan is None or outcome.objective is None:
        return planned
    more = parameters.lateness_price_per_day * job.weight * (job.earliest_start_s - earliest_s) / _DAY_S
    score = tuple(
        replace(term, value=term.value + more) if (term.job_id, term.term) == (job_id, "lateness") else term
        for term in outcome.plan.score
    )
    return replace(
        planned,
        outcome=replace(
            outcome,
            objective=outcome.objective + more,
            bound=None if outcome.bound is None else outcome.bound + more,
            plan=replace(outcome.plan, score=score),
        ),
    )


def _refuse_faults(request: PlanRequest, place: WantedPlace) -> None:
    """Refuse what cannot be asked of the policy, or of the cluster."""
    issues = []
    if (place.gpus is None) == (place.start_s is None):
        detail = "asks for both or neither of nodes and start_s; give one of them"
        issues.append(Issue(code="one_of", pointer="/place", detail=detail))
    if place.start_s is not None and not isinstance(request.parameters, AheadParameters):
        detail = f"is a start of a job, and {request.policy} plans for now; ask for nodes, or plan with ahead"
        issues.append(Issue(code="no_start_times", pointer="/place/start_s", detail=detail))
    known = {node.id for node in request.snapshot.cluster.nodes}
    for part in place.gpus or ():
        if part.node not in known:
            where = pointer_of("place", "nodes", part.node)
            issues.append(Issue(code="unknown_node", pointer=where, detail=f"the cluster has no node {part.node!r}"))
    if not own_terms_change(request):
        planned = _planned_jobs(request)
        if place.job not in planned or (place.gpus is not None and len(planned) > 1):
            hint = "ask for one of these" if place.gpus is None else "nodes can be asked for where it is the only one"
            detail = f"is {place.job!r}; {request.policy} plans {planned}: {hint}"
            issues.append(Issue(code="not_the_job", pointer="/place/job", detail=detail))
    if issues:
        raise InputError("the place that is asked for is wrong", issues)


def _planned_jobs(request: PlanRequest) -> list[str]:
    """The pre-training jobs that wait."""
    running = occupancy(request.snapshot).running
    by_window = isinstance(request.parameters, AheadParameters)
    return [
        job.id
        for job in request.snapshot.jobs
        if job.id not in running and (is_wanted(job) if by_window else job.parallelism is not None)
    ]


def _forbidding(request: PlanRequest, place: WantedPlace) -> Iterator[Issue]:
    """The rules that the job would break there, whatever else is planned."""
    snapshot = request.snapshot
    job = _job(snapshot, place.job)
    if place.start_s is not None:
        latest_s = float("inf") if job.latest_start_s is None else job.latest_start_s
        if not job.earliest_start_s <= place.start_s <= latest_s:
            detail = f"job {job.id!r} may start from {job.earliest_start_s:.0f} to {latest_s:.0f} s from now"
            yield Issue(code="outside_window", pointer="/place/start_s", detail=detail)
        return
    gpus = place.gpus or ()
    if not own_terms_change(request):
        states = {node.id: node.state for node in snapshot.cluster.nodes}
        for part in gpus:
            if states[part.node] is not NodeState.UP:
                detail = f"node {part.node!r} is {states[part.node]}; it takes no work"
                yield Issue(code="node_unavailable", pointer=pointer_of("place", "nodes", part.node), detail=detail)
        return
    policy = policy_of(request.parameters)
    allocation = _allocation(snapshot, job, gpus)
    found = placement_violations(snapshot, [allocation], whole_nodes=not policy.splits_nodes)
    found += calendar_violations(snapshot, [allocation], request.parameters.epsilon)
    # Others that must run and are not listed here are no fault of this job.
    own = [issue for issue in found if issue.pointer == _AT or issue.pointer.startswith(f"{_AT}/")]
    for issue in own:
        tail = issue.pointer.removeprefix(f"{_AT}/gpus")
        yield replace(issue, pointer=_PLACE + (tail if tail.startswith("/") and tail != issue.pointer else ""))
    if not own:
        yield from _policy_rules(request, job, allocation)


def _policy_rules(request: PlanRequest, job: Job, allocation: JobAllocation) -> Iterator[Issue]:
    """What the policy has against so many GPUs of the type for this job: that it keeps sizes, or what it says of them
    as a reservation; one that knows no reservations says nothing of that."""
    snapshot = request.snapshot
    if policy_of(request.parameters).keeps_sizes and allocation.num_gpus != job.min_gpus:
        detail = f"{request.policy} gives job {job.id!r} its size, {counted(job.min_gpus, 'GPU')}, and no other number"
        yield Issue(code="other_size", pointer=_PLACE, detail=detail)
    reservation = Reservation(gpu_type=allocation.gpu_type, num_gpus=allocation.num_gpus)
    waiting = replace(job, current=None, parallel_plan=None, expansions=(), reservation=reservation)
    position = next(k for k, other in enumerate(snapshot.jobs) if other.id == job.id)
    jobs = (*snapshot.jobs[:position], waiting, *snapshot.jobs[position + 1 :])
    for issue in request_issues(replace(snapshot, jobs=jobs), request.parameters):
        own = issue.severity is Severity.ERROR and issue.pointer.startswith(f"/jobs/{position}/reservation")
        if own and issue.code != _NO_RESERVATIONS:
            yield replace(issue, pointer=_PLACE, detail=f"as a reservation: {issue.detail}")


def _placed(request: PlanRequest, place: WantedPlace) -> PlanRequest:
    snapshot = request.snapshot
    if place.start_s is not None:
        start_s = place.start_s
        jobs = tuple(
            replace(job, earliest_start_s=start_s, latest_start_s=start_s) if job.id == place.job else job
            for job in snapshot.jobs
        )
        return replace(request, snapshot=replace(snapshot, jobs=jobs))
    gpus = place.gpus or ()
    if own_terms_change(request):
        return replace(request, snapshot=replace(snapshot, jobs=tuple(_with_job_there(snapshot, place.job, gpus))))
    asked = {part.node for part in gpus}
    nodes = tuple(
        node if node.id in asked or node.state is not NodeState.UP else replace(node, state=NodeState.DRAINED)
        for node in snapshot.cluster.nodes
    )
    return replace(request, snapshot=replace(snapshot, cluster=replace(snapshot.cluster, nodes=nodes)))


def _with_job_there(snapshot: Snapshot, name: str, gpus: tuple[NodeGpus, ...]) -> Iterator[Job]:
    """The jobs, with one of them where it is asked for, and those waiting that had one of its GPUs."""
    taken = {(part.node, gpu) for part in gpus for gpu in part.gpus}
    for job in snapshot.jobs:
        running = {(part.node, gpu) for part in job.current or () for gpu in part.gpus}
        if job.id == name:
            stays = running == taken
            plan = job.parallel_plan if stays else None
            expansions = job.expansions if stays else ()
            yield replace(job, current=gpus, preemptible=False, parallel_plan=plan, expansions=expansions)
        elif running & taken:
            yield replace(job, current=None, parallel_plan=None, expansions=())
        else:
            yield job


def _allocation(snapshot: Snapshot, job: Job, gpus: tuple[NodeGpus, ...]) -> JobAllocation:
    type_of = {node.id: node.gpu_type for node in snapshot.cluster.nodes}
    return JobAllocation(
        job_id=job.id,
        gpu_type=next((type_of[part.node] for part in gpus), ""),
        num_gpus=sum(len(part.gpus) for part in gpus),
        gpus=gpus,
        change=Change.KEPT,
    )


def _job(snapshot: Snapshot, name: str) -> Job:
    return next(job for job in snapshot.jobs if job.id == name)
