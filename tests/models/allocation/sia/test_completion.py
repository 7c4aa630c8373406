"""The objective `completion_time`: values by hand, who goes first, what a change costs, and that nobody starves."""

from dataclasses import replace
from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import given as given_by
from hypothesis import settings

from models.allocation.horizon.parameters import HorizonParameters
from models.allocation.horizon.validation import policy_issues as horizon_issues
from models.allocation.sia.completion import completion_values
from models.allocation.sia.formulation import formulate_sia
from models.allocation.sia.parameters import SiaObjective, SiaParameters
from models.allocation.sia.validation import policy_issues
from models.allocation.sia.waiting import changes_after
from models.allocation.work_left import remaining_samples
from models.clock import PhaseClock
from models.performance.goodput.spec import GoodputTable, ThroughputTable
from models.plan import Plan
from models.workload import Job, Snapshot
from stowplan.errors import InputError
from tests.models.allocation.sia.instances import Table, given, plan_of, random_snapshot, solve, table
from tests.models.allocation.sia.test_exact import best_by_trying
from tests.models.placement.scenes import SEEDS, cluster, dice, node, on

COMPLETION = SiaParameters(objective=SiaObjective.COMPLETION_TIME)
LINEAR: Table = {("a", count): float(count) for count in (1, 2, 4)}
CONCAVE: Table = {("a", 1): 1.0, ("a", 2): 1.7, ("a", 4): 2.0}


def job(name: str, left: float | None, speeds: Table = LINEAR, **fields: Any) -> Job:
    """A job of batch 1: iterations are samples, and seconds on one GPU."""
    performance = ThroughputTable(entries=table(speeds).entries, batch_size=1)
    return Job(id=name, performance=performance, remaining_iterations=left, **fields)


def four_gpus(*jobs: Job) -> Snapshot:
    return Snapshot(cluster=cluster(node("n0", 4)), jobs=jobs)


def values(snapshot: Snapshot, parameters: SiaParameters = COMPLETION) -> list[dict[int, float]]:
    """u_ij of every job by GPUs."""
    it = formulate_sia(snapshot, parameters, PhaseClock()).instance
    return [
        {int(it.configurations.num_gpus[c]): float(row[c]) for c in np.flatnonzero(can)}
        for row, can in zip(it.utility.value, it.utility.runnable, strict=True)
    ]


def test_who_ends_first_goes_first_where_speed_is_in_proportion() -> None:
    # k is 1 for `short`, for which all wait, and 1/2 for `long`. All four GPUs for `short`: 4; two each: 2 + 1; all for
    # `long`: 2. By hand: 25 and 275 s, 150 on average; two each, then four: 50 and 275, 162.5; `long` first: 262.5.
    plan, objective = plan_of(four_gpus(job("long", 1000.0), job("short", 100.0)), COMPLETION)
    assert given(plan) == {"short": ("a", 4)}
    assert objective == pytest.approx(4.0)


def test_gpus_are_shared_where_more_of_them_stop_helping() -> None:
    # `short` on two is worth 1.7, and `long` beside it 0.85; on all four `short` is worth 2.
    plan, objective = plan_of(four_gpus(job("long", 1000.0, CONCAVE), job("short", 100.0, CONCAVE)), COMPLETION)
    assert given(plan) == {"short": ("a", 2), "long": ("a", 2)}
    assert objective == pytest.approx(1.7 + 0.85)


def test_heavy_jobs_go_first() -> None:
    # 1000 / 20 = 50 is less than 100 / 1: all weight, 21, waits for `long`, and 1 of it for `short`.
    heavy = four_gpus(job("long", 1000.0, weight=20.0), job("short", 100.0))
    assert [row[1] for row in values(heavy)] == pytest.approx([1.0, 1 / 21])
    assert given(plan_of(heavy, COMPLETION)[0]) == {"long": ("a", 4)}


def test_equal_jobs_wait_for_each_other() -> None:
    assert [row[1] for row in values(four_gpus(*(job(f"j{k}", 100.0) for k in range(3))))] == [1.0, 1.0, 1.0]


