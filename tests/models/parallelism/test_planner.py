"""From a request for one job to plans on its GPUs: search, binding to nodes, estimates there, clear refusals."""

from dataclasses import replace

import pytest

from models.parallel_plan import symmetric_plan
from models.parallelism.grid.options import GridOptions
from models.parallelism.offers import exact_offers, fewest_nodes, free_gpus, offers_of
from models.parallelism.planner import answer
from models.parallelism.request import Degrees, MeasuredPlan, Offer, ParallelRequest, Planner
from models.parallelism.training import ALL_CHECKPOINTING, Choices, Training
from models.performance.iteration.modelling import performance_model
from models.transformer import Checkpointing, Transformer
from models.workload import NodeGpus
from solver.ticket import DeadlineError
from stowplan.errors import InputError, Severity
from topology.cluster import Cluster, GpuType, Node, NodeState, Tier

KIND = GpuType(
    name="gpu",
    memory_bytes=40 * 10**9,
    peak_flops_per_s=312e12,
    intra_node_bandwidth_bytes_per_s=300e9,
    inter_node_bandwidth_bytes_per_s=25e9,
)
# 1.3 billion parameters: 18 bytes each of weights, gradients and optimiser states, and activations.
GPT = Transformer(
    num_layers=24, hidden_size=2048, num_heads=16, vocabulary_size=51200, sequence_length=1024, global_batch=32
)
# Two leaves of two nodes with four GPUs; a link between leaves has a tenth of the bandwidth.
CLUSTER = Cluster(
    gpu_types=(KIND,),
    nodes=tuple(Node(id=f"n{k}", gpu_type="gpu", num_gpus=4, path=(f"leaf{k // 2}",)) for k in range(4)),
    tiers=(Tier(name="leaf", bandwidth_fraction=1.0),),
    core_bandwidth_fraction=0.1,
)
REQUEST = ParallelRequest(model=GPT, offers=(Offer(gpu_type=KIND, gpus_per_node=4, counts=(1, 4, 8)),))
DEGREES = Degrees(pp=2, dp=2, tp=2, num_micro_batches=8)


def refusal(request: ParallelRequest) -> list[tuple[str, str]]:
    with pytest.raises(InputError) as caught:
        answer(request)
    return [(issue.code, issue.pointer) for issue in caught.value.issues]


def test_every_count_has_its_best_plan_and_its_breakdown() -> None:
    found = answer(REQUEST)
    assert [point.num_gpus for point in found.points] == [1, 4, 8]
    assert found.best.num_gpus == 8
    assert found.missing == ()
    for point in found.points:
        assert point.estimate.plan.num_gpus == point.num_gpus
        assert point.breakdown.total_s == pytest.approx(point.estimate.iteration.total_s)
        assert all(
            memory.total_bytes <= usable
            for memory, usable in zip(point.estimate.memory, point.usable_bytes, strict=True)
        )
    assert {grid.num_gpus for grid in found.grids} == {1, 4, 8}


def test_a_measured_time_takes_the_place_of_the_predicted_one() -> None:
    slow = MeasuredPlan(gpu_type="gpu", pp=1, dp=1, tp=1, iteration_s=1000.0)
    point = answer(replace(REQUEST, measured=(slow,))).points[0]
    assert point.estimate.measured
    assert point.estimate.iteration.total_s == 1000.0
    assert point.breakdown.total_s < 1000.0


@pytest.mark.parametrize("planner", [Planner.GRID, Planner.EXHAUSTIVE])
def test_what_is_found_before_the_time_is_over_is_answered(planner: Planner) -> None:
    other = replace(KIND, name="other")
    offers = (Offer(gpu_type=KIND, gpus_per_node=4, counts=(4, 8)), Offer(gpu_type=other, gpus_per_node=4, counts=(4,)))
    request = replace(REQUEST, planner=planner, offers=offers, model=replace(GPT, num_layers=4))
    found = answer(request, over=lambda: True)
    assert [(point.gpu_type, point.num_gpus) for point in found.points] == [("gpu", 4)]
    assert [(missing.gpu_type, missing.num_gpus) for missing in found.missing] == [("gpu", 8), ("other", 4)]
    for missing in found.missing:
        assert [rejection.reason for rejection in missing.rejections] == ["time"]
        assert "not looked at before the time was over" in missing.rejections[0].detail
    nothing = replace(request, model=replace(GPT, hidden_size=2**17))
    with pytest.raises(DeadlineError, match="before the time was over"):
        answer(nothing, over=lambda: True)


