"""The allocation check must notice every number and rule that a faulty planner could get wrong."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from models.allocation.sia.check import allocation_violations
from models.allocation.sia.formulation import SiaFormulation, formulate_sia
from models.allocation.sia.parameters import SiaParameters
from models.clock import PhaseClock
from models.plan import Plan
from models.workload import Job, Snapshot
from tests.models.allocation.sia.instances import solve, table
from tests.models.placement.scenes import cluster, node, on

PERFORMANCE = table({("a", 1): 1.0, ("a", 2): 1.7, ("a", 4): 3.0, ("a", 8): 4.5})
PARAMETERS = SiaParameters(double_at_most=True)


def formulation() -> SiaFormulation:
    """One node of 8: `runs` on two GPUs grows to four, `waits` starts with one, `big` (8 GPUs) stays out."""
    jobs = (
        Job(
            id="runs",
            performance=PERFORMANCE,
            current=on({"n0": (0, 1)}),
            age_s=5000.0,
            num_restarts=1,
            restart_cost_s=9.0,
        ),
        Job(id="waits", performance=PERFORMANCE, weight=2.0),
        Job(id="big", performance=PERFORMANCE, min_gpus=8, weight=0.1),
    )
    return formulate_sia(Snapshot(cluster=cluster(node("n0")), jobs=jobs), PARAMETERS, PhaseClock())


def planned(model: SiaFormulation) -> tuple[Plan, float]:
    result = solve(model)
    assert result.incumbent is not None
    assert result.objective is not None
    return model.extract(result.incumbent, PhaseClock()), result.objective


def codes(model: SiaFormulation, plan: Plan, objective: float) -> list[str]:
    it = model.instance
    found = allocation_violations(it.snapshot, it.parameters, it.configurations, it.matrix, plan, objective)
    return [issue.code for issue in found]


def first(plan: Plan, **changes: object) -> Plan:
    changed = replace(plan.allocations[0], **changes)  # type: ignore[arg-type]  # fields of a test case
    return replace(plan, allocations=(changed, *plan.allocations[1:]))


def grown(plan: Plan) -> Plan:
    return first(plan, num_gpus=8, gpus=on({"n0": tuple(range(8))}))


def with_other_score(plan: Plan) -> Plan:
    return replace(plan, score=(replace(plan.score[0], value=plan.score[0].value + 0.01), *plan.score[1:]))


def without_unplaced(plan: Plan) -> Plan:
    return replace(plan, unplaced=())


def with_stranger(plan: Plan) -> Plan:
    stranger = replace(plan.unplaced[0], job_id="stranger")
    return replace(plan, unplaced=(*plan.unplaced, stranger))


def twice(plan: Plan) -> Plan:
    return replace(plan, allocations=(*plan.allocations, plan.allocations[0]))


def test_an_optimal_plan_passes() -> None:
    model = formulation()
    plan, objective = planned(model)
    assert [(item.job_id, item.num_gpus) for item in plan.allocations] == [("runs", 4), ("waits", 1)]
    assert codes(model, plan, objective) == []


@pytest.mark.parametrize(
    ("spoil", "expected"),
    [
        (grown, {"more_than_doubled", "wrong_score", "wrong_objective", "over_capacity"}),
        (lambda plan: first(plan, num_gpus=3), {"not_runnable", "wrong_score", "wrong_objective"}),
        (with_other_score, {"wrong_score"}),
        (without_unplaced, {"job_not_covered_once"}),
        (with_stranger, {"unknown_job"}),
        (twice, {"job_not_covered_once", "over_capacity"}),
        (lambda plan: replace(plan, score=plan.score[1:]), {"score_terms"}),
    ],
)
def test_each_fault_is_noticed(spoil: Callable[[Plan], Plan], expected: set[str]) -> None:
    model = formulation()
    plan, objective = planned(model)
    assert set(codes(model, spoil(plan), objective)) == expected


def test_a_wrong_objective_is_noticed() -> None:
    model = formulation()
    plan, objective = planned(model)
    assert codes(model, plan, objective + 1e-3) == ["wrong_objective"]


def test_the_formulation_checks_placement_as_well() -> None:
    model = formulation()
    plan, objective = planned(model)
    moved = first(plan, gpus=on({"n0": (4, 5, 6, 9)}))
    assert {issue.code for issue in model.violations(moved, objective)} >= {"unknown_gpu"}
