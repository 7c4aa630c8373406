"""Metrics for people to look at while a run goes on: TensorBoard and Weights & Biases, by their libraries.

Rank 0 writes them. A run that goes on behind a step replaces what another one has written of later steps.
"""

import importlib
import math
import os
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol

from executor.extra import missing_extra
from executor.metrics import StepMetrics
from executor.training_job import TrainingJob
from stowplan.errors import InputError


class Sink(Protocol):
    """Takes numbers by name."""

    def write(self, step: int, values: dict[str, float]) -> None:
        """Take those of a step."""

    def close(self) -> None:
        """Write all that was taken."""


class Sinks(AbstractContextManager["Sinks"]):
    """The sinks of a job; none on other ranks than 0.

    Parameters
    ----------
    first_step
        Steps done before the run.

    Raises
    ------
    InputError
        When a library is not installed, or cannot write.
    """

    def __init__(self, job: TrainingJob, rank: int, first_step: int) -> None:
        self._sinks: list[Sink] = []
        if rank == 0 and job.tensorboard_folder is not None:
            self._sinks.append(_TensorBoard(Path(job.tensorboard_folder), first_step))
        if rank == 0 and job.wandb_folder is not None:
            self._sinks.append(_WeightsAndBiases(Path(job.wandb_folder), job))

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with ExitStack() as stack:
            for sink in self._sinks:
                stack.callback(sink.close)

    def write(self, metrics: StepMetrics) -> None:
        """Give all sinks what people look at."""
        values = {
            "loss": metrics.loss,
            "learning_rate": metrics.learning_rate,
            "gradient_norm": math.sqrt(metrics.large_gradient_square),
            "tokens_per_s": metrics.tokens_per_s,
            "step_s": metrics.step_s,
        }
        if metrics.validation_loss is not None:
            values["validation_loss"] = metrics.validation_loss
        for sink in self._sinks:
            sink.write(metrics.step, values)


class _TensorBoard:
    def __init__(self, folder: Path, first_step: int) -> None:
        library = _library("torch.utils.tensorboard", "tensorboard")
        # What is purged are steps of a run that ended behind its last checkpoint.
        self._writer = library.SummaryWriter(str(folder), purge_step=first_step + 1 if first_step else None)

    def write(self, step: int, values: dict[str, float]) -> None:
        for name, value in values.items():
            self._writer.add_scalar(f"train/{name}", value, step)

    def close(self) -> None:
        self._writer.close()


class _WeightsAndBiases:
    """Offline, unless the variable WANDB_MODE says otherwise: `wandb sync` sends it later."""

    def __init__(self, folder: Path, job: TrainingJob) -> None:
        self._library = _library("wandb", "wandb")
        folder.mkdir(parents=True, exist_ok=True)
        self._run = self._library.init(
            project=job.wandb_project,
            dir=str(folder),
            mode=os.environ.get("WANDB_MODE", "offline"),
            # What a rank says goes to its log, and nowhere else.
            settings=self._library.Settings(console="off", silent=True),
            config={"model": job.model.name, "global_batch": job.global_batch, "num_steps": job.num_steps},
        )

    def write(self, step: int, values: dict[str, float]) -> None:
        self._run.log({f"train/{name}": value for name, value in values.items()}, step=step)

    def close(self) -> None:
        self._run.finish()
        # The process that writes the file: a rank ends without asking whether others have ended.
        self._library.teardown()


def _library(module: str, package: str) -> Any:
    """Load what only those need who ask for it."""
    if missing := missing_extra("this sink of metrics", (package,), extra="monitor"):
        raise InputError(missing)
    return importlib.import_module(module)
