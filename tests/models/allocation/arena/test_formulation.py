import threading
from dataclasses import replace

import numpy as np
import pytest

from models.allocation.arena.parameters import ArenaMethod, ArenaObjective, ArenaParameters
from models.clock import PhaseClock
from models.plan import Change
from models.workload import Adaptivity, Job, Reservation, Snapshot
from solver.monitor import SolveMonitor
from solver.options import SolveOptions
from solver.result import TerminationReason
from solver.sense import Sense
from tests.models.allocation.arena.scenes import ILP, formulation_of, given, plan_of, reasons, solved, table
from tests.models.placement.scenes import cluster, node, on
from topology.cluster import NodeState

SMALL = table({("a", 1): 100.0, ("a", 2): 150.0, ("a", 4): 180.0})
LARGE = table({("a", 1): 1.0, ("a", 2): 2.0, ("a", 4): 4.0})
LINEAR = table({("a", n): float(n) for n in (1, 2, 4, 8, 16, 32)})
FAIR = replace(ILP, objective=ArenaObjective.FINISH_TIME_FAIRNESS)
DEADLINES = replace(ILP, objective=ArenaObjective.DEADLINES)


def test_raw_throughput_lets_the_small_model_win_and_normalised_throughput_does_not() -> None:
    """One node of 4. Samples/s: all GPUs to the small model are 180; any sharing is at most 150 + 2.

    Shares of the best: small 2 and large 2 are 150/180 + 2/4 = 4/3; one job alone is at most 1, other splits are less:
    100/180 + 2/4, 150/180 + 1/4.
    """
    jobs = (Job(id="small", performance=SMALL), Job(id="large", performance=LARGE))
    snapshot = Snapshot(cluster=cluster(node("n0", 4)), jobs=jobs)
    plan, result = plan_of(snapshot, replace(ILP, normalise=False))
    assert given(plan) == {"small": ("a", 4)}
    assert result.objective == pytest.approx(180.0)
    assert reasons(plan) == {"large": "outcompeted"}
    plan, result = plan_of(snapshot, ILP)
    assert given(plan) == {"small": ("a", 2), "large": ("a", 2)}
    assert result.objective == pytest.approx(4 / 3)
    assert [(term.term, term.value) for term in plan.score] == [
        ("throughput", pytest.approx(5 / 6)),
        ("throughput", 0.5),
    ]
    assert [item.expected_goodput for item in plan.allocations] == [150.0, 2.0]


def test_a_launched_job_is_never_suspended() -> None:
    """n0 [r.]: without r the two GPUs would bring 100, with r on one of them only r's 1."""
    jobs = (
        Job(id="r", performance=table({("a", 1): 1.0}), current=on({"n0": (0,)})),
        Job(id="w", performance=table({("a", 2): 100.0})),
    )
    plan, result = plan_of(Snapshot(cluster=cluster(node("n0", 2)), jobs=jobs), replace(ILP, normalise=False))
    assert given(plan) == {"r": ("a", 1)}
    assert result.objective == pytest.approx(1.0)
    assert reasons(plan) == {"w": "outcompeted"}


def test_counts_are_buddy_blocks() -> None:
    """Seven nodes of 4: blocks of 1, 2, 4 GPUs, of 2 and of 4 nodes, although all of them have a throughput."""
    job = Job(id="j", performance=table({("a", n): float(n) for n in range(1, 29)}))
    machines = cluster(*(node(f"n{k}", 4) for k in range(7)))
    formulation = formulation_of(Snapshot(cluster=machines, jobs=(job,)), ILP)
    blocks = formulation.instance.configurations
    assert blocks.num_gpus[formulation.instance.pair_configurations].tolist() == [1, 2, 4, 8, 16]
    some = formulation_of(Snapshot(cluster=machines, jobs=(job,)), replace(ILP, counts=(2, 3, 16)))
    assert blocks.num_gpus[some.instance.pair_configurations].tolist() == [2, 16]


