"""Lists of documents: of each only what the list shows leaves the database."""

from collections.abc import Sequence

from sqlalchemy import Connection, Table, select

from api.store.dialects.statements import FieldsObject


def listed(
    connection: Connection, table: Table, fields: Sequence[str], limit: int, before: int | None
) -> list[tuple[int, str]]:
    """Sequence and these fields of the `document`, as JSON text, from the newest to the oldest.

    Parameters
    ----------
    before
        Only sequences below it.
    """
    shown = FieldsObject(table.c.document, *fields)
    query = select(table.c.sequence, shown).order_by(table.c.sequence.desc()).limit(limit)
    if before is not None:
        query = query.where(table.c.sequence < before)
    return [(sequence, text) for sequence, text in connection.execute(query)]
