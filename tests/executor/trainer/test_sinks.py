"""Metrics for TensorBoard and Weights & Biases: what their own readers find."""

import importlib
from dataclasses import replace
from pathlib import Path

import pytest

from executor.metrics import StepMetrics
from executor.trainer.sinks import Sinks
from stowplan.errors import InputError
from tests.executor.jobs import tiny_job

pytestmark = [pytest.mark.slow, pytest.mark.training]

METRICS = StepMetrics(
    launch=1,
    rank=0,
    step=1,
    pipe=0,
    data=0,
    tensor=0,
    host="a",
    started_at_s=0.0,
    step_s=0.5,
    forward_s=0.2,
    backward_s=0.3,
    send_s=0.0,
    receive_s=0.0,
    load_s=0.0,
    reduction_s=0.0,
    optimizer_s=0.0,
    num_micro_batches=1,
    tokens=256,
    tokens_per_s=512.0,
    peak_memory_bytes=1,
    loss=4.0,
    learning_rate=0.1,
    small_batch=8,
    small_gradient_square=9.0,
    large_batch=8,
    large_gradient_square=9.0,
)


def _write(sinks: Sinks, *losses: float, first: int = 0) -> None:
    with sinks:
        for k, loss in enumerate(losses, start=first + 1):
            sinks.write(replace(METRICS, step=k, loss=loss, validation_loss=7.0 if k == 2 else None))


def test_tensorboard_shows_every_step_once_after_a_restart(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard", reason="needs tensorboard: pip install -e '.[monitor]' in a checkout")
    job = tiny_job(tensorboard_folder=str(tmp_path))
    _write(Sinks(job, 0, 0), 4.0, 3.0, 2.0)
    # The last checkpoint was of step 2.
    _write(Sinks(job, 0, 2), 2.5, 1.5, first=2)
    # Loaded by nobody else.
    reader = importlib.import_module("tensorboard.backend.event_processing.event_accumulator")
    events = reader.EventAccumulator(str(tmp_path))
    events.Reload()
    found = {
        name: [(event.step, event.value) for event in events.Scalars(f"train/{name}")]
        for name in ("loss", "gradient_norm", "validation_loss")
    }
    assert found["loss"] == [(1, 4.0), (2, 3.0), (3, 2.5), (4, 1.5)]
    assert found["gradient_norm"] == [(step, 3.0) for step in (1, 2, 3, 4)]
    assert found["validation_loss"] == [(2, 7.0)]


def test_weights_and_biases_are_written_offline(tmp_path: Path) -> None:
    pytest.importorskip("wandb", reason="needs wandb: pip install -e '.[monitor]' in a checkout")
    _write(Sinks(tiny_job(wandb_folder=str(tmp_path), wandb_project="trials"), 0, 0), 4.0, 3.0)
    (file,) = tmp_path.glob("wandb/offline-run-*/run-*.wandb")
    assert b"train/validation_loss" in file.read_bytes()
    assert b"trials" in file.read_bytes()


def test_other_ranks_write_nothing(tmp_path: Path) -> None:
    _write(Sinks(tiny_job(dp=2, tensorboard_folder=str(tmp_path / "a"), wandb_folder=str(tmp_path / "b")), 1, 0), 4.0)
    assert not list(tmp_path.iterdir())


def test_missing_library_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("executor.extra.find_spec", lambda _: None)
    with pytest.raises(InputError, match=r"needs tensorboard; install the extra: pip install -e '\.\[monitor\]'"):
        Sinks(tiny_job(tensorboard_folder=str(tmp_path)), 0, 0)
