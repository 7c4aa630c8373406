"""Algorithm 1, rule by rule; drawings show who has the GPUs of a node."""

import math
import threading
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given as given_by
from hypothesis import settings

from models.allocation.arena.formulation import chosen_configurations, point_of
from models.allocation.arena.heuristic import schedule
from models.allocation.arena.parameters import ArenaAnswer, ArenaMethod, ArenaObjective, ArenaParameters
from models.clock import PhaseClock
from models.plan import Change
from models.workload import Adaptivity, Job, Reservation, Snapshot
from solver.monitor import Progress, SolveMonitor
from solver.options import SolveOptions
from solver.result import Limit, TerminationReason
from tests.models.allocation.arena.scenes import (
    HEURISTIC,
    formulation_of,
    given,
    plan_of,
    random_parameters,
    random_snapshot,
    reasons,
    solved,
    table,
)
from tests.models.placement.scenes import SEEDS, cluster, dice, node, on
from topology.cluster import NodeState

LINEAR = table({("a", n): float(n) for n in (1, 2, 4, 8, 16)})
CONCAVE = table({("a", 1): 1.0, ("a", 2): 1.5, ("a", 4): 2.0})


BETTER = replace(HEURISTIC, answer=ArenaAnswer.BETTER)
FAIR = replace(HEURISTIC, objective=ArenaObjective.FINISH_TIME_FAIRNESS)
DEADLINES = replace(HEURISTIC, objective=ArenaObjective.DEADLINES)


def rigid(name: str, num_gpus: int, **fields: object) -> Job:
    job = Job(id=name, performance=LINEAR, min_gpus=num_gpus, max_gpus=num_gpus)
    return replace(job, **fields)  # type: ignore[arg-type]  # fields of a test case


def test_a_blocked_job_lets_its_own_queue_pass_but_no_lower_one() -> None:
    """n0 [rr..] -> [rrs.]: r must not shrink, so `big` is blocked. `small` of the same queue passes it; `low` may not,
    although there is a GPU left for it."""
    jobs = (
        rigid("low", 1, priority=2, age_s=50.0),
        rigid("small", 1, age_s=10.0),
        rigid("big", 4, age_s=20.0),
        rigid("r", 2, current=on({"n0": (0, 1)})),
    )
    snapshot = Snapshot(cluster=cluster(node("n0", 4)), jobs=jobs)
    plan, result = plan_of(snapshot, HEURISTIC)
    assert given(plan) == {"small": ("a", 1), "r": ("a", 2)}
    assert reasons(plan) == {"low": "queue", "big": "blocked"}
    assert result.solver == "algorithm 1"
    # The integer program knows no queues: it would launch `low` as well, which counts half.
    assert result.objective == pytest.approx(2.0)
    assert result.bound == pytest.approx(2.5)
    assert result.termination is TerminationReason.FEASIBLE


def test_promotion_brings_a_job_into_the_queue_that_may_pass() -> None:
    """The same, but `low` has waited for an hour and is of queue 1 now, where it is the oldest."""
    jobs = (
        rigid("low", 1, priority=2, age_s=3600.0),
        rigid("big", 4, age_s=20.0),
        rigid("r", 2, current=on({"n0": (0, 1)})),
    )
    plan, _ = plan_of(Snapshot(cluster=cluster(node("n0", 4)), jobs=jobs), HEURISTIC)
    assert given(plan) == {"low": ("a", 1), "r": ("a", 2)}


def test_within_a_queue_the_oldest_comes_first() -> None:
    jobs = (rigid("young", 1, age_s=1.0), rigid("old", 1, age_s=2.0))
    plan, _ = plan_of(Snapshot(cluster=cluster(node("n0", 1)), jobs=jobs), HEURISTIC)
    assert given(plan) == {"old": ("a", 1)}
    assert reasons(plan) == {"young": "blocked"}


def test_scaling_down_launches_a_blocked_job() -> None:
    """n0 [rrrr] -> [rrww]: r gives up a quarter of its best for half of w's."""
    jobs = (
        Job(id="r", performance=CONCAVE, max_gpus=4, current=on({"n0": (0, 1, 2, 3)})),
        Job(id="w", performance=LINEAR, min_gpus=2, max_gpus=4),
    )
    snapshot = Snapshot(cluster=cluster(node("n0", 4)), jobs=jobs)
    plan, result = plan_of(snapshot, HEURISTIC)
    assert given(plan) == {"r": ("a", 2), "w": ("a", 2)}
    assert [item.change for item in plan.allocations] == [Change.RESCALED, Change.STARTED]
    assert result.objective == pytest.approx(0.75 + 0.5)
    assert "1 launched, 0 scaled up, 1 change of others to make room" in result.message
    plan, _ = plan_of(snapshot, replace(HEURISTIC, search_depth=0))
    assert given(plan) == {"r": ("a", 4)}
    assert reasons(plan) == {"w": "blocked"}


