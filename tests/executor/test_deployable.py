"""Whether a plan can be deployed, and the plan that is: symmetric, on GPUs that are there, within their memory."""

from dataclasses import replace

import pytest

from executor.deployable import Candidate, assumed_cluster, deployable_plan, refuse_model, usable_gpus
from executor.rank_table import AsymmetricPlanError
from executor.training_options import EngineName
from models.parallel_plan import ParallelPlan, Replica, Stage, symmetric_plan
from models.pipeline_schedule import PipelineSchedule
from models.software import Software
from models.transformer import Biases, Checkpointing, Precision
from stowplan.errors import InputError
from tests.executor.jobs import GPT
from topology.cluster import Cluster, Node, NodeState
from topology.gpu_catalogue import find_product, gpu_type_of

H100 = replace(gpu_type_of(find_product("h100"), "fp32"), name="h100")
CLUSTER = Cluster(gpu_types=(H100,), nodes=tuple(Node(id=name, gpu_type="h100", num_gpus=4) for name in "ab"))
PLAN = symmetric_plan(
    num_layers=4, pp=2, dp=1, tp=1, global_batch=8, num_micro_batches=2, gpu_type="h100", gpus=(("a", 0), ("a", 1))
)
# Two replicas behind one.
UNEQUAL = ParallelPlan(
    stages=(
        Stage(
            num_layers=2, replicas=tuple(Replica(node="a", gpu_type="h100", gpus=(k,), local_batch=2) for k in (0, 1))
        ),
        Stage(num_layers=2, replicas=(Replica(node="a", gpu_type="h100", gpus=(2,), local_batch=4),)),
    ),
    num_micro_batches=2,
)


def candidate(plan: ParallelPlan = PLAN, cluster: Cluster | None = CLUSTER) -> Candidate:
    return Candidate(plan=plan, model=GPT, cluster=cluster)


def codes(error: pytest.ExceptionInfo[InputError]) -> set[tuple[str, str]]:
    return {(issue.code, issue.pointer) for issue in error.value.issues}


@pytest.mark.parametrize("cluster", [CLUSTER, None])
def test_a_symmetric_plan_is_deployed_as_it_is(cluster: Cluster | None) -> None:
    assert deployable_plan(candidate(cluster=cluster), may_project=True, ignore_memory=False) == (PLAN, None)


def test_a_plan_that_is_not_symmetric_is_refused_or_projected() -> None:
    with pytest.raises(AsymmetricPlanError):
        deployable_plan(candidate(UNEQUAL), may_project=False, ignore_memory=False)
    plan, projection = deployable_plan(candidate(UNEQUAL), may_project=True, ignore_memory=False)
    assert projection is not None
    assert plan == projection.plan
    assert plan.is_symmetric
    assert set(plan.gpus) <= set(UNEQUAL.gpus)
    with pytest.raises(InputError, match="a projection needs to know the GPUs of the plan"):
        deployable_plan(candidate(UNEQUAL, None), may_project=True, ignore_memory=False)


@pytest.mark.parametrize("cluster", [CLUSTER, None])
@pytest.mark.parametrize("may_project", [False, True])
def test_the_native_engine_takes_it_as_it_is(cluster: Cluster | None, may_project: bool) -> None:
    native = replace(candidate(UNEQUAL, cluster), engine=EngineName.NATIVE)
    assert deployable_plan(native, may_project=may_project, ignore_memory=False) == (UNEQUAL, None)


def test_experts_are_shared_under_the_native_engine_and_context_is_not() -> None:
    dense = replace(GPT, software=Software.TORCH_EAGER, sequence_parallel=False, biases=Biases.NONE)
    model = replace(dense, num_experts=4, experts_per_token=2)
    gpus = tuple(("a", k) for k in range(4))
    plan = symmetric_plan(
        num_layers=4, pp=2, dp=2, tp=1, ep=2, global_batch=8, num_micro_batches=2, gpu_type="h100", gpus=gpus
    )
    native = Candidate(plan=plan, model=model, cluster=CLUSTER, engine=EngineName.NATIVE)
    assert deployable_plan(native, may_project=True, ignore_memory=False) == (plan, None)
    for wrong, found in (
        (
            replace(native, engine=EngineName.DEEPSPEED),
            {("experts", "/model/num_experts"), ("software", "/model/software")},
        ),
        (replace(native, plan=replace(plan, context_parallel=2)), {("not_in_software", "/plan/context_parallel")}),
        (replace(native, model=replace(model, num_experts=3)), {("expert_degree", "/plan/expert_parallel")}),
        (replace(native, model=replace(model, experts_per_token=5)), {("out_of_range", "/model/experts_per_token")}),
    ):
        with pytest.raises(InputError) as error:
            deployable_plan(wrong, may_project=True, ignore_memory=False)
        assert codes(error) == found


