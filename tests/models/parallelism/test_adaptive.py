from dataclasses import replace

import pytest

from models.parallelism.adaptive import adaptive_plans, forget_plans
from models.parallelism.binding import bind_plan
from models.parallelism.grid.options import GridOptions
from models.parallelism.grid.planner import plan_grids
from models.parallelism.legality import plan_violations
from models.parallelism.planner import answer
from models.parallelism.request import Offer, ParallelRequest
from models.parallelism.results import RejectionReason
from models.parallelism.training import ALL_CHECKPOINTING, ALL_ZERO_STAGES, Choices, trained
from models.performance.iteration.adjustment import Adjustment
from models.performance.iteration.coefficients import Calibration, GpuCoefficients
from models.performance.iteration.modelling import virtual_model
from models.software import Software
from models.workload import NodeGpus
from stowplan.errors import InputError
from tests.models.parallelism.grid.test_planner import A100, GPT
from topology.cluster import Cluster, Node, NodeState

V100 = replace(A100, name="v100", memory_bytes=32 * 10**9, peak_flops_per_s=125e12)
CLUSTER = Cluster(
    gpu_types=(A100, V100),
    nodes=(
        Node(id="a0", gpu_type="a100", num_gpus=4),
        Node(id="a1", gpu_type="a100", num_gpus=4),
        Node(id="a2", gpu_type="a100", num_gpus=2),
        Node(id="v0", gpu_type="v100", num_gpus=2),
        Node(id="v1", gpu_type="v100", num_gpus=16, state=NodeState.DOWN),
    ),
)
COUNTS = {"a100": (1, 8), "v100": (2,)}


def test_best_plans_by_type_and_count() -> None:
    found = adaptive_plans(GPT, CLUSTER, COUNTS)
    assert set(found.best) == {("a100", 1), ("a100", 8), ("v100", 2)}
    # Nodes of 4, the largest that are not down; a plan for 8 sits on two of them.
    wanted = plan_grids(GPT, A100, 4, [8]).best["a100", 8]
    assert found.best["a100", 8].throughput == pytest.approx(wanted.throughput)
    bound = bind_plan(found.best["a100", 8].plan, [NodeGpus(node=name, gpus=(0, 1, 2, 3)) for name in ("a0", "a1")])
    assert {node for node, _ in bound.gpus} == {"a0", "a1"}
    assert {replica.gpu_type for stage in bound.stages for replica in stage.replicas} == {"a100"}


def test_counts_are_planned_for_with_their_share_of_the_bandwidth() -> None:
    """As on a type with that much; those of one node are what they were."""
    found = adaptive_plans(GPT, CLUSTER, COUNTS, fractions={("a100", 8): 0.01})
    slow = replace(A100, inter_node_bandwidth_bytes_per_s=0.01 * A100.inter_node_bandwidth_bytes_per_s)
    wanted = plan_grids(GPT, slow, 4, [8], GridOptions(details=False)).best["a100", 8]
    assert found.best["a100", 8].throughput == wanted.throughput
    full = adaptive_plans(GPT, CLUSTER, COUNTS)
    assert found.best["a100", 8].throughput <= full.best["a100", 8].throughput
    assert found.best["a100", 1].throughput == full.best["a100", 1].throughput
    assert found.best["v100", 2] is full.best["v100", 2]


def test_results_are_remembered_by_what_matters() -> None:
    forget_plans()
    first = adaptive_plans(GPT, CLUSTER, COUNTS)
    more_nodes = replace(CLUSTER, nodes=(*CLUSTER.nodes, Node(id="a3", gpu_type="a100", num_gpus=4)))
    again = adaptive_plans(GPT, more_nodes, {"a100": (8, 1)})
    assert again.best["a100", 8] is first.best["a100", 8]
    coefficients = GpuCoefficients(compute_s=1.0, backward_ratio=2.0, optimizer_s=0.0, overlap=1.0)
    slow = Calibration(gpus={"a100": coefficients}, measured_at_s=1.0)
    measured = adaptive_plans(GPT, CLUSTER, {"a100": (1,)}, slow)
    # 8 mean layers, 32 sequences, forward and backward together 3 s each, and more where kernels are small.
    plan = measured.best["a100", 1].plan
    assert measured.best["a100", 1].throughput == virtual_model(GPT, A100, 4, 1, slow).throughput(plan)
    assert measured.best["a100", 1].throughput < 32 / (8 * 3 * 32)
    later = replace(slow, measured_at_s=2.0)
    assert adaptive_plans(GPT, CLUSTER, {"a100": (1,)}, later).best == measured.best


