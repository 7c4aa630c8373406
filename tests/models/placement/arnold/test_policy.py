"""The whole road: snapshot, MIP, whole nodes, plan, check."""

import threading
from dataclasses import replace
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from models.clock import PhaseClock
from models.placement.arnold.parameters import ArnoldParameters, SchedulingUnit
from models.placement.arnold.policy import ArnoldFormulation, formulate_arnold
from models.plan import Change, Plan, Resume, SpreadPair
from models.workload import Job, NodeGpus, Parallelism, Snapshot
from solver.infeasibility import conflicting_rows
from solver.monitor import Progress, SolveMonitor
from solver.options import SolveOptions
from solver.result import Limit, TerminationReason
from stowplan.errors import InputError
from tests.models.placement.arnold.scenes import (
    ALPHAS,
    GPT_24B,
    best_by_search,
    fabric,
    formulated,
    planned,
    pretraining,
    solved,
)
from topology.cluster import NodeState

SOLVERS = ("highs", "scip")


@pytest.mark.parametrize("solver", SOLVERS)
def test_fig_12_dp_groups_kept_together(solver: str) -> None:
    """96 GPUs, DP 6, PP 2 on two minipods of six nodes, DP groups as units and all weight on them.

    stage   0 1
    row 0   A B      T = 1: each of the two DP groups (columns of six) has a minipod of its own;
    ...              no placement touches fewer, so 1 is optimal. PP groups cross, as in the figure.
    row 5   A B
    """
    parameters = ArnoldParameters(alpha=1.0, scheduling_unit=SchedulingUnit.DP)
    result, plan, placement = planned(formulated(fabric({"A": 6, "B": 6}), pretraining(6, 2), parameters), solver)
    assert result.objective == pytest.approx(1)
    assert placement.minipods == (("A", "B"),) * 6
    assert placement.minipod_spread == SpreadPair(dp=1, pp=2)
    assert placement.distance == SpreadPair(dp=0, pp=2)
    assert placement.objective_eq2 == 0
    assert {term.term: term.value for term in plan.score} == {"pp_minipods": 0, "dp_spread": 1}
    # Continuous ranks in a minipod: the first 48 ranks, stage 0, are in A.
    assert [host[0] for host in placement.hosts] == ["A"] * 6 + ["B"] * 6


@pytest.mark.parametrize("solver", SOLVERS)
def test_fig_12_pp_groups_kept_together(solver: str) -> None:
    """The same fabric, PP groups as units: 12 nodes need both minipods (Y = 2), three rows fit in each (T = 1).

    row 0-2   A A
    row 3-5   B B      0.3 * 2 + 0.7 * 1 = 1.3
    """
    formulation = formulated(fabric({"A": 6, "B": 6}), pretraining(6, 2), ArnoldParameters(alpha=0.3))
    result, plan, placement = planned(formulation, solver)
    assert result.objective == pytest.approx(1.3)
    assert placement.minipods == (("A", "A"),) * 3 + (("B", "B"),) * 3
    assert placement.minipod_spread == SpreadPair(dp=2, pp=1)
    assert placement.objective_eq2 == pytest.approx(0.3 * 2)
    assert {term.term: term.value for term in plan.score} == {"dp_minipods": 0.6, "pp_spread": 0.7}


@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("strengthen", [False, True])
def test_one_group_must_straddle(solver: str, strengthen: bool) -> None:
    """Three rows of two on 3 + 3 free nodes: each minipod holds one whole row, the third takes one node of each.

    A A
    A B     T = 2, Y = 2: 0.3 * 2 + 0.7 * 2 = 2
    B B
    """
    parameters = ArnoldParameters(alpha=0.3, strengthen=strengthen)
    result, _, placement = planned(formulated(fabric({"A": 3, "B": 3}), pretraining(3, 2), parameters), solver)
    assert result.objective == pytest.approx(2)
    assert placement.minipods == (("A", "A"), ("A", "B"), ("B", "B"))
    assert (placement.max_unit_spread, placement.num_minipods_used) == (2, 2)