def test_memory_is_asked_of_every_stage_of_it() -> None:
    small = replace(CLUSTER, gpu_types=(replace(H100, memory_bytes=1000),))
    native = replace(candidate(UNEQUAL, small), engine=EngineName.NATIVE)
    with pytest.raises(InputError, match="predicted to run out of GPU memory") as error:
        deployable_plan(native, may_project=True, ignore_memory=False)
    assert {pointer for _, pointer in codes(error)} == {
        *("/plan/stages/0/replicas/0", "/plan/stages/0/replicas/1", "/plan/stages/1/replicas/0")
    }


def test_an_interleaved_plan_is_refused_under_deepspeed() -> None:
    interleaved = replace(PLAN, virtual_stages=2, num_micro_batches=PLAN.num_micro_batches)
    for may_project in (False, True):
        with pytest.raises(InputError, match="is interleaved and cannot be deployed") as caught:
            deployable_plan(candidate(interleaved), may_project=may_project, ignore_memory=False)
        assert [(issue.code, issue.pointer) for issue in caught.value.issues] == [
            ("virtual_stages", "/plan/virtual_stages")
        ]


def test_a_zero_bubble_plan_is_one_of_the_native_engine() -> None:
    plan = replace(PLAN, virtual_stages=2, schedule=PipelineSchedule.ZBV)
    with pytest.raises(InputError, match="is zero-bubble and cannot be deployed") as caught:
        deployable_plan(candidate(plan), may_project=True, ignore_memory=False)
    assert [issue.pointer for issue in caught.value.issues] == ["/plan/schedule"]
    model = replace(GPT, software=Software.TORCH_EAGER, sequence_parallel=False)
    native = replace(candidate(plan), model=model, engine=EngineName.NATIVE)
    assert deployable_plan(native, may_project=False, ignore_memory=False) == (plan, None)
    repeated = replace(native, model=replace(model, checkpointing=Checkpointing.FULL))
    with pytest.raises(InputError, match="does not fit the model or the cluster") as error:
        deployable_plan(repeated, may_project=False, ignore_memory=False)
    assert codes(error) == {("checkpointing", "/plan/schedule")}


def test_the_native_engine_interleaves_what_is_planned_for_torch() -> None:
    interleaved = replace(PLAN, virtual_stages=2)
    model = replace(GPT, software=Software.TORCH_EAGER, sequence_parallel=False)
    native = replace(candidate(interleaved), model=model, engine=EngineName.NATIVE)
    assert deployable_plan(native, may_project=False, ignore_memory=False) == (interleaved, None)
    with pytest.raises(InputError, match="does not fit the model or the cluster") as error:
        deployable_plan(replace(native, model=GPT), may_project=False, ignore_memory=False)
    assert codes(error) == {("virtual_stages", "/plan/virtual_stages")}


def test_stages_that_recompute_on_their_own_are_refused_under_deepspeed() -> None:
    stages = (replace(PLAN.stages[0], checkpointing=Checkpointing.FULL), *PLAN.stages[1:])
    with pytest.raises(InputError, match="have a checkpointing of their own") as caught:
        deployable_plan(candidate(replace(PLAN, stages=stages)), may_project=False, ignore_memory=False)
    assert [(issue.code, issue.pointer) for issue in caught.value.issues] == [
        ("checkpointing", "/plan/stages/0/checkpointing")
    ]
    model = replace(GPT, software=Software.TORCH_EAGER)
    native = replace(candidate(replace(PLAN, stages=stages)), model=model, engine=EngineName.NATIVE)
    assert deployable_plan(native, may_project=False, ignore_memory=False) == (native.plan, None)


