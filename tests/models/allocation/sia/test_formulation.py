from dataclasses import replace

import numpy as np
import pytest

from models.allocation.horizon.formulation import formulate_horizon
from models.allocation.horizon.parameters import HorizonParameters
from models.allocation.sia.formulation import formulate_sia
from models.allocation.sia.parameters import SiaParameters
from models.clock import PhaseClock
from models.performance.goodput.spec import (
    BatchRange,
    GoodputModel,
    GradientStatistics,
    ThroughputParameters,
    TypeProfile,
)
from models.plan import Change
from models.workload import Adaptivity, Job, Reservation, Snapshot
from solver.result import TerminationReason
from solver.sense import Sense
from tests.models.allocation.sia.instances import given, plan_of, solve, table
from tests.models.placement.scenes import cluster, node, on
from topology.cluster import NodeState

ONE_PER_GPU = table({("a", m): float(m) for m in (1, 2, 4, 8, 16, 24)})


def table_1() -> Snapshot:
    """The running example of Sia section 3.4: one node with 2 GPUs of type A, one with 4 of type B.

          (1,1,A) (1,2,A) (1,1,B) (1,2,B) (1,4,B)
    J_1      1       1       2       3      [4]        n0 A [22]
    J_2      2      [4]      1       2       3         n1 B [1111]
    """
    first = table({("A", 1): 1, ("A", 2): 1, ("B", 1): 2, ("B", 2): 3, ("B", 4): 4})
    second = table({("A", 1): 2, ("A", 2): 4, ("B", 1): 1, ("B", 2): 2, ("B", 4): 3})
    machines = cluster(node("n0", 2, "A"), node("n1", 4, "B"))
    return Snapshot(cluster=machines, jobs=(Job(id="J_1", performance=first), Job(id="J_2", performance=second)))


@pytest.mark.parametrize("power", [1.0, 0.5, -0.5, -1.0])
def test_table_1_gives_the_answer_of_the_paper(power: float) -> None:
    """Proof for p = 1: 4 is the largest entry of both rows, and both can be had at once. Other p are monotone."""
    plan, objective = plan_of(table_1(), SiaParameters(fairness_power=power))
    assert given(plan) == {"J_1": ("B", 4), "J_2": ("A", 2)}
    assert objective == pytest.approx(2 * 4**power)


def test_a_job_left_out_costs_its_weighted_penalty_in_either_sense() -> None:
    """One GPU, two jobs of weight 2 and 1 with normalised goodput 1: the heavier one runs."""
    jobs = tuple(
        Job(id=name, weight=weight, performance=table({("a", 1): 7.0})) for name, weight in (("x", 1.0), ("y", 2.0))
    )
    snapshot = Snapshot(cluster=cluster(node("n0", 1)), jobs=jobs)
    plan, objective = plan_of(snapshot, SiaParameters(fairness_power=1.0, queue_penalty=3.0))
    assert given(plan) == {"y": ("a", 1)}
    assert objective == pytest.approx(2.0 - 3.0)
    assert [(term.term, term.value) for term in plan.score] == [("queue_penalty", -3.0), ("utility", 2.0)]
    plan, objective = plan_of(snapshot, SiaParameters(fairness_power=-1.0, queue_penalty=3.0))
    assert given(plan) == {"y": ("a", 1)}
    assert objective == pytest.approx(2.0 + 3.0)


def test_rows_and_columns_are_named_after_what_they_mean() -> None:
    jobs = (
        Job(id="j0", performance=ONE_PER_GPU),
        Job(id="j1", performance=ONE_PER_GPU, reservation=Reservation(gpu_type="a", num_gpus=4)),
    )
    snapshot = Snapshot(cluster=cluster(node("n0", in_use=(0,)), node("n1")), jobs=jobs)
    formulation = formulate_sia(snapshot, SiaParameters(), PhaseClock())
    assert set(formulation.named().row_names) == {
        "one_configuration[j0]",
        "reserved[j1]",
        "capacity[a]",
        "blocks[a,2]",
        "blocks[a,4]",
        "whole_nodes[a]",
    }
    assert formulation.problem.sense is Sense.MINIMIZE
    assert formulation.named().column_names[0] == "x[j0,(1,1,a)]"
    assert formulation.named().column_names[-1] == "x[j1,(1,4,a)]"


def test_too_much_forced_demand_is_infeasible_and_names_what_conflicts() -> None:
    jobs = tuple(
        Job(id=f"j{k}", performance=ONE_PER_GPU, reservation=Reservation(gpu_type="a", num_gpus=8)) for k in range(3)
    )
    snapshot = Snapshot(cluster=cluster(node("n0"), node("n1"), node("n2", kind="b")), jobs=jobs)
    formulation = formulate_sia(snapshot, SiaParameters(), PhaseClock())
    assert formulation.warm_start is None
    assert solve(formulation).termination is TerminationReason.INFEASIBLE
    conflict = formulation.conflicts(5.0)
    assert set(conflict) == {"capacity[a]", "reserved[j0]", "reserved[j1]", "reserved[j2]"}
    unplaced = formulation.unplaced()
    assert [item.job_id for item in unplaced] == ["j0", "j1", "j2"]
    assert unplaced[0].detail == "reserves 8 a GPUs; together reservations take 24, and 16 are free"
    assert unplaced[0].counts == {"reserved_gpus.a": 24, "free_gpus.a": 16}
    assert unplaced[0].remedy == "lower the reservations of a by 8 GPUs, or free as many"
    assert formulate_horizon(snapshot, HorizonParameters(), PhaseClock()).unplaced() == unplaced