@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("strengthen", [False, True])
def test_minipods_smaller_than_a_group(solver: str, strengthen: bool) -> None:
    """Two rows of four on 3 + 3 + 2 free nodes: all eight are needed (Y = 3), no minipod holds a row (T >= 2).

    A A A C               A A A B
    B B B C     or else   B B C C     0.5 * 3 + 0.5 * 2 = 2.5
    """
    parameters = ArnoldParameters(alpha=0.5, strengthen=strengthen)
    cluster = fabric({"A": 3, "B": 3, "C": 2})
    result, _, placement = planned(formulated(cluster, pretraining(2, 4), parameters), solver)
    assert result.objective == pytest.approx(2.5)
    assert (placement.num_minipods_used, placement.max_unit_spread) == (3, 2)
    assert placement.minipod_spread == SpreadPair(dp=2, pp=2)


def test_alpha_trades_minipods_for_spread() -> None:
    """Two rows of two on 3 + 2 + 2 free nodes.

    T = 1: A A / B B, Y = 2 either way: A holds one row only. T = 2 needs Y = 2 as well, so T = 1 for every alpha.
    With 3 + 1 + 2 the rows fit whole in A and C (Y = 2, T = 1); with 3 + 1 only T = 2 is left.
    """
    for free, spread in (({"A": 3, "B": 2, "C": 2}, 1), ({"A": 3, "B": 1, "C": 2}, 1), ({"A": 3, "B": 1}, 2)):
        for alpha in (0.1, 0.9):
            _, _, placement = planned(formulated(fabric(free), pretraining(2, 2), ArnoldParameters(alpha=alpha)))
            assert (placement.num_minipods_used, placement.max_unit_spread) == (2, spread)


@given(
    shape=st.tuples(st.integers(1, 3), st.integers(1, 3)),
    free=st.lists(st.integers(0, 6), min_size=1, max_size=3),
    alpha=st.sampled_from(ALPHAS),
    unit=st.sampled_from(SchedulingUnit),
)
@settings(max_examples=10, deadline=None)
def test_plans_reach_the_optimum_of_whole_nodes(
    shape: tuple[int, int], free: list[int], alpha: float, unit: SchedulingUnit
) -> None:
    if sum(free) < shape[0] * shape[1]:
        free[0] += shape[0] * shape[1]
    formulation = formulated(
        fabric([count for count in free if count]),
        pretraining(*shape),
        ArnoldParameters(alpha=alpha, scheduling_unit=unit),
    )
    result, plan, placement = planned(formulation)
    assert result.termination is TerminationReason.OPTIMAL
    assert result.objective == pytest.approx(best_by_search(formulation.instance), abs=1e-6)
    assert placement.objective_eq4 == pytest.approx(result.objective)
    assert sum(term.value for term in plan.score) == pytest.approx(result.objective)
    # Eq. 4 is not Eq. 2: its minipods bound the spread of the other groups from above.
    other = placement.minipod_spread.dp if unit is SchedulingUnit.PP else placement.minipod_spread.pp
    assert other <= placement.num_minipods_used


@given(free=st.permutations([7, 4, 3, 1]), alpha=st.sampled_from(ALPHAS), random=st.randoms(use_true_random=False))
@settings(max_examples=6, deadline=None)
def test_names_and_order_of_nodes_and_minipods_change_nothing(free: list[int], alpha: float, random: Random) -> None:
    parameters = ArnoldParameters(alpha=alpha)
    _, _, expected = planned(formulated(fabric([7, 4, 3, 1]), pretraining(4, 3), parameters))
    cluster = fabric(free)
    shuffled = replace(cluster, nodes=tuple(random.sample(cluster.nodes, len(cluster.nodes))))
    _, _, placement = planned(formulated(shuffled, pretraining(4, 3), parameters))
    assert placement.objective_eq4 == pytest.approx(expected.objective_eq4)
    assert placement.objective_eq2 == pytest.approx(expected.objective_eq2)
    assert placement.minipod_spread == expected.minipod_spread


def test_the_order_of_the_nodes_changes_nothing_at_all() -> None:
    cluster = fabric({"A": 5, "B": 4})
    parameters = ArnoldParameters(alpha=0.3)
    _, plan, _ = planned(formulated(cluster, pretraining(4, 2), parameters))
    backwards = replace(cluster, nodes=cluster.nodes[::-1])
    assert planned(formulated(backwards, pretraining(4, 2), parameters))[1] == plan


