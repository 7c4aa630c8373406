"""Admission, scaling and the program: by hand, against trying everything, and what is said of jobs that wait.

Jobs that have not begun must end a slot before their deadline: with slots of 100 s, one due at 300 s has until 200 s.
"""

from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given as given_by
from hypothesis import settings

from models.allocation.elasticflow.declaration import compiled
from models.allocation.elasticflow.formulation import ElasticFlowFormulation
from models.allocation.elasticflow.parameters import ElasticFlowMethod, ElasticFlowParameters, changes_after
from models.allocation.elasticflow.slots import seconds_before, slot_ends
from models.clock import PhaseClock
from models.plan import Change, Plan
from models.workload import Job, Snapshot
from solver.result import TerminationReason
from stowplan.errors import InputError
from tests.models.allocation.elasticflow.scenes import (
    CONCAVE,
    formulation_of,
    given,
    guaranteed,
    job,
    planned,
    random_parameters,
    random_snapshot,
    solved,
)
from tests.models.allocation.gavel.scenes import table
from tests.models.placement.scenes import SEEDS, can_be_packed, cluster, dice, node, on

ONE_NODE = cluster(node("n0", 4))
METHODS = pytest.mark.parametrize("method", ElasticFlowMethod)


def plan_of(*jobs: Job, where: Any = ONE_NODE, **parameters: Any) -> Plan:
    return planned(Snapshot(cluster=where, jobs=jobs), **{"slot_s": 100.0, **parameters})[0]


def test_slots_end_at_deadlines_and_are_few() -> None:
    due = np.array([50.0, 300.0, 300.0, 200.0])
    assert slot_ends(due, 100.0, 5).tolist() == [100, 200, 300]
    # Of 30 deadlines every tenth, the last one among them.
    assert slot_ends(np.arange(1.0, 31.0) * 100 + 1, 100.0, 4).tolist() == [100, 1001, 2001, 3001]
    np.testing.assert_array_equal(
        seconds_before(due, np.array([100.0, 250.0, 300.0])),
        [[50, 0, 0], [100, 150, 50], [100, 150, 50], [100, 100, 0]],
    )


@METHODS
def test_two_jobs_share_two_slots(method: ElasticFlowMethod) -> None:
    """x: 200 samples in 100 s, y: 600 in 200 s, on 4 GPUs that do a sample/s each: 800 in 200 s, all there is.

         0     100    200
    x    2 GPUs
    y    2      4
    """
    plan = plan_of(job("x", 200, 200), job("y", 600, 300), method=method)
    assert given(plan) == {"x": 2, "y": 2}
    assert guaranteed(plan) == {"x", "y"}


@METHODS
def test_a_job_too_many_is_refused(method: ElasticFlowMethod) -> None:
    """As before, and a third that needs 100 s of a GPU of which there is none left; it is one of three either way."""
    jobs = (job("x", 200, 200), job("y", 600, 300), job("z", 100, 300))
    if method is ElasticFlowMethod.HEURISTIC:
        # By deadlines x, y, z.
        assert guaranteed(plan_of(*jobs)) == {"x", "y"}
        (refused,) = plan_of(*jobs).unplaced
        assert (refused.job_id, refused.reason, refused.counts) == ("z", "not_admitted", {"admitted": 2})
    else:
        assert len(guaranteed(plan_of(*jobs, method=method))) == 2
        heavy = replace(jobs[2], weight=3.0)
        assert "z" in guaranteed(plan_of(*jobs[:2], heavy, method=method))


def test_the_program_admits_more_than_the_order_of_deadlines() -> None:
    """`early` needs all there is; without it the other two fit."""
    jobs = (job("early", 800, 300), job("a", 300, 300.5), job("b", 300, 300.5))
    snapshot = Snapshot(cluster=ONE_NODE, jobs=jobs)
    plan, by_deadline = planned(snapshot, slot_s=100.0)
    best, exact = planned(snapshot, slot_s=100.0, method=ElasticFlowMethod.ILP)
    assert (guaranteed(plan), guaranteed(best)) == ({"early"}, {"a", "b"})
    assert by_deadline.termination is TerminationReason.FEASIBLE
    assert by_deadline.objective is not None
    assert by_deadline.bound is not None
    assert exact.objective is not None
    assert by_deadline.objective < exact.objective <= by_deadline.bound + 1e-6