def test_a_restart_is_paid_out_of_the_horizon() -> None:
    """Type b is 20 % faster. A restart of 300 s out of 3600 s leaves 11/12 of that, 1.1 > 1; one of 900 s 0.9 < 1."""
    machines = cluster(node("n0", 1), node("n1", 1, "b"))
    for cost_s, expected in ((300.0, "b"), (900.0, "a")):
        job = Job(
            id="j",
            performance=table({("a", 1): 1.0, ("b", 1): 1.2}),
            current=on({"n0": (0,)}),
            restart_cost_s=cost_s,
        )
        plan, result = plan_of(Snapshot(cluster=machines, jobs=(job,)), replace(ILP, normalise=False))
        assert given(plan) == {"j": (expected, 1)}
        assert result.objective == pytest.approx(1.1 if expected == "b" else 1.0)
        assert plan.allocations[0].change is (Change.RETYPED if expected == "b" else Change.KEPT)


def test_priorities_weigh_and_rise_with_waiting() -> None:
    """One GPU, two equal jobs. Priority 1 counts twice priority 2, until that has waited long enough."""
    jobs = (
        Job(id="low", performance=LINEAR, priority=2, weight=1.5),
        Job(id="high", performance=LINEAR, priority=1),
    )
    machines = cluster(node("n0", 1))
    plan, result = plan_of(Snapshot(cluster=machines, jobs=jobs), ILP)
    assert given(plan) == {"high": ("a", 1)}
    assert result.objective == pytest.approx(1.0)
    waited = (replace(jobs[0], age_s=3600.0), jobs[1])
    plan, result = plan_of(Snapshot(cluster=machines, jobs=waited), ILP)
    assert given(plan) == {"low": ("a", 1)}
    assert result.objective == pytest.approx(1.5)
    plan, _ = plan_of(Snapshot(cluster=machines, jobs=waited), replace(ILP, promotion_after_s=None))
    assert given(plan) == {"high": ("a", 1)}
    plan, _ = plan_of(Snapshot(cluster=machines, jobs=jobs), replace(ILP, priority_ratio=1.0))
    assert given(plan) == {"low": ("a", 1)}


def test_deadlines_leave_pairs_that_are_in_time_and_drop_jobs_that_have_none() -> None:
    """One node of 4, 100 samples an iteration, LINEAR samples/s.

    `urgent`: 10 iterations in 500 s need 2 GPUs. `hopeless`: 10 iterations in 100 s would need 10. `free`: no deadline.
    Shares: urgent 2 + free 2 is 0.5 + 0.5; urgent on 1 GPU is too late. The point of `urgent` is worth 1 + 3 weights.
    """
    jobs = (
        Job(id="urgent", performance=LINEAR, max_gpus=4, remaining_iterations=10, deadline_s=500.0),
        Job(id="hopeless", performance=LINEAR, max_gpus=4, remaining_iterations=10, deadline_s=100.0),
        Job(id="free", performance=LINEAR, min_gpus=2, max_gpus=4),
    )
    snapshot = Snapshot(cluster=cluster(node("n0", 4)), jobs=jobs)
    formulation = formulation_of(snapshot, DEADLINES)
    assert formulation.named().column_names == (
        "x[urgent,(1,2,a)]",
        "x[urgent,(1,4,a)]",
        "x[free,(1,2,a)]",
        "x[free,(1,4,a)]",
    )
    plan, result = plan_of(snapshot, DEADLINES)
    assert result.objective == pytest.approx(4.0 + 1.0)
    assert reasons(plan)["hopeless"] == "deadline"
    assert [issue.code for issue in formulation.warnings] == ["deadline_cannot_be_met"]


def test_a_launched_job_that_is_late_runs_on_and_one_that_is_in_time_stays_in_time() -> None:
    """n0 [llii], 100 samples an iteration.

    `late` has 10000 samples and 2000 s left: 2500 s on four GPUs are too long, so it is worth nothing wherever it is.
    `intime` has 600 s and needs 1000 / 2 s; one GPU would be late. Its point is worth 1 + the weights 102.
    """
    jobs = (
        Job(
            id="late",
            performance=LINEAR,
            current=on({"n0": (0, 1)}),
            remaining_iterations=100,
            deadline_s=2000.0,
            min_gpus=2,
            max_gpus=4,
        ),
        Job(
            id="intime",
            performance=LINEAR,
            current=on({"n0": (2, 3)}),
            remaining_iterations=10,
            deadline_s=600.0,
            max_gpus=4,
        ),
        Job(id="w", performance=LINEAR, max_gpus=1, weight=100.0),
    )
    snapshot = Snapshot(cluster=cluster(node("n0", 4)), jobs=jobs)
    plan, result = plan_of(snapshot, DEADLINES)
    assert given(plan) == {"late": ("a", 2), "intime": ("a", 2)}
    assert result.objective == pytest.approx(103.0 + 0.5)
    assert [term.term for term in plan.score] == ["late", "throughput", "deadline_met", "waiting"]
    assert reasons(plan) == {"w": "outcompeted"}


