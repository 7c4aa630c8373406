"""The loss on what is kept for validation, always over the same samples."""

from executor.token_stream import open_validation
from executor.trainer.engine import Engine
from executor.trainer.reading import Reading
from executor.training_job import TrainingJob


class Evaluation:
    """Evaluations of one rank.

    Raises
    ------
    InputError
        When there is nothing to evaluate on.
    """

    def __init__(self, job: TrainingJob, rank: int) -> None:
        stream = open_validation(job)
        # Of the initial batch: another one evaluates the same samples.
        num_samples = min(job.data.evaluation_batches * job.initial_batch, stream.num_samples)
        self._batch, self.num_batches = job.global_batch, -(-num_samples // job.global_batch)
        self._interval = job.data.evaluation_interval
        self._data = Reading(stream, job, rank)

    def is_due(self, step: int, *, stopping: bool, finished: bool) -> bool:
        """Whether one follows step `step`, counted from 1; a run that is told to stop has no time for it."""
        return not stopping and (step % self._interval == 0 or finished)

    def loss(self, engine: Engine) -> float:
        """Mean loss over all batches; collective."""
        losses = [engine.evaluate(self._data.batches(k * self._batch)) for k in range(self.num_batches)]
        return sum(losses) / len(losses)