def test_what_does_not_fit_is_told_with_its_memory() -> None:
    small = replace(KIND, memory_bytes=10 * 10**9)
    found = answer(replace(REQUEST, offers=(Offer(gpu_type=small, gpus_per_node=4, counts=(1, 8)),)))
    assert [point.num_gpus for point in found.points] == [8]
    (missing,) = found.missing
    assert (missing.num_gpus, missing.rejections[0].reason) == (1, "out_of_memory")
    with pytest.raises(InputError) as caught:
        answer(replace(REQUEST, offers=(Offer(gpu_type=small, gpus_per_node=4, counts=(1,)),)))
    (issue,) = caught.value.issues
    assert (issue.code, issue.pointer) == ("out_of_memory", "/offers/0")
    assert "needs at least 2" in issue.detail
    assert "9.0 GB are usable" in issue.detail


def test_exhaustive_is_at_least_as_good_as_the_grid() -> None:
    offers = (Offer(gpu_type=KIND, gpus_per_node=4, counts=(4,)),)
    options = GridOptions(num_operators=6)
    grid = answer(replace(REQUEST, offers=offers, grid=options))
    best = answer(replace(REQUEST, offers=offers, grid=options, planner=Planner.EXHAUSTIVE))
    assert best.best.estimate.throughput >= grid.best.estimate.throughput * (1 - 1e-9)


def test_too_many_plans_to_compare_all_of_them() -> None:
    offers = (Offer(gpu_type=KIND, gpus_per_node=4, counts=(64,)),)
    assert refusal(replace(REQUEST, offers=offers, planner=Planner.EXHAUSTIVE)) == [("too_many_plans", "/offers/0")]


def test_exhaustive_explains_by_the_grids() -> None:
    small = replace(KIND, memory_bytes=10 * 10**9)
    offers = (Offer(gpu_type=small, gpus_per_node=4, counts=(1,)),)
    assert refusal(replace(REQUEST, offers=offers, planner=Planner.EXHAUSTIVE)) == [("out_of_memory", "/offers/0")]


def test_given_degrees() -> None:
    point = answer(replace(REQUEST, planner=Planner.GIVEN, degrees=DEGREES)).best
    assert point.estimate.plan.notation() == "PP2 DP2 TP2 (12+12 layers, 8 x 4)"


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"pp": 25, "dp": 1, "tp": 1}, [("layers", "/degrees/pp")]),
        ({"layers": (12, 11)}, [("layers", "/degrees/layers")]),
        ({"tp": 3}, [("tensor_degree", "/degrees/tp")]),
        ({"tp": 8, "dp": 1}, [("tensor_degree", "/degrees/tp")]),
        ({"num_micro_batches": 5}, [("batch_not_divisible", "/degrees/num_micro_batches")]),
    ],
)
def test_degrees_that_do_not_fit(changes: dict[str, int], expected: list[tuple[str, str]]) -> None:
    degrees = replace(DEGREES, **changes)  # type: ignore[arg-type]
    offers = (Offer(gpu_type=KIND, gpus_per_node=4, counts=(degrees.num_gpus,)),)
    found = refusal(replace(REQUEST, offers=offers, planner=Planner.GIVEN, degrees=degrees))
    assert found == expected


