"""Calibrations of systems in the database, by name."""

from sqlalchemy import func
from sqlalchemy.dialects.sqlite import insert

from api.schemas.model import CalibrationDoc
from api.store.database import Store
from api.store.keys import RequestKey, keep_key
from api.store.named import NamedStore
from api.store.tables import CALIBRATIONS


class CalibrationStore(NamedStore):
    """Calibrations of systems."""

    def __init__(self, store: Store) -> None:
        super().__init__(store, CALIBRATIONS, "calibration")

    def add(self, name: str, document: str, request: RequestKey | None = None) -> bool:
        """Insert a calibration; False when there is one of that name."""
        with self._store.writing() as connection:
            if not connection.execute(
                insert(CALIBRATIONS).values(name=name, document=document).on_conflict_do_nothing()
            ).rowcount:
                return False
            keep_key(connection, request, self._prefix + name)
        return True

    def find(self, name: str) -> CalibrationDoc | None:
        """What requests take by a name; None where there is none."""
        text = self._text(name, func.json_extract(CALIBRATIONS.c.document, "$.calibration"))
        return None if text is None else CalibrationDoc.model_validate_json(text)
