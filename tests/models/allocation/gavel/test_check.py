"""The check must notice every number and rule that a faulty planner could get wrong."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from models.allocation.gavel.check import gavel_violations
from models.allocation.gavel.formulation import GavelFormulation
from models.clock import PhaseClock
from models.plan import Plan
from models.workload import Job, Snapshot
from stowplan.arrays import FloatMatrix
from tests.models.allocation.gavel.scenes import formulation_of, solved, table
from tests.models.placement.scenes import cluster, node, on


def formulation() -> GavelFormulation:
    """`pinned` has 2 of 4 GPUs of type a; `x`, `y` and `z` share the others, `y` and `z` those of b."""
    both = table({("a", 2): 4.0, ("b", 2): 1.0})
    jobs = (
        Job(id="pinned", min_gpus=2, current=on({"n0": (0, 1)}), preemptible=False),
        Job(id="x", min_gpus=2, performance=table({("a", 2): 3.0}), age_s=7200.0, attained_s={"a": 360.0}),
        Job(id="y", min_gpus=2, performance=both, age_s=720.0),
        Job(id="z", min_gpus=2, performance=both, weight=0.5, attained_s={"a": 720.0, "b": 720.0}),
    )
    return formulation_of(Snapshot(cluster=cluster(node("n0", 4), node("n1", 2, "b")), jobs=jobs))


def planned(model: GavelFormulation) -> tuple[Plan, float]:
    result = solved(model)
    assert result.incumbent is not None
    assert result.objective is not None
    return model.extract(result.incumbent, PhaseClock()), result.objective


def codes(model: GavelFormulation, plan: Plan, objective: float, of_time: FloatMatrix | None = None) -> list[str]:
    it = model.instance
    shares = model.shares.of_time if of_time is None else of_time
    types = it.configurations.gpu_types
    found = gavel_violations(it.snapshot, it.parameters, types, shares, it.speed, plan, objective)
    return [issue.code for issue in found]


def second(plan: Plan, **changes: object) -> Plan:
    """The first allocation of a planned job changed."""
    changed = replace(plan.allocations[1], **changes)  # type: ignore[arg-type]  # fields of a test case
    return replace(plan, allocations=(plan.allocations[0], changed, *plan.allocations[2:]))


def with_other_score(plan: Plan) -> Plan:
    return replace(plan, score=(replace(plan.score[0], value=plan.score[0].value * 1.1), *plan.score[1:]))


def test_a_plan_is_legal_until_it_is_changed() -> None:
    model = formulation()
    plan, objective = planned(model)
    assert [item.job_id for item in plan.allocations] == ["pinned", "x", "z"]
    assert codes(model, plan, objective) == []
    assert codes(model, plan, objective + 1) == ["wrong_objective"]


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (lambda plan: second(plan, num_gpus=1), {"wrong_size", "wrong_score", "wrong_objective"}),
        (lambda plan: second(plan, gpu_type="b"), {"not_runnable", "score_terms", "wrong_score", "wrong_objective"}),
        (lambda plan: second(plan, gpus=on({"n0": (2,), "n9": (0,)})), {"not_compact"}),
        (with_other_score, {"wrong_score"}),
        (lambda plan: replace(plan, score=plan.score[1:]), {"score_terms"}),
        (lambda plan: replace(plan, unplaced=()), {"job_not_covered_once"}),
        (lambda plan: replace(plan, allocations=plan.allocations[1:]), {"job_not_covered_once"}),
    ],
    ids=["size", "type", "shape", "score", "term missing", "job missing", "pinned job missing"],
)
def test_what_is_wrong_with_a_plan_is_noticed(change: Callable[[Plan], Plan], expected: set[str]) -> None:
    model = formulation()
    plan, objective = planned(model)
    assert set(codes(model, change(plan), objective)) == expected


@pytest.mark.parametrize(
    ("cell", "share", "expected"),
    [
        ((1, 0), 1.5, "impossible_share"),
        ((1, 0), -0.5, "impossible_share"),
        ((1, 1), 0.1, "share_where_it_cannot_run"),
        ((0, 0), 0.1, "share_where_it_cannot_run"),
        ((1, 0), 1.0, "over_capacity"),
    ],
)
def test_impossible_shares_are_noticed(cell: tuple[int, int], share: float, expected: str) -> None:
    """Rows are the jobs, columns the types a and b, of which jobs may use 2 GPUs each."""
    model = formulation()
    plan, objective = planned(model)
    of_time = np.array([[0.0, 0.0], [0.5, 0.0], [0.4, 0.5], [0.1, 0.5]])
    assert "over_capacity" not in codes(model, plan, objective, of_time)
    of_time[cell] = share
    assert expected in codes(model, plan, objective, of_time)
