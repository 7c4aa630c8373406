"""Tokens of clients in the database, by the hash of each."""

from dataclasses import asdict, dataclass, fields
from typing import Any

from sqlalchemy import ColumnElement, insert, select, update

from api.common.asking import Role
from api.store.audit import note_change
from api.store.connection import Database
from api.store.tables import TOKENS


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenRecord:
    """A token without what it is. Times are Unix seconds; None: never. The store gives `sequence` out."""

    id: str
    client: str
    role: Role
    created_at_s: float
    expires_at_s: float | None = None
    revoked_at_s: float | None = None
    sequence: int = 0


_COLUMNS = [TOKENS.c[field.name] for field in fields(TokenRecord)]


class TokenStore:
    """All tokens that were ever made; those that are over stay, for the audit log names their clients."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def add(self, record: TokenRecord, hash_: str) -> None:
        """Insert a token."""
        values = {name: value for name, value in asdict(record).items() if name != "sequence"}
        with self._database.writing() as connection:
            connection.execute(insert(TOKENS).values(**values, hash=hash_))
            note_change(connection, record.id)

    def find(self, hash_: str) -> TokenRecord | None:
        """The token that has this hash."""
        return self._one(TOKENS.c.hash == hash_)

    def token(self, token_id: str) -> TokenRecord | None:
        """The token of an id."""
        return self._one(TOKENS.c.id == token_id)

    def any(self) -> bool:
        """Whether a token was ever made."""
        with self._database.reading() as connection:
            return connection.execute(select(TOKENS.c.sequence).limit(1)).one_or_none() is not None

    def page(self, limit: int, before: int | None) -> list[TokenRecord]:
        """Tokens from the newest to the oldest; only those with a sequence below `before`."""
        query = select(*_COLUMNS).order_by(TOKENS.c.sequence.desc()).limit(limit)
        if before is not None:
            query = query.where(TOKENS.c.sequence < before)
        with self._database.reading() as connection:
            return [_record(row._mapping) for row in connection.execute(query)]

    def revoke(self, token_id: str, now_s: float) -> None:
        """End a token, if there is one; one that was revoked stays as it is."""
        still = (TOKENS.c.id == token_id) & TOKENS.c.revoked_at_s.is_(None)
        with self._database.writing() as connection:
            connection.execute(update(TOKENS).where(still).values(revoked_at_s=now_s))
            note_change(connection)

    def _one(self, condition: ColumnElement[bool]) -> TokenRecord | None:
        with self._database.reading() as connection:
            row = connection.execute(select(*_COLUMNS).where(condition)).one_or_none()
        return None if row is None else _record(row._mapping)


def _record(row: Any) -> TokenRecord:
    return TokenRecord(**{**row, "role": Role(row["role"])})