def test_a_given_plan_is_evaluated_whatever_its_memory() -> None:
    degrees = Degrees(pp=1, dp=1, tp=1, num_micro_batches=1)
    offers = (Offer(gpu_type=KIND, gpus_per_node=4, counts=(1,)),)
    found = answer(replace(REQUEST, offers=offers, planner=Planner.GIVEN, degrees=degrees))
    assert not found.best.fits
    needed, usable = found.best.fullest
    assert usable == 36e9 < needed
    assert found.best.estimate.iteration.total_s > 0.0
    assert [(issue.code, issue.pointer, issue.severity) for issue in found.warnings] == [
        ("out_of_memory", "/degrees", Severity.WARNING)
    ]


def test_of_ways_to_train_given_degrees_the_one_that_fits_is_taken() -> None:
    """16 sequences at once fit with full checkpointing only, which takes longer."""
    degrees = Degrees(pp=1, dp=1, tp=1, num_micro_batches=2)
    offers = (Offer(gpu_type=KIND, gpus_per_node=4, counts=(1,)),)
    choices = Choices(checkpointing=ALL_CHECKPOINTING)
    found = answer(replace(REQUEST, offers=offers, planner=Planner.GIVEN, degrees=degrees, choices=choices))
    assert found.best.fits
    assert Training.of(found.best.model).checkpointing is Checkpointing.FULL
    assert found.warnings == ()


def test_what_would_make_it_fit_is_tried() -> None:
    """1.3 billion parameters of 18 bytes do not fit on one GPU of 10 GB; states over four do, and so do four GPUs."""
    small = replace(KIND, memory_bytes=10 * 10**9)
    with pytest.raises(InputError) as caught:
        answer(replace(REQUEST, offers=(Offer(gpu_type=small, gpus_per_node=4, counts=(1,)),)))
    (issue,) = caught.value.issues
    told = issue.detail.partition("; it would fit ")[2]
    assert told.startswith("on 4 GPUs (PP")
    four = answer(replace(REQUEST, offers=(Offer(gpu_type=small, gpus_per_node=4, counts=(4,)),)))
    assert four.best.estimate.plan.notation() in told
    huge = replace(GPT, sequence_length=16384, global_batch=4)
    with pytest.raises(InputError) as caught:
        answer(replace(REQUEST, model=huge, offers=(Offer(gpu_type=KIND, gpus_per_node=4, counts=(1,)),)))
    assert "it would fit with full checkpointing (PP1 DP1 TP1" in caught.value.issues[0].detail


def test_degrees_with_zero_and_too_few_nodes() -> None:
    request = replace(REQUEST, model=replace(GPT, zero_stage=3), planner=Planner.GIVEN, degrees=DEGREES)
    assert refusal(request) == [("zero_with_pipeline", "/degrees/pp")]
    offers = (Offer(gpu_type=KIND, gpus_per_node=4, counts=(8,), nodes=(NodeGpus(node="n0", gpus=(0, 1, 2, 3)),)),)
    request = replace(REQUEST, offers=offers, cluster=CLUSTER, planner=Planner.GIVEN, degrees=DEGREES)
    assert refusal(request) == [("nodes", "/offers/0")]


def test_plans_on_a_cluster_are_estimated_where_they_are() -> None:
    """Eight GPUs of one leaf, and eight over two leaves, whose link is slow."""
    request = replace(
        REQUEST, cluster=CLUSTER, planner=Planner.GIVEN, degrees=replace(DEGREES, pp=1, dp=8, tp=1, num_micro_batches=4)
    )
    near, far = (
        answer(replace(request, offers=exact_offers(CLUSTER, [NodeGpus(node=n, gpus=(0, 1, 2, 3)) for n in nodes])))
        for nodes in (("n0", "n1"), ("n1", "n2"))
    )
    assert {node for node, _ in near.best.estimate.plan.gpus} == {"n0", "n1"}
    assert {node for node, _ in far.best.estimate.plan.gpus} == {"n1", "n2"}
    assert far.best.estimate.throughput < near.best.estimate.throughput
    model = performance_model(GPT, CLUSTER)
    assert near.best.estimate.throughput == pytest.approx(model.throughput(near.best.estimate.plan))