def test_the_search_depth_limits_how_many_jobs_are_scaled_down() -> None:
    """n0 [rrss] -> [rsww] takes two scale-downs."""
    jobs = (
        Job(id="r", performance=CONCAVE, max_gpus=2, current=on({"n0": (0, 1)})),
        Job(id="s", performance=CONCAVE, max_gpus=2, current=on({"n0": (2, 3)})),
        rigid("w", 2),
    )
    snapshot = Snapshot(cluster=cluster(node("n0", 4)), jobs=jobs)
    assert reasons(plan_of(snapshot, replace(HEURISTIC, search_depth=1))[0]) == {"w": "blocked"}
    plan, _ = plan_of(snapshot, replace(HEURISTIC, search_depth=2))
    assert given(plan) == {"r": ("a", 1), "s": ("a", 1), "w": ("a", 2)}


def test_launched_jobs_run_to_completion() -> None:
    """n0 [rrrr]: however valuable, w does not get what r cannot give up."""
    jobs = (rigid("r", 4, current=on({"n0": (0, 1, 2, 3)})), rigid("w", 1, weight=1000.0))
    plan, _ = plan_of(Snapshot(cluster=cluster(node("n0", 4)), jobs=jobs), HEURISTIC)
    assert given(plan) == {"r": ("a", 4)}
    assert reasons(plan) == {"w": "blocked"}


def test_a_launched_job_makes_room_by_changing_its_gpu_type() -> None:
    """n0 a [r], n1 b [.] -> n0 [w], n1 [r]."""
    jobs = (
        Job(id="r", performance=table({("a", 1): 1.0, ("b", 1): 0.9}), current=on({"n0": (0,)})),
        Job(id="w", performance=table({("a", 1): 1.0})),
    )
    plan, result = plan_of(Snapshot(cluster=cluster(node("n0", 1), node("n1", 1, "b")), jobs=jobs), HEURISTIC)
    assert given(plan) == {"r": ("b", 1), "w": ("a", 1)}
    assert plan.allocations[0].change is Change.RETYPED
    assert result.objective == pytest.approx(1.9)
    assert result.termination is TerminationReason.OPTIMAL


def test_idle_gpus_go_to_the_launched_job_that_gains_most() -> None:
    """n0 [rs......] -> r 4, s 4: from 1 to 4 GPUs linear r gains 3/8 of its best, concave s 1/2; r wants 8 but s has
    its part by then."""
    jobs = (
        Job(id="r", performance=LINEAR, max_gpus=8, current=on({"n0": (0,)})),
        Job(id="s", performance=CONCAVE, max_gpus=8, current=on({"n0": (1,)})),
    )
    snapshot = Snapshot(cluster=cluster(node("n0")), jobs=jobs)
    plan, result = plan_of(snapshot, HEURISTIC)
    assert given(plan) == {"r": ("a", 4), "s": ("a", 4)}
    assert "2 scaled up" in result.message
    assert given(plan_of(snapshot, replace(HEURISTIC, max_scale_ups=1))[0]) == {"r": ("a", 1), "s": ("a", 4)}
    assert given(plan_of(snapshot, replace(HEURISTIC, max_scale_ups=0))[0]) == {"r": ("a", 1), "s": ("a", 1)}


def test_fragments_are_joined_by_moving_the_fewest_jobs() -> None:
    """n0 [r.] n1 [s.] -> [rs] [ww]: no block of 2 is free until one of them moves."""
    jobs = (
        rigid("r", 1, current=on({"n0": (0,)})),
        rigid("s", 1, current=on({"n1": (0,)})),
        rigid("w", 2),
    )
    plan, _ = plan_of(Snapshot(cluster=cluster(node("n0", 2), node("n1", 2)), jobs=jobs), HEURISTIC)
    assert given(plan) == {"r": ("a", 1), "s": ("a", 1), "w": ("a", 2)}
    assert sorted(item.change for item in plan.allocations) == [Change.KEPT, Change.MOVED, Change.STARTED]