def test_a_change_costs_its_share_of_the_time_that_it_lasts() -> None:
    # It ran for 100 s with one restart, so holds GPUs for 50 s; 10 s of these are lost: 0.8 on two GPUs, twice as fast.
    ran: dict[str, Any] = {"current": on({"n0": (0,)}), "age_s": 100.0, "num_restarts": 1, "restart_cost_s": 10.0}
    assert values(four_gpus(job("j", 1000.0, **ran)))[0] == pytest.approx({1: 1.0, 2: 1.6, 4: 3.2})
    # With four seconds left, 2 on two GPUs and 1 on four: 10 of 12 and 10 of 11 s are lost.
    assert values(four_gpus(job("j", 4.0, **ran)))[0] == pytest.approx({1: 1.0, 2: 2 * 2 / 12, 4: 4 / 11})
    # However young, it is taken to hold them for three times the cost; a price of 2 counts the cost twice.
    young = {**ran, "age_s": 0.0, "num_restarts": 0}
    assert values(four_gpus(job("j", 1000.0, **young)))[0][2] == pytest.approx(2 * 2 / 3)
    dear = replace(COMPLETION, restart_price=2.0)
    assert values(four_gpus(job("j", 1000.0, **ran)), dear)[0][2] == pytest.approx(2 * (1 - 20 / 60))
    # Who waits has no change to pay for.
    assert values(four_gpus(job("j", 4.0, age_s=100.0, restart_cost_s=10.0)))[0][4] == 4.0


def test_what_is_not_known_is_taken_as_the_median() -> None:
    left = [100.0, None, 300.0, 900.0, None]
    told = four_gpus(*(job(f"j{k}", value) for k, value in enumerate(left)))
    # 100, 300, 300, 300, 900: five, four, four, one and four of five jobs wait.
    assert [row[1] for row in values(told)] == pytest.approx([1.0, 0.8, 0.8, 0.2, 0.8])
    (warning,) = (issue for issue in policy_issues(told, COMPLETION) if issue.code == "remaining_unknown")
    assert warning.pointer == "/jobs/1/remaining_iterations"
    assert "not known how much is left of 2 jobs" in warning.detail
    nothing_known = four_gpus(job("a", None), job("b", None))
    assert [row[1] for row in values(nothing_known)] == [1.0, 1.0]
    (warning,) = policy_issues(nothing_known, COMPLETION)
    assert "left of 2 jobs, taken to be the same, by weight; give" in warning.detail
    (warning,) = horizon_issues(nothing_known, HorizonParameters())
    assert "taken to be a second on one of its slowest GPUs, by weight, or what it has had" in warning.detail


def test_what_is_left_has_the_batch_of_the_performance() -> None:
    batched = job("j", 10.0)
    assert remaining_samples(replace(batched, performance=ThroughputTable(entries=(), batch_size=32))) == 320.0
    assert remaining_samples(replace(batched, performance=table(LINEAR))) is None
    assert remaining_samples(replace(batched, performance=ThroughputTable(entries=()))) is None


def test_remaining_iterations_without_the_objective_are_ignored_with_a_warning() -> None:
    told = four_gpus(job("a", None), job("b", 5.0))
    (warning,) = policy_issues(told, SiaParameters())
    assert (warning.code, warning.pointer) == ("ignored_field", "/jobs/1/remaining_iterations")
    assert policy_issues(four_gpus(job("b", 5.0)), COMPLETION) == []


def test_nobody_waits_for_longer_than_allowed() -> None:
    long = job("long", 1000.0, min_gpus=4)
    crowd = [job(f"short{k}", 1.0 + k) for k in range(3)]
    assert "long" not in given(plan_of(four_gpus(long, *crowd), COMPLETION)[0])
    old = replace(long, age_s=21_600.0)
    assert given(plan_of(four_gpus(old, *crowd), COMPLETION)[0]) == {"long": ("a", 4)}
    # One that runs is not put off either.
    runs = replace(old, current=on({"n0": (0, 1, 2, 3)}))
    assert given(plan_of(four_gpus(runs, *crowd), COMPLETION)[0]) == {"long": ("a", 4)}
    for_ever = replace(COMPLETION, longest_wait_s=None)
    assert "long" not in given(plan_of(four_gpus(old, *crowd), for_ever)[0])


