"""What is exported is read back by our own readers: the same plan, and the same model."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from api.cli.model_file import plan_of_file
from executor.export import export
from executor.export.job import job_of_plan
from models.catalogue import find_model
from models.dimensions import Dimensions
from models.parallel_plan import ParallelPlan, symmetric_plan
from models.pipeline_schedule import PipelineSchedule
from models.readers import ForeignModel
from models.readers.megatron import read_megatron
from models.readers.torchtitan import MODELS, read_torchtitan
from models.software import Software
from models.transformer import Checkpointing, Precision, Transformer
from tests.executor.export.jobs import models, plan_of, plans, recomputing_first


def plan_read(read: ForeignModel, plan: ParallelPlan) -> ParallelPlan:
    """The plan that a file says, on the GPUs of the plan that was written."""
    counts = {"counts": [plan.num_gpus]}
    degrees = plan_of_file(read, read.fields, counts)
    layers = degrees.pop("layers") or plan.num_layers
    recomputed = degrees.pop("recomputed_layers", None)
    for name, short in (("context_parallel", "cp"), ("expert_parallel", "ep")):
        degrees[short] = degrees.pop(name)
    found = symmetric_plan(
        num_layers=layers, gpus=plan.gpus, gpu_type="h100", global_batch=read.fields["global_batch"], **degrees
    )
    return found if recomputed is None else recomputing_first(found, recomputed)


@given(st.data())
def test_megatron(data: st.DataObject) -> None:
    plan = data.draw(plans())
    model = data.draw(models(plan))
    (text,) = export(job_of_plan("job", plan, model), ["megatron"]).values()
    read = read_megatron(text)
    found = read.transformer()
    assert plan_read(read, plan) == plan
    assert Dimensions.of(found) == Dimensions.of(model)
    tp = plan.stages[0].tp
    assert found == replace(
        model,
        vocabulary_size=-(-model.vocabulary_size // tp) * tp,
        num_kv_heads=found.num_kv_heads,
        expert_feed_forward_size=found.expert_feed_forward_size,
        sequence_parallel=tp > 1,
        checkpointing=Checkpointing.FULL if plan.has_own_checkpointing else model.checkpointing,
    )


@pytest.mark.parametrize("name", ["deepseek-v3", "qwen3-30b-a3b", "gpt2-175b", "llama3.1-405b", "qwen2.5-7b"])
def test_megatron_of_the_catalogue(name: str) -> None:
    known = find_model(name, global_batch=64)
    assert isinstance(known, Transformer)
    plan = plan_of(pp=2, dp=2, tp=2, num_micro_batches=16, global_batch=64, layers=_halves(known.num_layers))
    (text,) = export(job_of_plan("job", plan, replace(known, software=Software.MEGATRON_CORE)), ["megatron"]).values()
    found = read_megatron(text).transformer()
    assert Dimensions.of(found) == Dimensions.of(known)
    for field in ("num_experts", "first_dense_layers", "shared_expert_size", "kv_rank", "query_rank", "biases"):
        assert getattr(found, field) == getattr(known, field), field


@given(st.data())
def test_torchtitan(data: st.DataObject) -> None:
    flavors = {known for flavors in MODELS.values() for known in flavors.values()}
    known = find_model(data.draw(st.sampled_from(sorted(flavors))), global_batch=1)
    assert isinstance(known, Transformer)
    pp = data.draw(st.sampled_from((1, 2, 4)))
    cut = data.draw(st.integers(1, 3)) if pp > 1 else 0
    layers = (known.num_layers - (pp - 1) * (4 + cut), *[4 + cut] * (pp - 1))
    dp, tp, batch = (data.draw(st.sampled_from((1, 2, 4))) for _ in range(3))
    cp = data.draw(st.sampled_from((1, 2)))
    schedule = data.draw(st.sampled_from(PipelineSchedule)) if pp > 1 else PipelineSchedule.ONE_F_ONE_B
    splits = schedule.splits_backward
    plan = plan_of(
        pp=pp,
        dp=dp,
        tp=tp,
        num_micro_batches=4,
        layers=layers,
        virtual_stages=2 if splits else data.draw(st.sampled_from((1, 2))) if pp > 1 else 1,
        schedule=schedule,
        global_batch=4 * dp * batch,
        cp=cp,
        ep=data.draw(st.sampled_from((1, dp * cp))),
    )
    model = replace(
        known,
        sequence_length=data.draw(st.sampled_from((2048, 8192))),
        global_batch=plan.global_batch,
        micro_batch=batch,
        precision=data.draw(st.sampled_from((Precision.BF16, Precision.FP32))),
        checkpointing=Checkpointing.NONE if splits else data.draw(st.sampled_from(Checkpointing)),
        zero_stage=data.draw(st.sampled_from(_zero_stages(pp, dp, cp))),
        software=Software.TORCH_EAGER if splits else data.draw(st.sampled_from((Software.TORCH, Software.TORCH_EAGER))),
    )
    (text,) = export(job_of_plan("job", plan, model), ["torchtitan"]).values()
    read = read_torchtitan(text)
    assert plan_read(read, plan) == plan
    assert read.transformer() == replace(model, name=None)


def test_layers_of_an_uneven_interleaved_pipeline() -> None:
    plan = plan_of(pp=2, layers=(5, 3), virtual_stages=2)
    (text,) = export(job_of_plan("job", plan), ["megatron"]).values()
    # Stage 0 has 3 and 2 layers in its two parts, stage 1 has 2 and 1; part 0 of both comes first.
    assert "--pipeline-model-parallel-layout 'Et*3|t*2|t*2|tL'" in text


def _zero_stages(pp: int, dp: int, cp: int) -> tuple[int, ...]:
    """Those of torchtitan, which shards over parts of sequences in any case."""
    sharded = (1,) if pp > 1 else (2, 3)
    return sharded if cp > 1 else (0, *sharded) if dp > 1 else (0,)


def _halves(num_layers: int) -> tuple[int, int]:
    return num_layers - num_layers // 2, num_layers // 2
