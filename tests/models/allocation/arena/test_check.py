"""The allocation check must notice every number and rule that a faulty planner could get wrong."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from models.allocation.arena.check import allocation_violations
from models.allocation.arena.formulation import ArenaIlpFormulation
from models.allocation.arena.parameters import ArenaObjective, ArenaParameters
from models.clock import PhaseClock
from models.plan import Plan
from models.workload import Job, Snapshot
from tests.models.allocation.arena.scenes import ILP, formulation_of, given, solved, table
from tests.models.placement.scenes import cluster, node, on

LINEAR = table({("a", n): float(n) for n in (1, 2, 3, 4, 8, 16)} | {("b", 4): 3.0})
DEADLINES = replace(ILP, objective=ArenaObjective.DEADLINES, counts=(1, 2, 4, 8))


def scene(parameters: ArenaParameters) -> ArenaIlpFormulation:
    """n0 [rr......] n1 b [........]: `r` grows to four GPUs, `w` gets four (two would be late), `big` none (16)."""
    jobs = (
        Job(
            id="r",
            performance=LINEAR,
            max_gpus=4,
            gpu_types=("a",),
            current=on({"n0": (0, 1)}),
            remaining_iterations=10,
            restart_cost_s=60.0,
        ),
        Job(
            id="w",
            performance=LINEAR,
            max_gpus=4,
            gpu_types=("a",),
            remaining_iterations=10,
            deadline_s=300.0,
            priority=2,
            age_s=10.0,
        ),
        Job(id="big", performance=LINEAR, min_gpus=16, gpu_types=("a",), remaining_iterations=10, weight=0.5),
    )
    return formulation_of(Snapshot(cluster=cluster(node("n0"), node("n1", kind="b")), jobs=jobs), parameters)


def planned(model: ArenaIlpFormulation) -> tuple[Plan, float]:
    result = solved(model)
    assert result.incumbent is not None
    assert result.objective is not None
    return model.extract(result.incumbent, PhaseClock()), result.objective


def codes(model: ArenaIlpFormulation, plan: Plan, objective: float) -> list[str]:
    it = model.instance
    found = allocation_violations(
        it.snapshot, it.parameters, it.configurations, it.throughputs.samples_per_s, plan, objective
    )
    return [issue.code for issue in found]


def second(plan: Plan, num_gpus: int, nodes: dict[str, tuple[int, ...]], kind: str = "a") -> Plan:
    changed = replace(plan.allocations[1], num_gpus=num_gpus, gpu_type=kind, gpus=on(nodes))
    return replace(plan, allocations=(plan.allocations[0], changed))


def with_other_score(plan: Plan) -> Plan:
    return replace(plan, score=(replace(plan.score[0], value=plan.score[0].value + 0.01), *plan.score[1:]))


@pytest.mark.parametrize("objective", list(ArenaObjective))
@pytest.mark.parametrize("normalise", [True, False])
def test_an_optimal_plan_passes(objective: ArenaObjective, normalise: bool) -> None:
    model = scene(replace(DEADLINES, objective=objective, normalise=normalise))
    plan, value = planned(model)
    assert given(plan).keys() == {"r", "w"}
    assert codes(model, plan, value) == []


@pytest.mark.parametrize(
    ("spoil", "expected"),
    [
        (
            lambda plan: second(plan, 2, {"n0": (4, 5)}),
            {"deadline_missed", "score_terms", "wrong_score", "wrong_objective"},
        ),
        (
            lambda plan: second(plan, 3, {"n0": (4, 5, 6)}),
            {"no_buddy_block", "score_terms", "wrong_score", "wrong_objective"},
        ),
        (
            lambda plan: second(plan, 4, {"n1": (0, 1, 2, 3)}, "b"),
            {"not_runnable", "score_terms", "wrong_score", "wrong_objective"},
        ),
        (lambda plan: second(plan, 4, {"n1": (0, 1, 2, 3)}), {"mixed_gpu_types"}),
        (
            lambda plan: replace(plan, allocations=plan.allocations[1:]),
            {"launched_job_suspended", "job_not_covered_once", "wrong_score", "wrong_objective"},
        ),
        (with_other_score, {"wrong_score"}),
        (lambda plan: replace(plan, unplaced=()), {"job_not_covered_once"}),
        (
            lambda plan: replace(plan, unplaced=(*plan.unplaced, replace(plan.unplaced[0], job_id="stranger"))),
            {"unknown_job"},
        ),
        (lambda plan: replace(plan, score=plan.score[1:]), {"score_terms"}),
    ],
)
def test_each_fault_is_noticed(spoil: Callable[[Plan], Plan], expected: set[str]) -> None:
    model = scene(DEADLINES)
    plan, objective = planned(model)
    assert set(codes(model, spoil(plan), objective)) == expected


def test_a_count_that_is_not_offered_is_noticed() -> None:
    model = scene(replace(DEADLINES, counts=(1, 2, 8)))
    plan, objective = planned(scene(DEADLINES))
    assert "count_not_offered" in codes(model, plan, objective)


def test_a_deadline_that_is_met_must_be_scored_by_its_points() -> None:
    """r has no deadline; w has one point, worth 1 + the weights 1 + 0.5 of all jobs that can run."""
    model = scene(DEADLINES)
    plan, objective = planned(model)
    (k,) = [k for k, term in enumerate(plan.score) if term.term == "deadline_met"]
    assert (plan.score[k].job_id, plan.score[k].value) == ("w", 2.5)
    without = replace(plan, score=plan.score[:k] + plan.score[k + 1 :])
    assert codes(model, without, objective) == ["score_terms"]
    doubled = replace(plan, score=(*plan.score[:k], replace(plan.score[k], value=5.0), *plan.score[k + 1 :]))
    assert codes(model, doubled, objective) == ["wrong_score"]
    assert codes(model, plan, objective - 2.5) == ["wrong_objective"]


def test_a_wrong_objective_is_noticed() -> None:
    model = scene(DEADLINES)
    plan, objective = planned(model)
    assert codes(model, plan, objective + 1e-3) == ["wrong_objective"]


def test_the_formulation_checks_placement_as_well() -> None:
    model = scene(DEADLINES)
    plan, objective = planned(model)
    moved = second(plan, 4, {"n0": (4, 5, 6, 9)})
    assert {issue.code for issue in model.violations(moved, objective)} >= {"unknown_gpu"}
