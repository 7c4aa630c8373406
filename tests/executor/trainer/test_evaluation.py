"""Evaluation on what is kept for validation, on real ranks."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from executor.data.indexed import write_indexed
from executor.data.sources import Data, Source
from executor.token_stream import open_validation
from executor.trainer.context import LayerContext
from executor.trainer.layers import layers_of
from executor.training_layout import StageLayout
from executor.training_options import EngineName, Schedule
from models.pipeline_schedule import PipelineSchedule
from tests.executor.jobs import LLAMA, tiny_job
from tests.executor.trainer.launching import run_job, steps_of
from tests.executor.trainer.reference import Sequence, stream_documents, stream_labels

pytestmark = [pytest.mark.slow, pytest.mark.training]


def _sources(folder: Path, *lengths: int) -> tuple[Source, ...]:
    generator = np.random.default_rng(3)
    for k, length in enumerate(lengths):
        documents = [generator.integers(LLAMA.vocabulary_size, size=length)]
        write_indexed(folder / str(k), documents, vocabulary_size=LLAMA.vocabulary_size)
    return tuple(Source(path=str(folder / str(k))) for k in range(len(lengths)))


# Two replicas, then two tensor ranks, each stage in two parts.
_UNEVEN = {
    "engine": EngineName.NATIVE,
    "stages": (
        StageLayout(num_layers=2, tp=1, batches=(1, 1)),
        StageLayout(num_layers=2, tp=2, batches=(2,)),
    ),
    "num_micro_batches": 4,
    "virtual_stages": 2,
}


# A rank has the first and the last part, another one two that follow each other.
_FOLDED = {**_UNEVEN, "pipeline_schedule": PipelineSchedule.ZBV}


@pytest.mark.parametrize(
    ("layout", "zero_stage"),
    [({"stage_layers": (2, 2), "dp": 2}, 1), (_UNEVEN, 3), (_FOLDED, 1)],
    ids=["deepspeed", "native-zero-3", "zbv"],
)
@pytest.mark.parametrize("masks", [False, True], ids=["plain", "documents"])
def test_validation_loss_is_that_of_one_process(
    layout: dict[str, Any], zero_stage: int, masks: bool, tmp_path: Path
) -> None:
    """A model that learns nothing; of 20 and 25 samples 4 and 5 are kept, the last of them in a second batch of 8."""
    data = Data(
        sources=_sources(tmp_path, 641, 801),
        validation_share=0.2,
        evaluation_interval=2,
        document_mask=masks,
        eod_mask_loss=masks,
        eod_token=5 if masks else None,
    )
    job = tiny_job(
        replace(LLAMA, zero_stage=zero_stage),
        **layout,
        num_steps=3,
        data=data,
        schedule=Schedule(learning_rate=0.0),
        metrics_folder=str(tmp_path),
        tensorboard_folder=str(tmp_path / "tensorboard"),
    )
    run_job(job, tmp_path)
    layers = layers_of(job, LayerContext(seed=job.seed))
    model, stream = Sequence(layers), open_validation(job)
    assert stream.num_samples == 9
    with torch.no_grad():
        losses = []
        for first in (0, 8):
            tokens = torch.from_numpy(stream.batch(first, 8)[:, :-1])
            outputs = model(tokens, stream_documents(job, stream, first, 8))
            losses.append(layers.loss(outputs, stream_labels(job, stream, first, 8)))
        expected = float(torch.stack(losses).mean())
    assert len(list((tmp_path / "tensorboard").iterdir())) == 1
    for rank in range(job.num_ranks):
        losses = [step.validation_loss for step in steps_of(tmp_path, rank)]
        assert losses == [None, pytest.approx(expected, abs=1e-5), pytest.approx(expected, abs=1e-5)]
