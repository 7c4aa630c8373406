"""What planning ended with: from the planner's type to the document that is stored and sent, and back."""

from collections.abc import Iterator, Sequence
from itertools import groupby
from operator import itemgetter
from typing import Any

from api.convert.ahead import ahead_from_document, ahead_to_document
from api.convert.issues import issue_documents
from api.convert.launch import launch_document
from api.convert.parallel_plan import (
    expansions_from_documents,
    expansions_to_documents,
    map_from_slices,
    plan_from_document,
    plan_to_document,
)
from api.convert.pretraining import pretraining_from_document, pretraining_to_document
from api.schemas.plan import (
    ChangeReasonDoc,
    JobAllocationDoc,
    ModelSizeDoc,
    OutcomeDoc,
    RankedHost,
    ScoreTermDoc,
    SolverDoc,
    TerminationDoc,
    TimingsDoc,
    UnplacedJobDoc,
)
from models.parallel_plan import Gpu
from models.plan import (
    ChangeReason,
    JobAllocation,
    PhaseTimes,
    Plan,
    PlanOutcome,
    ScoreTerm,
    UnplacedJob,
)
from models.roll import row_of
from models.workload import NodeGpus, Snapshot
from solver.result import SolveStatistics, TerminationReason
from solver.sense import Sense
from stowplan.errors import Issue

MS_PER_S = 1e3


def outcome_to_document(outcome: PlanOutcome, snapshot: Snapshot) -> OutcomeDoc:
    """Give the document of an outcome for the jobs of `snapshot`."""
    plan, statistics = outcome.plan, outcome.statistics
    pretraining = None if plan is None else plan.pretraining
    return OutcomeDoc(
        termination=TerminationDoc(reason=outcome.termination, limit=outcome.limit),
        sense=Sense(outcome.sense),
        objective=outcome.objective,
        bound=outcome.bound,
        relative_gap=outcome.relative_gap,
        proven_optimal=outcome.termination is TerminationReason.OPTIMAL,
        # Planning raises where the independent check finds anything, so a plan in hand has passed it.
        verified=plan is not None,
        score=() if plan is None else tuple(ScoreTermDoc.model_validate(t, from_attributes=True) for t in plan.score),
        allocations=() if plan is None else tuple(_allocations(plan, snapshot)),
        unplaced=tuple(_unplaced(job) for job in (plan or outcome).unplaced),
        communication=None if pretraining is None else pretraining_to_document(pretraining),
        ahead=() if plan is None else tuple(ahead_to_document(placed) for placed in plan.ahead),
        conflicts=outcome.conflicts,
        warnings=issue_documents(outcome.warnings),
        size=ModelSizeDoc.model_validate(statistics, from_attributes=True),
        solver=SolverDoc(name=outcome.solver, version=outcome.solver_version),
        certificate=outcome.certificate,
        prices=dict(outcome.prices),
    )


def outcome_from_document(document: OutcomeDoc, timings: TimingsDoc) -> PlanOutcome:
    """Give back the outcome, as far as the documents tell it.

    Raises
    ------
    ValueError
        When the plan is not finished.
    """
    termination, solver, sense = document.termination, document.solver, document.sense
    if termination is None or solver is None or sense is None:
        raise ValueError("the plan has no outcome yet")
    first_ms = timings.first_incumbent_ms
    size = {} if document.size is None else dict(document.size)
    return PlanOutcome(
        termination=termination.reason,
        limit=termination.limit,
        sense=sense.value,
        objective=document.objective,
        bound=document.bound,
        relative_gap=document.relative_gap,
        plan=plan_from_outcome(document) if termination.reason.has_incumbent else None,
        conflicts=document.conflicts,
        warnings=tuple(Issue(**dict(issue)) for issue in document.warnings),
        times=PhaseTimes(
            wall_s={name: time_ms / MS_PER_S for name, time_ms in timings.phases_ms.items()},
            cpu_s=(timings.cpu_ms or 0.0) / MS_PER_S,
        ),
        statistics=SolveStatistics(first_incumbent_s=None if first_ms is None else first_ms / MS_PER_S, **size),
        solver=solver.name,
        solver_version=solver.version,
        # Plans of earlier versions have none.
        certificate=document.certificate or "",
        prices=document.prices,
        unplaced=() if termination.reason.has_incumbent else tuple(_unplaced_jobs(document)),
    )


def plan_from_outcome(document: OutcomeDoc) -> Plan:
    """Give back the plan, as far as the documents tell it."""
    return Plan(
        allocations=tuple(_allocation(allocation) for allocation in document.allocations),
        unplaced=tuple(_unplaced_jobs(document)),
        score=tuple(ScoreTerm(**dict(term)) for term in document.score),
        pretraining=None if document.communication is None else pretraining_from_document(document.communication),
        ahead=tuple(ahead_from_document(placed) for placed in document.ahead),
    )


def _allocations(plan: Plan, snapshot: Snapshot) -> Iterator[JobAllocationDoc]:
    for allocation in plan.allocations:
        current = snapshot.jobs[row_of(snapshot)[allocation.job_id]].current
        plan_ = allocation.parallel_plan
        is_pretraining = plan.pretraining is not None and plan.pretraining.job_id == allocation.job_id
        yield JobAllocationDoc(
            **{
                **{name: getattr(allocation, name) for name in JobAllocation.__slots__},
                "gpus": map_from_slices(allocation.gpus),
                "previous": None if current is None else map_from_slices(current),
                "ranks": tuple(_ranks(allocation.rank_gpus)) if plan_ is not None or is_pretraining else None,
                "parallel_plan": None if plan_ is None else plan_to_document(plan_),
                "launch": None if plan_ is None else launch_document(plan_),
                "expansions": expansions_to_documents(allocation.expansions),
                "why": None if allocation.why is None else ChangeReasonDoc(**reason_values(allocation.why)),
            }
        )


def reason_values(why: ChangeReason) -> dict[str, Any]:
    """Fields of the document."""
    return {"detail": why.detail, "counts": dict(why.counts)}


def _ranks(places: Sequence[Gpu]) -> Iterator[RankedHost]:
    """Hosts in rank order, one whose ranks are in pieces once for each; every GPU holds one rank."""
    first_rank = 0
    for node, part in groupby(places, key=itemgetter(0)):
        gpus = tuple(gpu for _, gpu in part)
        yield RankedHost(node=node, first_rank=first_rank, gpus=gpus)
        first_rank += len(gpus)


def _unplaced(job: UnplacedJob) -> UnplacedJobDoc:
    values = {name: getattr(job, name) for name in UnplacedJob.__slots__}
    return UnplacedJobDoc(**{**values, "counts": dict(job.counts)})


def _unplaced_jobs(document: OutcomeDoc) -> Iterator[UnplacedJob]:
    return (UnplacedJob(**dict(job)) for job in document.unplaced)


def _allocation(document: JobAllocationDoc) -> JobAllocation:
    values = {name: value for name, value in document if name not in ("previous", "ranks", "launch")}
    plan = document.parallel_plan
    return JobAllocation(
        **{
            **values,
            "gpus": tuple(NodeGpus(node=node, gpus=indices) for node, indices in document.gpus.items()),
            "parallel_plan": None if plan is None else plan_from_document(plan),
            "expansions": expansions_from_documents(document.expansions),
            "why": None if document.why is None else ChangeReason(**dict(document.why)),
        }
    )
