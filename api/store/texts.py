"""Texts as they are stored, for whoever makes or reads them and has no database."""

import hashlib
import zlib
from dataclasses import dataclass

# Takes a third of the time that zlib takes by default, for texts of snapshots that are a fifth larger.
_LEVEL = 1


def compressed(data: bytes) -> bytes:
    """Compress what is to be stored."""
    return zlib.compress(data, _LEVEL)


@dataclass(frozen=True, slots=True, kw_only=True)
class Body:
    """A text that is stored once however often it comes. `hash`: SHA-256 of it; `data`: compressed with zlib."""

    hash: str
    num_bytes: int
    data: bytes

    @classmethod
    def of(cls, text: str) -> "Body":
        """Compress a text."""
        raw = text.encode()
        return cls(hash=hashlib.sha256(raw).hexdigest(), num_bytes=len(raw), data=compressed(raw))

    @property
    def text(self) -> str:
        """The text."""
        return zlib.decompress(self.data).decode()


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
