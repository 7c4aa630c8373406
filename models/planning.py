"""From a request to a checked outcome: validate, formulate, solve, extract, verify. The same road for every policy."""

from collections.abc import Callable

from models.around_formulation import formulate_around
from models.certificate import certificate_of
from models.clock import PhaseClock
from models.formulation import Formulation
from models.plan import Plan, PlanOutcome, PlanRequest, PlanTask, Resume, UnplacedJob
from models.policies import policy_of
from models.policy import Parameters, named
from models.validation import request_issues, solver_fault
from models.wording import counted
from models.workload import Snapshot
from solver.monitor import SolveMonitor
from solver.options import SolveOptions
from solver.registry import AUTO
from solver.result import TerminationReason
from solver.solve import load_backend
from stowplan.collection import without_collection
from stowplan.errors import InputError, Issue, Severity, UnverifiedPlanError, raise_for_errors

# Explaining an infeasible model is a courtesy; it must not cost more than a short solve.
_CONFLICT_TIME_LIMIT_S = 5.0


def plan_task(task: PlanTask, monitor: SolveMonitor) -> PlanOutcome:
    """Entry point of workers: plan, or finish from the incumbent that a killed worker left."""
    return plan(task.request, monitor, task.resume, validated=task.validated)


def export_task(request: PlanRequest, monitor: SolveMonitor) -> str:  # noqa: ARG001 - the pool's calling convention
    """Entry point of workers: the model of the request as MPS."""
    # HiGHS writes it; whoever plans with another solver does not load it.
    from solver.export import write_mps

    return write_mps(formulate(request, PhaseClock(request.options.time_limit_s)).named())


def plan(
    request: PlanRequest,
    monitor: SolveMonitor | None = None,
    resume: Resume | None = None,
    *,
    validated: bool = False,
) -> PlanOutcome:
    """Plan the request; one that is `validated` has no errors, and its warnings are known.

    Raises
    ------
    InputError
        When the snapshot and the policy do not fit together.
    BackendError
        When the solver that the options name is missing or refuses.
    UnverifiedPlanError
        When the plan fails the independent check: a bug of ours, never passed on as an answer.
    """
    load(request.parameters, request.options)
    clock = PhaseClock(request.options.time_limit_s)
    with without_collection():
        with clock.phase("validate"):
            issues = [] if validated else request_issues(request.snapshot, request.parameters)
            raise_for_errors(issues, "request")
            fault = solver_fault(request.parameters, request.options.solver)
            if fault is not None:
                raise InputError(f"the solver {fault}")
        formulation = formulate(request, clock)
    with clock.phase("solve"):
        if resume is None:
            result = formulation.solve(request.options, monitor or SolveMonitor())
        else:
            result = formulation.resumed(resume, request.options)
    conflicts: tuple[str, ...] = ()
    unplaced: tuple[UnplacedJob, ...] = ()
    plan_: Plan | None = None
    if result.incumbent is not None and result.objective is not None:
        with without_collection():
            plan_ = formulation.extract(result.incumbent, clock)
            with clock.phase("verify"):
                _verify(formulation, plan_, result.objective)
    elif result.termination is TerminationReason.INFEASIBLE:
        with clock.phase("explain"):
            conflicts, unplaced = formulation.conflicts(_CONFLICT_TIME_LIMIT_S), formulation.unplaced()
    return PlanOutcome(
        termination=result.termination,
        limit=result.limit,
        sense=result.sense.value,
        objective=result.objective,
        bound=result.bound,
        relative_gap=result.relative_gap,
        plan=plan_,
        conflicts=conflicts,
        warnings=_warnings(issues, formulation),
        times=clock.times(),
        statistics=result.statistics,
        solver=result.solver,
        solver_version=result.solver_version,
        certificate=certificate_of(result),
        prices=formulation.prices(result),
        unplaced=unplaced,
    )


def formulate(request: PlanRequest, clock: PhaseClock) -> Formulation:
    """Build the problem of a request without issues, by its policy."""
    policy = policy_of(request.parameters)
    formulate_: Callable[[Snapshot, Parameters, PhaseClock], Formulation] = named(policy.formulate)
    if request.snapshot.calendar and not policy.asks_calendar:
        return formulate_around(policy, formulate_, request.snapshot, request.parameters, clock)
    return formulate_(request.snapshot, request.parameters, clock)


def load(parameters: Parameters, options: SolveOptions, *, declared: bool = False) -> None:
    """Load what the policy and the solver need and no other: it takes long, and no phase shall pay for it.

    declared: what declares the models of a policy that may answer without them, too.
    """
    policy, solver = policy_of(parameters), options.solver
    for name in (policy.issues, policy.formulate, *(policy.declarations if declared else ())):
        named(name)
    answers_itself = policy.algorithms and solver in (AUTO, *policy.algorithms)
    if not answers_itself:
        load_backend(solver)


def _verify(formulation: Formulation, plan_: Plan, objective: float) -> None:
    found = formulation.violations(plan_, objective)
    if found:
        raise UnverifiedPlanError(f"the plan failed {counted(len(found), 'check')}; it is withheld", found)


def _warnings(issues: list[Issue], formulation: Formulation) -> tuple[Issue, ...]:
    return tuple(issue for issue in [*issues, *formulation.warnings] if issue.severity is Severity.WARNING)