def test_the_least_share_is_the_least_power_of_two_that_is_in_time() -> None:
    """280 samples in 200 s: 1 GPU does 200, 2 do 300. What is left goes where a GPU gains most: of the best, 2 more
    bring `x` a quarter, the first one `idle` a half, its second one another quarter."""
    x, idle = job("x", 280, 300, CONCAVE), job("idle", 1, None, CONCAVE)
    assert given(plan_of(x)) == {"x": 4}
    assert given(plan_of(x, idle)) == {"x": 2, "idle": 2}
    hurried = job("x", 380, 300, CONCAVE)
    (waits,) = plan_of(hurried, idle).unplaced
    assert (waits.job_id, waits.reason) == ("idle", "outcompeted")


def test_who_has_begun_keeps_its_promise() -> None:
    """`old` needs its 4 GPUs until 200 s; `young` is due before it, and would need them as well."""
    old = job("old", 800, 200, current=on({"n0": (0, 1, 2, 3)}))
    young = job("young", 300, 180)
    for method in ElasticFlowMethod:
        plan = plan_of(old, replace(young, weight=5.0), method=method)
        assert guaranteed(plan) == {"old"}
        assert given(plan) == {"old": 4}
    # One that is out for a slot had GPUs.
    suspended = replace(old, current=None, attained_gpu_s=50.0)
    assert guaranteed(plan_of(suspended, young)) == {"old"}
    assert guaranteed(plan_of(replace(old, current=None, deadline_s=300), young)) == {"young"}


def test_a_restart_is_paid_for() -> None:
    """`x` does 100 of its 180 samples in 100 s on the GPU that it has; 2 GPUs, 50 s later, do no more."""
    x = job("x", 180, 100, restart_cost_s=50.0, current=on({"n0": (0,)}))
    assert guaranteed(plan_of(replace(x, remaining_iterations=100.0))) == {"x"}
    assert guaranteed(plan_of(x)) == {"x"}  # 4 GPUs do 200.
    assert given(plan_of(x)) == {"x": 4}
    assert guaranteed(plan_of(replace(x, restart_cost_s=60.0))) == set()


def test_a_job_is_on_the_type_where_it_takes_least() -> None:
    """600 samples in 200 s: 4 GPUs of a do 4/s, one of b does 3/s."""
    where = cluster(node("n0", 4), node("n1", 1, "b"))
    x = job("x", 600, 300, {("a", 1): 1.0, ("a", 4): 4.0, ("b", 1): 3.0})
    (allocation,) = plan_of(x, where=where).allocations
    assert (allocation.gpu_type, allocation.num_gpus, allocation.expected_goodput) == ("b", 1, 3.0)


def test_best_effort() -> None:
    """`late` needs all GPUs, of which `x` needs 2; `hopeless` is as one without a deadline."""
    jobs = (job("x", 280, 300, CONCAVE), job("late", 380, 300, CONCAVE), job("hopeless", 500, 300, CONCAVE))
    plan = plan_of(*jobs)
    assert given(plan) == {"x": 2, "hopeless": 2}
    assert [one.job_id for one in plan.unplaced] == ["late"]
    assert given(plan_of(*jobs, best_effort=True)).keys() == {"x", "late", "hopeless"}


def test_a_close_one_waits_while_others_have_promises() -> None:
    """Due at 300 s and done in 250 s at best: begun, it might take what `x` was promised."""
    close = job("close", 1000, 300)
    assert given(plan_of(close)) == {"close": 4}
    x = job("x", 100, 300, current=on({"n0": (0,)}))
    assert given(plan_of(x, close)) == {"x": 4}


def test_a_pinned_job_keeps_its_gpus() -> None:
    pinned = Job(id="p", current=on({"n0": (0, 1)}), preemptible=False, deadline_s=9.0)
    plan = plan_of(pinned, job("x", 400, 300))
    assert {item.job_id: item.change for item in plan.allocations} == {"p": Change.KEPT, "x": Change.STARTED}
    assert guaranteed(plan_of(pinned, job("x", 500, 300))) == set()


