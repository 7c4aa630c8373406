"""The training loop of one rank: steps, measurements, checkpoints, an orderly stop."""

import logging
import math
import resource
import signal
import socket
import statistics
import time
from collections import deque
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from pathlib import Path

import torch

from executor.launch.pulse import Pulse
from executor.learning_rate import after_step, is_finished, learning_rate_at, steps_left
from executor.metrics import MetricsWriter, StepMetrics, metrics_path
from executor.outcome import End, Outcome
from executor.progress import Progress
from executor.run_files import STOP_FILE
from executor.timeline import Activity, Span, Timeline
from executor.token_stream import open_stream
from executor.trainer import checkpointing
from executor.trainer.clock import StepClock
from executor.trainer.engine import Engine, Place, agree
from executor.trainer.evaluation import Evaluation
from executor.trainer.handing import Handing, hand_over
from executor.trainer.reading import Reading
from executor.trainer.sinks import Sinks
from executor.training_job import TrainingJob
from executor.training_options import Device
from stowplan.errors import WorkerError

_logger = logging.getLogger("stowplan.executor.trainer")


_PARTS = ("forward", "backward", "send", "receive", "load", "reduction", "optimizer")
# Steps whose median tells a hang.
_NUM_REMEMBERED = 100


class Loop:
    """Steps of one rank.

    SIGTERM to any rank, or STOP_FILE in the `folder` of the run, ends the run behind the step in work, with a
    checkpoint; where the ranks of a next run take the state over, it is written while these train already. `clock` is
    the one that the engine was built with; `progress`: of the training until now.
    """

    def __init__(
        self,
        engine: Engine,
        clock: StepClock,
        job: TrainingJob,
        place: Place,
        launch: int,
        folder: Path,
        pulse: Pulse,
        progress: Progress,
    ) -> None:
        self._engine = engine
        self._job = job
        self._place = place
        self._launch = launch
        self._folder = folder
        self._data = Reading(open_stream(job), job, place.rank)
        self._evaluation = Evaluation(job, place.rank) if job.data.evaluation_interval else None
        self._clock = clock
        self._signalled = False
        self._host = socket.gethostname()
        self._loss: float | None = None
        self._pulse = pulse
        self._progress = progress
        self._steps_s: deque[float] = deque(maxlen=_NUM_REMEMBERED)
        signal.signal(signal.SIGTERM, self._note_signal)

    def run(self) -> Outcome:
        """Train to the last step, or until the run is told to stop.

        Raises
        ------
        WorkerError
            When loss or gradient are no numbers any more.
        """
        job = self._job
        step, failure, stopping = self._engine.step, None, False
        saving: Span | None = None
        handing: Handing | None = None
        with self._writer() as writer, Sinks(job, self._place.rank, step) as sinks:
            while not is_finished(job, self._progress) and not stopping:
                self._beat_for_step()
                metrics, stopping = self._step(step)
                self._pulse.beat(job.save_limit_s, "writing to disk")
                self._steps_s.append(metrics.step_s)
                step += 1
                if self._evaluation is not None and self._evaluation.is_due(
                    step, stopping=stopping, finished=is_finished(job, self._progress)
                ):
                    metrics = replace(metrics, validation_loss=self._evaluate(self._evaluation))
                if writer is not None:
                    writer.write(metrics)
                sinks.write(metrics)
                self._log(metrics)
                if not self._is_due(step, stopping):
                    continue
                if stopping and not is_finished(job, self._progress):
                    handing = hand_over(self._engine, job, step, self._progress, self._folder, self._pulse)
                    self._pulse.beat(job.save_limit_s, "writing to disk")
                is_behind = handing is not None and handing.failure is None
                saved = Timeline(Activity.SAVING)
                failure = checkpointing.save(self._engine, job, step, self._progress, is_behind=is_behind)
                self._log_checkpoint(step, failure)
                if is_behind:
                    # Nothing is lost with it: another run has the state.
                    failure = None
                else:
                    (saving,) = saved.end().spans
        end = End.FINISHED if is_finished(job, self._progress) else End.STOPPED
        return Outcome(
            end=end,
            step=step,
            loss=self._loss,
            checkpoint_failure=failure,
            saving=saving,
            handing=None if handing is None else handing.span,
        )

    def _beat_for_step(self) -> None:
        """Say how long the next step may take; the first one compiles."""
        if not self._steps_s:
            self._pulse.beat(self._job.start_limit_s, "doing its first step")
            return
        self._pulse.beat(self._step_limit_s(), "doing a step")

    def _step_limit_s(self) -> float:
        """How long a step may take, after the first one."""
        usual_s = self._job.hang_limit_steps * statistics.median(self._steps_s)
        return max(self._job.hang_limit_s, usual_s)

    def _is_due(self, step: int, stopping: bool) -> bool:
        """Whether a checkpoint follows step `step`, counted from 1."""
        interval = self._job.checkpoint_interval
        due = stopping or is_finished(self._job, self._progress) or (interval > 0 and step % interval == 0)
        return due and self._job.checkpoint_folder is not None

    def _step(self, step: int) -> tuple[StepMetrics, bool]:
        """Do one step; give what was measured, and whether any rank was told to stop."""
        engine, job = self._engine, self._job
        rate = learning_rate_at(job, self._progress)
        _reset_peak_memory(job)
        started_at_s, start_s = time.time(), time.perf_counter()
        result = engine.train_step(self._data.batches(self._progress.samples), rate)
        parts_s = self._clock.collect()
        step_s = time.perf_counter() - start_s
        self._loss, norm = result.loss, result.gradient_norm
        if not (math.isfinite(self._loss) and math.isfinite(norm)):
            raise WorkerError(f"step {step + 1} has the loss {self._loss} and the gradient norm {norm}")
        told = float(self._is_told_to_stop())
        small, large, stop = agree([result.small_square, result.large_square, told], engine.device)
        self._progress = after_step(job, self._progress, small, large)
        pipe, data, tensor = job.coordinates(self._place.rank)
        metrics = StepMetrics(
            launch=self._launch,
            rank=self._place.rank,
            step=step + 1,
            pipe=pipe,
            data=data,
            tensor=tensor,
            host=self._host,
            started_at_s=started_at_s,
            step_s=step_s,
            **{f"{part}_s": parts_s.get(part, 0.0) for part in _PARTS},
            num_micro_batches=job.num_micro_batches,
            tokens=job.tokens_per_step,
            tokens_per_s=job.tokens_per_step / step_s,
            peak_memory_bytes=_peak_memory_bytes(job),
            loss=self._loss,
            learning_rate=rate,
            small_batch=job.small_batch,
            small_gradient_square=small,
            large_batch=job.global_batch,
            large_gradient_square=large,
        )
        return metrics, stop > 0

    def _evaluate(self, evaluation: Evaluation) -> float:
        """Loss on what is kept for validation; its batches may take as long as steps, and count in none."""
        self._pulse.beat(evaluation.num_batches * self._step_limit_s(), "evaluating")
        loss = evaluation.loss(self._engine)
        self._clock.collect()
        self._pulse.beat(self._job.save_limit_s, "writing to disk")
        return loss

    def _note_signal(self, *_: object) -> None:
        self._signalled = True

    def _is_told_to_stop(self) -> bool:
        return self._signalled or (self._place.rank == 0 and (self._folder / STOP_FILE).exists())

    def _writer(self) -> AbstractContextManager[MetricsWriter | None]:
        if self._job.metrics_folder is None:
            return nullcontext()
        return MetricsWriter(metrics_path(Path(self._job.metrics_folder), self._place.rank))

    def _log(self, metrics: StepMetrics) -> None:
        if self._place.rank == 0:
            _logger.info(
                "step %d of %d: loss %.6f, %.3f s, %.0f tokens/s",
                *(
                    metrics.step,
                    metrics.step + steps_left(self._job, self._progress),
                    metrics.loss,
                    metrics.step_s,
                    metrics.tokens_per_s,
                ),
            )
            if metrics.validation_loss is not None:
                _logger.info("step %d: validation loss %.6f", metrics.step, metrics.validation_loss)

    def _log_checkpoint(self, step: int, failure: str | None) -> None:
        if self._place.rank != 0:
            return
        if failure is None:
            _logger.info("checkpoint of step %d is the last good one", step)
        else:
            _logger.error("checkpoint of step %d could not be written, the one before stays: %s", step, failure)


def _reset_peak_memory(job: TrainingJob) -> None:
    if job.device is Device.CUDA:
        torch.cuda.reset_peak_memory_stats()


def _peak_memory_bytes(job: TrainingJob) -> int:
    if job.device is Device.CUDA:
        return int(torch.cuda.max_memory_allocated())
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
