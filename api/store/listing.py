"""Lists of documents: of each only what the list shows leaves the database."""

from collections.abc import Sequence

from sqlalchemy import Connection, Table, func, select


def listed(
    connection: Connection, table: Table, fields: Sequence[str], limit: int, before: int | None
) -> list[tuple[int, str]]:
    """Sequence and these fields of the `document`, as JSON text, from the newest to the oldest.

    Parameters
    ----------
    before
        Only sequences below it.
    """
    document = table.c.document
    shown = [part for name in fields for part in (name, func.json_extract(document, f"$.{name}"))]
    query = select(table.c.sequence, func.json_object(*shown)).order_by(table.c.sequence.desc()).limit(limit)
    if before is not None:
        query = query.where(table.c.sequence < before)
    return [(sequence, text) for sequence, text in connection.execute(query)]
