"""Datasets of Megatron-LM: `prefix.bin` has the tokens of all documents, `prefix.idx` says where each begins.

    .idx   "MMIDIDX\\0\\0", version 1 (uint64), code of the number format (uint8), number of sequences n, number of
           document bounds m (uint64 each), n lengths in tokens (int32), n offsets in bytes (int64), m bounds of
           documents in sequences, from 0 (int64); little-endian
    .bin   the sequences one after another

Source: `megatron/core/datasets/indexed_dataset.py` and `readme.md` there.
"""

import os
import struct
from array import array
from bisect import bisect_left
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from stowplan.arrays import IntVector
from stowplan.errors import FileFormatError, InputError

_MAGIC = b"MMIDIDX\x00\x00"
_VERSION = 1
_HEADER = struct.Struct("<9sQBQQ")
# Of the formats those that tokens may have.
_FORMATS: Mapping[int, str] = MappingProxyType({1: "u1", 2: "i1", 3: "<i2", 4: "<i4", 5: "<i8", 8: "<u2"})
_CODES: Mapping[str, int] = MappingProxyType({"<u2": 8, "<i4": 4})


class _Head(NamedTuple):
    """The first bytes of an index that was checked."""

    number: np.dtype[np.integer]
    sequences: int
    bounds: int


class DocumentIndex:
    """Where the documents of a dataset begin; looked up in its index, which is not read as a whole."""

    def __init__(self, prefix: Path) -> None:
        index = _with(prefix, ".idx")
        head = _head(index)
        self._bytes_per_token = head.number.itemsize
        place = _HEADER.size + 4 * head.sequences
        # Neither lies where its numbers could be searched by numpy without a copy of all.
        self._offsets = np.memmap(index, dtype="<i8", mode="r", offset=place, shape=(head.sequences,))
        place += 8 * head.sequences
        self._bounds = np.memmap(index, dtype="<i8", mode="r", offset=place, shape=(head.bounds,))

    @property
    def num_documents(self) -> int:
        """How many there are."""
        return len(self._bounds) - 1

    def starts(self, first: int, end: int) -> IntVector:
        """Of the tokens from `first` to before `end` those with which documents begin, in order."""
        sequences = (bisect_left(self._offsets, token * self._bytes_per_token) for token in (first, end))
        documents = slice(*(bisect_left(self._bounds, sequence) for sequence in sequences))
        begun = self._bounds[documents]
        # Behind the last sequence stands the end of the last document.
        return np.asarray(self._offsets[begun[begun < len(self._offsets)]] // self._bytes_per_token, dtype=np.int64)


def open_indexed(prefix: Path) -> npt.NDArray[np.integer]:
    """All tokens of a dataset in order, (tokens,), mapped into memory.

    Raises
    ------
    FileFormatError
        When a file is missing, or is of another format, version or length.
    """
    index, data = _with(prefix, ".idx"), _with(prefix, ".bin")
    number, sequences, _ = _head(index)
    try:
        data_size = data.stat().st_size
    except OSError as error:
        raise FileFormatError.at(error.filename, None, f"cannot be read: {error.strerror}") from error
    if not data_size or not sequences:
        raise FileFormatError.at(str(data), None, "has no tokens")
    lengths = np.memmap(index, dtype="<i4", mode="r", offset=_HEADER.size, shape=(sequences,))
    tokens = int(lengths.sum(dtype=np.int64))
    if tokens * number.itemsize != data_size:
        detail = f"has {data_size} bytes; its index says {tokens} tokens of {number.name}"
        raise FileFormatError.at(str(data), None, detail)
    return np.memmap(data, dtype=number, mode="r")


def _head(index: Path) -> _Head:
    """What an index says of itself; FileFormatError when it is none."""
    try:
        with index.open("rb") as file:
            head = file.read(_HEADER.size)
        size = index.stat().st_size
    except OSError as error:
        raise FileFormatError.at(error.filename, None, f"cannot be read: {error.strerror}") from error
    if len(head) < _HEADER.size or not head.startswith(_MAGIC):
        raise FileFormatError.at(str(index), None, "is no index of Megatron-LM: it does not begin with MMIDIDX")
    _, version, code, sequences, bounds = _HEADER.unpack(head)
    if version != _VERSION:
        raise FileFormatError.at(str(index), None, f"is of version {version}; version {_VERSION} is read")
    if code not in _FORMATS:
        raise FileFormatError.at(str(index), None, f"says that tokens are numbers of the code {code}; {_known()}")
    # Of indices of several modalities a byte a sequence follows.
    shortest = _HEADER.size + 12 * sequences + 8 * bounds
    if size not in (shortest, shortest + sequences):
        detail = f"has {size} bytes; {sequences} sequences and {bounds} bounds of documents take {shortest}"
        raise FileFormatError.at(str(index), None, detail)
    return _Head(np.dtype(_FORMATS[code]), sequences, bounds)


def write_indexed(prefix: Path, documents: Iterable[npt.ArrayLike], *, vocabulary_size: int) -> int:
    """Write a dataset of documents, a sequence each; give the number of tokens. Replaces another one, but at the end.

    Raises
    ------
    InputError
        When a token is outside the vocabulary, or there is no document.
    """
    number = np.dtype("<u2" if vocabulary_size <= 2**16 else "<i4")
    index, data = _with(prefix, ".idx"), _with(prefix, ".bin")
    drafts = {path: path.with_name(f".{path.name}.part") for path in (data, index)}
    lengths = array("i")
    with drafts[data].open("wb") as file:
        for document in documents:
            tokens = np.asarray(document, dtype=np.int64)
            if tokens.size and not 0 <= tokens.min() <= tokens.max() < vocabulary_size:
                drafts[data].unlink()
                raise InputError(f"document {len(lengths)} has the token {tokens.max()}; there are {vocabulary_size}")
            file.write(tokens.astype(number).tobytes())
            lengths.append(len(tokens))
    if not sum(lengths):
        drafts[data].unlink()
        raise InputError(f"there are no tokens to write to {data}")
    offsets = (np.cumsum(lengths, dtype=np.int64) - lengths) * number.itemsize
    with drafts[index].open("wb") as file:
        file.write(_HEADER.pack(_MAGIC, _VERSION, _CODES[number.str], len(lengths), len(lengths) + 1))
        file.write(np.array(lengths, dtype="<i4").tobytes())
        file.write(offsets.astype("<i8").tobytes())
        file.write(np.arange(len(lengths) + 1, dtype="<i8").tobytes())
    for path, draft in drafts.items():
        os.replace(draft, path)
    return sum(lengths)


def _with(prefix: Path, suffix: str) -> Path:
    return prefix.with_name(prefix.name + suffix)


def _known() -> str:
    known = ", ".join(f"{code} ({np.dtype(number).name})" for code, number in _FORMATS.items())
    return f"those of whole numbers are {known}"
