from dataclasses import replace

import pytest

from models.parallel_plan import ParallelPlan
from models.parallelism.legality import FreeGpus, next_tensor_degree, plan_violations
from models.performance.iteration.model import PerformanceModel
from models.software import Software
from tests.models.parallelism.scenes import KIND, performance_model, plan, profile

EXPERTS = ("expert_degree", "/expert_parallel")
ALL_FREE: FreeGpus = {str(k): (KIND, frozenset(range(4))) for k in range(4)}


def found(of: ParallelPlan, model: PerformanceModel, available: FreeGpus | None = None) -> list[tuple[str, str]]:
    return [(issue.code, issue.pointer) for issue in plan_violations(of, model, available)]


def test_a_legal_plan_has_no_violations() -> None:
    assert found(plan(2, 2, 2), performance_model(), ALL_FREE) == []


def test_layers_and_batches_must_add_up() -> None:
    short = plan(2, 2, 2, layers=(1, 2))
    assert found(short, performance_model()) == [("layers", "/stages")]
    assert found(plan(2, 2, 2), performance_model(profile(global_batch=16))) == [("global_batch", "/num_micro_batches")]


def test_a_tensor_degree_that_does_not_divide_names_the_unit_and_the_next_degree() -> None:
    model = performance_model(profile(heads=9))
    (issue,) = plan_violations(plan(1, 2, 2), model)
    assert (issue.code, issue.pointer) == ("tensor_degree", "/stages/0/replicas")
    assert "2 does not divide the 9 attention heads" in issue.detail
    assert "works is 3" in issue.detail
    assert next_tensor_degree(model.profile, 9) == 9


@pytest.mark.parametrize("zero_stage", [2, 3])
def test_zero_2_and_3_have_pipelines_where_the_software_has_them(zero_stage: int) -> None:
    model = performance_model(profile(zero_stage=zero_stage))
    assert found(plan(2, 2, 2), model) == [("zero_with_pipeline", "/stages")]
    assert found(plan(1, 4, 2), model) == []
    of_torch = replace(profile(zero_stage=zero_stage), software=Software.TORCH)
    assert found(plan(2, 2, 2), performance_model(of_torch)) == []


def test_memory_is_held_against_what_is_usable() -> None:
    # Stage 0 of PP2 DP1 TP1: 2 layers of 2 + 8 + 2 bytes, and 2 micro-batches in flight of 4 samples with 4 bytes a
    # layer: 24 - 4 (with 2 micro-batches all gradients come after all forward passes) + 64 = 84. Stage 1: 24 + 32 = 56.
    of = plan(2, 1, 1)
    assert [memory.total_bytes for memory in performance_model().memory(of)] == [84.0, 56.0]
    assert found(of, performance_model(memory_bytes=84 / 0.9 + 0.01)) == []
    (issue,) = plan_violations(of, performance_model(memory_bytes=90.0))
    assert (issue.code, issue.pointer) == ("out_of_memory", "/stages/0/replicas/0")
    assert "84 bytes" in issue.detail
    assert "81 bytes are usable" in issue.detail


def test_gpus_must_exist_be_free_and_of_the_type_of_their_node() -> None:
    of = plan(2, 2, 1)
    taken = {**ALL_FREE, "0": (KIND, frozenset({0, 2, 3}))}
    assert found(of, performance_model(), taken) == [("gpu_not_free", "/stages/0/replicas/1/gpus")]
    other = {**ALL_FREE, "0": ("y", frozenset(range(4)))}
    assert found(of, performance_model(), other)[0] == ("gpu_type", "/stages/0/replicas/0/gpu_type")
    assert found(of, performance_model(), {}) == [
        ("unknown_node", f"/stages/{i}/replicas/{j}/node") for i in range(2) for j in range(2)
    ]
    assert found(plan(2, 4, 4), performance_model(num_nodes=7))[0] == ("unknown_node", "/stages/1/replicas/3/node")


def test_an_unknown_gpu_type_is_told_rather_than_raised() -> None:
    of = plan(1, 1, 1)
    stage = of.stages[0]
    strange = replace(of, stages=(replace(stage, replicas=(replace(stage.replicas[0], gpu_type="z"),)),))
    assert found(strange, performance_model()) == [
        ("gpu_type", "/stages/0/replicas/0/gpu_type"),
        ("unknown_gpu_type", "/stages/0/replicas/0/gpu_type"),
    ]


@pytest.mark.parametrize(
    ("software", "length", "experts", "cp", "ep", "wrong"),
    [
        (Software.MEGATRON_CORE, 8, 4, 2, 2, []),
        (Software.MEGATRON_CORE, 6, 3, 2, 2, [("context_degree", "/context_parallel"), EXPERTS]),
        (Software.TORCH, 0, 1, 2, 2, [("context_degree", "/context_parallel"), EXPERTS]),
        (Software.DEEPSPEED, 8, 4, 2, 1, [("not_in_software", "/context_parallel")]),
        (Software.MEGATRON_LM, 8, 4, 1, 2, [("not_in_software", "/expert_parallel")]),
    ],
)
def test_sequences_and_experts_are_shared_where_they_can_be(
    software: Software, length: int, experts: int, cp: int, ep: int, wrong: list[tuple[str, str]]
) -> None:
    of = replace(profile(global_batch=8 // cp), software=software, sequence_length=length, num_experts=experts)
    shared = replace(plan(2, 2, 1), context_parallel=cp, expert_parallel=ep)
    assert found(shared, performance_model(of)) == wrong


def test_memory_of_what_is_shared_is_held_against_the_gpus() -> None:
    # As above, but PP1 DP2 with half of every sequence: 4 layers of 12 bytes and 4 samples with 4 x 4 / 2 bytes.
    of = replace(plan(1, 2, 1, num_micro_batches=1), context_parallel=2)
    long = replace(profile(global_batch=4), software=Software.TORCH, sequence_length=8)
    needed = performance_model(long).memory(of)[0].total_bytes
    assert needed == 40 + 4 * 8
    assert found(of, performance_model(long, memory_bytes=needed / 0.9 + 0.01)) == []
    assert [code for code, _ in found(of, performance_model(long, memory_bytes=needed / 0.9 - 0.01))] == [
        "out_of_memory"
    ] * 2
