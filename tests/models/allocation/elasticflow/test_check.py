"""The check must notice every number and rule that a faulty planner could get wrong."""

from collections.abc import Callable, Set
from dataclasses import replace

import numpy as np
import pytest

from models.allocation.admission import rewards
from models.allocation.elasticflow.check import Reserved, elastic_violations
from models.allocation.elasticflow.formulation import ElasticFlowFormulation
from models.clock import PhaseClock
from models.plan import Plan
from models.workload import Job, Snapshot
from tests.models.allocation.elasticflow.scenes import formulation_of, job
from tests.models.placement.scenes import cluster, node, on


def formulation() -> ElasticFlowFormulation:
    """`pinned` has 2 of 6 GPUs; `x` runs and must go on, `y` has GPUs now and all of them later, `z` has what is left.

    Slots end at 100 and 200 s, a slot before `y` is due.
    """
    pinned = Job(id="pinned", min_gpus=2, current=on({"n1": (0, 1)}), preemptible=False)
    x = job("x", 200, 100, current=on({"n0": (0, 1)}), restart_cost_s=10.0)
    y = job("y", 600, 300, weight=2.0)
    where = cluster(node("n0", 4), node("n1", 2))
    return formulation_of(Snapshot(cluster=where, jobs=(pinned, x, y, job("z", 10, None))), slot_s=100.0)


def planned(model: ElasticFlowFormulation) -> tuple[Plan, float]:
    return model.extract(model.warm_start, PhaseClock()), model.problem.value(model.warm_start)


def codes(
    model: ElasticFlowFormulation,
    plan: Plan,
    objective: float,
    reserved: Reserved | None = None,
    promised: Set[str] = frozenset({"x"}),
) -> set[str]:
    it = model.instance
    given = model.schedule.reserved(it) if reserved is None else reserved
    found = elastic_violations(
        it.snapshot, it.parameters, it.configurations, it.samples_per_s, given, promised, plan, objective
    )
    return {issue.code for issue in found}


def changed(plan: Plan, job_id: str, **changes: object) -> Plan:
    items = [
        replace(item, **changes) if item.job_id == job_id else item  # type: ignore[arg-type]  # fields of a test case
        for item in plan.allocations
    ]
    return replace(plan, allocations=tuple(items))


def without(plan: Plan, job_id: str) -> Plan:
    return replace(plan, allocations=tuple(item for item in plan.allocations if item.job_id != job_id))


def with_other_score(plan: Plan) -> Plan:
    return replace(plan, score=(replace(plan.score[0], value=plan.score[0].value * 1.1), *plan.score[1:]))


def test_a_plan_is_legal_until_it_is_changed() -> None:
    model = formulation()
    plan, objective = planned(model)
    assert {item.job_id: item.num_gpus for item in plan.allocations} == {"pinned": 2, "x": 2, "y": 2}
    reserved = model.schedule.reserved(model.instance)
    assert (reserved.admitted, reserved.ends) == ({"x", "y"}, (100.0, 200.0))
    assert [part[:3] for part in reserved.later["y"]] == [(1, "a", 4)]
    assert reserved.later["y"][0][3] == pytest.approx(1.0)
    assert codes(model, plan, objective) == set()
    assert codes(model, plan, objective + 1) == {"wrong_objective"}


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (lambda plan: changed(plan, "y", num_gpus=3), {"not_runnable", "deadline_not_kept", "wrong_score"}),
        (lambda plan: changed(plan, "y", gpu_type="b"), {"not_runnable", "deadline_not_kept", "wrong_score"}),
        (lambda plan: changed(plan, "x", num_gpus=1), {"deadline_not_kept", "wrong_score"}),
        (lambda plan: without(plan, "x"), {"deadline_not_kept", "score_terms", "job_not_covered_once", "wrong_score"}),
        (with_other_score, {"wrong_score"}),
        (lambda plan: replace(plan, score=plan.score[1:]), {"score_terms"}),
        (lambda plan: replace(plan, unplaced=()), {"job_not_covered_once"}),
    ],
    ids=["size", "type", "slower", "left out", "score", "term missing", "job missing"],
)
def test_what_is_wrong_with_a_plan_is_noticed(change: Callable[[Plan], Plan], expected: set[str]) -> None:
    model = formulation()
    plan, objective = planned(model)
    assert codes(model, change(plan), objective) - {"wrong_objective"} == expected


@pytest.mark.parametrize(
    ("later", "expected"),
    [
        ({}, {"deadline_not_kept"}),
        ({"y": ((1, "a", 4, 0.5),)}, {"deadline_not_kept"}),
        ({"y": ((1, "a", 4, 1.0),), "z": ((1, "a", 2, 0.5),)}, {"over_capacity"}),
        ({"y": ((1, "a", 4, 0.75), (1, "a", 2, 0.5))}, {"impossible_share"}),
    ],
    ids=["nothing", "too little", "too much", "twice"],
)
def test_what_is_wrong_with_what_is_reserved_is_noticed(
    later: dict[str, tuple[tuple[int, str, int, float], ...]], expected: set[str]
) -> None:
    """4 GPUs are there besides those of `pinned`."""
    model = formulation()
    plan, objective = planned(model)
    reserved = replace(model.schedule.reserved(model.instance), later=later)
    assert codes(model, plan, objective, reserved) == expected


def test_a_broken_promise_is_noticed() -> None:
    model = formulation()
    plan, objective = planned(model)
    assert codes(model, plan, objective, promised={"x", "z"}) == {"promise_broken"}


@pytest.mark.parametrize(
    ("name", "faulty", "expected"),
    [
        # Half of what a deadline is worth.
        ("rewards", lambda earns, weight, most: rewards(earns, weight, most) / 2, "wrong_score"),
        # Running jobs are taken to wait: x pays for a restart where it is.
        (
            "current_configurations",
            lambda snapshot, *_: np.full(len(snapshot.jobs), -1, dtype=np.int64),
            "wrong_score",
        ),
        # Bounds do not count.
        (
            "allowed_configurations",
            lambda jobs, blocks: np.ones((len(jobs), len(blocks)), dtype=np.bool_),
            "not_runnable",
        ),
    ],
    ids=["points", "where it may stay", "what it may get"],
)
def test_what_the_formulation_gets_wrong_is_noticed(
    name: str, faulty: Callable[..., object], expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """x runs on two of four GPUs and may get no others; the check computes all of it again."""
    monkeypatch.setattr(f"models.allocation.elasticflow.instance.{name}", faulty)
    x = job("x", 200, 150, current=on({"n0": (0, 1)}), restart_cost_s=10.0, min_gpus=2, max_gpus=2)
    model = formulation_of(Snapshot(cluster=cluster(node("n0", 4)), jobs=(x,)), slot_s=100.0)
    plan, objective = planned(model)
    assert expected in {issue.code for issue in model.violations(plan, objective)}
