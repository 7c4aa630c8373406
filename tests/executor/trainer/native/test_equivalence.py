"""Whatever the plan, the training is that of one process: on real ranks, symmetric or not."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from executor.training_job import TrainingJob
from executor.training_layout import StageLayout
from executor.training_options import Compiler, EngineName
from models.pipeline_schedule import PipelineSchedule
from models.software import Software
from models.transformer import Checkpointing, Precision, Transformer
from tests.executor.jobs import GPT, LLAMA, tiny_job
from tests.executor.trainer.launching import run_job, steps_of
from tests.executor.trainer.reference import reference

pytestmark = [pytest.mark.slow, pytest.mark.training]


def stage(num_layers: int, tp: int, *batches: int) -> StageLayout:
    return StageLayout(num_layers=num_layers, tp=tp, batches=batches)


def native_job(model: Transformer, *stages: StageLayout, **more: Any) -> TrainingJob:
    count = model.global_batch // sum(stages[0].batches)
    return tiny_job(model, stages=stages, num_micro_batches=count, engine=EngineName.NATIVE, **more)


LLAMA_3 = replace(LLAMA, query_key_norms=True)
PLANS = [
    pytest.param(GPT, (stage(4, 1, 2),), id="one-rank"),
    pytest.param(LLAMA, (stage(4, 2, 2, 2),), id="DP2xTP2"),
    pytest.param(LLAMA, (stage(2, 2, 2, 2), stage(2, 2, 2, 2)), id="PP2xDP2xTP2"),
    pytest.param(LLAMA, (stage(2, 1, 1, 1), stage(2, 2, 2)), id="DP2-then-TP2"),
    pytest.param(LLAMA, (stage(1, 1, 3, 1), stage(2, 2, 4), stage(1, 1, 2, 2)), id="three-stages-uneven-shares"),
    pytest.param(LLAMA, (stage(3, 2, 8), stage(1, 1, 4, 2, 2)), id="fewer-micro-batches-than-stages"),
    pytest.param(GPT, (stage(3, 1, 2, 2), stage(1, 2, 4)), id="tied-DP2-then-TP2"),
    pytest.param(GPT, (stage(1, 2, 4), stage(2, 1, 4), stage(1, 1, 2, 1, 1)), id="tied-TP2-then-DP3"),
]


def _alone(job: TrainingJob) -> TrainingJob:
    """The same in one process, computed exactly."""
    model = replace(job.model, **_EXACT)
    more: dict[str, Any] = {"num_steps": job.num_steps, "data": job.data, "engine": job.engine}
    return tiny_job(model, stage_layers=(model.num_layers,), **more)


def check_losses(job: TrainingJob, folder: Path, tolerance: float) -> None:
    expected = [step.loss for step in reference(_alone(job))]
    for rank in range(job.num_ranks):
        steps = steps_of(folder, rank)
        assert [step.step for step in steps] == list(range(1, job.num_steps + 1))
        assert {(step.pipe, step.data, step.tensor) for step in steps} == {job.coordinates(rank)}
        np.testing.assert_allclose([step.loss for step in steps], expected, rtol=0, atol=tolerance)


_EXACT: dict[str, Any] = {
    "precision": Precision.FP32,
    "checkpointing": Checkpointing.NONE,
    "software": Software.DEEPSPEED,
    "sequence_parallel": None,
    "zero_stage": 1,
}


@pytest.mark.parametrize(("model", "stages"), PLANS)
def test_plan_trains_like_one_process(model: Transformer, stages: tuple[StageLayout, ...], tmp_path: Path) -> None:
    """Clipping is in force in most steps, so that a wrong norm would be seen in the losses."""
    job = native_job(model, *stages, metrics_folder=str(tmp_path), num_steps=8)
    run_job(job, tmp_path)
    check_losses(job, tmp_path, 1e-5)
    if model.tied_embeddings and job.pp > 1:
        return
    expected = reference(tiny_job(model, num_steps=8), max(1, job.global_batch // job.small_batch))
    for name in ("large_gradient_square", "small_gradient_square") if job.is_symmetric else ("large_gradient_square",):
        found, wanted = [getattr(s, name) for s in steps_of(tmp_path)], [getattr(e, name) for e in expected]
        np.testing.assert_allclose(found, wanted, rtol=1e-4, err_msg=name)


@pytest.mark.parametrize(
    ("model", "stages", "parts"),
    [
        pytest.param(GPT, (stage(2, 1, 2), stage(2, 1, 2)), 2, id="tied-symmetric"),
        pytest.param(LLAMA, (stage(2, 1, 1, 1), stage(2, 2, 2)), 2, id="DP2-then-TP2"),
        pytest.param(replace(LLAMA, num_layers=6), (stage(3, 1, 3, 1), stage(3, 1, 2, 2)), 3, id="three-parts"),
    ],
)
def test_interleaved_plan_trains_like_one_process(
    model: Transformer, stages: tuple[StageLayout, ...], parts: int, tmp_path: Path
) -> None:
    job = native_job(model, *stages, virtual_stages=parts, metrics_folder=str(tmp_path), num_steps=8)
    run_job(job, tmp_path)
    check_losses(job, tmp_path, 1e-5)


@pytest.mark.parametrize(
    ("model", "stages", "schedule", "tolerance"),
    [
        pytest.param(GPT, (stage(2, 1, 2), stage(2, 1, 2)), PipelineSchedule.ZERO_BUBBLE, 1e-5, id="zero-bubble-tied"),
        pytest.param(LLAMA, (stage(2, 1, 1, 1), stage(2, 2, 2)), PipelineSchedule.ZBV, 1e-5, id="zbv-DP2-then-TP2"),
        pytest.param(
            replace(LLAMA, precision=Precision.BF16),
            (stage(2, 1, 2), stage(2, 1, 2)),
            PipelineSchedule.ZERO_BUBBLE,
            1e-2,
            id="zero-bubble-bf16",
        ),
    ],
)
def test_gradients_of_weights_that_wait_are_those_of_one_process(
    model: Transformer, stages: tuple[StageLayout, ...], schedule: PipelineSchedule, tolerance: float, tmp_path: Path
) -> None:
    model = replace(model, checkpointing=Checkpointing.NONE)
    more: dict[str, Any] = {"virtual_stages": 2, "pipeline_schedule": schedule, "metrics_folder": str(tmp_path)}
    job = native_job(model, *stages, num_steps=8, **more)
    run_job(job, tmp_path)
    check_losses(job, tmp_path, tolerance)


_SPLIT: dict[str, Any] = {"software": Software.TORCH_EAGER, "sequence_parallel": True}


@pytest.mark.parametrize(
    ("model", "stages"),
    [
        pytest.param(GPT, (stage(4, 2, 2),), id="biases-learned-positions"),
        pytest.param(LLAMA, (stage(2, 2, 2), stage(2, 2, 2)), id="TP2-then-TP2"),
        pytest.param(LLAMA_3, (stage(2, 1, 1, 1), stage(2, 2, 2)), id="head-norms-DP2-then-TP2"),
        pytest.param(replace(GPT, checkpointing=Checkpointing.FULL), (stage(2, 2, 4), stage(2, 1, 3, 1)), id="tied"),
        pytest.param(
            replace(LLAMA_3, checkpointing=Checkpointing.SELECTIVE), (stage(2, 2, 2, 2), stage(2, 2, 4)), id="selective"
        ),
    ],
)
def test_sequence_parallel_plan_trains_like_one_process(
    model: Transformer, stages: tuple[StageLayout, ...], tmp_path: Path
) -> None:
    """Tensor ranks have halves of the sequences between their layers, and send no more."""
    job = native_job(replace(model, **_SPLIT), *stages, metrics_folder=str(tmp_path), num_steps=4)
    run_job(job, tmp_path)
    check_losses(job, tmp_path, 1e-5)


def test_stages_that_recompute_on_their_own_train_like_one_process(tmp_path: Path) -> None:
    """Interleaved: of both layers of stage 0 in each part the first is recomputed."""
    first = replace(stage(4, 1, 2), checkpointing=Checkpointing.FULL, recomputed_layers=2)
    last = replace(stage(2, 1, 2), checkpointing=Checkpointing.SELECTIVE)
    model = replace(GPT, num_layers=6)
    job = native_job(model, first, last, virtual_stages=2, metrics_folder=str(tmp_path), num_steps=3)
    run_job(job, tmp_path)
    check_losses(job, tmp_path, 1e-5)


def test_compiled_layers_train_like_one_process(tmp_path: Path) -> None:
    model = replace(LLAMA, num_layers=2, **_SPLIT)
    job = native_job(model, stage(2, 2, 2), compiler=Compiler.AOT_EAGER, metrics_folder=str(tmp_path), num_steps=2)
    run_job(job, tmp_path)
    check_losses(job, tmp_path, 1e-5)


@pytest.mark.parametrize("checkpointing", [Checkpointing.SELECTIVE, Checkpointing.FULL])
def test_bf16_with_masters_in_fp32_is_as_near_as_8_bits_go(checkpointing: Checkpointing, tmp_path: Path) -> None:
    model = replace(GPT, precision=Precision.BF16, checkpointing=checkpointing)
    job = native_job(model, stage(3, 1, 3, 1), stage(1, 2, 4), metrics_folder=str(tmp_path), num_steps=8)
    run_job(job, tmp_path)
    check_losses(job, tmp_path, 1e-2)
    first, last = steps_of(tmp_path, 0)[-1], steps_of(tmp_path, 2)[-1]
    for step in (first, last):
        parts_s = (step.forward_s, step.backward_s, step.send_s, step.receive_s, step.load_s, step.optimizer_s)
        assert min(parts_s) > 0
        assert sum(parts_s) + step.reduction_s <= step.step_s
        assert step.peak_memory_bytes > 0
    assert first.launch == last.launch
