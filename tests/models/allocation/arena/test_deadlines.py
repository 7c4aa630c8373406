"""Admission before throughput (Eq. 6): points, what they are worth, and warnings of deadlines that are missed."""

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from hypothesis import given as given_by
from hypothesis import settings

from models.allocation.admission import rewards
from models.allocation.arena.parameters import ArenaMethod, ArenaObjective, ArenaParameters
from models.clock import PhaseClock
from models.workload import Job, Snapshot
from solver.options import SolveOptions
from solver.result import TerminationReason
from tests.models.allocation.arena.scenes import (
    HEURISTIC,
    ILP,
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

LINEAR = table({("a", n): float(n) for n in (1, 2, 4, 8, 16)})
DEADLINES = replace(ILP, objective=ArenaObjective.DEADLINES)
METHODS = (DEADLINES, replace(HEURISTIC, objective=ArenaObjective.DEADLINES))


@pytest.mark.parametrize("parameters", METHODS)
def test_no_throughput_is_worth_a_deadline(parameters: ArenaParameters) -> None:
    """n0 [llllllll] n1 [tttttttt], though `loose` on both nodes has more throughput.

    Weights 1 and 1/2, so points 2 and 1; a point is worth 1 + 1 + 1/2. Both in time: 2.5 x 3 + 1/2 + 1/2 x 1/3, and no
    other split is in time for `tight` beside `loose`. One alone: at most 2.5 x 2 + 1.
    """
    jobs = (
        Job(
            id="tight",
            performance=table({("a", 8): 1.0, ("a", 16): 3.0}),
            priority=2,
            remaining_iterations=10,
            deadline_s=3600.0,
        ),
        Job(
            id="loose",
            performance=table({("a", 8): 1.0, ("a", 16): 2.0}),
            remaining_iterations=10,
            deadline_s=360_000.0,
        ),
    )
    snapshot = Snapshot(cluster=cluster(node("n0"), node("n1")), jobs=jobs)
    plan, result = plan_of(snapshot, parameters)
    assert given(plan) == {"tight": ("a", 8), "loose": ("a", 8)}
    assert result.objective == pytest.approx(7.5 + 0.5 + 1 / 6)
    assert result.bound == pytest.approx(result.objective)
    assert result.termination is TerminationReason.OPTIMAL
    assert [(term.term, term.job_id, term.value) for term in plan.score] == [
        ("throughput", "tight", pytest.approx(1 / 6)),
        ("deadline_met", "tight", 2.5),
        ("throughput", "loose", pytest.approx(0.5)),
        ("deadline_met", "loose", 5.0),
    ]
    # Without deadlines the same program gives all to one job.
    plan, _ = plan_of(snapshot, replace(ILP, objective=ArenaObjective.THROUGHPUT))
    assert given(plan) == {"loose": ("a", 16)}


def test_a_wide_gap_leaves_no_deadline_open() -> None:
    """The gap is meant of the throughput: 0.5 of at most 3, beside points of 3 x 4."""
    dated = {"remaining_iterations": 10.0, "deadline_s": 1000.0}
    jobs = tuple(Job(id=f"j{k}", performance=LINEAR, max_gpus=2, **dated) for k in range(3))  # type: ignore[arg-type]
    formulation = formulation_of(Snapshot(cluster=cluster(node("n0", 4)), jobs=jobs), DEADLINES)
    strict = formulation.strict(SolveOptions(relative_gap=0.5))
    assert strict.relative_gap == pytest.approx(0.5 * 3 / (3 + 3 * 4))
    without = formulation_of(Snapshot(cluster=cluster(node("n0", 4)), jobs=jobs), ILP)
    assert without.strict(SolveOptions(relative_gap=0.5)).relative_gap == 0.5


@pytest.mark.parametrize(
    ("weights", "points"),
    [
        ([1.0, 0.5, 0.25, 1.0], [4, 2, 1, 4]),
        ([3.0, 3.0], [1, 1]),
        ([1.0, 0.7, 0.3], [10, 7, 3]),
        ([1.0, 1 / 3, 1 / 9], [9, 3, 1]),
        ([1.0, 3.14159], [100, 314]),
    ],
)
def test_points_are_integers_in_proportion_to_the_weights(weights: list[float], points: list[int]) -> None:
    earns = np.array([True] * len(weights) + [False])
    found = rewards(earns, np.array([*weights, 1e-3]), 9.0)
    assert found.tolist() == [*(10.0 * point for point in points), 0.0]


@settings(max_examples=60, deadline=None)
@given_by(seed=SEEDS)
def test_the_sum_orders_choices_as_points_and_then_throughput_do(seed: int) -> None:
    rng = dice(seed)
    parameters = replace(random_parameters(rng, ArenaMethod.ILP), objective=ArenaObjective.DEADLINES)
    utility = formulation_of(random_snapshot(rng), parameters).instance.utility
    options = [[-1, *np.flatnonzero(row).tolist()] for row in utility.runnable]
    choices = [rng.sample(list(product(*options)), k=min(30, int(np.prod([len(row) for row in options]))))]
    ranked = []
    for choice in choices[0]:
        runs = [(i, c) for i, c in enumerate(choice) if c >= 0]
        met = sum(float(utility.reward[i]) for i, c in runs if utility.in_time[i, c])
        total = sum(float(utility.value[i, c]) for i, c in runs)
        assert -1e-9 <= total - met <= utility.most_throughput + 1e-9
        ranked.append((round(met / (1.0 + utility.most_throughput)), total))
    ranked.sort()
    totals = [total for _, total in ranked]
    assert totals == sorted(totals)


@pytest.mark.parametrize("parameters", METHODS)
def test_a_job_that_is_left_out_and_could_be_in_time_is_warned_of(parameters: ArenaParameters) -> None:
    """n0 [ffff]: 1000 samples take `second` 250 s on the whole node, so that it can wait for 150 s."""
    jobs = (
        Job(id="first", performance=LINEAR, min_gpus=4, priority=1, remaining_iterations=10, deadline_s=300.0),
        Job(id="second", performance=LINEAR, min_gpus=4, priority=2, remaining_iterations=10, deadline_s=400.0),
        Job(id="hopeless", performance=LINEAR, min_gpus=4, remaining_iterations=10, deadline_s=100.0),
        Job(id="undated", performance=LINEAR, min_gpus=4),
    )
    formulation = formulation_of(Snapshot(cluster=cluster(node("n0", 4)), jobs=jobs), parameters)
    result = solved(formulation)
    assert result.incumbent is not None
    plan = formulation.extract(result.incumbent, PhaseClock())
    assert given(plan) == {"first": ("a", 4)}
    assert reasons(plan)["hopeless"] == "deadline"
    found = {issue.pointer: (issue.code, issue.detail) for issue in formulation.warnings}
    assert found.keys() == {"/jobs/1/deadline_s", "/jobs/2/deadline_s"}
    assert found["/jobs/1/deadline_s"] == (
        "deadline_will_be_missed",
        "job 'second' waits by this plan; it needs 250 s on (1,4,a), so it must start within 150 s to finish within "
        "400 s",
    )
    assert found["/jobs/2/deadline_s"][0] == "deadline_cannot_be_met"


def test_a_launched_job_that_stays_too_slow_is_warned_of() -> None:
    """n0 [rppp]: r would be in time on four GPUs, which p does not leave."""
    jobs = (
        Job(id="r", performance=LINEAR, current=on({"n0": (0,)}), remaining_iterations=10, deadline_s=400.0),
        Job(id="p", preemptible=False, current=on({"n0": (1, 2, 3)}), remaining_iterations=10, deadline_s=1.0),
    )
    formulation = formulation_of(Snapshot(cluster=cluster(node("n0", 4)), jobs=jobs), DEADLINES)
    result = solved(formulation)
    assert result.incumbent is not None
    plan = formulation.extract(result.incumbent, PhaseClock())
    assert given(plan) == {"r": ("a", 1), "p": ("a", 3)}
    assert [(issue.code, issue.detail) for issue in formulation.warnings] == [
        ("deadline_will_be_missed", "job 'r' needs 1000 s on (1,1,a) and has 400 s; on (1,4,a) it would need 250 s")
    ]
