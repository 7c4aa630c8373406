from dataclasses import replace

import pytest

from executor.projection import project
from executor.rank_table import AsymmetricPlanError, Rank, hosts_of, rank_table, ranks_of
from executor.training_options import EngineName
from models.parallel_plan import ParallelPlan, Replica, Stage, symmetric_plan
from models.performance.iteration.coefficients import GpuCoefficients, JobCoefficients, SizeCoefficients
from models.performance.iteration.fabric import flat_fabric
from models.performance.iteration.model import PerformanceModel
from models.performance.iteration.profile import LayerCost, ModelProfile
from stowplan.errors import InputError
from topology.cluster import GpuType

GPU = GpuType(
    name="gpu",
    memory_bytes=1000,
    peak_flops_per_s=1.0,
    intra_node_bandwidth_bytes_per_s=100.0,
    inter_node_bandwidth_bytes_per_s=50.0,
)
SIZES = SizeCoefficients(
    activation_bytes=1.0,
    gradient_bytes=2.0,
    parameter_bytes=2.0,
    optimizer_bytes=12.0,
    partitioned_activation_bytes=1.0,
    replicated_activation_bytes=1.0,
)


def model(memory_bytes: float = 1000.0) -> PerformanceModel:
    layer = LayerCost(parameters=1.0, forward_flops=1.0, tensor_parallel_bytes=1.0)
    profile = ModelProfile(
        name="tiny",
        layers=(layer,) * 6,
        embedding=LayerCost(),
        head=LayerCost(),
        global_batch=12,
        micro_batch=None,
        zero_stage=1,
        flops_precision="bf16",
        parameter_bytes=2.0,
        gradient_bytes=2.0,
        optimizer_bytes=12.0,
        backward_ratio=2.0,
        tensor_units=(("attention heads", 4),),
    )
    of_type = GpuCoefficients(compute_s=1.0, backward_ratio=2.0, optimizer_s=0.1, overlap=1.0)
    return PerformanceModel(
        profile=profile,
        coefficients=JobCoefficients(gpus={"gpu": of_type}, sizes=SIZES),
        fabric=flat_fabric({"a": GPU, "b": GPU}),
        memory_bytes={"gpu": memory_bytes},
    )


def replica(node: str, gpus: tuple[int, ...], local_batch: int) -> Replica:
    return Replica(node=node, gpu_type="gpu", gpus=gpus, local_batch=local_batch)


# Fig. 3 of Suika: stage 0 has two replicas on node a, stage 1 three on node b.
FIG_3 = ParallelPlan(
    stages=(
        Stage(num_layers=2, replicas=(replica("a", (0, 1), 6), replica("a", (2, 3), 6))),
        Stage(num_layers=4, replicas=tuple(replica("b", (k, k + 1), 4) for k in (0, 2, 4))),
    ),
    num_micro_batches=1,
)


def test_ranks_go_pipe_data_tensor_on_the_gpus_of_the_plan() -> None:
    # Node b comes first, and uses GPUs 6 and 2: local ranks count the used GPUs by index.
    gpus = (("b", 6), ("b", 2), ("a", 0), ("a", 1))
    plan = symmetric_plan(
        num_layers=6, pp=2, dp=1, tp=2, global_batch=12, num_micro_batches=1, gpu_type="gpu", gpus=gpus
    )
    table = rank_table(plan)
    assert table[0] == Rank(rank=0, node="b", gpu=6, local_rank=1, pipe=0, data=0, tensor=0)
    assert [(r.node, r.gpu, r.local_rank, r.pipe, r.data, r.tensor) for r in table[1:]] == [
        ("b", 2, 0, 0, 0, 1),
        ("a", 0, 0, 1, 0, 0),
        ("a", 1, 1, 1, 0, 1),
    ]
    assert list(hosts_of(table)) == ["b", "a"]
    assert [r.rank for r in hosts_of(table)["b"]] == [1, 0]


