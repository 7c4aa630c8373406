"""What one layout has written, any other goes on from, as it is; the losses are those of a run that never stopped."""

import resource
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from executor.checkpoints import PARTIAL, last_good, tag_of
from executor.outcome import NOT_SAVED, WRONG_INPUT
from executor.training_job import TrainingJob
from executor.training_layout import StageLayout
from executor.training_options import EngineName
from models.pipeline_schedule import PipelineSchedule
from models.transformer import Precision, Transformer
from tests.executor.jobs import GPT, LLAMA, tiny_job
from tests.executor.trainer.launching import Ranks, run_job, steps_of
from tests.executor.trainer.native.test_equivalence import native_job, stage
from tests.executor.trainer.reference import reference

_ZBV = PipelineSchedule.ZBV
pytestmark = [pytest.mark.slow, pytest.mark.training]


def _job(folder: Path, run: str, model: Transformer, *stages: StageLayout, **more: Any) -> TrainingJob:
    folders = {"checkpoint_folder": str(folder / "checkpoints"), "metrics_folder": str(folder / run)}
    return native_job(model, *stages, **folders, **more)


@pytest.mark.parametrize(
    ("model", "before", "after", "tolerance"),
    [
        pytest.param(
            LLAMA,
            (stage(3, 1, 2, 2), stage(1, 2, 4)),
            (stage(1, 1, 3, 1), stage(3, 1, 4)),
            1e-5,
            id="DP2-then-TP2-to-uneven-shares",
        ),
        pytest.param(
            GPT,
            (stage(2, 2, 2), stage(2, 1, 1, 1)),
            (stage(1, 1, 4), stage(2, 2, 2, 2), stage(1, 1, 2, 1, 1)),
            1e-5,
            id="tied-to-three-stages",
        ),
        pytest.param(
            replace(GPT, precision=Precision.BF16),
            (stage(4, 2, 2, 2),),
            (stage(2, 1, 1, 1), stage(2, 1, 2)),
            1e-2,
            id="bf16-with-masters",
        ),
    ],
)
def test_training_goes_on_with_another_layout(
    model: Transformer,
    before: tuple[StageLayout, ...],
    after: tuple[StageLayout, ...],
    tolerance: float,
    tmp_path: Path,
) -> None:
    run_job(_job(tmp_path, "first", model, *before, num_steps=4), tmp_path / "first")
    run_job(_job(tmp_path, "second", model, *after, num_steps=8, resume="last"), tmp_path / "second")
    steps = steps_of(tmp_path / "second")
    assert [step.step for step in steps] == [5, 6, 7, 8]
    alone = tiny_job(replace(model, precision=Precision.FP32))
    expected = [step.loss for step in reference(alone)[4:8]]
    np.testing.assert_allclose([step.loss for step in steps], expected, rtol=0, atol=tolerance)
    names = sorted(path.name for path in (tmp_path / "checkpoints").glob("[!.]*"))
    assert names == ["last_good", tag_of(4), tag_of(8)]


def test_stages_that_begin_and_end_the_model_go_on_as_others(tmp_path: Path) -> None:
    """ZB-V keeps the first and the last layers on one rank."""
    halves = (stage(2, 1, 2), stage(2, 1, 2))
    folded = _job(tmp_path, "first", LLAMA, *halves, num_steps=4, virtual_stages=2, pipeline_schedule=_ZBV)
    run_job(folded, tmp_path / "first")
    alone = _job(tmp_path, "second", LLAMA, stage(4, 1, 4), num_steps=6, resume="last")
    run_job(alone, tmp_path / "second")
    expected = [step.loss for step in reference(tiny_job(LLAMA))[4:6]]
    np.testing.assert_allclose([step.loss for step in steps_of(tmp_path / "second")], expected, rtol=0, atol=1e-5)


def _limit_files(rank: int) -> None:
    """Files of rank 1 end at 100 kB, as on a full disk."""
    if rank == 1:
        resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))


def test_full_disk_on_one_rank_leaves_the_last_good_checkpoint(tmp_path: Path) -> None:
    job = _job(tmp_path, "first", LLAMA, stage(2, 1, 2), stage(2, 1, 2), num_steps=2)
    run_job(job, tmp_path / "first")
    again = replace(job, resume="last", num_steps=4, metrics_folder=str(tmp_path / "second"))
    with Ranks(again, tmp_path / "second", prepare=_limit_files) as running:
        ended = running.wait()
    assert ended.codes == [NOT_SAVED, NOT_SAVED], "\n".join(ended.output)
    assert "checkpoint of step 4 could not be written, the one before stays" in ended.output[0]
    found = last_good(tmp_path / "checkpoints")
    assert found is not None
    assert found.step == 2
    assert not list((tmp_path / "checkpoints").glob("*" + PARTIAL))


def test_checkpoint_of_the_other_engine_is_refused(tmp_path: Path) -> None:
    job = _job(tmp_path, "first", LLAMA, stage(4, 1, 2), num_steps=2)
    run_job(job, tmp_path / "first")
    other = replace(job, engine=EngineName.DEEPSPEED, resume="last", num_steps=4)
    with Ranks(other, tmp_path / "second") as running:
        ended = running.wait()
    assert ended.codes == [WRONG_INPUT]
    assert "was written by the engine native; deepspeed cannot read it: a job keeps its engine" in ended.output[0]