def test_a_job_is_launched_even_where_the_objective_falls() -> None:
    """n0 [rr] -> [rw]: in samples/s r loses 1 and w brings 0.1. The queue decides who runs, the objective how."""
    jobs = (
        Job(id="r", performance=LINEAR, max_gpus=2, current=on({"n0": (0, 1)})),
        Job(id="w", performance=table({("a", 1): 0.1})),
    )
    snapshot = Snapshot(cluster=cluster(node("n0", 2)), jobs=jobs)
    plan, result = plan_of(snapshot, replace(HEURISTIC, normalise=False))
    assert given(plan) == {"r": ("a", 1), "w": ("a", 1)}
    assert result.objective == pytest.approx(1.1)
    assert result.bound == pytest.approx(2.0)


def test_fairness_scales_down_the_job_that_is_best_off() -> None:
    """n0 [ffffssss]: 100 samples of `fast` and 10000 of `slow` are left, at equal speeds. The newcomer's 4 GPUs come
    from the one whose finish time in seconds per GPU stays below the worst."""
    jobs = (
        Job(id="fast", performance=LINEAR, max_gpus=4, current=on({"n0": (0, 1, 2, 3)}), remaining_iterations=1),
        Job(id="slow", performance=LINEAR, max_gpus=4, current=on({"n0": (4, 5, 6, 7)}), remaining_iterations=100),
        Job(id="w", performance=LINEAR, min_gpus=2, max_gpus=2, remaining_iterations=10),
    )
    parameters = replace(HEURISTIC, objective=ArenaObjective.FINISH_TIME_FAIRNESS, normalise=False)
    plan, _ = plan_of(Snapshot(cluster=cluster(node("n0")), jobs=jobs), parameters)
    assert given(plan) == {"fast": ("a", 2), "slow": ("a", 4), "w": ("a", 2)}


def test_fairness_lets_a_job_wait_rather_than_squeeze_one_that_is_worse_off() -> None:
    """n0 [..]. Finish times in units of the best one, weighted: x 5 on two GPUs, 10 on one; y 1 on one GPU, and when it
    waits (3600 + 10000) / 10000.

    x on both: 5 + 0.1 mean(5, 1.36) = 5.318. Both on one GPU: at least 10. x waiting: more than 10.
    """
    jobs = (
        Job(id="x", performance=LINEAR, max_gpus=2, remaining_iterations=10, weight=5.0),
        Job(id="y", performance=LINEAR, max_gpus=1, remaining_iterations=100),
    )
    plan, result = plan_of(Snapshot(cluster=cluster(node("n0", 2)), jobs=jobs), FAIR)
    assert given(plan) == {"x": ("a", 2)}
    assert result.objective == pytest.approx(5.318)
    assert result.termination is TerminationReason.OPTIMAL
    assert reasons(plan) == {"y": "outcompeted"}
    assert "by changing the only other job that runs" in plan.unplaced[0].detail


def test_fairness_launches_those_first_whose_waiting_costs_most() -> None:
    """n0 [.]: the old job has 100 times the work, and hardly notices an hour more."""
    jobs = (rigid("old", 1, age_s=50.0, remaining_iterations=1000), rigid("short", 1, remaining_iterations=10))
    plan, result = plan_of(Snapshot(cluster=cluster(node("n0", 1)), jobs=jobs), FAIR)
    assert given(plan) == {"short": ("a", 1)}
    assert result.objective == pytest.approx(1.036 + 0.1 * (1.036 + 1.0) / 2)
    assert result.bound == pytest.approx(result.objective)


def test_fairness_holds_nobody_back() -> None:
    """n0 [rr.]: `big` needs the whole node of three, which r never leaves; `low` gets the GPU that is left."""
    jobs = (
        Job(id="big", performance=table({("a", 3): 3.0}), min_gpus=3, remaining_iterations=10),
        rigid("low", 1, priority=3, remaining_iterations=10),
        rigid("r", 2, current=on({"n0": (0, 1)}), remaining_iterations=10),
    )
    plan, _ = plan_of(Snapshot(cluster=cluster(node("n0", 3)), jobs=jobs), FAIR)
    assert given(plan) == {"low": ("a", 1), "r": ("a", 2)}


