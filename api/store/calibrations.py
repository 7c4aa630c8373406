"""Calibrations of systems in the database, by name."""

from sqlalchemy import Column, Integer, MetaData, String, Table, Text, func
from sqlalchemy.dialects.sqlite import insert

from api.schemas.model import CalibrationDoc
from api.store.database import Store
from api.store.keys import RequestKey, keep_key
from api.store.named import NamedStore

_metadata = MetaData()
_calibrations = Table(
    "calibrations",
    _metadata,
    Column("sequence", Integer, primary_key=True, autoincrement=True),
    Column("name", String, nullable=False, unique=True),
    Column("document", Text, nullable=False),
    sqlite_autoincrement=True,
)


class CalibrationStore(NamedStore):
    """Calibrations of systems."""

    def __init__(self, store: Store) -> None:
        super().__init__(store, _calibrations, "calibration")

    def add(self, name: str, document: str, request: RequestKey | None = None) -> bool:
        """Insert a calibration; False when there is one of that name."""
        with self._store.writing() as connection:
            if not connection.execute(
                insert(_calibrations).values(name=name, document=document).on_conflict_do_nothing()
            ).rowcount:
                return False
            keep_key(connection, request, self._prefix + name)
        return True

    def find(self, name: str) -> CalibrationDoc | None:
        """What requests take by a name; None where there is none."""
        text = self._text(name, func.json_extract(_calibrations.c.document, "$.calibration"))
        return None if text is None else CalibrationDoc.model_validate_json(text)
