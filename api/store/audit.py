"""The audit log: who changed what, and who was refused. Entries are added, never changed."""

import time
from dataclasses import dataclass, fields

from sqlalchemy import Connection, insert, select

from api.common.asking import ASKING, Asking
from api.store.connection import Database
from api.store.dialects.frequent import Frequent
from api.store.tables import AUDIT


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditEntry:
    """What was asked for.

    `action`: the name of the route. `resource`: the path. `created`: id of what came of it. `status`: of the answer;
    None where the entry was written together with the change, before there was an answer.
    """

    sequence: int
    at_s: float
    client: str | None
    role: str | None
    action: str
    resource: str
    created: str | None
    request_id: str
    status: int | None


_COLUMNS = [AUDIT.c[field.name] for field in fields(AuditEntry)]
_INSERT = Frequent(insert(AUDIT))


def note_change(connection: Connection, created: str | None = None) -> None:
    """Write down, in the transaction of a change, who asks for it; nothing where no request leads here."""
    asking = ASKING.get()
    if asking is not None and asking.action is not None:
        _add(connection, asking, created, None)
        asking.is_noted = True


def note_deletion(connection: Connection, num_rows: int) -> bool:
    """Write down that something was deleted, if anything was; gives whether."""
    if num_rows:
        note_change(connection)
    return num_rows > 0


class AuditLog:
    """The log, from its end."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def note_answer(self, asking: Asking, created: str | None, status: int) -> None:
        """Write down what became of a request that nothing was written of with a change."""
        with self._database.writing() as connection:
            _add(connection, asking, created, status)

    def page(self, limit: int, before: int | None, client: str | None) -> list[AuditEntry]:
        """Entries from the newest to the oldest; only sequences below `before`, only those of a client."""
        query = select(*_COLUMNS).order_by(AUDIT.c.sequence.desc()).limit(limit)
        if before is not None:
            query = query.where(AUDIT.c.sequence < before)
        if client is not None:
            query = query.where(AUDIT.c.client == client)
        with self._database.reading() as connection:
            return [AuditEntry(**row._mapping) for row in connection.execute(query)]


def _add(connection: Connection, asking: Asking, created: str | None, status: int | None) -> None:
    caller = asking.caller
    values = {
        "at_s": time.time(),
        "client": None if caller is None else caller.client,
        "role": None if caller is None else caller.role.value,
        "action": asking.action or "unknown",
        "resource": asking.path,
        "created": created,
        "request_id": asking.id,
        "status": status,
    }
    _INSERT.change(connection, values)
