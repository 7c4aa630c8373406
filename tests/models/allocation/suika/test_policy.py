"""The whole policy on real performance models."""

from collections.abc import Iterator
from dataclasses import replace
from itertools import islice

import pytest

from benchmarks.workloads.suika_events import EventStream, rack_cluster
from models.allocation.suika.formulation import formulate_suika
from models.allocation.suika.parameters import Offers, SuikaMethod, SuikaParameters
from models.allocation.suika.state import node_gpus
from models.clock import PhaseClock
from models.parallel_plan import ParallelPlan
from models.parallelism.training import ALL_CHECKPOINTING, Choices
from models.plan import Change, Plan
from models.transformer import Checkpointing
from models.workload import Expansion, Job, NodeGpus, Snapshot
from solver.monitor import SolveMonitor
from solver.options import SolveOptions
from solver.result import TerminationReason
from tests.models.allocation.suika.real import OPTIONS, cluster_of, gpus, job, model, planned, posted_back
from topology.cluster import Cluster, Node
from topology.gpu_catalogue import find_product, gpu_type_of

ILP = SuikaParameters(method=SuikaMethod.ILP)
BOLD = SuikaParameters(aggressiveness=2.0)


def events(seed: int, count: int, *, load: float = 0.9) -> Iterator[tuple[Snapshot, Plan]]:
    """Snapshots of four nodes and what Algorithm 2 makes of them."""
    stream = EventStream(cluster=rack_cluster(4), load=load, seed=seed)
    for snapshot in islice(stream.snapshots(), count):
        plan = planned(snapshot)[2]
        stream.carry_out(plan)
        yield snapshot, plan


def test_a_waiting_job_starts_with_its_degrees_and_then_grows() -> None:
    _, _, plan = planned(cluster_of(job("a", dp=2, tp=2), num_nodes=1))
    (allocation,) = plan.allocations
    assert allocation.change is Change.STARTED
    assert allocation.parallel_plan is not None
    assert allocation.num_gpus == 4 + sum(len(part.gpus) for grown in allocation.expansions for part in grown.gpus)
    assert allocation.num_gpus > 4
    assert all(grown.benefit >= 4 / 8 for grown in allocation.expansions)


def test_a_job_that_has_grown_gives_way_to_a_basic_demand() -> None:
    """a has all eight GPUs of the node, four by expansions; b needs four: a keeps its basic demand."""
    before = cluster_of(job("a", dp=4), num_nodes=1)
    grown = posted_back(before, planned(before, BOLD)[2])
    assert sum(len(part.gpus) for part in grown.jobs[0].current or ()) == 8
    _, _, plan = planned(Snapshot(cluster=grown.cluster, jobs=(*grown.jobs, job("b", dp=4))), BOLD)
    assert {item.job_id: (item.change, item.num_gpus) for item in plan.allocations} == {
        "a": (Change.RESCALED, 4),
        "b": (Change.STARTED, 4),
    }
    assert plan.allocations[0].expansions == ()


def test_without_degrees_the_grid_planner_finds_a_plan() -> None:
    waiting = job("a", min_gpus=4, parallelism=None, max_gpus=4)
    _, _, plan = planned(cluster_of(waiting, num_nodes=1))
    assert plan.allocations[0].num_gpus == 4
    assert plan.allocations[0].expected_goodput is not None


def test_a_running_job_without_a_plan_gets_one_on_its_gpus() -> None:
    running = job("a", dp=2, current=(gpus("n0000", 3, 5),), max_gpus=2)
    _, _, plan = planned(cluster_of(running))
    (allocation,) = plan.allocations
    assert allocation.change is Change.KEPT
    assert allocation.parallel_plan is not None
    assert set(allocation.parallel_plan.gpus) == {("n0000", 3), ("n0000", 5)}


def test_a_bound_over_what_was_met_changes_no_plan() -> None:
    for snapshot, plan in events(0, 4):
        whole, met = planned(snapshot)[1], planned(snapshot, SuikaParameters(offers=Offers.MET))
        assert met[2] == plan
        assert met[1].objective == whole.objective
        assert met[0].problem.num_columns <= planned(snapshot)[0].problem.num_columns
        assert met[1].bound is not None
        assert whole.bound is not None
        assert met[1].objective is not None
        assert met[1].objective <= met[1].bound <= whole.bound * (1 + 1e-9)


def test_heuristic_program_and_bound_are_in_order() -> None:
    for snapshot, _ in events(0, 6):
        heuristic = planned(snapshot)[1]
        exact = planned(snapshot, ILP)[1]
        assert heuristic.objective is not None
        assert exact.objective is not None
        assert exact.bound is not None
        assert heuristic.bound == pytest.approx(exact.bound, rel=1e-6)
        assert heuristic.objective <= exact.objective * (1 + 1e-9)
        assert exact.objective <= exact.bound * (1 + 1e-9)
        assert exact.termination is TerminationReason.OPTIMAL