def test_reasons_and_warnings() -> None:
    where = cluster(node("n0", 4), node("n1", 4, in_use=(0,)))
    jobs = (
        job("huge", 1, 300, min_gpus=16),
        Job(id="unknown", min_gpus=4, performance=table({("a", 2): 1.0})),
        job("eight", 1, None, {("a", 8): 1.0}),
        job("x", 100, 150, {("a", 4): 1.0}, current=on({"n0": (0, 1, 2, 3)})),
        job("later", 100, 400, {("a", 4): 1.0}),
    )
    snapshot = Snapshot(cluster=where, jobs=jobs)
    formulation = formulation_of(snapshot, slot_s=100.0)
    plan = formulation.extract(formulation.warm_start, PhaseClock())
    assert {one.job_id: one.reason for one in plan.unplaced} == {
        "huge": "no_configuration",
        "unknown": "no_performance",
        "eight": "capacity",
        "later": "reserved_later",
    }
    assert [(issue.code, issue.pointer) for issue in formulation.warnings] == [
        ("deadline_not_guaranteed", "/jobs/0/deadline_s")
    ]


def test_parameters_and_when_a_plan_changes() -> None:
    wrongs: tuple[dict[str, Any], ...] = ({"slot_s": 0.0}, {"horizon_s": float("inf")}, {"max_slots": 1})
    for wrong in wrongs:
        with pytest.raises(InputError):
            ElasticFlowParameters(**wrong)
    parameters, waits, runs = ElasticFlowParameters(slot_s=60.0), (5.0, 1), (2, 9.0)
    assert changes_after(parameters, [waits], [runs]) == 60.0
    assert changes_after(parameters, [], [runs, runs]) == 60.0
    assert changes_after(parameters, [], [runs]) is None


def best_by_trying(formulation: ElasticFlowFormulation) -> float:
    """Optimum over everything that can be packed in the only slot: who has which block decides who is in time."""
    it, program = formulation.instance, formulation.program
    promised = set(program.admissible[program.promised].tolist())
    options = [[-1, *np.flatnonzero(row).tolist()] for row in it.offered]
    best = -np.inf
    for choice in product(*options):
        in_time = {i for i, c in enumerate(choice) if c >= 0 and it.wants[i] and it.progress[i, c, 0] >= 1 - 1e-9}
        refused = any(c >= 0 and it.strict[i] and i not in in_time for i, c in enumerate(choice))
        taken = [c for c in choice if c >= 0]
        if promised <= in_time and not refused and can_be_packed(it.snapshot, it.configurations, it.taken, taken):
            value = sum(it.gain[i, c] for i, c in enumerate(choice) if c >= 0) + sum(it.reward[i] for i in in_time)
            best = max(best, float(value))
    return best


def assert_declared(formulation: ElasticFlowFormulation) -> None:
    """Same columns in the same order; same rows, which CVXPY sorts by kind."""
    direct, declared = formulation.problem, compiled(formulation.program)
    for name in ("objective", "lower", "upper", "integrality"):
        np.testing.assert_allclose(getattr(direct, name), getattr(declared, name))
    names = [name for group in formulation.program.groups() for name in group.row_names]
    order = [declared.row_names.index(name) for name in names]
    assert sorted(order) == list(range(declared.num_rows))
    assert abs(direct.matrix.tocsr() - declared.matrix.tocsr()[order]).sum() < 1e-9
    np.testing.assert_array_equal(direct.row_upper, declared.row_upper[order])


@pytest.mark.slow
@settings(max_examples=30, deadline=None)
@given_by(seed=SEEDS)
def test_one_slot_against_trying_everything(seed: int) -> None:
    rng = dice(seed)
    snapshot, parameters = random_snapshot(rng, num_jobs=3), random_parameters(rng, ElasticFlowMethod.ILP)
    formulation = formulation_of(snapshot, **{**parameters, "slot_s": 300.0, "max_slots": 2})
    exact = solved(formulation, rng.choice(("highs", "scip", "auto")))
    assert exact.termination is TerminationReason.OPTIMAL
    assert exact.objective == pytest.approx(best_by_trying(formulation), rel=1e-6, abs=1e-6)
    assert_declared(formulation)


@pytest.mark.slow
@settings(max_examples=40, deadline=None)
@given_by(seed=SEEDS)
def test_heuristic_optimum_and_bound(seed: int) -> None:
    rng = dice(seed)
    snapshot, parameters = random_snapshot(rng), random_parameters(rng)
    _, heuristic = planned(snapshot, **parameters)
    _, exact = planned(snapshot, **{**parameters, "method": ElasticFlowMethod.ILP})
    assert heuristic.objective is not None
    assert heuristic.bound is not None
    assert exact.objective is not None
    assert heuristic.objective <= exact.objective * (1 + 1e-6) + 1e-6
    assert exact.objective <= heuristic.bound * (1 + 1e-6) + 1e-6
    assert_declared(formulation_of(snapshot, **parameters))
