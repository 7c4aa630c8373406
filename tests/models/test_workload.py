from dataclasses import replace

import pytest

from models.parallel_plan import ParallelPlan, even_split, symmetric_plan
from models.transformer import Operator, OperatorModel, Transformer
from models.workload import Expansion, Job, NodeGpus, Parallelism, Snapshot
from stowplan.errors import InputError
from topology.cluster import Cluster, GpuType, Node

A100 = GpuType(
    name="a100",
    memory_bytes=80 * 10**9,
    peak_flops_per_s=312e12,
    intra_node_bandwidth_bytes_per_s=300e9,
    inter_node_bandwidth_bytes_per_s=100e9,
)
CLUSTER = Cluster(gpu_types=(A100,), nodes=tuple(Node(id=f"n{k}", gpu_type="a100", num_gpus=4) for k in range(2)))
GPT = Transformer(num_layers=4, hidden_size=64, vocabulary_size=100, sequence_length=32, global_batch=8)
OPERATORS = OperatorModel(
    operators=(
        Operator(
            name="conv",
            parameters=10,
            forward_flops=1.0,
            memory_traffic_bytes=1.0,
            activation_bytes=1.0,
            output_bytes=1.0,
            tensor_parallel_bytes=0.0,
        ),
    ),
    global_batch=8,
)
# Stage 0 on n0, stage 1 on n1, two replicas of two GPUs each.
GPUS = tuple((node, gpu) for node in ("n0", "n1") for gpu in range(4))
PLAN = symmetric_plan(num_layers=4, pp=2, dp=2, tp=2, global_batch=8, num_micro_batches=2, gpu_type="a100", gpus=GPUS)
CURRENT = (NodeGpus(node="n0", gpus=(0, 1, 2, 3)), NodeGpus(node="n1", gpus=(0, 1, 2, 3)))
RUNNING = Job(id="job", transformer=GPT, current=CURRENT, parallel_plan=PLAN)


def faults(job: Job) -> list[tuple[str, str]]:
    try:
        Snapshot(cluster=CLUSTER, jobs=(job,))
    except InputError as error:
        return [(issue.code, issue.pointer) for issue in error.issues]
    return []


def test_a_running_job_with_its_plan_is_legal() -> None:
    assert faults(RUNNING) == []
    assert RUNNING.model is GPT
    assert PLAN.notation() == "PP2 DP2 TP2 (2+2 layers, 2 x 4)"


@pytest.mark.parametrize(
    ("changes", "code", "pointer"),
    [
        ({"operators": OPERATORS}, "one_of", "/jobs/0/operators"),
        ({"priority": 0}, "not_positive", "/jobs/0/priority"),
        ({"deadline_s": -5.0}, "deadline_in_the_past", "/jobs/0/deadline_s"),
        ({"deadline_s": float("nan")}, "deadline_in_the_past", "/jobs/0/deadline_s"),
        ({"remaining_iterations": 0.0}, "not_positive", "/jobs/0/remaining_iterations"),
        ({"remaining_s": -1.0}, "negative", "/jobs/0/remaining_s"),
        ({"current": CURRENT[:1]}, "plan_not_on_current", "/jobs/0/parallel_plan"),
        ({"transformer": replace(GPT, num_layers=0)}, "not_positive", "/jobs/0/transformer/num_layers"),
    ],
)
def test_faults_of_training_jobs(changes: dict[str, object], code: str, pointer: str) -> None:
    assert (code, pointer) in faults(replace(RUNNING, **changes))  # type: ignore[arg-type]


def test_every_fault_of_a_model_is_told_once() -> None:
    bad = replace(GPT, num_layers=0, global_batch=0, micro_batch=-1)
    found = faults(replace(RUNNING, transformer=bad, parallelism=Parallelism(tp=0, pp=1, dp=-1), parallel_plan=None))
    fields = ("transformer/global_batch", "transformer/micro_batch", "transformer/num_layers")
    expected = [*fields, "parallelism/dp", "parallelism/tp"]
    assert sorted(found) == sorted(("not_positive", f"/jobs/0/{field}") for field in expected)


def test_expansions_are_gpus_of_the_job_once() -> None:
    added = Expansion(gpus=(NodeGpus(node="n1", gpus=(2, 3)),), benefit=0.7)
    assert faults(replace(RUNNING, expansions=(added,))) == []
    twice = replace(RUNNING, expansions=(added, added))
    assert [code for code, _ in faults(twice)] == ["bad_expansion", "bad_expansion"]
    elsewhere = Expansion(gpus=(NodeGpus(node="n7", gpus=(0,)),), benefit=0.7)
    assert faults(replace(RUNNING, expansions=(elsewhere,))) == [("bad_expansion", "/jobs/0/expansions/0")]


def test_a_plan_says_which_type_it_runs_on() -> None:
    other = symmetric_plan(
        num_layers=4, pp=2, dp=2, tp=2, global_batch=8, num_micro_batches=2, gpu_type="h100", gpus=GPUS
    )
    found = faults(replace(RUNNING, parallel_plan=other))
    assert found[0] == ("gpu_type_mismatch", "/jobs/0/parallel_plan/stages/0/replicas/0/gpu_type")
    assert len(found) == 4


def test_even_split_gives_the_larger_parts_first() -> None:
    assert even_split(10, 4) == (3, 3, 2, 2)
    assert even_split(8, 4) == (2, 2, 2, 2)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"global_batch": 9}, "does not divide"),
        ({"gpus": GPUS[:7]}, "needs 8 GPUs"),
        ({"gpus": (GPUS[0], GPUS[4], *GPUS[1:4], *GPUS[5:])}, "leaves its node"),
        ({"gpus": (GPUS[0], GPUS[0], *GPUS[2:])}, "1 error"),
    ],
)
def test_symmetric_plans_that_cannot_be(changes: dict[str, object], says: str) -> None:
    arguments: dict[str, object] = {
        "num_layers": 4,
        "pp": 2,
        "dp": 2,
        "tp": 2,
        "global_batch": 8,
        "num_micro_batches": 2,
        "gpu_type": "a100",
        "gpus": GPUS,
    }
    with pytest.raises(InputError, match=says):
        symmetric_plan(**{**arguments, **changes})  # type: ignore[arg-type]


def test_stages_see_the_same_sequences() -> None:
    first, second = PLAN.stages
    half = replace(second, replicas=second.replicas[:1])
    with pytest.raises(InputError) as caught:
        ParallelPlan(stages=(first, half), num_micro_batches=2)
    assert [issue.code for issue in caught.value.issues] == ["micro_batch_differs"]
