"""Plans whose replicas share sequences and experts: what is well formed, and how it is written."""

from dataclasses import replace
from typing import Any

import pytest

from models.parallel_plan import ParallelPlan, Replica, Stage, layers_of_parts, symmetric_plan, v_parts
from models.pipeline_schedule import PipelineSchedule
from models.transformer import Checkpointing
from stowplan.errors import InputError


def stage(*batches: int, first: int = 0) -> Stage:
    return Stage(
        num_layers=2,
        replicas=tuple(
            Replica(node="a", gpu_type="x", gpus=(first + k,), local_batch=batch) for k, batch in enumerate(batches)
        ),
    )


def faults(plan: ParallelPlan, **changes: Any) -> list[tuple[str, str]]:
    with pytest.raises(InputError) as caught:
        replace(plan, **changes)
    return [(issue.code, issue.pointer) for issue in caught.value.issues]


PLAN = ParallelPlan(stages=(stage(2, 2, 1, 1), stage(1, 1, 2, 2, first=4)), num_micro_batches=3)


def test_a_sequence_that_is_shared_is_counted_once() -> None:
    shared = replace(PLAN, context_parallel=2, expert_parallel=4)
    assert (PLAN.micro_batch, shared.micro_batch, shared.global_batch) == (6, 3, 9)
    assert [shared.data_parallel(one) for one in shared.stages] == [2, 2]
    assert shared.notation() == "2L 2x1 | 2L 2x1 CP2 EP4 (3 x 3)"


def test_degrees_divide_the_replicas() -> None:
    assert faults(PLAN, context_parallel=0) == [("not_positive", "/context_parallel")]
    assert faults(PLAN, expert_parallel=3) == [("not_divisible", "/expert_parallel")] * 2
    assert faults(PLAN, context_parallel=4) == [
        ("context_batch_differs", "/stages/0/replicas"),
        ("context_batch_differs", "/stages/1/replicas"),
    ]


def test_zero_bubble_schedules_need_parts_that_keep_everything() -> None:
    zbv = replace(PLAN, schedule=PipelineSchedule.ZBV, virtual_stages=2)
    assert zbv.notation() == "PP2ZBV 2L 4x1 | 2L 4x1 (3 x 6)"
    assert [zbv.in_flight(stage) for stage in range(2)] == [2.0, 2.0]
    looped = replace(PLAN, schedule=PipelineSchedule.ZERO_BUBBLE, virtual_stages=2, num_micro_batches=4)
    assert looped.notation().startswith("PP2x2ZB ")
    assert faults(looped, num_micro_batches=3) == [("not_interleaved", "/num_micro_batches")]
    assert faults(looped, virtual_stages=1) == [("schedule", "/schedule")]
    assert faults(zbv, virtual_stages=1) == [("schedule", "/schedule")]
    recomputing = (replace(PLAN.stages[0], checkpointing=Checkpointing.FULL), PLAN.stages[1])
    assert faults(zbv, stages=recomputing) == [("schedule", "/stages/0/checkpointing")]


def test_the_first_stage_of_zbv_begins_and_ends_the_model() -> None:
    assert v_parts((5, 2, 3)) == (((0, 3), (8, 10)), ((3, 4), (7, 8)), ((4, 6), (6, 7)))
    assert layers_of_parts((5, 2, 3), 2, PipelineSchedule.ZBV) == (3, 1, 2, 1, 1, 2)
    assert layers_of_parts((5, 2, 3), 2, PipelineSchedule.ZERO_BUBBLE) == (3, 1, 2, 2, 1, 1)


def test_symmetric_plans_need_gpus_for_parts_of_sequences_and_none_for_experts() -> None:
    def build(num_gpus: int) -> ParallelPlan:
        return symmetric_plan(
            num_layers=4,
            pp=2,
            dp=2,
            tp=1,
            cp=2,
            ep=4,
            global_batch=8,
            num_micro_batches=2,
            gpu_type="x",
            gpus=tuple(("a", k) for k in range(num_gpus)),
        )

    plan = build(8)
    assert plan.notation() == "PP2 DP2 TP1 CP2 EP4 (2+2 layers, 2 x 4)"
    assert {replica.local_batch for one in plan.stages for replica in one.replicas} == {2}
    with pytest.raises(InputError, match="PP2 DP2 TP1 CP2 needs 8 GPUs"):
        build(4)