def test_counts_without_a_plan_say_why() -> None:
    large = replace(GPT, hidden_size=16384, num_heads=128)
    found = adaptive_plans(large, CLUSTER, {"v100": (2,)})
    assert found.best == {}
    reasons = {rejection.reason for grid in found.grids for rejection in grid.rejections}
    assert reasons == {RejectionReason.OUT_OF_MEMORY}
    needed = [rejection.needed_bytes for grid in found.grids for rejection in grid.rejections]
    assert all(bytes_ is not None and bytes_ > 32e9 for bytes_ in needed)


def test_types_without_nodes_are_refused() -> None:
    with pytest.raises(InputError, match=r"no GPUs of type \['h100'\]"):
        adaptive_plans(GPT, CLUSTER, {"h100": (1,)})
    with pytest.raises(InputError, match="none below 1"):
        adaptive_plans(GPT, CLUSTER, {"a100": (0, 1)})
    assert adaptive_plans(GPT, CLUSTER, {"a100": ()}).best == {}


@pytest.mark.parametrize("software", [Software.DEEPSPEED, Software.TORCH])
def test_what_is_open_is_chosen_as_planners_of_one_job_choose_it(software: Software) -> None:
    """A sequence of 4,096 tokens keeps more than small GPUs have room for."""
    model = replace(GPT, software=software, sequence_length=4096)
    small = replace(A100, memory_bytes=10 * 10**9)
    cluster = replace(CLUSTER, gpu_types=(small, V100))
    choices = Choices(checkpointing=ALL_CHECKPOINTING, zero_stages=ALL_ZERO_STAGES)
    found = adaptive_plans(model, cluster, {"a100": (4, 8)}, choices=choices).best
    request = ParallelRequest(
        model=model, choices=choices, offers=(Offer(gpu_type=small, gpus_per_node=4, counts=(8,)),)
    )
    wanted = answer(request).best
    plan = found["a100", 8].plan
    assert plan.training is not None
    assert choices.admits(model, plan.training)
    assert found["a100", 8].iteration.total_s == pytest.approx(wanted.seconds)
    assert trained(model, plan.training) == wanted.model
    assert (plan.virtual_stages > 1) == (wanted.estimate.plan.virtual_stages > 1)
    fixed = [adaptive_plans(way, cluster, {"a100": (8,)}).best for way in choices.models(model)]
    assert found["a100", 8].throughput == max(best["a100", 8].throughput for best in fixed if best)


def test_pipelines_are_interleaved_where_that_is_faster() -> None:
    deep = replace(GPT, num_layers=16, hidden_size=8192, num_heads=64, global_batch=8, software=Software.MEGATRON_CORE)
    found = adaptive_plans(deep, CLUSTER, {"a100": (8,)}).best["a100", 8]
    plain = plan_grids(deep, A100, 4, [8], GridOptions(details=False)).best["a100", 8]
    assert found.plan.virtual_stages > 1
    assert found.throughput > plain.throughput
    assert found.plan.training is None


def test_policies_stay_with_1f1b_where_planners_of_one_job_do_not() -> None:
    deep = replace(GPT, num_layers=16, hidden_size=8192, num_heads=64, global_batch=8, software=Software.TORCH_EAGER)
    offer = Offer(gpu_type=A100, gpus_per_node=4, counts=(8,))
    assert answer(ParallelRequest(model=deep, offers=(offer,))).best.estimate.plan.schedule.splits_backward
    assert not adaptive_plans(deep, CLUSTER, {"a100": (8,)}).best["a100", 8].plan.schedule.splits_backward


def test_replicas_share_long_sequences_and_experts_where_that_is_faster() -> None:
    """One sequence on one head is divided by nothing else; nor are the experts of one layer, 69 GB with their states on
    GPUs of 40 GB."""
    able = replace(GPT, num_layers=1, num_heads=1, software=Software.MEGATRON_CORE)
    long = replace(able, sequence_length=65536, global_batch=1)
    experts = replace(able, num_experts=512, feed_forward_size=16384, zero_stage=0)
    for model, name in ((long, "context_parallel"), (experts, "expert_parallel")):
        found = adaptive_plans(model, CLUSTER, {"a100": (4,)}).best["a100", 4]
        assert getattr(found.plan, name) > 1
        assert plan_violations(found.plan, virtual_model(model, A100, 4, 1)) == []


def test_factors_of_a_calibration_count() -> None:
    twice = Calibration(adjustment=Adjustment(computation=2.0))
    slow = adaptive_plans(GPT, CLUSTER, {"a100": (1,)}, twice).best["a100", 1]
    assert slow.throughput == virtual_model(GPT, A100, 4, 1, twice).throughput(slow.plan)
    assert slow.throughput < adaptive_plans(GPT, CLUSTER, {"a100": (1,)}).best["a100", 1].throughput
