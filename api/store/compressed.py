"""Long texts as the database keeps them: compressed, and those that come again once per content."""

import hashlib
import zlib
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Dialect, LargeBinary
from sqlalchemy.types import TypeDecorator


class CompressedText(TypeDecorator[str]):
    """A text, compressed with zlib."""

    impl = LargeBinary
    cache_ok = True

    def process_bind_param(self, value: str | None, dialect: Dialect) -> bytes | None:  # noqa: ARG002 - SQLAlchemy's
        """Compress."""
        return None if value is None else zlib.compress(value.encode())

    def process_result_value(self, value: Any, dialect: Dialect) -> str | None:  # noqa: ARG002 - SQLAlchemy's
        """Decompress."""
        return None if value is None else zlib.decompress(value).decode()


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
        return cls(hash=hashlib.sha256(raw).hexdigest(), num_bytes=len(raw), data=zlib.compress(raw))

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