def test_fairness_lets_the_worst_off_choose_again() -> None:
    """n0 [rr] n1 [st] -> [ss] [rt]: no GPU is idle. Costs: r 1 on two GPUs and 2 on one; s 4 and 8; t 1."""
    jobs = (
        Job(id="r", performance=LINEAR, max_gpus=2, current=on({"n0": (0, 1)}), remaining_iterations=10),
        Job(id="s", performance=LINEAR, max_gpus=2, current=on({"n1": (0,)}), remaining_iterations=10, weight=4.0),
        rigid("t", 1, current=on({"n1": (1,)}), remaining_iterations=10),
    )
    snapshot = Snapshot(cluster=cluster(node("n0", 2), node("n1", 2)), jobs=jobs)
    plan, result = plan_of(snapshot, FAIR)
    assert given(plan) == {"r": ("a", 1), "s": ("a", 2), "t": ("a", 1)}
    assert result.objective == pytest.approx(4.0 + 0.1 * (2.0 + 4.0 + 1.0) / 3)
    assert result.termination is TerminationReason.OPTIMAL
    assert "0 launched, 1 scaled up, 1 change of others" in result.message
    assert given(plan_of(snapshot, replace(FAIR, max_scale_ups=0))[0])["s"] == ("a", 1)


def test_deadlines_launch_first_what_needs_least_to_be_in_time() -> None:
    """n0 [..]: one old job that needs both GPUs, or two of one GPU each: two deadlines are more than one."""
    dated = {"remaining_iterations": 10, "deadline_s": 1000.0}
    jobs = (rigid("old", 2, age_s=50.0, **dated), rigid("x", 1, **dated), rigid("y", 1, priority=1, **dated))
    plan, result = plan_of(Snapshot(cluster=cluster(node("n0", 2)), jobs=jobs), DEADLINES)
    assert given(plan) == {"x": ("a", 1), "y": ("a", 1)}
    # Points are worth 1 + the three weights.
    assert result.objective == pytest.approx(2 * 4.0 + 2.0)
    assert result.termination is TerminationReason.OPTIMAL
    assert reasons(plan) == {"old": "blocked"}


def test_a_job_with_a_deadline_is_not_held_back_by_higher_queues() -> None:
    """n0 [rr..]: `big` is blocked, and so holds back `low`, but not `dated`."""
    jobs = (
        rigid("big", 4, age_s=20.0),
        rigid("low", 1, priority=2),
        rigid("dated", 1, priority=3, remaining_iterations=10, deadline_s=1000.0),
        rigid("r", 2, current=on({"n0": (0, 1)})),
    )
    plan, _ = plan_of(Snapshot(cluster=cluster(node("n0", 4)), jobs=jobs), DEADLINES)
    assert given(plan) == {"dated": ("a", 1), "r": ("a", 2)}
    assert reasons(plan) == {"big": "blocked", "low": "queue"}


def test_a_launched_job_that_is_late_gets_room_to_be_in_time() -> None:
    """n0 [rr] n1 [st] -> [ss] [rt]: 1000 samples of s take 500 s on two GPUs, and no GPU is idle."""
    jobs = (
        Job(id="r", performance=LINEAR, max_gpus=2, current=on({"n0": (0, 1)})),
        Job(
            id="s",
            performance=LINEAR,
            max_gpus=2,
            current=on({"n1": (0,)}),
            remaining_iterations=10,
            deadline_s=600.0,
        ),
        rigid("t", 1, current=on({"n1": (1,)})),
    )
    snapshot = Snapshot(cluster=cluster(node("n0", 2), node("n1", 2)), jobs=jobs)
    plan, result = plan_of(snapshot, DEADLINES)
    assert given(plan) == {"r": ("a", 1), "s": ("a", 2), "t": ("a", 1)}
    assert result.objective == pytest.approx(4.0 + 0.5 + 1.0 + 1.0)
    assert result.termination is TerminationReason.OPTIMAL
    assert given(plan_of(snapshot, replace(DEADLINES, max_scale_ups=0))[0])["s"] == ("a", 1)


def test_a_search_for_room_that_is_broken_off_has_not_tried() -> None:
    """n0 [rr]: room for w takes a step, before which the time is over."""
    jobs = (Job(id="r", performance=CONCAVE, max_gpus=2, current=on({"n0": (0, 1)})), rigid("w", 1))
    formulation = formulation_of(Snapshot(cluster=cluster(node("n0", 2)), jobs=jobs), HEURISTIC)
    found = schedule(formulation.instance, lambda: True)
    assert found is not None
    assert (found.num_launched, found.untried.tolist(), found.complete) == (0, [False, True], False)