def test_hosts_carry_the_ranks() -> None:
    _, plan, placement = planned(formulated(fabric({"A": 4, "B": 4}), pretraining(4, 2), ArnoldParameters(alpha=0.3)))
    (allocation,) = plan.allocations
    assert tuple(part.node for part in allocation.gpus) == placement.hosts
    assert placement.hosts == tuple(row[c] for c in range(2) for row in placement.cells)
    assert sorted(placement.hosts) == sorted(node for row in placement.cells for node in row)
    assert {part.gpus for part in allocation.gpus} == {tuple(range(8))}
    assert (allocation.num_gpus, allocation.change) == (64, Change.STARTED)


def test_groups_stay_within_leaves_where_they_can() -> None:
    """Ten free nodes under leaves of 4, 4 and 2: the two rows of four take the two full leaves."""
    _, _, placement = planned(formulated(fabric({"A": 10}), pretraining(2, 4), ArnoldParameters(alpha=0.3)))
    assert placement.cells == (("A-0", "A-1", "A-2", "A-3"), ("A-4", "A-5", "A-6", "A-7"))
    # One node of the first leaf is drained: it now is the smallest with 3, and the full ones come first.
    cluster = fabric({"A": 11})
    nodes = (replace(cluster.nodes[0], gpus_in_use=(5,)), *cluster.nodes[1:])
    _, _, placement = planned(formulated(replace(cluster, nodes=nodes), pretraining(2, 4), ArnoldParameters(alpha=0.3)))
    assert placement.cells == (("A-4", "A-5", "A-6", "A-7"), ("A-1", "A-2", "A-3", "A-10"))


def test_running_jobs_keep_their_gpus_and_others_wait() -> None:
    runs = Job(id="runs", current=(NodeGpus(node="A-1", gpus=(2,)), NodeGpus(node="A-0", gpus=(0, 1))))
    earlier = replace(
        pretraining(2, 1, job_id="earlier"),
        current=(NodeGpus(node="B-3", gpus=tuple(range(8))), NodeGpus(node="B-2", gpus=tuple(range(8)))),
    )
    waits = Job(id="waits", min_gpus=4)
    formulation = formulated(
        fabric({"A": 4, "B": 4}), pretraining(2, 2), ArnoldParameters(alpha=0.3), runs, earlier, waits
    )
    _, plan, placement = planned(formulation)
    assert {node for row in placement.cells for node in row} == {"A-2", "A-3", "B-0", "B-1"}
    kept = {allocation.job_id: allocation for allocation in plan.allocations if allocation.job_id != "llm"}
    assert {allocation.change for allocation in kept.values()} == {Change.KEPT}
    assert kept["runs"].gpus == (NodeGpus(node="A-0", gpus=(0, 1)), NodeGpus(node="A-1", gpus=(2,)))
    assert kept["earlier"].gpus == earlier.current
    (left,) = plan.unplaced
    assert (left.job_id, left.reason, left.counts) == ("waits", "not_pretraining", {"min_gpus": 4})


def test_the_batch_is_handed_on() -> None:
    # 384 = 6 replicas x 1 x 64 micro-batches.
    job = pretraining(6, 2, transformer=GPT_24B)
    _, plan, placement = planned(formulated(fabric({"A": 12}), job, ArnoldParameters()))
    allocation = plan.allocations[0]
    assert (allocation.batch_size, allocation.local_batch_size, allocation.accumulation_steps) == (384, 1, 64)
    assert (placement.alpha, placement.beta) == (0, 1)
    assert placement.affinity_source.startswith("24b dense on H800 at distance 0 ")


def test_alpha_0_still_saves_minipods() -> None:
    """Eq. 4 with alpha 0 would accept a row in each of four minipods; two are enough for T = 1."""
    cluster = fabric({"A": 2, "B": 2, "C": 4, "D": 4})
    _, _, placement = planned(formulated(cluster, pretraining(4, 2), ArnoldParameters(alpha=0.0)))
    assert (placement.max_unit_spread, placement.num_minipods_used) == (1, 2)


