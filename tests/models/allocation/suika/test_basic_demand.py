"""Waiting jobs come first: free GPUs, scale-outs of least worth, de-fragmentation."""

from dataclasses import replace

import pytest

from models.allocation.suika.heuristic import Decision, decide
from models.allocation.suika.parameters import Queueing, SuikaParameters
from models.parallel_plan import Gpu
from models.workload import Job, Snapshot
from tests.models.allocation.suika.scenes import (
    FakePlanner,
    linear,
    nodes_of,
    running,
    saturating,
    snapshot,
)
from tests.models.placement.scenes import cluster
from topology.cluster import NodeState

TIMID = SuikaParameters(aggressiveness=0.0)


def flat(*names: str) -> FakePlanner:
    """Nobody gains anything by scaling out."""
    return FakePlanner(curves={name: saturating(1) for name in names})


def where(decision: Decision, job_id: str) -> set[Gpu]:
    return set(decision.settled.running[job_id].plan.gpus)


def refused(decision: Decision) -> list[str]:
    return [entry.job.id for entry in decision.refused]


def test_a_waiting_job_takes_the_node_that_it_fills_best() -> None:
    """AA.. B...: W needs two and fills the hole of n0."""
    drawing = "AA.. B..."
    jobs = (running("A", drawing), running("B", drawing), Job(id="W", min_gpus=2))
    decision = decide(snapshot(drawing, *jobs), TIMID, flat("A", "B", "W"))
    assert where(decision, "W") == {("n0", 2), ("n0", 3)}


def test_a_job_larger_than_a_node_stays_in_the_smallest_unit_with_room() -> None:
    """Racks p (n0, n1) and q (n2, n3): W needs six. q has six free, p has seven."""
    drawing = "A... .... BB.. ...."
    jobs = (running("A", drawing), running("B", drawing), Job(id="W", min_gpus=6))
    decision = decide(snapshot(drawing, *jobs, racks="ppqq"), TIMID, flat("A", "B", "W"))
    assert {node for node, _ in where(decision, "W")} == {"n2", "n3"}


def test_tensor_groups_do_not_leave_a_node() -> None:
    """A.. B.. C.: W has two groups of two: n0 and n1 have room for one each, n2 for none."""
    drawing = "A.. B.. C."
    jobs = (*(running(name, drawing) for name in "ABC"), Job(id="W", min_gpus=4))
    planner = FakePlanner(curves=dict.fromkeys("ABCW", saturating(1)), degrees={"W": 2})
    decision = decide(snapshot(drawing, *jobs), TIMID, planner)
    assert where(decision, "W") == {("n0", 1), ("n0", 2), ("n1", 1), ("n1", 2)}


def test_scale_outs_of_least_worth_make_room() -> None:
    """AAab BBcc: W needs two. b (0.5) goes before c (0.6) before a (0.9): b alone is too little, c is enough."""
    drawing = "AAab BBcc"
    jobs = (
        running("A", drawing, added="ab", benefits=(0.9, 0.5)),
        running("B", drawing, added="c", benefits=(0.6,)),
        Job(id="W", min_gpus=2),
    )
    planner = FakePlanner(curves={"A": saturating(2), "B": saturating(2), "W": saturating(2)})
    decision = decide(snapshot(drawing, *jobs), SuikaParameters(), planner)
    assert where(decision, "W") == {("n1", 2), ("n1", 3)}
    assert [grown.benefit for grown in decision.settled.running["A"].expansions] == [0.9]
    assert decision.settled.running["B"].expansions == ()


def test_weight_protects_scale_outs() -> None:
    """AAa BBb: A weighs 3, so that its 0.5 is worth more than B's 0.9."""
    drawing = "AAa BBb"
    jobs = (
        running("A", drawing, added="a", benefits=(0.5,), weight=3.0),
        running("B", drawing, added="b", benefits=(0.9,)),
        Job(id="W", min_gpus=1),
    )
    decision = decide(snapshot(drawing, *jobs), SuikaParameters(aggressiveness=3.0), flat("A", "B", "W"))
    assert where(decision, "W") == {("n1", 2)}


def test_what_was_taken_back_for_a_job_that_does_not_fit_stays_where_it_was() -> None:
    """AAa BBb: W needs four, but only two are elastic."""
    drawing = "AAa BBb"
    jobs = (
        running("A", drawing, added="a", benefits=(0.9,)),
        running("B", drawing, added="b", benefits=(0.9,)),
        Job(id="W", min_gpus=4),
    )
    decision = decide(snapshot(drawing, *jobs), SuikaParameters(), FakePlanner(curves=dict.fromkeys("ABW", linear())))
    assert refused(decision) == ["W"]
    assert [len(item.expansions) for item in decision.settled.running.values()] == [1, 1]


def test_a_job_that_cannot_shrink_keeps_its_scale_out() -> None:
    """AAa BBb: a is worth less, but A has no plan without it."""
    drawing = "AAa BBb"
    jobs = (
        running("A", drawing, added="a", benefits=(0.7,)),
        running("B", drawing, added="b", benefits=(0.9,)),
        Job(id="W", min_gpus=1),
    )
    planner = FakePlanner(curves=dict.fromkeys("ABW", linear()), no_shrink=("A",))
    decision = decide(snapshot(drawing, *jobs), SuikaParameters(), planner)
    assert where(decision, "W") == {("n1", 2)}
    assert decision.settled.stuck == {"A"}