@pytest.mark.parametrize("parameters", [HEURISTIC, FAIR, DEADLINES])
def test_a_cluster_that_is_down_has_an_empty_plan(parameters: ArenaParameters) -> None:
    job = Job(id="j", performance=LINEAR, remaining_iterations=1, deadline_s=1.0)
    plan, _ = plan_of(Snapshot(cluster=cluster(node("n0", state=NodeState.DOWN)), jobs=(job,)), parameters)
    assert reasons(plan) == {"j": "gpu_type"}


def test_a_limit_ends_algorithm_1_with_what_it_has() -> None:
    """Four jobs of one GPU, and a clock that runs out after any number of questions."""
    jobs = tuple(rigid(f"j{k}", 1, age_s=-1.0 * k + 9.0) for k in range(4))
    snapshot = Snapshot(cluster=cluster(node("n0", 4)), jobs=jobs)
    launched = []
    for num_asked in range(12):
        formulation = formulation_of(snapshot, HEURISTIC)
        clock = iter([False] * num_asked)
        found = schedule(formulation.instance, lambda clock=clock: next(clock, True))  # type: ignore[misc]  # a default
        assert found is not None
        assert (found.untried == (found.chosen < 0)).all()
        launched.append(found.num_launched)
    assert launched[:2] == [0, 1]
    assert launched[-1] == 4
    assert launched == sorted(launched)
    formulation.untried = np.array([False, False, True, True])
    plan = formulation.extract(point_of(formulation.instance, np.array([0, 0, -1, -1])), PhaseClock())
    assert reasons(plan) == {"j2": "not_tried", "j3": "not_tried"}


def test_the_integer_program_answers_where_something_that_must_run_finds_no_place() -> None:
    """n0 a [r], n1 b [s], n2 c [.]: the reservation on a needs a chain, r to b and s to c, which no single change
    starts."""
    jobs = (
        Job(id="r", performance=table({("a", 1): 1.0, ("b", 1): 1.0}), current=on({"n0": (0,)})),
        Job(id="s", performance=table({("b", 1): 1.0, ("c", 1): 1.0}), current=on({"n1": (0,)})),
        Job(id="p", performance=table({("a", 1): 1.0}), reservation=Reservation(gpu_type="a", num_gpus=1)),
    )
    machines = cluster(node("n0", 1), node("n1", 1, "b"), node("n2", 1, "c"))
    plan, result = plan_of(Snapshot(cluster=machines, jobs=jobs), HEURISTIC)
    assert given(plan) == {"r": ("b", 1), "s": ("c", 1), "p": ("a", 1)}
    assert result.message.startswith("Algorithm 1 found no place for all that must run")


def test_a_reservation_is_served_before_all_queues() -> None:
    """n0 [rrrr] -> [pppp]? r cannot leave, so that it shrinks: [rrpp]."""
    jobs = (
        Job(id="r", performance=LINEAR, max_gpus=4, current=on({"n0": (0, 1, 2, 3)})),
        rigid("old", 2, age_s=1e6),
        Job(id="p", performance=LINEAR, priority=3, reservation=Reservation(gpu_type="a", num_gpus=2)),
    )
    plan, _ = plan_of(Snapshot(cluster=cluster(node("n0", 4)), jobs=jobs), HEURISTIC)
    assert given(plan) == {"r": ("a", 2), "p": ("a", 2)}


def test_a_shape_that_is_no_block_is_brought_into_one() -> None:
    """n0 [rrr.....] -> four GPUs or two, whichever is better: eight are best."""
    job = Job(id="r", performance=LINEAR, max_gpus=8, current=on({"n0": (0, 1, 2)}))
    plan, _ = plan_of(Snapshot(cluster=cluster(node("n0")), jobs=(job,)), HEURISTIC)
    assert given(plan) == {"r": ("a", 8)}


def test_a_rigid_job_of_queue_1_does_not_hold_others_when_it_can_never_run() -> None:
    """`huge` fits no block of the cluster, so that it is no head of its queue."""
    huge = Job(id="huge", performance=LINEAR, adaptivity=Adaptivity.RIGID, min_gpus=16, age_s=9.0)
    plan, _ = plan_of(Snapshot(cluster=cluster(node("n0")), jobs=(huge, rigid("low", 1, priority=3))), HEURISTIC)
    assert given(plan) == {"low": ("a", 1)}
    assert reasons(plan) == {"huge": "no_configuration"}