def test_a_plan_that_is_posted_back_changes_nothing() -> None:
    for snapshot, plan in events(1, 5, load=1.2):
        _, _, again = planned(posted_back(snapshot, plan))
        assert [item.job_id for item in again.unplaced] == [item.job_id for item in plan.unplaced]
        assert list(again.allocations) == [replace(item, change=Change.KEPT) for item in plan.allocations]


def test_other_names_in_the_same_order_change_nothing() -> None:
    for snapshot, _ in events(5, 3):
        renamed = Snapshot(
            cluster=_renamed_cluster(snapshot.cluster), jobs=tuple(_renamed_job(item) for item in snapshot.jobs)
        )
        plan, other = planned(snapshot)[2], planned(renamed)[2]
        assert [_renamed_gpus(item.gpus) for item in plan.allocations] == [item.gpus for item in other.allocations]
        assert [item.expected_goodput for item in plan.allocations] == [
            item.expected_goodput for item in other.allocations
        ]


def _renamed_cluster(cluster: Cluster) -> Cluster:
    def renamed(node: Node) -> Node:
        return replace(node, id=f"host-{node.id}", path=tuple(f"rack-{unit}" for unit in node.path))

    return replace(cluster, nodes=tuple(renamed(node) for node in cluster.nodes))


def _renamed_gpus(parts: tuple[NodeGpus, ...]) -> tuple[NodeGpus, ...]:
    return tuple(replace(part, node=f"host-{part.node}") for part in parts)


def _renamed_plan(plan: ParallelPlan) -> ParallelPlan:
    stages = [
        replace(stage, replicas=tuple(replace(replica, node=f"host-{replica.node}") for replica in stage.replicas))
        for stage in plan.stages
    ]
    return replace(plan, stages=tuple(stages))


def _renamed_job(item: Job) -> Job:
    return replace(
        item,
        current=None if item.current is None else _renamed_gpus(item.current),
        parallel_plan=None if item.parallel_plan is None else _renamed_plan(item.parallel_plan),
        expansions=tuple(Expansion(gpus=_renamed_gpus(grown.gpus), benefit=grown.benefit) for grown in item.expansions),
    )


def test_a_job_that_fits_nowhere_says_how_much_memory_it_needs() -> None:
    big = job("big", transformer=model("gpt2-175b"), dp=1, tp=8)
    for waiting in (big, replace(big, parallelism=None)):
        _, _, plan = planned(cluster_of(waiting))
        (left,) = plan.unplaced
        assert left.reason == "out_of_memory"
        assert left.counts["needed_bytes"] > left.counts["usable_bytes"] > 70e9


def test_other_reasons_to_wait() -> None:
    jobs = (
        job("runs", dp=8, max_gpus=8, current=(gpus("n0000", *range(8)),)),
        job("tall", tp=5),
        job("deep", pp=25),
        job("uneven", dp=3, transformer=replace(model(), micro_batch=1)),
        job("large", dp=16),
        job("typed", gpu_types=()),
    )
    _, _, plan = planned(cluster_of(*jobs))
    assert {left.job_id: left.reason for left in plan.unplaced} == {
        "tall": "illegal_degrees",
        "deep": "illegal_degrees",
        "uneven": "batch",
        "large": "capacity",
        "typed": "gpu_type",
    }
    large = next(left for left in plan.unplaced if left.job_id == "large")
    assert large.remedy == "8 more GPUs of type h100"
    assert large.counts["free_gpus.h100"] == 8
    assert large.detail == (
        "it needs 16 GPUs of type h100, of which 8 are free; 8 serve the basic demands of 1 other job"
    )


def test_a_cluster_that_is_too_small_is_not_blamed_on_other_jobs() -> None:
    _, _, plan = planned(cluster_of(job("large", dp=32)))
    (left,) = plan.unplaced
    assert (left.reason, left.remedy) == ("capacity", "16 more GPUs of type h100")
    assert left.detail == "it needs 32 GPUs of type h100, of which 16 are free"


def test_fragments_of_jobs_that_may_not_move_are_named() -> None:
    halves = [
        job(f"half{k}", dp=4, max_gpus=4, preemptible=False, current=(gpus(f"n000{k}", 0, 1, 2, 3),)) for k in range(2)
    ]
    _, _, plan = planned(cluster_of(*halves, job("wide", tp=8)))
    assert [left.reason for left in plan.unplaced] == ["fragmentation"]


