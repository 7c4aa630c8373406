"""A comparison of solvers: from the types of the planner to the documents that are stored, drawn and sent."""

from collections.abc import Mapping, Sequence
from typing import Any

from api.convert.issues import issue_documents
from api.convert.outcome import MS_PER_S
from api.schemas.comparison import (
    AgreementDoc,
    ComparisonResultDoc,
    HistoryPointDoc,
    InstanceSizeDoc,
    SolverRunDoc,
    UsedLimitsDoc,
)
from api.schemas.plan import FailureDoc, ModelSizeDoc, SolverDoc, TerminationDoc
from models.comparison import HistoryPoint, RunFailure, SolverRun, agreement
from models.plan import PlanOutcome, PlanRequest
from solver.result import TerminationReason
from solver.sense import Sense
from stowplan import __version__


def result_document(
    request: PlanRequest, solvers: Sequence[str], runs: Sequence[SolverRun] = ()
) -> ComparisonResultDoc:
    """Give the document of a comparison; it is judged when all solvers have had their turn."""
    nodes = request.snapshot.cluster.nodes
    return ComparisonResultDoc(
        policy=request.policy,
        instance=InstanceSizeDoc(
            num_nodes=len(nodes),
            num_gpus=sum(node.num_gpus for node in nodes),
            num_jobs=len(request.snapshot.jobs),
        ),
        solvers=tuple(solvers),
        options=UsedLimitsDoc.model_validate(request.options, from_attributes=True),
        version=__version__,
        runs=tuple(run_document(run) for run in runs),
        agreement=agreement_document(runs) if len(runs) == len(solvers) else None,
    )


def agreement_document(runs: Sequence[SolverRun]) -> AgreementDoc:
    """Judge the runs."""
    return AgreementDoc.model_validate(agreement(runs), from_attributes=True)


def run_document(run: SolverRun) -> SolverRunDoc:
    """Give the row of a run."""
    return SolverRunDoc(
        solver=run.solver,
        **({} if run.outcome is None else _outcome_fields(run.outcome)),
        history=tuple(_history_point(point) for point in run.history),
        failure=None if run.failure is None else _failure(run.failure),
    )


def _outcome_fields(outcome: PlanOutcome) -> dict[str, Any]:
    """Fields of a row that only an outcome can fill."""
    times, first_s = outcome.times, outcome.statistics.first_incumbent_s
    phases_ms = _in_ms(times.wall_s)
    return {
        "solver_used": SolverDoc(name=outcome.solver, version=outcome.solver_version),
        "termination": TerminationDoc(reason=outcome.termination, limit=outcome.limit),
        "sense": Sense(outcome.sense),
        "objective": outcome.objective,
        "bound": outcome.bound,
        "relative_gap": outcome.relative_gap,
        "proven_optimal": outcome.termination is TerminationReason.OPTIMAL,
        "verified": outcome.plan is not None,
        "certificate": outcome.certificate,
        "phases_ms": phases_ms,
        "phases_cpu_ms": _in_ms(times.phase_cpu_s),
        "total_ms": sum(phases_ms.values()),
        "cpu_ms": times.cpu_s * MS_PER_S,
        "first_incumbent_ms": None if first_s is None else first_s * MS_PER_S,
        "peak_memory_bytes": times.peak_memory_bytes,
        "size": ModelSizeDoc.model_validate(outcome.statistics, from_attributes=True),
    }


def _history_point(point: HistoryPoint) -> HistoryPointDoc:
    return HistoryPointDoc(elapsed_ms=point.elapsed_s * MS_PER_S, objective=point.objective, bound=point.bound)


def _failure(failure: RunFailure) -> FailureDoc:
    return FailureDoc(code=failure.code, detail=failure.detail, errors=issue_documents(failure.issues))


def _in_ms(seconds: Mapping[str, float]) -> dict[str, float]:
    return {name: value * MS_PER_S for name, value in seconds.items()}