def test_a_canceled_run_still_leaves_launched_jobs_where_they_are() -> None:
    jobs = (rigid("r", 2, current=on({"n0": (0, 1)})), rigid("w", 1))
    formulation = formulation_of(Snapshot(cluster=cluster(node("n0", 4)), jobs=jobs), HEURISTIC)
    canceled = threading.Event()
    canceled.set()
    result = formulation.solve(SolveOptions(), SolveMonitor(canceled=canceled))
    assert result.limit is Limit.INTERRUPTED
    assert result.incumbent is not None
    assert result.objective == pytest.approx(1.0)
    plan = formulation.extract(result.incumbent, PhaseClock())
    assert given(plan) == {"r": ("a", 2)}
    assert formulation.violations(plan, 1.0) == []


def test_progress_tells_the_heuristic_first_and_then_only_bounds() -> None:
    jobs = (rigid("r", 2, current=on({"n0": (0, 1)})), rigid("w", 1))
    formulation = formulation_of(Snapshot(cluster=cluster(node("n0", 4)), jobs=jobs), HEURISTIC)
    told: list[Progress] = []
    formulation.solve(SolveOptions(), SolveMonitor(on_progress=told.append))
    assert told[0].objective == pytest.approx(2.0)
    assert all(progress.incumbent is None for progress in told[1:])


def test_the_result_is_consistent_whichever_backend_bounds() -> None:
    jobs = (rigid("low", 1, priority=2), rigid("big", 4, age_s=20.0), rigid("r", 2, current=on({"n0": (0, 1)})))
    snapshot = Snapshot(cluster=cluster(node("n0", 4)), jobs=jobs)
    bounds = [solved(formulation_of(snapshot, HEURISTIC), solver).bound for solver in ("highs", "scip", "auto")]
    assert bounds == [pytest.approx(1.5)] * 3


def test_the_programs_point_is_the_answer_where_it_is_better() -> None:
    """As above: of queues the integer program knows only what they weigh, and launches `low` beside `small`."""
    jobs = (
        rigid("low", 1, priority=2, age_s=50.0),
        rigid("small", 1, age_s=10.0),
        rigid("big", 4, age_s=20.0),
        rigid("r", 2, current=on({"n0": (0, 1)})),
    )
    plan, result = plan_of(Snapshot(cluster=cluster(node("n0", 4)), jobs=jobs), BETTER)
    assert given(plan) == {"small": ("a", 1), "low": ("a", 1), "r": ("a", 2)}
    assert result.objective == pytest.approx(2.5)
    assert result.termination is TerminationReason.OPTIMAL
    assert result.message.startswith("better than Algorithm 1, which has 2. ")
    assert result.solver != "algorithm 1"


@pytest.mark.parametrize(
    ("age_s", "longest_s", "launched"), [(99.0, 100.0, "b"), (100.0, 100.0, "a"), (1e6, None, "b")]
)
def test_it_keeps_no_job_waiting_for_too_long(age_s: float, longest_s: float | None, launched: str) -> None:
    """One GPU: `a` is first in the queue and gains less from it than `b`."""
    jobs = (rigid("a", 1, age_s=age_s, weight=0.5), rigid("b", 1))
    snapshot = Snapshot(cluster=cluster(node("n0", 1)), jobs=jobs)
    plan, _ = plan_of(snapshot, replace(BETTER, longest_wait_s=longest_s))
    assert given(plan) == {launched: ("a", 1)}


@pytest.mark.slow
@settings(max_examples=30, deadline=None)
@given_by(seed=SEEDS)
def test_the_better_answer_is_never_worse_and_bounds_waits(seed: int) -> None:
    rng = dice(seed)
    snapshot, parameters = random_snapshot(rng, num_jobs=6), random_parameters(rng, ArenaMethod.HEURISTIC)
    results = {}
    for answer in ArenaAnswer:
        formulation = formulation_of(snapshot, replace(parameters, answer=answer))
        found = schedule(formulation.instance, lambda: False)
        results[answer] = solved(formulation)
    own, better = results[ArenaAnswer.ALGORITHM], results[ArenaAnswer.BETTER]
    if own.objective is None or better.objective is None or found is None:
        assert own.termination is better.termination
        return
    assert own.sense.sign * (better.objective - own.objective) <= 1e-9 * max(1.0, abs(own.objective))
    assert better.incumbent is not None
    chosen = chosen_configurations(formulation.instance, better.incumbent)
    oldest_s = math.inf if parameters.longest_wait_s is None else parameters.longest_wait_s
    for i, job in enumerate(snapshot.jobs):
        assert chosen[i] >= 0 or found.chosen[i] < 0 or job.age_s < oldest_s