def test_who_has_to_wait_on_is_named() -> None:
    old = [job(f"j{k}", 1000.0, min_gpus=4, age_s=30_000.0) for k in range(2)]
    formulation = formulate_sia(four_gpus(*old), COMPLETION, PhaseClock())
    result = solve(formulation)
    assert result.incumbent is not None
    formulation.extract(result.incumbent, PhaseClock())
    (warning,) = formulation.warnings
    assert warning.code == "waits_too_long"
    assert warning.detail.endswith("was submitted 30000 s ago and waits on; longest_wait_s is 21600")


def test_a_plan_is_made_again_when_a_job_has_waited_for_so_long() -> None:
    waiting = [(600.0, 1), (21_000.0, 1), (30_000.0, 1)]
    assert changes_after(COMPLETION, waiting, []) == 600.0
    assert changes_after(replace(COMPLETION, longest_wait_s=None), waiting, []) is None
    assert changes_after(SiaParameters(), waiting, []) is None


def test_a_limit_is_above_0() -> None:
    with pytest.raises(InputError, match=r"longest_wait_s is 0\.0; must be finite and above 0"):
        SiaParameters(longest_wait_s=0.0)


def random_case(rng: Random) -> tuple[Snapshot, SiaParameters]:
    """A snapshot in which of most jobs it is known how much is left."""
    snapshot = random_snapshot(rng)
    jobs = tuple(
        replace(
            it,
            performance=ThroughputTable(entries=it.performance.entries, batch_size=rng.choice((None, 4, 32)))
            if isinstance(it.performance, GoodputTable) and rng.random() < 0.8
            else it.performance,
            remaining_iterations=rng.choice((None, 1.0, 50.0, 50.0, 1e4)),
        )
        for it in snapshot.jobs
    )
    parameters = replace(
        COMPLETION,
        restart_price=rng.choice((0.0, 1.0, 4.0)),
        longest_wait_s=rng.choice((None, 60.0, 3000.0)),
        double_at_most=rng.random() < 0.3,
    )
    return replace(snapshot, jobs=jobs), parameters


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given_by(seed=SEEDS)
def test_the_optimum_equals_trying_everything_and_passes_the_check(seed: int) -> None:
    rng = dice(seed)
    formulation = formulate_sia(*random_case(rng), PhaseClock())
    expected = best_by_trying(formulation.instance)
    result = solve(formulation, rng.choice(("highs", "decomposition")))
    if expected is None or result.incumbent is None:
        assert expected is None
        assert result.incumbent is None
        return
    assert result.objective == pytest.approx(expected, rel=1e-7, abs=1e-7)
    plan = formulation.extract(result.incumbent, PhaseClock())
    assert formulation.violations(plan, expected) == []
    for term in plan.score:
        assert "wrong_score" in {issue.code for issue in formulation.violations(off(plan, term.job_id), expected)}


def off(plan: Plan, job_id: str | None) -> Plan:
    """The plan with another value for the job."""
    score = tuple(replace(term, value=term.value + 0.01 * (term.job_id == job_id)) for term in plan.score)
    return replace(plan, score=score)


def test_values_cost_sorting_and_no_more() -> None:
    # Pairs of jobs compared one by one would be 10^10 here.
    num_jobs = 100_000
    jobs = [job("j", 1.0)] * num_jobs
    speed, flags = np.ones((num_jobs, 1)), np.zeros((num_jobs, 1), dtype=np.bool_)
    found = completion_values(jobs, speed, np.arange(1.0, num_jobs + 1), flags, flags[:, 0], 1.0)
    assert found[[0, -1], 0] == pytest.approx([1 / num_jobs, 1.0])
