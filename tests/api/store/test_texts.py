"""Parts of texts, compressed by a stream that is kept."""

import zlib

import pytest

from api.store import texts
from api.store.texts import Body, Part, compressed, deflated


class ShortOfMemory:
    """A stream that takes a part and has no memory to write it, the first time."""

    def __init__(self) -> None:
        self._stream = zlib.compressobj(1, zlib.DEFLATED, -zlib.MAX_WBITS)
        self._is_short = True

    def compress(self, data: bytes) -> bytes:
        return self._stream.compress(data)

    def flush(self, mode: int) -> bytes:
        if self._is_short:
            self._is_short = False
            raise MemoryError
        return self._stream.flush(mode)


def test_what_could_not_be_compressed_is_in_no_other_text(monkeypatch: pytest.MonkeyPatch) -> None:
    parts = [b"mine ", b"and mine"]
    before = [deflated(part) for part in parts]
    monkeypatch.setattr(texts._packer, "stream", ShortOfMemory())
    with pytest.raises(MemoryError):
        deflated(b"another client's")
    assert [deflated(part) for part in parts] == before


@pytest.mark.parametrize("num_parts", [0, 1, 2, 40])
def test_a_text_of_parts_is_that_of_the_whole(num_parts: int) -> None:
    raw = [bytes([127 - k]) * (700 * k % 9001) for k in range(num_parts)]
    whole = Body.of(b"".join(raw).decode())
    of_parts = Body.of_parts(map(Part.of, raw), whole.hash)
    # Decompressing compares the checksum.
    assert (of_parts.hash, of_parts.num_bytes, of_parts.text) == (whole.hash, whole.num_bytes, whole.text)


@pytest.mark.parametrize("text", [b"", b"a", b"one behind the other, " * 5000])
def test_what_is_compressed_is_a_whole_stream_whatever_came_before(text: bytes) -> None:
    compressed(b"something else")
    assert zlib.decompress(compressed(text)) == text


def test_a_stream_is_made_once(monkeypatch: pytest.MonkeyPatch) -> None:
    deflated(b"first")

    def another(*_: object) -> None:
        raise AssertionError("takes longer than a part")

    monkeypatch.setattr(zlib, "compressobj", another)
    assert deflated(b"second") == deflated(b"second")