def test_a_running_plan_that_the_model_calls_too_large_is_left_alone_with_a_warning() -> None:
    """It runs, so that the model must be wrong: nothing is planned upon it."""
    small = job("a", max_gpus=1, current=(gpus("n0000", 0),))
    plan = planned(cluster_of(small))[2].allocations[0].parallel_plan
    assert plan is not None
    large = replace(model("llama2-13b"), num_layers=24, checkpointing=Checkpointing.NONE)
    running = replace(small, transformer=large, current=node_gpus(plan.gpus), parallel_plan=plan)
    formulation, _, after = planned(cluster_of(running))
    assert [issue.code for issue in formulation.warnings] == ["plan_not_understood"]
    assert after.allocations[0].parallel_plan == plan


def test_jobs_that_keep_their_gpus_count_in_the_intensity_but_not_in_the_objective() -> None:
    jobs = (job("a", dp=4, max_gpus=4), job("b", dp=4, preemptible=False, current=(gpus("n0000", 0, 1, 2, 3),)))
    formulation, result, plan = planned(cluster_of(*jobs))
    assert formulation.decision.tau == pytest.approx(8 / 16)
    assert result.objective == pytest.approx(4.0)
    assert {item.job_id: item.change for item in plan.allocations} == {"a": Change.STARTED, "b": Change.KEPT}


def test_no_time_still_gives_the_plan_of_algorithm_2_and_a_bound() -> None:
    snapshot = cluster_of(job("a", dp=2), job("b", dp=2))
    formulation = formulate_suika(snapshot, SuikaParameters(), PhaseClock())
    monitor = SolveMonitor()
    monitor.canceled.set()
    for method in (formulation, formulate_suika(snapshot, ILP, PhaseClock())):
        result = method.solve(OPTIONS, monitor)
        assert result.objective is not None
        assert result.bound is not None
        assert result.objective <= result.bound <= formulation.program.simple_bound + 1e-9


def test_an_empty_cluster_has_an_empty_plan() -> None:
    _, result, plan = planned(Snapshot(cluster=rack_cluster(1), jobs=()))
    assert plan == Plan(allocations=(), unplaced=(), score=())
    assert result.objective == 0.0


@pytest.mark.parametrize("solver", ["highs", "scip", "auto"])
def test_every_solver_gives_the_same_bound(solver: str) -> None:
    snapshot = cluster_of(job("a", dp=2), job("b", dp=4), job("c", tp=2))
    formulation = formulate_suika(snapshot, ILP, PhaseClock())
    result = formulation.solve(SolveOptions(solver=solver, relative_gap=0.0, time_limit_s=20.0), SolveMonitor())
    assert result.objective == pytest.approx(formulation.solve(OPTIONS, SolveMonitor()).objective)


def test_jobs_stay_on_one_gpu_type_and_fast_gpus_count_more() -> None:
    """A node of H100 and one of A100: a must run on A100, b may choose and takes H100; each grows on its own node."""
    kinds = tuple(gpu_type_of(find_product(name), "bf16") for name in ("h100", "a100-80gb"))
    nodes = tuple(Node(id=f"n{k}", gpu_type=kind.name, num_gpus=8) for k, kind in enumerate(kinds))
    jobs = (job("a", dp=4, gpu_types=(kinds[1].name,)), job("b", dp=4))
    formulation, result, plan = planned(Snapshot(cluster=Cluster(gpu_types=kinds, nodes=nodes), jobs=jobs))
    assert [(item.job_id, item.gpu_type, {part.node for part in item.gpus}) for item in plan.allocations] == [
        ("a", kinds[1].name, {"n1"}),
        ("b", kinds[0].name, {"n0"}),
    ]
    slow = kinds[1].peak_flops_per_s / kinds[0].peak_flops_per_s
    assert formulation.decision.tau == pytest.approx(0.5)
    assert formulation.program.constant == pytest.approx(4 + 4 * slow)
    assert result.objective is not None
    assert result.objective > formulation.program.constant


def test_a_job_trains_on_as_it_began_when_it_grows_and_gives_way() -> None:
    """Without tensor parallelism a sequence of 131,072 tokens fits with full checkpointing only, on four GPUs, on eight
    and on four of them again."""
    long = replace(model(), sequence_length=131072)
    job_of = job("a", dp=4, transformer=long, choices=Choices(checkpointing=ALL_CHECKPOINTING))
    before = cluster_of(job_of, num_nodes=1)
    plan = planned(before, BOLD)[2]
    grown = posted_back(before, plan)
    (first,) = plan.allocations
    assert first.num_gpus == 8
    assert first.parallel_plan is not None
    training = first.parallel_plan.training
    assert training is not None
    assert training.checkpointing is Checkpointing.FULL
    _, _, shrunk = planned(Snapshot(cluster=grown.cluster, jobs=(*grown.jobs, job("b", dp=4))), BOLD)
    again = shrunk.allocations[0]
    assert again.num_gpus == 4
    assert again.parallel_plan is not None
    assert again.parallel_plan.training == training
