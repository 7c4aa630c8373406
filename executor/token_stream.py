"""Training data: sample k of step t is a function of (seed, t, k) alone, the same for every layout.

A token file is a plain array of little-endian uint16 or uint32 token ids, without a header, documents one after
another. It is cut into windows of sequence_length + 1 tokens that overlap by one; window order is a new seeded
permutation in every epoch.
"""

import logging
from abc import ABC, abstractmethod
from functools import lru_cache
from pathlib import Path

import numpy as np

from executor.training_job import SYNTHETIC_DATA, TrainingJob
from stowplan.arrays import IntArray
from stowplan.errors import InputError

Tokens = IntArray
_logger = logging.getLogger("stowplan.executor.token_stream")


class TokenStream(ABC):
    """Endless samples."""

    @abstractmethod
    def sample(self, step: int, k: int) -> Tokens:
        """Sample k of a step: (sequence_length + 1,) token ids; inputs are all but the last, labels all but the first.

        Raises
        ------
        InputError
            When an id is outside the model's vocabulary.
        """

    def batch(self, step: int, first: int, count: int) -> Tokens:
        """Samples first .. first + count - 1 of a step, (count, sequence_length + 1)."""
        return np.stack([self.sample(step, first + k) for k in range(count)])


class SyntheticStream(TokenStream):
    """Arithmetic sequences with noise: a model learns to continue them, so the loss falls."""

    def __init__(self, *, seed: int, vocabulary_size: int, sequence_length: int) -> None:
        self._seed = seed
        self._vocabulary_size = vocabulary_size
        self._length = sequence_length + 1

    def sample(self, step: int, k: int) -> Tokens:
        """Start and stride are random; a tenth of the tokens is replaced by random ones."""
        random = np.random.default_rng([self._seed, step, k])
        start, stride = random.integers(self._vocabulary_size), random.integers(1, 4)
        tokens = (start + stride * np.arange(self._length)) % self._vocabulary_size
        noise = random.random(self._length) < 0.1
        tokens[noise] = random.integers(self._vocabulary_size, size=int(noise.sum()))
        return tokens.astype(np.int64)


class FileStream(TokenStream):
    """Windows of a token file, memory-mapped."""

    def __init__(
        self, path: Path, *, dtype: str, seed: int, vocabulary_size: int, sequence_length: int, global_batch: int
    ) -> None:
        try:
            self._tokens = np.memmap(path, dtype=np.dtype(dtype).newbyteorder("<"), mode="r")
        except (OSError, ValueError) as error:
            raise InputError(f"{path} cannot be read as a file of {dtype} tokens: {error}") from error
        self._path = path
        self._seed = seed
        self._vocabulary_size = vocabulary_size
        self._length = sequence_length
        self._global_batch = global_batch
        self._num_windows = (len(self._tokens) - 1) // sequence_length
        if self._num_windows < 1:
            raise InputError(f"{path} has {len(self._tokens)} tokens; one sample needs {sequence_length + 1}")
        self._order = lru_cache(maxsize=2)(self._permutation)

    def sample(self, step: int, k: int) -> Tokens:
        """The window that the epoch's permutation gives to sample number step x global batch + k."""
        epoch, place = divmod(step * self._global_batch + k, self._num_windows)
        start = int(self._order(epoch)[place]) * self._length
        tokens = self._tokens[start : start + self._length + 1].astype(np.int64)
        if tokens.max() >= self._vocabulary_size:
            raise InputError(
                f"{self._path} has the token {tokens.max()} at or behind position {start}; "
                f"the vocabulary of the model has {self._vocabulary_size}"
            )
        return tokens

    def _permutation(self, epoch: int) -> Tokens:
        return np.random.default_rng([self._seed, epoch]).permutation(self._num_windows)


def open_stream(job: TrainingJob) -> TokenStream:
    """Open the data of a job; raise InputError when the token file cannot be used."""
    model = job.model
    if job.token_file is None:
        _logger.warning(SYNTHETIC_DATA)
        return SyntheticStream(
            seed=job.seed, vocabulary_size=model.vocabulary_size, sequence_length=model.sequence_length
        )
    return FileStream(
        Path(job.token_file),
        dtype=job.token_type.value,
        seed=job.seed,
        vocabulary_size=model.vocabulary_size,
        sequence_length=model.sequence_length,
        global_batch=model.global_batch,
    )


def micro_batch(stream: TokenStream, job: TrainingJob, *, step: int, index: int, data: int, pipe: int = 0) -> Tokens:
    """The part of replica `data` of stage `pipe` in micro-batch `index` of a step, (its batch, sequence_length + 1).

    Parts and micro-batches follow each other, so together they are samples 0 .. global batch - 1.
    """
    start, end = job.stages[pipe].interval(data)
    return stream.batch(step, index * job.micro_batch + start, end - start)
