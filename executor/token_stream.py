"""Training data: sample n of a training is a function of (seed, n) alone, the same for every layout and batch.

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
from stowplan.arrays import IntArray, Mask

Tokens = IntArray
_logger = logging.getLogger("stowplan.executor.token_stream")


class TokenStream(ABC):
    """Endless samples."""

    @abstractmethod
    def sample(self, number: int) -> Tokens:
        """One sample: (sequence_length + 1,) token ids; inputs are all but the last, labels all but the first.

        Raises
        ------
        InputError
            When an id is outside the model's vocabulary.
        """

    @abstractmethod
    def starts(self, number: int) -> Mask:
        """With which tokens of a sample documents begin, (sequence_length + 1,); the first one counts as such."""

    def batch(self, first: int, count: int) -> Tokens:
        """Samples first .. first + count - 1, (count, sequence_length + 1)."""
        return np.stack([self.sample(first + k) for k in range(count)])

    def batch_starts(self, first: int, count: int) -> Mask:
        """Likewise of `starts`."""
        return np.stack([self.starts(first + k) for k in range(count)])


class SyntheticStream(TokenStream):
    """Arithmetic sequences with noise: a model learns to continue them, so the loss falls."""

    def __init__(self, *, seed: int, vocabulary_size: int, sequence_length: int) -> None:
        self._seed = seed
        self._vocabulary_size = vocabulary_size
        self._length = sequence_length + 1

    def sample(self, number: int) -> Tokens:
        """Start and stride are random; a tenth of the tokens is replaced by random ones."""
        random = np.random.default_rng([self._seed, number])
        start, stride = random.integers(self._vocabulary_size), random.integers(1, 4)
        tokens = (start + stride * np.arange(self._length)) % self._vocabulary_size
        noise = random.random(self._length) < 0.1
        tokens[noise] = random.integers(self._vocabulary_size, size=int(noise.sum()))
        return tokens.astype(np.int64)

    def starts(self, number: int) -> Mask:  # noqa: ARG002 - all alike
        """A sequence is a document."""
        found = np.zeros(self._length, dtype=np.bool_)
        found[0] = True
        return found


class BlendedStream(TokenStream):
    """Samples of several sources, as their weights say."""

    def __init__(self, sources: Sequence[tuple[float, Windows]]) -> None:
        self._shares = shares_of([weight for weight, _ in sources])
        self._windows = [windows for _, windows in sources]

    def sample(self, number: int) -> Tokens:
        """One sample of the blend."""
        windows, index = self._window(number)
        return windows.tokens(index)

    def starts(self, number: int) -> Mask:
        """Where its documents begin."""
        windows, index = self._window(number)
        return windows.starts(index)

    def _window(self, number: int) -> tuple[Windows, int]:
        """The window that is a sample, and its source."""
        source, place = place_of(number, self._shares)
        return self._windows[source], self._windows[source].training(place)


class ValidationStream(BlendedStream):
    """The same of what is kept for validation; each evaluation begins at the first sample."""

    def _window(self, number: int) -> tuple[Windows, int]:
        source, place = place_of(number, self._shares)
        return self._windows[source], self._windows[source].validation(place)

    @property
    def num_samples(self) -> int:
        """So many hold every window once."""
        return sum(windows.num_validation for windows in self._windows)


def open_stream(job: TrainingJob) -> TokenStream:
    """Open the data of a job; raise InputError when they cannot be used."""
    model = job.model
    if not job.sources:
        _logger.warning(SYNTHETIC_DATA)
        return SyntheticStream(
            seed=job.seed, vocabulary_size=model.vocabulary_size, sequence_length=model.sequence_length
        )
    return BlendedStream(_windows(job))


def open_validation(job: TrainingJob) -> ValidationStream:
    """Open what of the data is kept for validation; raise InputError when there is none."""
    return ValidationStream(_windows(job))


def _windows(job: TrainingJob) -> list[tuple[float, Windows]]:
    return [
        (
            source.weight,
            Windows(
                source,
                seed=(job.seed, k) if k else (job.seed,),
                vocabulary_size=job.model.vocabulary_size,
                sequence_length=job.model.sequence_length,
                data=job.data,
            ),
        )
        for k, source in enumerate(job.sources)
    ]


def micro_batch(stream: TokenStream, job: TrainingJob, *, first: int, index: int, data: int, pipe: int = 0) -> Tokens:
    """The part of replica `data` of stage `pipe` in micro-batch `index` of a step, (its batch, sequence_length + 1).

    Parts and micro-batches follow each other, so together they are the samples from `first` on of the global batch.
    """
    return stream.batch(*samples_of(job, first=first, index=index, data=data, pipe=pipe))


def samples_of(job: TrainingJob, *, first: int, index: int, data: int, pipe: int) -> tuple[int, int]:
    """The first sample of that part, and how many there are."""
    start, end = job.stages[pipe].interval(data)
    return first + index * job.micro_batch + start, end - start
