"""A corpus cut into windows of sequence_length + 1 tokens that overlap by one, the last ones kept for validation."""

from functools import lru_cache
from pathlib import Path

import numpy as np
import numpy.typing as npt

from executor.data.indexed import DocumentIndex, open_indexed
from executor.data.sources import Data, Source
from stowplan.arrays import IntArray, Mask
from stowplan.errors import InputError

# Tokens that are looked at together for the first end of a document.
_AT_ONCE = 1 << 24


class Windows:
    """Windows of one source.

    Parameters
    ----------
    seed
        Of the order in which epochs of training go through them, one number or several.
    data
        How much of it is kept for validation, and whether and how its documents are told apart.

    Raises
    ------
    InputError
        When the source cannot be opened, is too short for a window in either part, or nothing in it says where a
        document ends that must be known.
    """

    def __init__(
        self,
        source: Source,
        *,
        seed: tuple[int, ...],
        vocabulary_size: int,
        sequence_length: int,
        data: Data,
    ) -> None:
        self._name = source.path
        self._tokens = _tokens(source)
        self._seed = seed
        self._vocabulary_size = vocabulary_size
        self._length = sequence_length
        count = (len(self._tokens) - 1) // sequence_length
        if count < 1:
            raise InputError(f"{source.path} has {len(self._tokens)} tokens; one sample needs {sequence_length + 1}")
        share = data.validation_share
        self.num_validation = int(count * share)
        self._num_training = count - self.num_validation
        if share > 0 and not (self.num_validation and self._num_training):
            raise InputError(
                f"{source.path} has {count} samples, of which a share of {share:g} for validation leaves "
                f"{self.num_validation} there and {self._num_training} for training; both need at least 1"
            )
        self._order = lru_cache(maxsize=2)(self._permutation)
        self._end = data.eod_token
        self._index: DocumentIndex | None = None
        if data.tells_documents_apart:
            self._index = DocumentIndex(Path(source.path)) if source.token_type is None else None
            self._refuse_one_document()

    def training(self, number: int) -> int:
        """Window of sample `number` of endless training: every epoch has all of them, in an order of its own."""
        epoch, place = divmod(number, self._num_training)
        return int(self._order(epoch)[place])

    def validation(self, number: int) -> int:
        """Window of sample `number` for validation, always in the same order."""
        return self._num_training + number % self.num_validation

    def starts(self, window: int) -> Mask:
        """With which of its tokens documents begin; with the first one what is in it of the document of that."""
        first = window * self._length
        found = np.zeros(self._length + 1, dtype=np.bool_)
        found[0] = True
        if self._index is not None:
            found[self._index.starts(first, first + len(found)) - first] = True
        if self._end is not None:
            found[1:] |= self._tokens[first : first + self._length] == self._end
        return found

    def tokens(self, index: int) -> IntArray:
        """(sequence_length + 1,) tokens of a window."""
        start = index * self._length
        tokens = self._tokens[start : start + self._length + 1].astype(np.int64)
        if not 0 <= tokens.min() <= tokens.max() < self._vocabulary_size:
            wrong = tokens.max() if tokens.min() >= 0 else tokens.min()
            raise InputError(
                f"{self._name} has the token {wrong} at or behind position {start}; "
                f"the vocabulary of the model has {self._vocabulary_size}"
            )
        return tokens

    def _refuse_one_document(self) -> None:
        if self._index is not None and self._index.num_documents > 1:
            return
        if self._end is None:
            raise InputError(
                f"{self._name}.idx says that all is one document; give eod_token, the token that stands behind each, "
                "or write the dataset with a sequence for each (stowplan tokenize does)"
            )
        blocks = range(0, len(self._tokens), _AT_ONCE)
        if not any((self._tokens[first : first + _AT_ONCE] == self._end).any() for first in blocks):
            raise InputError(
                f"{self._name} has no token {self._end} (eod_token), so that nothing says where a document ends; give "
                "the one that its tokenizer puts behind each"
            )

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
