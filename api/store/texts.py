"""Texts as they are stored, for whoever makes or reads them and has no database."""

import hashlib
import threading
import zlib
from collections.abc import Iterable
from dataclasses import dataclass

from stowplan.pickling import quickly_pickled

# Takes a third of the time that zlib takes by default, for texts of snapshots that are a fifth larger.
_LEVEL = 1


# What a stream of zlib begins with that was compressed quickly, and a last block of nothing (RFC 1950, RFC 1951).
_HEADER, _LAST_BLOCK = b"\x78\x01", b"\x03\x00"
_ADLER = 65521


class _Packer(threading.local):
    """A stream whose parts know nothing of one another, as each ends with a full flush: to make a stream takes longer
    than to compress a part."""

    stream: "zlib._Compress | None" = None


_packer = _Packer()


def compressed(data: bytes) -> bytes:
    """Compress what is to be stored."""
    return b"".join((_HEADER, deflated(data), _end(zlib.adler32(data))))


def _end(checksum: int) -> bytes:
    """What is behind the last part: a text's Adler-32 is at its very end."""
    return _LAST_BLOCK + checksum.to_bytes(4, "big")


def deflated(data: bytes) -> bytes:
    """Compress a part of what is to be stored, without what lies before it."""
    stream, _packer.stream = _packer.stream, None
    if stream is None:
        stream = zlib.compressobj(_LEVEL, zlib.DEFLATED, -zlib.MAX_WBITS)
    part = stream.compress(data) + stream.flush(zlib.Z_FULL_FLUSH)
    # Not after an error: what the stream has taken would come before the next part, which may be another client's.
    _packer.stream = stream
    return part


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """A part of a text that is stored: its bytes, the same `deflated`, and their Adler-32."""

    raw: bytes
    data: bytes
    checksum: int

    @classmethod
    def of(cls, raw: bytes) -> "Part":
        """Compress a part."""
        return cls(raw=raw, data=deflated(raw), checksum=zlib.adler32(raw))


def _behind(before: int, checksum: int, num_bytes: int) -> int:
    """The Adler-32 of a text and one of `num_bytes` behind it (RFC 1950; as `adler32_combine` of zlib)."""
    low = (before & 0xFFFF) + (checksum & 0xFFFF) - 1
    high = (before >> 16) + (checksum >> 16) + num_bytes * ((before & 0xFFFF) - 1)
    return high % _ADLER << 16 | low % _ADLER


@dataclass(frozen=True, slots=True, kw_only=True)
class BodyName:
    """What tells a text from others, for who may have it. `hash`: SHA-256 of it."""

    hash: str
    num_bytes: int


@quickly_pickled
@dataclass(frozen=True, slots=True, kw_only=True)
class Body(BodyName):
    """A text that is stored once however often it comes. `data`: compressed with zlib."""

    data: bytes

    @property
    def name(self) -> BodyName:
        """What tells it from others."""
        return BodyName(hash=self.hash, num_bytes=self.num_bytes)

    @classmethod
    def of(cls, text: str) -> "Body":
        """Compress a text."""
        raw = text.encode()
        return cls(hash=hashlib.sha256(raw).hexdigest(), num_bytes=len(raw), data=compressed(raw))

    @classmethod
    def of_parts(cls, parts: Iterable[Part], sha256: str) -> "Body":
        """A text as `of` makes one of the whole, of its hash; nobody puts it together."""
        checksum, num_bytes = zlib.adler32(b""), 0
        data = [_HEADER]
        for part in parts:
            checksum = _behind(checksum, part.checksum, len(part.raw))
            num_bytes += len(part.raw)
            data.append(part.data)
        data.append(_end(checksum))
        return cls(hash=sha256, num_bytes=num_bytes, data=b"".join(data))

    @property
    def text(self) -> str:
        """The text."""
        return zlib.decompress(self.data).decode()


@quickly_pickled
@dataclass(frozen=True, slots=True, kw_only=True)
class PlanInput:
    """The JSON text of a request for a plan: all other fields as an object, and behind them the `snapshot`, which is by
    far the largest part and often comes again."""

    rest: str
    snapshot: Body

    @property
    def text(self) -> str:
        """The whole request."""
        return f'{self.rest[:-1]},"snapshot":{self.snapshot.text}}}'
