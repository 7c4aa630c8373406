"""One run of a planner of 3D plans: no policy and no solver; the exhaustive reference bounds it."""

from dataclasses import replace

from benchmarks.suite.case import PlannerTask
from benchmarks.suite.record import RunRecord, Status
from models.clock import PhaseClock
from models.parallelism.legality import plan_violations
from solver.memory import peak_memory_bytes
from solver.result import TerminationReason
from solver.sense import Sense

# Stands where records name the solver.
PLANNER = "planner"
_ROUNDING = 1e-9


def run_planner(task: PlannerTask, base: RunRecord, relative_gap: float) -> RunRecord:
    """Build, plan, check and bound; fills in the record of the order.

    Objective and bound are samples/s of the performance model. The bound is another planner's work, and counts beside.
    """
    clock = PhaseClock()
    with clock.phase("build"):
        model = task.build()
    plan = task.plan(model, clock)
    if plan is None:
        times = clock.times()
        return replace(
            base,
            termination=TerminationReason.NO_SOLUTION_FOUND.value,
            wall_s=times.wall_s,
            cpu_s=times.phase_cpu_s,
        )
    with clock.phase("verify"):
        found = plan_violations(plan, model)
    if found:
        return replace(base, status=Status.WITHHELD, message=found[0].detail, checked=False)
    peak_bytes = peak_memory_bytes()
    objective = plan.global_batch / model.iteration(plan).total_s
    with clock.phase("bound"):
        bound = task.bound(model)
    if objective > bound * (1.0 + _ROUNDING):
        return replace(
            base, status=Status.WITHHELD, message=f"{objective:g} samples/s are more than the bound {bound:g}"
        )
    bound = max(bound, objective)
    gap = (bound - objective) / objective
    reason = TerminationReason.OPTIMAL if gap <= relative_gap else TerminationReason.FEASIBLE
    times = clock.times()
    return replace(
        base,
        termination=reason.value,
        sense=Sense.MAXIMIZE.value,
        objective=objective,
        bound=bound,
        relative_gap=gap,
        checked=True,
        certificate=plan.notation(),
        wall_s=times.wall_s,
        cpu_s=times.phase_cpu_s,
        peak_memory_bytes=peak_bytes,
    )
