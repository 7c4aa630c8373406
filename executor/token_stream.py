"""Training data: sample k of step t is a function of (seed, t, k) alone, the same for every layout.

Sources are token files (plain arrays of little-endian uint16 or uint32 token ids, without a header, documents one after
another) and datasets of Megatron-LM. Each is cut into windows (`executor.data.windows`), whose order is a new seeded
permutation in every epoch; a blend takes from each by its weight (`executor.data.blend`).
"""

import logging
from abc import ABC, abstractmethod
from collections.abc import Sequence

import numpy as np

from executor.data.blend import place_of, shares_of
from executor.data.windows import Windows
from executor.training_job import SYNTHETIC_DATA, TrainingJob
from stowplan.arrays import IntArray

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


class BlendedStream(TokenStream):
    """Samples of several sources, as their weights say."""

    def __init__(self, sources: Sequence[tuple[float, Windows]], *, global_batch: int) -> None:
        self._shares = shares_of([weight for weight, _ in sources])
        self._windows = [windows for _, windows in sources]
        self._global_batch = global_batch

    def sample(self, step: int, k: int) -> Tokens:
        """Sample number step x global batch + k of the blend."""
        source, number = place_of(step * self._global_batch + k, self._shares)
        return self._windows[source].training(number)


class ValidationStream(BlendedStream):
    """The same of what is kept for validation; a step is a batch of an evaluation, and each evaluation is the same."""

    def sample(self, step: int, k: int) -> Tokens:
        """Sample number step x global batch + k."""
        source, number = place_of(step * self._global_batch + k, self._shares)
        return self._windows[source].validation(number)

    @property
    def num_batches(self) -> int:
        """How many hold every window once; the last one may begin again."""
        return -(-sum(windows.num_validation for windows in self._windows) // self._global_batch)


def open_stream(job: TrainingJob) -> TokenStream:
    """Open the data of a job; raise InputError when they cannot be used."""
    model = job.model
    if not job.sources:
        _logger.warning(SYNTHETIC_DATA)
        return SyntheticStream(
            seed=job.seed, vocabulary_size=model.vocabulary_size, sequence_length=model.sequence_length
        )
    return BlendedStream(_windows(job), global_batch=model.global_batch)


def open_validation(job: TrainingJob) -> ValidationStream:
    """Open what of the data is kept for validation; raise InputError when there is none."""
    return ValidationStream(_windows(job), global_batch=job.model.global_batch)


def _windows(job: TrainingJob) -> list[tuple[float, Windows]]:
    return [
        (
            source.weight,
            Windows(
                source,
                seed=(job.seed, k) if k else (job.seed,),
                vocabulary_size=job.model.vocabulary_size,
                sequence_length=job.model.sequence_length,
                validation_share=job.data.validation_share,
            ),
        )
        for k, source in enumerate(job.sources)
    ]


def micro_batch(stream: TokenStream, job: TrainingJob, *, step: int, index: int, data: int, pipe: int = 0) -> Tokens:
    """The part of replica `data` of stage `pipe` in micro-batch `index` of a step, (its batch, sequence_length + 1).

    Parts and micro-batches follow each other, so together they are samples 0 .. global batch - 1.
    """
    start, end = job.stages[pipe].interval(data)
    return stream.batch(step, index * job.micro_batch + start, end - start)