def test_a_reservation_beyond_what_drained_nodes_leave_is_infeasible() -> None:
    job = Job(id="j", performance=ONE_PER_GPU, reservation=Reservation(gpu_type="a", num_gpus=16))
    machines = cluster(node("n0"), node("n1", state=NodeState.DRAINED))
    formulation = formulate_sia(Snapshot(cluster=machines, jobs=(job,)), SiaParameters(), PhaseClock())
    assert solve(formulation).termination is TerminationReason.INFEASIBLE
    assert "reserved[j]" in formulation.conflicts(5.0)


def test_no_jobs_give_an_empty_plan() -> None:
    plan, objective = plan_of(Snapshot(cluster=cluster(node("n0")), jobs=()), SiaParameters())
    assert (plan.allocations, plan.unplaced, plan.score, objective) == ((), (), (), 0.0)


def test_jobs_without_any_pair_are_all_left_out() -> None:
    jobs = tuple(Job(id=f"j{k}", min_gpus=64, performance=ONE_PER_GPU) for k in range(2))
    plan, objective = plan_of(Snapshot(cluster=cluster(node("n0")), jobs=jobs), SiaParameters(queue_penalty=1.5))
    assert objective == pytest.approx(3.0)
    assert [item.reason for item in plan.unplaced] == ["no_configuration"] * 2


def test_a_reservation_without_any_pair_is_infeasible() -> None:
    job = Job(id="j", performance=ONE_PER_GPU, reservation=Reservation(gpu_type="a", num_gpus=3))
    formulation = formulate_sia(Snapshot(cluster=cluster(node("n0")), jobs=(job,)), SiaParameters(), PhaseClock())
    assert solve(formulation).termination is TerminationReason.INFEASIBLE
    assert formulation.conflicts(5.0) == ("reserved[j]",)
    assert formulation.unplaced() == ()


def test_a_job_that_reserves_what_it_has_keeps_its_configuration_and_makes_room() -> None:
    """n0 [p.......] n1 [q.......]: pinned where they are, p and q lock `big` out of both nodes. One of them moves."""
    big = Job(id="big", min_gpus=8, performance=ONE_PER_GPU)
    small = [
        Job(id=name, performance=ONE_PER_GPU, current=on({host: (0,)})) for name, host in (("p", "n0"), ("q", "n1"))
    ]
    machines = cluster(node("n0"), node("n1"))
    stuck = tuple(replace(job, preemptible=False) for job in small)
    plan, _ = plan_of(Snapshot(cluster=machines, jobs=(big, *stuck)), SiaParameters())
    assert given(plan) == {"p": ("a", 1), "q": ("a", 1)}
    own = Reservation(gpu_type="a", num_gpus=1)
    moved = tuple(replace(job, reservation=own) for job in small)
    plan, _ = plan_of(Snapshot(cluster=machines, jobs=(big, *moved)), SiaParameters())
    assert given(plan) == {"big": ("a", 8), "p": ("a", 1), "q": ("a", 1)}
    assert sorted(item.change for item in plan.allocations) == [Change.KEPT, Change.MOVED, Change.STARTED]


def test_a_non_preemptible_job_keeps_its_gpus_and_its_score_is_a_constant() -> None:
    """n0 [ppp.....] drained, n1 [qq......]: p keeps three GPUs (no configuration: 0), q two; r gets four of n1.

    q: normalised goodput 2, squared root 2**-0.5; r: min goodput 1, with 4 GPUs 4**-0.5. n1 has six GPUs left.
    """
    jobs = (
        Job(id="p", preemptible=False, current=on({"n0": (0, 1, 2)})),
        Job(id="q", preemptible=False, current=on({"n1": (0, 1)}), performance=ONE_PER_GPU),
        Job(id="r", performance=ONE_PER_GPU),
    )
    snapshot = Snapshot(cluster=cluster(node("n0", state=NodeState.DRAINED), node("n1")), jobs=jobs)
    plan, objective = plan_of(snapshot, SiaParameters())
    assert given(plan) == {"p": ("a", 3), "q": ("a", 2), "r": ("a", 4)}
    assert [item.change for item in plan.allocations] == [Change.KEPT, Change.KEPT, Change.STARTED]
    assert objective == pytest.approx(2**-0.5 + 4**-0.5)
    assert plan.allocations[2].gpus == on({"n1": (4, 5, 6, 7)})
    assert plan.allocations[0].expected_goodput is None
    assert plan.allocations[1].expected_goodput == 2.0