def test_the_best_plan_sits_on_the_nodes_that_are_offered() -> None:
    gpus = tuple(NodeGpus(node=name, gpus=(1, 2, 3)) for name in ("n1", "n3"))
    found = answer(replace(REQUEST, cluster=CLUSTER, offers=exact_offers(CLUSTER, gpus)))
    assert set(found.best.estimate.plan.gpus) == {(part.node, gpu) for part in gpus for gpu in part.gpus}


def test_counts_without_nodes_are_missing() -> None:
    cluster = replace(
        CLUSTER, nodes=tuple(replace(node, gpus_in_use=(0,)) if node.id != "n0" else node for node in CLUSTER.nodes)
    )
    (offer,) = offers_of(cluster, free_gpus(cluster), {"gpu": (4, 8)})
    found = answer(replace(REQUEST, cluster=cluster, offers=(offer,)))
    assert [point.num_gpus for point in found.points] == [4]
    assert [(m.num_gpus, [r.reason for r in m.rejections]) for m in found.missing] == [(8, ["nodes"])]


def test_a_running_job_grows() -> None:
    running = symmetric_plan(
        num_layers=24,
        pp=2,
        dp=1,
        tp=2,
        global_batch=32,
        num_micro_batches=8,
        gpu_type="gpu",
        gpus=tuple(("n0", gpu) for gpu in range(4)),
    )
    request = ParallelRequest(
        model=GPT,
        planner=Planner.INCREMENTAL,
        cluster=CLUSTER,
        running=running,
        released=tuple(("n1", gpu) for gpu in range(4)),
    )
    found = answer(request)
    assert found.points[0].estimate.plan == running
    assert found.points[-1].num_gpus == 8
    throughputs = [point.estimate.throughput for point in found.points]
    assert throughputs == sorted(throughputs)
    assert found.best.estimate.throughput > 1.5 * found.points[0].estimate.throughput
    wrong = replace(request, model=replace(GPT, num_layers=25))
    assert ("layers", "/running/stages") in refusal(wrong)


def test_which_nodes_are_free() -> None:
    nodes = (
        replace(CLUSTER.nodes[0], gpus_in_use=(1,)),
        replace(CLUSTER.nodes[1], gpus_in_use=(0, 1, 2, 3)),
        replace(CLUSTER.nodes[2], state=NodeState.DRAINED),
        CLUSTER.nodes[3],
    )
    cluster = replace(CLUSTER, nodes=nodes)
    free = (NodeGpus(node="n0", gpus=(0, 2, 3)), NodeGpus(node="n3", gpus=(0, 1, 2, 3)))
    assert free_gpus(cluster) == free
    (offer,) = offers_of(cluster, free)
    # Seven: four of n3 and three of n0.
    assert (offer.gpus_per_node, offer.counts) == (4, (1, 2, 4, 7))
    assert fewest_nodes(free, 1, 4) == (NodeGpus(node="n0", gpus=(0,)),)
    assert fewest_nodes(free, 8, 4) is None


@pytest.mark.parametrize(
    ("gpus", "code"),
    [
        ((NodeGpus(node="n0", gpus=(0, 0)),), "bad_gpu_list"),
        ((NodeGpus(node="n0", gpus=(4,)),), "gpu_not_free"),
        ((NodeGpus(node="x", gpus=(0,)),), "gpu_not_free"),
    ],
)
def test_gpus_that_cannot_be_used(gpus: tuple[NodeGpus, ...], code: str) -> None:
    with pytest.raises(InputError) as caught:
        exact_offers(CLUSTER, gpus)
    assert [issue.code for issue in caught.value.issues] == [code]


def test_nodes_that_give_uneven_numbers() -> None:
    gpus = (NodeGpus(node="n0", gpus=(0, 1, 2)), NodeGpus(node="n1", gpus=(0,)), NodeGpus(node="n2", gpus=(0,)))
    with pytest.raises(InputError, match=r"give \[3, 1, 1\] GPUs; give equally many"):
        exact_offers(CLUSTER, gpus)