def test_finish_time_fairness_helps_the_worst_job() -> None:
    """Four GPUs, linear speed, 1000 samples each. Normalised: finish time over that on 4 GPUs; waiting costs
    (3600 + 1000/1) / (1000/4) = 18.4.

    Two GPUs each: 2 and 2, that is max 2 + 0.1 mean 2 = 2.2. Four and none: max 18.4. Two and one: max 4.
    """
    jobs = tuple(
        Job(id=name, performance=LINEAR, max_gpus=4, remaining_iterations=10, weight=1.0) for name in ("x", "y")
    )
    snapshot = Snapshot(cluster=cluster(node("n0", 4)), jobs=jobs)
    plan, result = plan_of(snapshot, FAIR)
    assert given(plan) == {"x": ("a", 2), "y": ("a", 2)}
    assert result.objective == pytest.approx(2.2)
    assert result.sense is Sense.MINIMIZE
    assert [(term.term, term.job_id) for term in plan.score] == [
        ("finish_time", "x"),
        ("finish_time", "y"),
        ("worst_finish_time", None),
    ]
    assert [term.value for term in plan.score] == pytest.approx([0.1, 0.1, 2.0])
    left_out, result = plan_of(replace(snapshot, cluster=cluster(node("n0", 1))), FAIR)
    assert len(left_out.unplaced) == 1
    # The best block is the one GPU: 1 for the job that runs, (3600 + 1000) / 1000 for the other.
    assert result.objective == pytest.approx(4.6 + 0.1 * (4.6 + 1) / 2)


def test_theta_of_an_early_incumbent_is_the_largest_cost() -> None:
    """Interrupted at once, the start is the answer, here with theta 10 too high."""
    job = Job(id="r", performance=LINEAR, max_gpus=2, remaining_iterations=10, current=on({"n0": (0,)}))
    formulation = formulation_of(Snapshot(cluster=cluster(node("n0", 2)), jobs=(job,)), FAIR)
    start = formulation.warm_start
    assert start is not None
    loose = np.where(formulation.problem.integrality, start, start + 10.0)
    canceled = threading.Event()
    canceled.set()
    result = formulation.solve(SolveOptions(warm_start=loose), SolveMonitor(canceled=canceled))
    assert result.incumbent is not None
    assert result.objective == pytest.approx(2.2)
    assert formulation.violations(formulation.extract(result.incumbent, PhaseClock()), 2.2) == []


def test_eq_7_as_printed_counts_seconds_per_gpu() -> None:
    """1000 samples on 2 of 2 GPUs: 500 s over 2 GPUs; on one GPU 1000 s."""
    job = Job(id="j", performance=LINEAR, max_gpus=2, remaining_iterations=10)
    snapshot = Snapshot(cluster=cluster(node("n0", 2)), jobs=(job,))
    plan, result = plan_of(snapshot, replace(FAIR, normalise=False, mean_weight=1.0))
    assert given(plan) == {"j": ("a", 2)}
    assert result.objective == pytest.approx(250.0 + 250.0)


def test_rows_and_columns_are_named_after_what_they_mean() -> None:
    jobs = (
        Job(id="w", performance=LINEAR, max_gpus=8, remaining_iterations=5),
        Job(id="r", performance=LINEAR, max_gpus=2, current=on({"n0": (4, 5)}), remaining_iterations=5),
        Job(
            id="p",
            performance=LINEAR,
            reservation=Reservation(gpu_type="a", num_gpus=4),
            remaining_iterations=5,
        ),
    )
    snapshot = Snapshot(cluster=cluster(node("n0", in_use=(0,)), node("n1")), jobs=jobs)
    named = formulation_of(snapshot, FAIR).named()
    assert set(named.row_names) == {
        "one_configuration[w]",
        "launched[r]",
        "reserved[p]",
        "capacity[a]",
        "blocks[a,2]",
        "blocks[a,4]",
        "whole_nodes[a]",
        "finish_time[w]",
        "finish_time[r]",
        "finish_time[p]",
    }
    assert named.column_names[0] == "x[w,(1,1,a)]"
    assert named.column_names[-2:] == ("x[p,(1,4,a)]", "theta")