def test_a_non_preemptible_job_on_a_down_node_waits() -> None:
    job = Job(id="p", preemptible=False, current=on({"n0": (0, 1)}), performance=ONE_PER_GPU, max_gpus=2)
    snapshot = Snapshot(cluster=cluster(node("n0", state=NodeState.DOWN), node("n1")), jobs=(job,))
    plan, _ = plan_of(snapshot, SiaParameters())
    assert plan.allocations[0].change is Change.STARTED
    assert plan.allocations[0].gpus == on({"n1": (0, 1)})


def test_rigid_and_hybrid_parallel_jobs_get_their_counts() -> None:
    """Units of P = 4: the goodput is 0 elsewhere."""
    jobs = (
        Job(id="rigid", adaptivity=Adaptivity.RIGID, min_gpus=2, performance=ONE_PER_GPU),
        Job(id="hybrid", performance=table({("a", 4): 1.0, ("a", 8): 1.9})),
    )
    snapshot = Snapshot(cluster=cluster(node("n0"), node("n1")), jobs=jobs)
    plan, _ = plan_of(snapshot, SiaParameters())
    assert given(plan) == {"rigid": ("a", 2), "hybrid": ("a", 8)}


def test_a_running_job_stays_when_moving_gains_less_than_a_restart_costs() -> None:
    """Type b is 20 % faster; r = (3600 - 2 * 250) / (3600 + 250) = 0.81 eats that. A waiting job goes to b."""
    performance = table({("a", 1): 1.0, ("b", 1): 1.2})
    machines = cluster(node("n0", 1), node("n1", 1, "b"))
    running = Job(
        id="j", performance=performance, current=on({"n0": (0,)}), age_s=3600.0, num_restarts=2, restart_cost_s=250.0
    )
    plan, _ = plan_of(Snapshot(cluster=machines, jobs=(running,)), SiaParameters())
    assert given(plan) == {"j": ("a", 1)}
    waiting = Job(id="j", performance=performance)
    plan, _ = plan_of(Snapshot(cluster=machines, jobs=(waiting,)), SiaParameters())
    assert given(plan) == {"j": ("b", 1)}


def test_the_warm_start_keeps_who_runs_and_starts_others_small() -> None:
    """n0 [rrrr....]: the running job keeps its four GPUs, the heavier waiting job takes the rest."""
    jobs = (
        Job(id="w", performance=ONE_PER_GPU),
        Job(id="r", performance=ONE_PER_GPU, current=on({"n0": (0, 1, 2, 3)})),
        Job(id="h", performance=ONE_PER_GPU, min_gpus=4, weight=9.0),
    )
    formulation = formulate_sia(Snapshot(cluster=cluster(node("n0")), jobs=jobs), SiaParameters(), PhaseClock())
    assert formulation.warm_start is not None
    started = np.flatnonzero(formulation.warm_start)
    assert [formulation.named().column_names[k] for k in started] == ["x[r,(1,4,a)]", "x[h,(1,4,a)]"]


def test_batch_sizes_and_goodput_come_with_the_allocation() -> None:
    """A fixed batch of 96 on 4 GPUs with room for 8 samples each: three passes, two of them accumulated."""
    parameters = ThroughputParameters(
        alpha_c=0.05, beta_c=0.01, alpha_r=0.01, beta_r=0.001, alpha_n=0.02, beta_n=0.002, gamma=2.0
    )
    model = GoodputModel(
        batch=BatchRange(initial=96, maximum=96),
        gradient=GradientStatistics(squared_norm=1.0, variance=10.0),
        profiles={"a": TypeProfile(parameters=parameters, max_local_batch=8)},
    )
    job = Job(id="j", adaptivity=Adaptivity.RIGID, min_gpus=4, performance=model)
    snapshot = Snapshot(cluster=cluster(node("n0")), jobs=(job,))
    plan, objective = plan_of(snapshot, SiaParameters(fairness_power=1.0))
    (allocation,) = plan.allocations
    assert (allocation.batch_size, allocation.local_batch_size, allocation.accumulation_steps) == (96, 8, 3)
    step_s = 2 * 0.13 + (0.13**2 + 0.012**2) ** 0.5
    assert allocation.expected_goodput == pytest.approx(96 / step_s)
    assert objective == pytest.approx(4.0)


def test_phases_are_timed_apart() -> None:
    clock = PhaseClock()
    formulation = formulate_sia(table_1(), SiaParameters(), clock)
    result = solve(formulation)
    assert result.incumbent is not None
    formulation.extract(result.incumbent, clock)
    assert list(clock.times().wall_s) == ["performance", "build", "place"]


def test_the_matrix_form_is_small() -> None:
    """One column a feasible pair, no auxiliary ones."""
    formulation = formulate_sia(table_1(), SiaParameters(), PhaseClock())
    assert formulation.problem.num_columns == 10
    assert formulation.problem.num_rows == 4
    assert np.array_equal(np.unique(formulation.problem.matrix.data), [1.0, 2.0, 4.0])