@pytest.mark.parametrize("solver", SOLVERS)
def test_too_few_nodes_are_infeasible_and_the_names_say_why(solver: str) -> None:
    formulation = formulated(fabric({"A": 3, "B": 2}), pretraining(3, 2), ArnoldParameters(alpha=0.3))
    assert formulation.warm_start is None
    result = solved(formulation, solver)
    assert result.termination is TerminationReason.INFEASIBLE
    conflicts = formulation.conflicts(5.0)
    assert conflicts == ("capacity[A]", "capacity[B]", "allocation[0]", "allocation[1]", "allocation[2]")
    assert set(conflicting_rows(formulation.problem, 5.0)) == set(conflicts)


def test_a_feasible_model_has_no_conflicts() -> None:
    assert formulated(fabric({"A": 6}), pretraining(3, 2), ArnoldParameters(alpha=0.3)).conflicts(5.0) == ()


def test_a_limit_before_the_first_incumbent_leaves_the_constructive_start() -> None:
    formulation = formulated(fabric({"A": 9, "B": 9, "C": 9}), pretraining(8, 3), ArnoldParameters(alpha=0.3))
    result = solved(formulation, time_limit_s=1e-6)
    assert result.termination is TerminationReason.FEASIBLE
    assert result.incumbent is not None
    assert result.objective is not None
    plan = formulation.extract(result.incumbent, PhaseClock())
    assert formulation.violations(plan, result.objective) == []


def test_a_canceled_solve_keeps_its_start() -> None:
    formulation = formulated(fabric({"A": 9, "B": 9, "C": 9}), pretraining(8, 3), ArnoldParameters(alpha=0.3))
    canceled = threading.Event()
    canceled.set()
    result = formulation.solve(SolveOptions(), SolveMonitor(canceled=canceled))
    assert result.termination is TerminationReason.FEASIBLE


def test_minipods_opened_in_vain_are_closed() -> None:
    """An incumbent of a worker that was killed may open more than it uses; the plan is what it uses."""
    formulation = formulated(fabric({"A": 4, "B": 4}), pretraining(2, 2), ArnoldParameters(alpha=0.5))
    point = formulation.point(np.zeros((2, 2), dtype=np.int64))
    assert formulation.problem.value(point) == pytest.approx(1)
    point[formulation.problem.column_names.index("y[B]")] = 1
    plan = formulation.extract(point, PhaseClock())
    assert plan.pretraining is not None
    assert plan.pretraining.objective_eq4 == pytest.approx(1)
    assert formulation.violations(plan, formulation.problem.value(point)) == []
    assert [issue.code for issue in formulation.violations(plan, 0.9)] == ["objective_mismatch"]


def test_solutions_of_large_models_are_handed_on_by_node(monkeypatch: pytest.MonkeyPatch) -> None:
    """An entry per node of the job, where a point has one per group and minipod; the plan is the same."""
    case = fabric({"A": 7, "B": 5, "C": 3}), pretraining(5, 3), ArnoldParameters(alpha=0.4)
    expected = planned(formulated(*case), "exact")[1]
    monkeypatch.setattr("models.placement.arnold.policy._MOST_COLUMNS", 30)
    formulation = formulated(*case)
    told: list[Progress] = []
    result = formulation.solve(SolveOptions(solver="exact"), SolveMonitor(on_progress=told.append))
    for incumbent in (result.incumbent, told[0].incumbent):
        assert incumbent is not None
        assert incumbent.shape == (15,)
    assert result.incumbent is not None
    assert formulation.extract(result.incumbent, PhaseClock()) == expected
    # A worker that was killed has left it, and another one finishes; what is no placement is not taken for one.
    resume = Resume(incumbent=result.incumbent, bound=result.bound, elapsed_s=1.0)
    finished = formulation.resumed(resume, SolveOptions(solver="exact"))
    assert finished.objective == pytest.approx(result.objective)
    assert finished.limit is Limit.DEADLINE
    for wrong in (np.zeros(15), np.full(15, 0.5), np.full(15, 3.0)):
        lost = formulation.resumed(replace(resume, incumbent=wrong), SolveOptions(solver="exact"))
        assert lost.termination is TerminationReason.NO_SOLUTION_FOUND
    assert not {"model", "compiled", "problem"} & set(vars(formulation))
    # General solvers still answer with points.
    assert planned(formulated(*case), "highs")[2].objective_eq4 == pytest.approx(result.objective)