def test_gpus_must_be_there_and_free() -> None:
    elsewhere = replace(PLAN.stages[0].replicas[0], node="c")
    lost = candidate(replace(PLAN, stages=(replace(PLAN.stages[0], replicas=(elsewhere,)), PLAN.stages[1])))
    with pytest.raises(InputError, match="does not fit the model or the cluster; was it another one") as error:
        deployable_plan(lost, may_project=False, ignore_memory=False, hint="; was it another one?")
    assert all(pointer.startswith("/plan/stages/0") for _, pointer in codes(error))
    taken = replace(candidate(), available={"a": ("h100", {0, 2, 3})})
    with pytest.raises(InputError, match="does not fit the model or the cluster") as error:
        deployable_plan(taken, may_project=False, ignore_memory=False)
    assert all(pointer.startswith("/plan/stages/1") for _, pointer in codes(error))


def test_memory_may_be_ignored() -> None:
    small = replace(CLUSTER, gpu_types=(replace(H100, memory_bytes=1000),))
    with pytest.raises(InputError, match="ignore_memory deploys it all the same") as error:
        deployable_plan(candidate(cluster=small), may_project=False, ignore_memory=False)
    assert {code for code, _ in codes(error)} == {"out_of_memory"}
    assert deployable_plan(candidate(cluster=small), may_project=False, ignore_memory=True) == (PLAN, None)


def test_a_model_that_cannot_be_trained_is_refused() -> None:
    refuse_model(GPT, EngineName.DEEPSPEED)
    with pytest.raises(InputError, match="the trainer cannot run the model of the job") as error:
        refuse_model(replace(GPT, zero_stage=3), EngineName.DEEPSPEED)
    assert {pointer for _, pointer in codes(error)} == {"/model/zero_stage"}
    with pytest.raises(InputError, match="the trainer cannot run the model of the job"):
        refuse_model(replace(GPT, zero_stage=4), EngineName.NATIVE)


@pytest.mark.parametrize("zero_stage", [2, 3])
def test_zero_2_and_3_are_of_the_native_engine_with_pipelines_planned_for_torch(zero_stage: int) -> None:
    flat = replace(PLAN, stages=(replace(UNEQUAL.stages[0], num_layers=4),))
    model = replace(GPT, zero_stage=zero_stage)
    native = replace(candidate(flat), model=model, engine=EngineName.NATIVE)
    assert deployable_plan(native, may_project=False, ignore_memory=False) == (flat, None)
    with pytest.raises(InputError, match="does not fit the model or the cluster") as error:
        deployable_plan(replace(native, plan=UNEQUAL), may_project=False, ignore_memory=False)
    assert codes(error) == {("zero_with_pipeline", "/plan/stages")}
    of_torch = replace(native, plan=UNEQUAL, model=replace(model, software=Software.TORCH_EAGER))
    assert deployable_plan(of_torch, may_project=False, ignore_memory=False) == (UNEQUAL, None)


def test_a_job_may_use_what_is_free_and_what_it_has() -> None:
    states = {"up": NodeState.UP, "drained": NodeState.DRAINED, "own": NodeState.DRAINED, "down": NodeState.DOWN}
    nodes = tuple(
        Node(id=name, gpu_type="h100", num_gpus=4, gpus_in_use=(0, 1), state=state) for name, state in states.items()
    )
    usable = usable_gpus(replace(CLUSTER, nodes=nodes), {("up", 1), ("own", 0), ("down", 0)})
    assert usable == {"up": ("h100", {1, 2, 3}), "own": ("h100", {0})}


def test_nodes_of_known_products_are_assumed() -> None:
    assumed = assumed_cluster(UNEQUAL, Precision.FP32)
    assert assumed is not None
    assert [(node.id, node.gpu_type, node.num_gpus) for node in assumed.nodes] == [("a", "h100", 3)]
    unknown = symmetric_plan(
        num_layers=4, pp=1, dp=1, tp=1, global_batch=8, num_micro_batches=2, gpu_type="abacus", gpus=(("a", 0),)
    )
    assert assumed_cluster(unknown, Precision.FP32) is None
