"""Calibrations of systems in the database, by name."""

from collections.abc import Sequence

from sqlalchemy import Column, Integer, MetaData, String, Table, Text, delete, func, select
from sqlalchemy.dialects.sqlite import insert

from api.schemas.model import CalibrationDoc
from api.store.database import Store
from api.store.keys import RequestKey, forget_key, keep_key
from api.store.listing import listed

_metadata = MetaData()
_calibrations = Table(
    "calibrations",
    _metadata,
    Column("sequence", Integer, primary_key=True, autoincrement=True),
    Column("name", String, nullable=False, unique=True),
    Column("document", Text, nullable=False),
    sqlite_autoincrement=True,
)
# Names are given by clients: no name is the id of something else whose key would be freed with it.
_KEY_PREFIX = "calibration/"


class CalibrationStore:
    """The table of calibrations beside those of `Store`, in the same database. Documents are JSON text."""

    def __init__(self, store: Store) -> None:
        self._store = store
        with store.writing() as connection:
            _metadata.create_all(connection)

    def name_of(self, request: RequestKey | None) -> str | None:
        """Name of the calibration that came of the same request before; as `Store.resource_of`."""
        known = self._store.resource_of(request)
        return None if known is None else known.removeprefix(_KEY_PREFIX)

    def add(self, name: str, document: str, request: RequestKey | None = None) -> bool:
        """Insert a calibration; False when there is one of that name."""
        with self._store.writing() as connection:
            if not connection.execute(
                insert(_calibrations).values(name=name, document=document).on_conflict_do_nothing()
            ).rowcount:
                return False
            keep_key(connection, request, _KEY_PREFIX + name)
        return True

    def delete(self, name: str) -> bool:
        """Delete a calibration; False when there is none."""
        with self._store.writing() as connection:
            forget_key(connection, _KEY_PREFIX + name)
            return connection.execute(delete(_calibrations).where(_calibrations.c.name == name)).rowcount > 0

    def document(self, name: str) -> str | None:
        """A calibration with all that is told of it."""
        with self._store.reading() as connection:
            return connection.scalar(select(_calibrations.c.document).where(_calibrations.c.name == name))

    def find(self, name: str) -> CalibrationDoc | None:
        """What requests take by a name; None where there is none."""
        part = func.json_extract(_calibrations.c.document, "$.calibration")
        with self._store.reading() as connection:
            text = connection.scalar(select(part).where(_calibrations.c.name == name))
        return None if text is None else CalibrationDoc.model_validate_json(text)

    def page(self, fields: Sequence[str], limit: int, before: int | None) -> list[tuple[int, str]]:
        """Sequence and these fields of documents, from the newest to the oldest; only sequences below `before`."""
        with self._store.reading() as connection:
            return listed(connection, _calibrations, fields, limit, before)