def test_the_oldest_job_is_served_first_and_a_job_that_does_not_fit_blocks_nobody() -> None:
    """....: X (oldest) needs 8, Y 3, Z 2: Y runs, Z no longer fits."""
    jobs = (
        Job(id="Z", min_gpus=2, age_s=10.0),
        Job(id="Y", min_gpus=3, age_s=20.0),
        Job(id="X", min_gpus=8, age_s=30.0),
    )
    decision = decide(snapshot("....", *jobs), TIMID, flat("X", "Y", "Z"))
    assert set(decision.settled.running) == {"Y"}
    assert refused(decision) == ["X", "Z"]


def test_the_shortest_job_is_served_first() -> None:
    """Remaining time is iterations over throughput: Y has fewer iterations, but is slower; Z does not say."""
    jobs = (
        Job(id="Z", min_gpus=3, age_s=99.0),
        Job(id="Y", min_gpus=3, age_s=9.0, remaining_iterations=50.0),
        Job(id="X", min_gpus=3, remaining_iterations=100.0),
    )
    planner = FakePlanner(curves={"X": linear(10.0), "Y": linear(1.0), "Z": linear(1.0)})
    parameters = SuikaParameters(queueing=Queueing.SJF, aggressiveness=0.0)
    decision = decide(snapshot("....", *jobs), parameters, planner)
    assert refused(decision) == ["Y", "Z"]


def test_running_jobs_are_moved_as_the_last_resort() -> None:
    """A.B. CC..: W has one group of four. There are four free GPUs, two on each node; moving C alone makes room."""
    drawing = "A.B. CC.."
    jobs = (*(running(name, drawing) for name in "ABC"), Job(id="W", min_gpus=4))
    planner = FakePlanner(curves=dict.fromkeys("ABCW", saturating(1)), degrees={"W": 4, "C": 2})
    decision = decide(snapshot(drawing, *jobs), TIMID, planner)
    assert where(decision, "W") == {("n1", k) for k in range(4)}
    assert where(decision, "C") == {("n0", 1), ("n0", 3)}
    assert where(decision, "A") == {("n0", 0)}


def test_several_jobs_are_moved_where_one_is_not_enough() -> None:
    """A.B. C.D. EE..: W has a group of four, and every node at least two tenants of one type or another."""
    drawing = "A.B. C.D. EFF."
    jobs = (*(running(name, drawing) for name in "ABCDEF"), Job(id="W", min_gpus=4))
    planner = FakePlanner(curves=dict.fromkeys("ABCDEFW", saturating(1)), degrees={"W": 4, "F": 2})
    decision = decide(snapshot(drawing, *jobs), TIMID, planner)
    assert len({node for node, _ in where(decision, "W")}) == 1
    assert len({gpu for name in "ABCDEFW" for gpu in where(decision, name)}) == 11


def test_jobs_that_may_not_move_do_not() -> None:
    drawing = "A.B. CC.."
    jobs = (*(running(name, drawing, preemptible=False) for name in "ABC"), Job(id="W", min_gpus=4))
    planner = FakePlanner(curves=dict.fromkeys("ABCW", saturating(1)), degrees={"W": 4})
    assert refused(decide(snapshot(drawing, *jobs), TIMID, planner)) == ["W"]


def with_state(drawing: str, state: NodeState, *jobs: Job) -> Snapshot:
    """The first node is not up."""
    first, *others = nodes_of(drawing)
    return Snapshot(cluster=cluster(replace(first, state=state), *others), jobs=jobs)


def test_a_job_leaves_a_drained_node_before_others_start() -> None:
    """AA.. ..##, n0 drained: A goes to n1, although W is older."""
    drawing = "AA.. ..##"
    jobs = (Job(id="W", min_gpus=2, age_s=99.0), running("A", drawing))
    decision = decide(with_state(drawing, NodeState.DRAINED, *jobs), TIMID, flat("A", "W"))
    assert where(decision, "A") == {("n1", 0), ("n1", 1)}
    assert refused(decision) == ["W"]


def test_a_job_whose_scale_out_is_on_a_drained_node_only_loses_that() -> None:
    drawing = "a... AA.."
    job = running("A", drawing, added="a", benefits=(0.9,))
    decision = decide(with_state(drawing, NodeState.DRAINED, job), TIMID, flat("A"))
    assert where(decision, "A") == {("n1", 0), ("n1", 1)}


def test_a_job_on_a_node_that_is_down_waits_again() -> None:
    drawing = "AA.. ...."
    decision = decide(with_state(drawing, NodeState.DOWN, running("A", drawing)), TIMID, flat("A"))
    assert where(decision, "A") == {("n1", 0), ("n1", 1)}


def test_a_job_without_a_plan_that_could_be_changed_is_left_alone() -> None:
    """The planner knows nothing about A; B may grow into the GPU that is left."""
    drawing = "AA.B"
    jobs = (running("A", drawing), running("B", drawing))
    decision = decide(snapshot(drawing, *jobs), SuikaParameters(), FakePlanner(curves={"B": linear()}))
    assert set(decision.settled.fixed) == {"A"}
    assert decision.scale_outs.applied["B"].added == {("n0", 2)}
    assert decision.tau == pytest.approx(3 / 4)
