"""What happens in the process of one run: make the input, warm up, plan, write down.

The process is fresh and does nothing else. A small case of the same problem is planned first by the same solver, as
in a worker that has served before: what is measured is planning, not the import of libraries.
"""

import gc
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from benchmarks.suite.case import Case, PlannerTask
from benchmarks.suite.external import EXTERNAL_SOLVERS, plan_externally
from benchmarks.suite.machine import load
from benchmarks.suite.planner_run import run_planner
from benchmarks.suite.record import RunRecord, Status
from benchmarks.suite.registry import find_case, warm_up_case
from models.allocation.sia.declaration import declare
from models.allocation.sia.formulation import formulate_sia
from models.allocation.sia.parameters import SiaParameters
from models.clock import PhaseClock
from models.comparison import SolverRun
from models.placement.arnold.placement_formulation import PlacementFormulation
from models.plan import PhaseTimes, PlanOutcome, PlanRequest
from models.planning import formulate
from models.tracing import traced_task
from solver.compilers.cvxpy import compile_cvxpy
from solver.compilers.pyomo import compile_pyomo
from solver.monitor import SolveMonitor
from stowplan.errors import StowplanError, UnverifiedPlanError

TASK = "benchmarks.suite.task:measure_task"

_STATM = Path("/proc/self/statm")
_PAGE_BYTES = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOrder:
    """One run to be made. `modelling`: measure the modelling layer by itself, too."""

    case: str
    seed: int
    run: int
    solver: str
    limit_s: float
    relative_gap: float
    modelling: bool

    def record(self, status: Status, message: str = "") -> RunRecord:
        """A record without any measurement."""
        return RunRecord(
            case=self.case, seed=self.seed, run=self.run, solver=self.solver, status=status, message=message
        )


def measure_task(order: RunOrder, monitor: SolveMonitor) -> RunRecord:
    """Entry point of the process: make one run."""
    case = find_case(order.case)
    made = case.make(order.seed)
    if isinstance(made, PlannerTask):
        _measure_planner(warm_up_case(case.problem).make(0), order)
        gc.collect()
        return _measure_planner(made, order)
    request = _with_options(made, order)
    plan: Callable[[PlanRequest, SolveMonitor], SolverRun] = traced_task
    if order.solver in EXTERNAL_SOLVERS:
        plan = plan_externally
    _warm_up(plan, case, order)
    gc.collect()
    base = replace(order.record(Status.ANSWERED), load=load(), base_memory_bytes=_resident_bytes())
    try:
        run = plan(request, monitor)
    except UnverifiedPlanError as error:
        return replace(base, status=Status.WITHHELD, message=str(error), checked=False)
    except StowplanError as error:
        return replace(base, status=Status.FAILED, message=f"{type(error).__name__}: {error}")
    if run.outcome is None:
        detail = "" if run.failure is None else run.failure.detail
        return replace(base, status=Status.NOT_INSTALLED, message=detail)
    record = _recorded(base, run, run.outcome)
    if order.modelling:
        times = modelling_times(request)
        record = replace(record, modelling_wall_s=times.wall_s, modelling_cpu_s=times.phase_cpu_s)
    return record


def _measure_planner(made: PlanRequest | PlannerTask, order: RunOrder) -> RunRecord:
    if not isinstance(made, PlannerTask):
        raise TypeError(f"{order.case} is no case of a planner of 3D plans")
    base = replace(order.record(Status.ANSWERED), load=load(), base_memory_bytes=_resident_bytes())
    return run_planner(made, base, order.relative_gap)


def modelling_times(request: PlanRequest) -> PhaseTimes:
    """Declare and compile the model in its modelling language, whatever road the planning takes."""
    clock = PhaseClock()
    if isinstance(request.parameters, SiaParameters):
        instance = formulate_sia(request.snapshot, request.parameters, PhaseClock()).instance
        with clock.phase("declare"):
            problem, _ = declare(instance)
        with clock.phase("compile"):
            compile_cvxpy(problem, "sia")
        return clock.times()
    formulation = formulate(request, PhaseClock())
    if isinstance(formulation, PlacementFormulation):
        with clock.phase("declare"):
            model = formulation.declare()
        with clock.phase("compile"):
            compile_pyomo(model)
    return clock.times()


def _with_options(request: PlanRequest, order: RunOrder) -> PlanRequest:
    options = replace(request.options, solver=order.solver, time_limit_s=order.limit_s, relative_gap=order.relative_gap)
    return replace(request, options=options)


def _warm_up(plan: Callable[[PlanRequest, SolveMonitor], SolverRun], case: Case, order: RunOrder) -> None:
    # Whatever goes wrong here goes wrong again in the run, and is told there.
    with suppress(StowplanError):
        plan(_with_options(warm_up_case(case.problem).request(0), order), SolveMonitor())


def _recorded(base: RunRecord, run: SolverRun, outcome: PlanOutcome) -> RunRecord:
    statistics, times = outcome.statistics, outcome.times
    return replace(
        base,
        termination=outcome.termination.value,
        limit=None if outcome.limit is None else outcome.limit.value,
        sense=outcome.sense,
        objective=outcome.objective,
        bound=outcome.bound,
        relative_gap=outcome.relative_gap,
        # A plan that fails the check raises; one that is here has passed.
        checked=None if outcome.plan is None else True,
        certificate=outcome.certificate,
        wall_s=_split(times.wall_s, statistics.solve_s),
        cpu_s=_split(times.phase_cpu_s, statistics.solve_cpu_s),
        first_incumbent_s=statistics.first_incumbent_s,
        peak_memory_bytes=times.peak_memory_bytes,
        trajectory=tuple((point.elapsed_s, point.objective, point.bound) for point in run.history),
        num_columns=statistics.num_columns,
        num_rows=statistics.num_rows,
        num_nonzeros=statistics.num_nonzeros,
        num_nodes=statistics.num_nodes,
        solver_version=outcome.solver_version,
    )


def _split(phases: Mapping[str, float], search_s: float | None) -> dict[str, float]:
    """Take out of `solve` what is not the search itself, as `load`."""
    split: dict[str, float] = {}
    for name, seconds in phases.items():
        if name == "solve" and search_s is not None:
            split["load"] = max(0.0, seconds - search_s)
            split["solve"] = seconds - split["load"]
        else:
            split[name] = seconds
    return split


def _resident_bytes() -> int | None:
    try:
        return int(_STATM.read_text().split()[1]) * _PAGE_BYTES
    except OSError:
        return None
