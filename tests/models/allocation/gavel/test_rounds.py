"""Rounds: priorities, who comes first, the program against trying everything, GPUs and reasons."""

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from hypothesis import given as given_by
from hypothesis import settings

from models.allocation.gavel.formulation import GavelFormulation
from models.allocation.gavel.parameters import GavelMethod, GavelParameters
from models.allocation.gavel.rounds import LEAST_SHARE, changes_after, priority
from models.clock import PhaseClock
from models.plan import Change
from models.workload import Job, Snapshot
from solver.result import TerminationReason
from tests.models.allocation.gavel.scenes import (
    formulation_of,
    given,
    paper,
    planned,
    random_parameters,
    random_snapshot,
    solved,
    table,
)
from tests.models.allocation.gavel.test_shares import assert_declared
from tests.models.placement.scenes import SEEDS, can_be_packed, cluster, dice, node, on
from topology.cluster import NodeState


def test_priority_is_the_share_that_is_due_over_what_was_received() -> None:
    """Half of 3,600 s are due, 720 s were received; half a round, 180 s, counts with both."""
    job = Job(id="j", age_s=3600.0, attained_s={"a": 720.0})
    assert priority(job, "a", 0.5 - LEAST_SHARE, 360.0) == pytest.approx(0.5 * 3780 / 900)
    # Nothing was received of b, and of a new job nothing of anything.
    assert priority(job, "b", 0.5 - LEAST_SHARE, 360.0) == pytest.approx(0.5 * 3780 / 180)
    assert priority(Job(id="j"), "a", 0.5 - LEAST_SHARE, 360.0) == pytest.approx(0.5)


def test_the_first_rounds_of_the_example_of_the_paper() -> None:
    """Of X = (5, 0), (5, 1), (1, 10) elevenths, V100 first: j2 has the K80 for 10, j0 and j1 are alike on the V100.
    After a round j0 has had, j1 comes before it."""
    first, _ = planned(paper())
    assert given(first) == {"j0": "v100", "j2": "k80"}
    snapshot = paper(age_s=360.0)
    had = {"j0": {"v100": 360.0}, "j2": {"k80": 360.0}}
    jobs = tuple(replace(job, attained_s=had.get(job.id)) for job in snapshot.jobs)
    second, _ = planned(replace(snapshot, jobs=jobs))
    assert given(second) == {"j1": "v100", "j2": "k80"}


def test_of_equals_who_runs_stays_and_else_the_oldest_comes_first() -> None:
    where = cluster(node("n0", 1), node("n1", 1))
    jobs = tuple(Job(id=name) for name in ("x", "y", "z"))
    assert given(planned(Snapshot(cluster=where, jobs=jobs))[0]).keys() == {"x", "y"}
    running = replace(jobs[2], current=on({"n1": (0,)}))
    plan, _ = planned(Snapshot(cluster=where, jobs=(*jobs[:2], running)))
    assert {item.job_id: item.change for item in plan.allocations} == {"x": Change.STARTED, "z": Change.KEPT}


def test_a_pinned_job_keeps_its_gpus_and_shares_are_of_the_rest() -> None:
    pinned = Job(id="p", current=on({"n0": (0, 1, 2)}), preemptible=False)
    jobs = (pinned, Job(id="x"), Job(id="y", min_gpus=4))
    plan, _ = planned(Snapshot(cluster=cluster(node("n0", 4), node("n1", 4, "b")), jobs=jobs))
    changes = {item.job_id: (item.gpu_type, item.change) for item in plan.allocations}
    assert changes == {"p": ("a", Change.KEPT), "x": ("a", Change.STARTED), "y": ("b", Change.STARTED)}
    assert [term.job_id for term in plan.score] == ["x", "y"]


def test_nobody_runs_where_all_nodes_are_down() -> None:
    plan, result = planned(Snapshot(cluster=cluster(node("n0", 4, state=NodeState.DOWN)), jobs=(Job(id="x"),)))
    assert (given(plan), result.objective, len(plan.unplaced)) == ({}, 0.0, 1)


def test_the_best_round_may_beat_descending_priority() -> None:
    """One node of 4 GPUs, at whose least level of 1 `one` is due all of its time, `four` the other three quarters of
    the GPUs. So `one` comes first, and `four` finds no room: 1 GPU x 1.001 against 4 x 0.751."""
    snapshot = Snapshot(cluster=cluster(node("n0", 4)), jobs=(Job(id="one"), Job(id="four", min_gpus=4)))
    greedy, by_priority = planned(snapshot)
    best, exact = planned(snapshot, method=GavelMethod.ILP)
    assert (given(greedy), given(best)) == ({"one": "a"}, {"four": "a"})
    assert by_priority.objective == pytest.approx(1.001)
    assert exact.objective == pytest.approx(4 * 0.751)
    assert by_priority.bound == pytest.approx(exact.objective)
    assert by_priority.termination is TerminationReason.FEASIBLE


