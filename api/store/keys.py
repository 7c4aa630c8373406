"""Idempotency keys of what has no column for one: which request came under which, and what came of it."""

from dataclasses import asdict, dataclass

from sqlalchemy import Connection, delete, insert, select

from api.common.errors import IdempotencyConflictError, KeyTakenError
from api.store.tables import KEYS


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestKey:
    """A key that came with a request to a collection, and the hash of the request."""

    collection: str
    key: str
    input_hash: str


def keep_key(connection: Connection, request: RequestKey | None, resource_id: str) -> None:
    """Remember what came of a request, if it had a key.

    Raises
    ------
    IdempotencyConflictError
        When something else came under it meanwhile: of another request, or, as KeyTakenError, of the same.
    """
    if request is not None:
        known = resource_of(connection, request)
        if known is not None:
            raise KeyTakenError.of(known)
        connection.execute(insert(KEYS).values(**asdict(request), resource_id=resource_id))


def resource_of(connection: Connection, request: RequestKey) -> str | None:
    """Id of what came of the same request before.

    Raises
    ------
    IdempotencyConflictError
        When the key came with another request.
    """
    same = (KEYS.c.collection == request.collection) & (KEYS.c.key == request.key)
    known = connection.execute(select(KEYS.c.input_hash, KEYS.c.resource_id).where(same)).one_or_none()
    if known is None:
        return None
    if known.input_hash != request.input_hash:
        raise IdempotencyConflictError.of(known.resource_id)
    return str(known.resource_id)


def forget_key(connection: Connection, resource_id: str) -> None:
    """Free the key of what is deleted, or was interrupted: asked for again, it begins anew."""
    connection.execute(delete(KEYS).where(KEYS.c.resource_id == resource_id))
