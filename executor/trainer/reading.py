"""Batches of a rank, read while the step before is computed."""

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor

import torch

from executor.token_stream import TokenStream, micro_batch
from executor.training_job import TrainingJob

# Inputs and labels of a micro-batch.
Batch = tuple[torch.Tensor, torch.Tensor]


class Reading:
    """What a rank needs of a stream, step by step; ranks of stages in the middle need nothing."""

    def __init__(self, stream: TokenStream, job: TrainingJob, rank: int) -> None:
        self._stream, self._job = stream, job
        self._place = job.coordinates(rank)
        self._pool = ThreadPoolExecutor(max_workers=1, thread_name_prefix="reading")
        self._first: int | None = None
        self._next: Future[list[Batch]] = Future()

    def batches(self, first: int) -> Iterator[Batch]:
        """This replica's micro-batches of the step that begins with sample `first`; those of the step behind it are
        read from now on.

        Raises
        ------
        InputError
            When the data have a token outside the vocabulary.
        """
        present = self._next.result() if self._first == first else self._read(first)
        self._first = first + self._job.global_batch
        self._next = self._pool.submit(self._read, self._first)
        return iter(present)

    def _read(self, first: int) -> list[Batch]:
        if self._place.pipe not in (0, self._job.last_stage):
            return []
        pipe, data, _ = self._place
        parts = (
            torch.from_numpy(micro_batch(self._stream, self._job, first=first, index=index, data=data, pipe=pipe))
            for index in range(self._job.num_micro_batches)
        )
        return [(tokens[:, :-1], tokens[:, 1:].contiguous()) for tokens in parts]
