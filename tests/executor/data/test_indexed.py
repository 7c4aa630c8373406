"""Datasets of Megatron-LM: read as they are published, written as they are read; anything else is refused."""

import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from executor.data.indexed import DocumentIndex, open_indexed, write_indexed
from stowplan.errors import FileFormatError, InputError

# Two documents, of 3 and 2 tokens, in 16 bits: what Megatron's own writer gives, byte by byte.
_INDEX = b"".join(
    (
        b"MMIDIDX\x00\x00",
        struct.pack("<QBQQ", 1, 8, 2, 3),
        struct.pack("<2i", 3, 2),
        struct.pack("<2q", 0, 6),
        struct.pack("<3q", 0, 1, 2),
    )
)
_TOKENS = struct.pack("<5H", 7, 8, 9, 1, 2)


@pytest.fixture
def prefix(tmp_path: Path) -> Path:
    (tmp_path / "corpus.v1.idx").write_bytes(_INDEX)
    (tmp_path / "corpus.v1.bin").write_bytes(_TOKENS)
    return tmp_path / "corpus.v1"


def test_published_format_is_read_and_written(prefix: Path) -> None:
    np.testing.assert_array_equal(open_indexed(prefix), [7, 8, 9, 1, 2])
    copy = prefix.with_name("copy")
    assert write_indexed(copy, [[7, 8, 9], [1, 2]], vocabulary_size=100) == 5
    assert copy.with_name("copy.idx").read_bytes() == _INDEX
    assert copy.with_name("copy.bin").read_bytes() == _TOKENS
    assert sorted(path.name for path in prefix.parent.iterdir()) == [
        *("copy.bin", "copy.idx", "corpus.v1.bin", "corpus.v1.idx")
    ]


def test_documents_begin_where_the_index_says(prefix: Path) -> None:
    """The second one of two sequences, of 3 and 2 tokens, behind a first of 3."""
    index = b"".join(
        (
            b"MMIDIDX\x00\x00",
            struct.pack("<QBQQ", 1, 4, 3, 3),
            struct.pack("<3i", 3, 3, 2),
            struct.pack("<3q", 0, 12, 24),
            struct.pack("<3q", 0, 1, 3),
        )
    )
    prefix.with_name("two.idx").write_bytes(index)
    documents = DocumentIndex(prefix.with_name("two"))
    assert documents.num_documents == 2
    assert documents.starts(0, 9).tolist() == [0, 3]
    assert documents.starts(1, 3).tolist() == []
    assert documents.starts(3, 4).tolist() == [3]
    assert documents.starts(4, 8).tolist() == []
    assert DocumentIndex(prefix).starts(0, 5).tolist() == [0, 3]


def test_looking_documents_up_reads_hardly_more_of_a_large_index(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads: list[int] = []
    for count in (1000, 16_000):
        write_indexed(tmp_path / str(count), [[1, 2]] * count, vocabulary_size=10)
        documents, looked = DocumentIndex(tmp_path / str(count)), [0]

        class Counted:
            def __init__(self, values: Any, looked: list[int] = looked) -> None:
                self.values, self.looked = values, looked

            def __len__(self) -> int:
                return len(self.values)

            def __getitem__(self, key: Any) -> Any:
                found = self.values[key]
                self.looked[0] += int(np.size(found))
                return found

        for name in ("_offsets", "_bounds"):
            monkeypatch.setattr(documents, name, Counted(getattr(documents, name)))
        assert documents.starts(count, count + 8).tolist() == [count, count + 2, count + 4, count + 6]
        reads.append(looked[0])
    assert reads[1] <= reads[0] + 4 * 4


def test_large_vocabularies_take_32_bits(tmp_path: Path) -> None:
    write_indexed(tmp_path / "large", [[100_000], [], [5]], vocabulary_size=128_256)
    tokens = open_indexed(tmp_path / "large")
    assert tokens.dtype == np.int32
    np.testing.assert_array_equal(tokens, [100_000, 5])


def test_index_of_several_modalities_is_read(prefix: Path) -> None:
    prefix.with_name("corpus.v1.idx").write_bytes(_INDEX + b"\x00\x01")
    assert len(open_indexed(prefix)) == 5


@pytest.mark.parametrize(
    ("index", "tokens", "detail"),
    [
        (b"TNTIDX\x00\x00" + _INDEX[8:], _TOKENS, "does not begin with MMIDIDX"),
        (_INDEX[:20], _TOKENS, "does not begin with MMIDIDX"),
        (_INDEX[:9] + struct.pack("<Q", 2) + _INDEX[17:], _TOKENS, "is of version 2; version 1 is read"),
        (_INDEX[:17] + b"\x07" + _INDEX[18:], _TOKENS, "the code 7; those of whole numbers are 1"),
        (_INDEX[:-8], _TOKENS, "has 74 bytes; 2 sequences and 3 bounds of documents take 82"),
        (_INDEX, _TOKENS[:-2], r"bin: has 8 bytes; its index says 5 tokens of uint16"),
        (_INDEX[:18] + bytes(16), b"", "has no tokens"),
        (None, _TOKENS, r"corpus\.v1\.idx: cannot be read"),
        (_INDEX, None, r"corpus\.v1\.bin: cannot be read"),
    ],
)
def test_other_files_are_refused(prefix: Path, index: bytes | None, tokens: bytes | None, detail: str) -> None:
    for ending, content in ((".idx", index), (".bin", tokens)):
        path = prefix.with_name(prefix.name + ending)
        path.unlink() if content is None else path.write_bytes(content)
    with pytest.raises(FileFormatError, match=detail):
        open_indexed(prefix)


@pytest.mark.parametrize(
    ("documents", "detail"),
    [
        ([[1], [2, 100]], "document 1 has the token 100; there are 100"),
        ([[]], "are no tokens"),
        ([], "no tokens"),
    ],
)
def test_documents_that_are_none_leave_nothing(tmp_path: Path, documents: list[list[int]], detail: str) -> None:
    with pytest.raises(InputError, match=detail):
        write_indexed(tmp_path / "corpus", documents, vocabulary_size=100)
    assert not list(tmp_path.iterdir())