def test_phases_are_timed_apart() -> None:
    clock = PhaseClock()
    snapshot = Snapshot(cluster=fabric({"A": 4}), jobs=(pretraining(2, 2),))
    formulation = formulate_arnold(snapshot, ArnoldParameters(alpha=0.1), clock)
    assert formulation.warm_start is not None
    formulation.extract(formulation.warm_start, clock)
    assert list(clock.times().wall_s) == ["performance", "build", "place"]


def test_no_jobs_are_an_empty_plan() -> None:
    formulation = formulate_arnold(Snapshot(cluster=fabric({"A": 4}), jobs=()), ArnoldParameters(), PhaseClock())
    result = formulation.solve(SolveOptions(), SolveMonitor())
    assert result.termination is TerminationReason.OPTIMAL
    assert result.objective == 0
    assert result.incumbent is not None
    plan = formulation.extract(result.incumbent, PhaseClock())
    assert plan == Plan(allocations=(), unplaced=(), score=())
    assert formulation.violations(plan, 0) == []
    assert formulation.violations(plan, 1) != []


def test_input_that_cannot_be_planned_is_refused() -> None:
    job = Job(id="llm", parallelism=Parallelism(tp=8, pp=2, dp=2), max_gpus=16)
    with pytest.raises(InputError) as raised:
        formulated(fabric({"A": 4}), job, ArnoldParameters(alpha=0.1))
    assert [issue.code for issue in raised.value.issues] == ["parallelism_above_max_gpus"]


@st.composite
def busy_snapshots(draw: st.DrawFn) -> Snapshot:
    """A fabric of three minipods in which some nodes are drained, down, in use, or hold running jobs."""
    cluster = fabric(draw(st.lists(st.integers(1, 6), min_size=3, max_size=3)), nodes_per_leaf=2)
    nodes, jobs = [], [pretraining(draw(st.integers(1, 3)), draw(st.integers(1, 3)))]
    for k, node in enumerate(cluster.nodes):
        kind = draw(st.sampled_from(["free", "free", "free", "drained", "down", "in use", "running", "lost"]))
        state = {"drained": NodeState.DRAINED, "down": NodeState.DOWN, "lost": NodeState.DOWN}.get(kind, NodeState.UP)
        nodes.append(replace(node, state=state, gpus_in_use=(3,) if kind == "in use" else ()))
        if kind in ("running", "lost"):
            jobs.append(Job(id=f"job{k}", current=(NodeGpus(node=node.id, gpus=(0, 1)),)))
    return Snapshot(cluster=replace(cluster, nodes=tuple(nodes)), jobs=tuple(draw(st.permutations(jobs))))


@given(snapshot=busy_snapshots(), unit=st.sampled_from(SchedulingUnit), tier=st.sampled_from(["minipod", "leaf"]))
@settings(max_examples=15, deadline=None)
def test_every_plan_on_a_busy_cluster_passes_the_check(snapshot: Snapshot, unit: SchedulingUnit, tier: str) -> None:
    parameters = ArnoldParameters(alpha=0.3, scheduling_unit=unit, minipod_tier=tier)
    formulation = formulate_arnold(snapshot, parameters, PhaseClock())
    assert isinstance(formulation, ArnoldFormulation)
    held = {part.node for job in snapshot.jobs for part in job.current or ()}
    free = [
        node
        for node in snapshot.cluster.nodes
        if node.state is NodeState.UP and not node.gpus_in_use and node.id not in held
    ]
    assert formulation.instance.free_nodes.sum() == len(free)
    if formulation.instance.has_room:
        _, plan, _ = planned(formulation)
        lost = {node.id for node in snapshot.cluster.nodes if node.state is NodeState.DOWN} & held
        assert len(plan.unplaced) == len(lost)
    else:
        assert solved(formulation).termination is TerminationReason.INFEASIBLE