def test_coordinates_match_the_stages_and_replicas() -> None:
    gpus = tuple((node, gpu) for node in ("a", "b") for gpu in range(4))
    plan = symmetric_plan(
        num_layers=6, pp=2, dp=2, tp=2, global_batch=12, num_micro_batches=3, gpu_type="gpu", gpus=gpus
    )
    for rank in rank_table(plan):
        group = plan.stages[rank.pipe].replicas[rank.data]
        assert (group.node, group.gpus[rank.tensor]) == (rank.node, rank.gpu)


def test_replicas_that_share_have_coordinates_and_are_refused() -> None:
    # Two stages of four replicas: two halves of two sequences, and a fourth of the experts each.
    gpus = tuple((node, gpu) for node in ("a", "b") for gpu in range(4))
    plan = symmetric_plan(
        num_layers=6, pp=2, dp=2, tp=1, cp=2, ep=4, global_batch=12, num_micro_batches=3, gpu_type="gpu", gpus=gpus
    )
    found = [(rank.pipe, rank.data, rank.context, rank.expert) for rank in ranks_of(plan)]
    assert found == [(pipe, k, k % 2, k) for pipe in (0, 1) for k in range(4)]
    with pytest.raises(InputError, match=r"PP2 DP2 TP1 CP2 EP4 .* cannot be deployed") as caught:
        rank_table(plan)
    assert [(issue.code, issue.pointer) for issue in caught.value.issues] == [
        ("not_in_software", "/context_parallel"),
        ("not_in_software", "/expert_parallel"),
    ]
    with pytest.raises(InputError, match="cannot be deployed") as caught:
        rank_table(plan, EngineName.NATIVE)
    assert [issue.pointer for issue in caught.value.issues] == ["/context_parallel"]
    table = rank_table(replace(plan, context_parallel=1), EngineName.NATIVE)
    assert [rank.expert for rank in table] == [0, 1, 2, 3] * 2


def test_asymmetric_plans_are_refused_stage_by_stage() -> None:
    with pytest.raises(AsymmetricPlanError, match="with --project, or project in the request") as caught:
        rank_table(FIG_3)
    assert [(issue.code, issue.pointer) for issue in caught.value.issues] == [("asymmetric_stage", "/stages/1")]


def test_the_native_engine_runs_them_with_ranks_that_follow_the_stages() -> None:
    table = rank_table(FIG_3, EngineName.NATIVE)
    assert [(r.pipe, r.data, r.tensor) for r in table[:5]] == [(0, 0, 0), (0, 0, 1), (0, 1, 0), (0, 1, 1), (1, 0, 0)]
    assert [(r.rank, r.node, r.gpu, r.local_rank) for r in table[-2:]] == [(8, "b", 4, 4), (9, "b", 5, 5)]


def test_uneven_batches_are_refused() -> None:
    plan = ParallelPlan(
        stages=(Stage(num_layers=6, replicas=(replica("a", (0,), 7), replica("a", (1,), 5))),), num_micro_batches=1
    )
    with pytest.raises(AsymmetricPlanError) as caught:
        rank_table(plan)
    assert [issue.code for issue in caught.value.issues] == ["uneven_batches"]


def test_the_projection_is_the_fastest_symmetric_plan_on_these_gpus() -> None:
    result = project(FIG_3, model())
    assert result.plan.is_symmetric
    assert set(result.plan.gpus) <= set(FIG_3.gpus)
    assert result.plan.global_batch == FIG_3.global_batch
    assert result.after_s == pytest.approx(model().iteration(result.plan).total_s)
    assert result.loss == pytest.approx(1 - result.before_s / result.after_s)
    assert rank_table(result.plan)


def test_a_symmetric_plan_is_its_own_projection() -> None:
    gpus = (("a", 0), ("a", 1))
    plan = symmetric_plan(
        num_layers=6, pp=2, dp=1, tp=1, global_batch=12, num_micro_batches=4, gpu_type="gpu", gpus=gpus
    )
    assert project(plan, model()).plan is plan
    assert project(plan, model()).loss == 0


def test_no_projection_where_nothing_fits() -> None:
    with pytest.raises(InputError, match="no symmetric plan"):
        project(FIG_3, model(memory_bytes=1.0))