def test_launched_jobs_that_lost_their_nodes_and_find_no_room_are_named() -> None:
    """Both run on a drained node and must leave; one node of one GPU is left."""
    jobs = tuple(Job(id=f"j{k}", performance=LINEAR, max_gpus=1, current=on({"n0": (k,)})) for k in range(2))
    machines = cluster(node("n0", 2, state=NodeState.DRAINED), node("n1", 1))
    formulation = formulation_of(Snapshot(cluster=machines, jobs=jobs), ILP)
    assert solved(formulation).termination is TerminationReason.INFEASIBLE
    assert formulation.conflicts(5.0) == ("launched[j0]", "launched[j1]", "capacity[a]")


def test_reservations_that_do_not_fit_are_named() -> None:
    job = Job(id="j", performance=LINEAR, reservation=Reservation(gpu_type="a", num_gpus=3))
    formulation = formulation_of(Snapshot(cluster=cluster(node("n0")), jobs=(job,)), ILP)
    assert solved(formulation).termination is TerminationReason.INFEASIBLE
    assert formulation.conflicts(5.0) == ("reserved[j]",)


def test_a_running_job_without_any_block_stays_as_it_is() -> None:
    """n0 [kkk.....]: three GPUs are no block and the table has no other; the other job gets a block beside it."""
    jobs = (
        Job(id="k", performance=table({("a", 3): 5.0}), current=on({"n0": (0, 1, 2)})),
        Job(id="w", performance=LINEAR, max_gpus=8),
    )
    formulation = formulation_of(Snapshot(cluster=cluster(node("n0")), jobs=jobs), ILP)
    assert [(issue.code, issue.pointer) for issue in formulation.warnings] == [("kept_as_it_is", "/jobs/0/current")]
    plan, _ = plan_of(Snapshot(cluster=cluster(node("n0")), jobs=jobs), ILP)
    assert given(plan) == {"k": ("a", 3), "w": ("a", 4)}
    assert plan.allocations[0].gpus == on({"n0": (0, 1, 2)})


def test_non_preemptible_jobs_are_constants() -> None:
    """n0 [pp......]: p brings 2/32 of its best wherever the rest goes; w gets 4 of the 6 GPUs left."""
    jobs = (
        Job(id="p", preemptible=False, current=on({"n0": (0, 1)}), performance=LINEAR),
        Job(id="w", performance=LINEAR, max_gpus=8),
    )
    plan, result = plan_of(Snapshot(cluster=cluster(node("n0")), jobs=jobs), ILP)
    assert given(plan) == {"p": ("a", 2), "w": ("a", 4)}
    assert result.objective == pytest.approx(2 / 8 + 4 / 8)


def test_a_rigid_job_gets_its_count() -> None:
    job = Job(id="j", adaptivity=Adaptivity.RIGID, min_gpus=2, performance=LINEAR)
    plan, _ = plan_of(Snapshot(cluster=cluster(node("n0")), jobs=(job,)), ILP)
    assert given(plan) == {"j": ("a", 2)}


def test_prices_are_told_by_row() -> None:
    jobs = tuple(Job(id=f"j{k}", performance=LINEAR) for k in range(3))
    formulation = formulation_of(Snapshot(cluster=cluster(node("n0", 4)), jobs=jobs), ILP)
    result = solved(formulation)
    assert formulation.prices(result) == {}
    prices = np.zeros(formulation.problem.num_rows)
    prices[-1] = 0.25
    assert formulation.prices(replace(result, prices=prices)) == {"capacity[a]": 0.25}


@pytest.mark.parametrize("objective", ArenaObjective)
@pytest.mark.parametrize("method", ArenaMethod)
def test_a_cluster_without_jobs_has_an_empty_plan(method: ArenaMethod, objective: ArenaObjective) -> None:
    parameters = ArenaParameters(method=method, objective=objective)
    plan, result = plan_of(Snapshot(cluster=cluster(node("n0")), jobs=()), parameters)
    assert plan.allocations == ()
    assert result.objective == 0.0


@pytest.mark.parametrize("parameters", [ILP, FAIR])
def test_a_cluster_that_is_down_explains_itself(parameters: ArenaParameters) -> None:
    job = Job(id="j", performance=LINEAR, remaining_iterations=1)
    plan, _ = plan_of(Snapshot(cluster=cluster(node("n0", state=NodeState.DOWN)), jobs=(job,)), parameters)
    assert reasons(plan) == {"j": "gpu_type"}
