"""A corpus cut into windows of sequence_length + 1 tokens that overlap by one, the last ones kept for validation."""

from functools import lru_cache
from pathlib import Path

import numpy as np
import numpy.typing as npt

from executor.data.indexed import open_indexed
from executor.data.sources import Source
from stowplan.arrays import IntArray
from stowplan.errors import InputError


class Windows:
    """Windows of one source.

    Parameters
    ----------
    seed
        Of the order in which epochs of training go through them, one number or several.

    Raises
    ------
    InputError
        When the source cannot be opened, or is too short for a window in either part.
    """

    def __init__(
        self,
        source: Source,
        *,
        seed: tuple[int, ...],
        vocabulary_size: int,
        sequence_length: int,
        validation_share: float = 0.0,
    ) -> None:
        self._name = source.path
        self._tokens = _tokens(source)
        self._seed = seed
        self._vocabulary_size = vocabulary_size
        self._length = sequence_length
        count = (len(self._tokens) - 1) // sequence_length
        if count < 1:
            raise InputError(f"{source.path} has {len(self._tokens)} tokens; one sample needs {sequence_length + 1}")
        self.num_validation = int(count * validation_share)
        self._num_training = count - self.num_validation
        if validation_share > 0 and not (self.num_validation and self._num_training):
            raise InputError(
                f"{source.path} has {count} samples, of which a share of {validation_share:g} for validation leaves "
                f"{self.num_validation} there and {self._num_training} for training; both need at least 1"
            )
        self._order = lru_cache(maxsize=2)(self._permutation)

    def training(self, number: int) -> IntArray:
        """Sample `number` of endless training: every epoch has all windows, in an order of its own."""
        epoch, place = divmod(number, self._num_training)
        return self._window(int(self._order(epoch)[place]))

    def validation(self, number: int) -> IntArray:
        """Sample `number` for validation, always in the same order."""
        return self._window(self._num_training + number % self.num_validation)

    def _window(self, index: int) -> IntArray:
        start = index * self._length
        tokens = self._tokens[start : start + self._length + 1].astype(np.int64)
        if not 0 <= tokens.min() <= tokens.max() < self._vocabulary_size:
            wrong = tokens.max() if tokens.min() >= 0 else tokens.min()
            raise InputError(
                f"{self._name} has the token {wrong} at or behind position {start}; "
                f"the vocabulary of the model has {self._vocabulary_size}"
            )
        return tokens

    def _permutation(self, epoch: int) -> IntArray:
        return np.random.default_rng([*self._seed, epoch]).permutation(self._num_training)


def _tokens(source: Source) -> npt.NDArray[np.integer]:
    if source.token_type is None:
        return open_indexed(Path(source.path))
    number = np.dtype(source.token_type.value).newbyteorder("<")
    try:
        return np.memmap(source.path, dtype=number, mode="r")
    except (OSError, ValueError) as error:
        raise InputError(f"{source.path} cannot be read as a file of {source.token_type} tokens: {error}") from error