def test_reasons() -> None:
    speeds = {("a", 1): 1.0}
    jobs = (
        Job(id="huge", min_gpus=13),
        Job(id="elsewhere", performance=table({("a", 2): 1.0})),
        Job(id="large", min_gpus=7),
        Job(id="x", min_gpus=4, age_s=720.0),
        Job(id="late", performance=table(speeds), attained_s={"a": 7200.0}),
        Job(id="gone", gpu_types=("b",)),
    )
    where = cluster(node("n0", 4), node("n1", 4, in_use=(0,)), node("n2", 4, in_use=(0, 1, 2)), node("n3", 4, "b"))
    down = replace(where, nodes=(*where.nodes[:3], replace(where.nodes[3], state=NodeState.DOWN)))
    y = Job(id="y", min_gpus=2)
    z = tuple(Job(id=f"z{k}") for k in range(2))
    plan, _ = planned(Snapshot(cluster=down, jobs=(*jobs, y, *z)))
    found = {job.job_id: job for job in plan.unplaced}
    assert {name: job.reason for name, job in found.items()} == {
        "huge": "no_configuration",
        "elsewhere": "no_performance",
        "large": "capacity",
        "late": "outcompeted",
        "gone": "gpu_type",
    }
    assert "had 7200 s" in found["late"].detail
    assert found["late"].counts["short_gpus.a"] == 1


def test_a_job_of_an_odd_size_takes_a_larger_block_and_leaves_the_rest_idle() -> None:
    """3 GPUs of a block of 4, and 10 of three nodes, two of them whole. Who runs keeps its GPUs of the block."""
    where = cluster(*(node(f"n{k}", 4) for k in range(5)))
    ten = Job(id="ten", min_gpus=10, performance=table({("a", 10): 5.0}))
    snapshot = Snapshot(cluster=where, jobs=(Job(id="three", min_gpus=3), ten, Job(id="y", min_gpus=4)))
    plan, _ = planned(snapshot)
    found = {item.job_id: sorted(len(part.gpus) for part in item.gpus) for item in plan.allocations}
    assert found == {"three": [3], "ten": [2, 4, 4], "y": [4]}
    assert {item.job_id: item.expected_goodput for item in plan.allocations} == {"three": None, "ten": 5.0, "y": None}
    held = on({"n3": (1, 2, 3)})
    moved, _ = planned(replace(snapshot, jobs=(replace(snapshot.jobs[0], current=held), *snapshot.jobs[1:])))
    (kept,) = [item for item in moved.allocations if item.job_id == "three"]
    assert (kept.gpus, kept.change) == (held, Change.KEPT)


def best_by_trying(formulation: GavelFormulation) -> float:
    """Optimum over all assignments that can be packed on nodes."""
    it, priorities = formulation.instance, formulation.priorities_by_type()
    options = [[-1, *np.flatnonzero(row).tolist()] for row in it.offered]
    best = 0.0
    for choice in product(*options):
        chosen = [(i, t) for i, t in enumerate(choice) if t >= 0]
        if can_be_packed(it.snapshot, it.configurations, it.taken, [int(it.configuration[i, t]) for i, t in chosen]):
            best = max(best, sum(it.jobs[i].min_gpus * priorities[i, t] for i, t in chosen))
    return best


@pytest.mark.slow
@settings(max_examples=30, deadline=None)
@given_by(seed=SEEDS)
def test_heuristic_optimum_and_bound_against_trying_everything(seed: int) -> None:
    rng = dice(seed)
    snapshot, parameters = random_snapshot(rng), random_parameters(rng)
    formulation = formulation_of(snapshot, **{**parameters, "method": GavelMethod.ILP})
    expected = best_by_trying(formulation)
    exact = solved(formulation, rng.choice(("highs", "scip", "auto")))
    assert exact.termination is TerminationReason.OPTIMAL
    assert exact.objective == pytest.approx(expected, rel=1e-6)
    _, heuristic = planned(snapshot, **parameters)
    assert heuristic.objective is not None
    assert heuristic.bound is not None
    assert heuristic.objective <= expected * (1 + 1e-9) <= heuristic.bound * (1 + 1e-6)
    assert exact.incumbent is not None
    plan = formulation.extract(exact.incumbent, PhaseClock())
    assert formulation.violations(plan, expected) == []
    assert_declared(formulation.program)


def test_a_round_ends_where_jobs_may_take_turns() -> None:
    parameters = GavelParameters(round_s=60.0)
    waits, runs = (5.0, 1), (2, 9.0)
    assert changes_after(parameters, [waits], [runs]) == 60.0
    assert changes_after(parameters, [], [runs, runs]) == 60.0
    assert changes_after(parameters, [], [runs]) is None
    assert changes_after(parameters, [waits, waits], []) is None
