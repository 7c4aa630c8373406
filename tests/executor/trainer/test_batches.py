"""A training whose batch changes reads every sample once, and its learning rate follows: on real ranks."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from executor.checkpoints import MANIFEST, last_good
from executor.learning_rate import after_step, learning_rate_at
from executor.progress import Progress, ScalingRule
from executor.token_stream import open_stream
from executor.trainer.context import LayerContext
from executor.trainer.layers import layers_of
from executor.training_job import TrainingJob
from executor.training_layout import StageLayout
from executor.training_options import EngineName, Schedule
from models.transformer import Optimizer
from tests.executor.jobs import GPT, tiny_job
from tests.executor.trainer.launching import run_job, steps_of
from tests.executor.trainer.reference import Sequence, reference

pytestmark = [pytest.mark.slow, pytest.mark.training]

# So small that the model stays as it is.
_STILL = Schedule(learning_rate=1e-12, final_ratio=1.0, scaling=ScalingRule.SQUARE_ROOT, initial_batch=8)


def _job(folder: Path, run: int, shares: tuple[int, ...], count: int, steps: int, **more: Any) -> TrainingJob:
    """Micro-batches of these shares; `steps` are those of 8 sequences."""
    stages, model = (StageLayout(num_layers=4, tp=1, batches=shares),), more.pop("model", GPT)
    given: dict[str, Any] = {"schedule": _STILL, "resume": "last", "checkpoint_folder": str(folder / "checkpoints")}
    return tiny_job(
        replace(model, global_batch=sum(shares) * count),
        stages=stages,
        num_micro_batches=count,
        num_steps=steps,
        metrics_folder=str(folder / str(run)),
        **given | more,
    )


def _losses(job: TrainingJob, num_samples: int) -> np.ndarray[Any, Any]:
    """Of every sample, by the model as it is drawn."""
    layers, tokens = layers_of(job, LayerContext(seed=job.seed)), open_stream(job).batch(0, num_samples)
    model, samples = Sequence(layers), torch.from_numpy(tokens)
    with torch.no_grad():
        return np.array([float(layers.loss(model(each[None, :-1]), each[None, 1:])) for each in samples])


@pytest.mark.parametrize("engine", EngineName)
def test_every_sample_is_read_once_whatever_the_batches(engine: EngineName, tmp_path: Path) -> None:
    """Two steps of 8 on one rank, two of 16 on two, one of 24 on one: while noise is not known all are worth 8."""
    runs = [((2,), 4, 2), ((4, 4), 2, 4), ((6,), 4, 5)][: 3 if engine is EngineName.NATIVE else 2]
    jobs = [_job(tmp_path, k, *run, engine=engine) for k, run in enumerate(runs)]
    for k, job in enumerate(jobs):
        run_job(job, tmp_path / str(k))
    steps = [step for k in range(len(jobs)) for step in steps_of(tmp_path / str(k))]
    assert [step.step for step in steps] == list(range(1, len(steps) + 1))
    sizes = [8, 8, 16, 16, 24][: len(steps)]
    assert [step.large_batch for step in steps] == sizes
    assert [step.learning_rate for step in steps] == pytest.approx([1e-12 * (size / 8) ** 0.5 for size in sizes])
    ends = np.cumsum(sizes)
    expected = [part.mean() for part in np.split(_losses(jobs[0], ends[-1]), ends[:-1])]
    np.testing.assert_allclose([step.loss for step in steps], expected, atol=1e-5)
    checkpoint = last_good(tmp_path / "checkpoints")
    assert checkpoint is not None
    assert (checkpoint.done.samples, checkpoint.done.work) == (ends[-1], 8.0 * len(steps))
    # Of one rank's micro-batches, of two replicas.
    assert [step.small_batch for step in steps] == [2, 2, 8, 8, 6][: len(steps)]
    parts = reference(replace(tiny_job(), num_steps=1), replicas=4)
    assert steps[0].small_gradient_square == pytest.approx(parts[0].small_gradient_square, rel=1e-4)
    assert checkpoint.done.noise.num_steps == len(steps)


def test_sgd_follows_adascale_and_goes_on_from_a_checkpoint_that_has_no_progress(tmp_path: Path) -> None:
    """Eleven steps of 8 tell the noise; the last ones are of 16, and worth more than one each."""
    model = replace(GPT, optimizer=Optimizer.SGD)
    schedule = Schedule(
        learning_rate=0.05,
        final_ratio=1.0,
        weight_decay=0.0,
        scaling=ScalingRule.ADASCALE,
        initial_batch=8,
    )
    common: dict[str, Any] = {"model": model, "engine": EngineName.NATIVE, "schedule": schedule}
    first = _job(tmp_path, 0, (2,), 4, 11, **common)
    run_job(first, tmp_path / "0")
    expected = reference(tiny_job(model, schedule=schedule, num_steps=3, engine=EngineName.NATIVE))
    begun = steps_of(tmp_path / "0")
    np.testing.assert_allclose([step.loss for step in begun[:3]], [step.loss for step in expected], atol=1e-5)
    assert begun[-1].loss < begun[0].loss

    second = _job(tmp_path, 1, (4,), 4, 14, **common)
    run_job(second, tmp_path / "1")
    progress = Progress()
    for job, k in ((first, 0), (second, 1)):
        for step in steps_of(tmp_path / str(k)):
            assert step.learning_rate == pytest.approx(learning_rate_at(job, progress), rel=1e-6)
            progress = after_step(job, progress, step.small_gradient_square, step.large_gradient_square)
    changed = steps_of(tmp_path / "1")
    assert 0.05 < changed[0].learning_rate <= 0.1
    assert len(changed) <= 3
    # As those of earlier versions: all its steps count as of the batch of its model.
    done = last_good(tmp_path / "checkpoints")
    assert done is not None
    assert done.done == progress
    path = tmp_path / "checkpoints" / done.tag / MANIFEST
    document = json.loads(path.read_text())
    del document["progress"]
    path.write_text(json.dumps(document))
    old = last_good(tmp_path / "checkpoints")
    assert old is not None
    assert old.done == Progress.plain(16 * old.step)
