"""Long texts in the database."""

import zlib
from typing import Any

from sqlalchemy import Dialect, LargeBinary
from sqlalchemy.types import TypeDecorator

from api.store.texts import compressed


class CompressedText(TypeDecorator[str]):
    """A text, compressed with zlib."""

    impl = LargeBinary
    cache_ok = True

    def process_bind_param(self, value: str | None, dialect: Dialect) -> bytes | None:  # noqa: ARG002 - SQLAlchemy's
        """Compress."""
        return None if value is None else compressed(value.encode())

    def process_result_value(self, value: Any, dialect: Dialect) -> str | None:  # noqa: ARG002 - SQLAlchemy's
        """Decompress."""
        return None if value is None else zlib.decompress(value).decode()
