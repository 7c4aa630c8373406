"""Batches of a rank, read while the step before is computed."""

from concurrent.futures import Future, ThreadPoolExecutor

import torch

from executor.token_stream import TokenStream, micro_batch, samples_of
from executor.trainer.documents import IGNORED, Documents
from executor.trainer.engine import Batches
from executor.training_job import TrainingJob


class Reading:
    """What a rank needs of a stream, step by step; ranks of stages in the middle need no tokens."""

    def __init__(self, stream: TokenStream, job: TrainingJob, rank: int) -> None:
        self._stream, self._job = stream, job
        self._place = job.coordinates(rank)
        self._pool = ThreadPoolExecutor(max_workers=1, thread_name_prefix="reading")
        self._first: int | None = None
        self._next: Future[Batches] = Future()

    def batches(self, first: int) -> Batches:
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
        return present

    def _read(self, first: int) -> Batches:
        stream, job, (pipe, data, _) = self._stream, self._job, self._place
        pairs: list[tuple[torch.Tensor, torch.Tensor]] = []
        documents: list[Documents] = []
        reads_tokens, masks_loss = pipe in (0, job.last_stage), job.eod_mask_loss and pipe == job.last_stage
        for index in range(job.num_micro_batches):
            part = {"first": first, "index": index, "data": data, "pipe": pipe}
            if job.document_mask or masks_loss:
                starts = stream.batch_starts(*samples_of(job, **part))
            if job.document_mask:
                documents.append(Documents.beginning_at(starts[:, :-1]))
            if reads_tokens:
                tokens = torch.from_numpy(micro_batch(stream, job, **part))
                labels = tokens[:, 1:].contiguous()
                if masks_loss:
                    # Not in place: a single sample's labels share their memory with its inputs.
                    labels = labels.masked_fill(torch.from_numpy(starts[:, 1:]), IGNORED)
                pairs.append((tokens[:, :-1], labels))
        return Batches(
            pairs=tuple(pairs),
            documents=tuple(documents),
            num_counted=self._num_counted(first) if masks_loss else None,
        )

    def _num_counted(self, first: int) -> int:
        """Of all samples of a step, whoever computes them, so that nobody has to ask the others."""
        starts = self._stream.batch_starts(first, self._job.global_batch)[:, 1:]
        return max(1, starts.size - int(starts.sum()))
