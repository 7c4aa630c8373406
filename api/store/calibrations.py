"""Calibrations of systems in the database, by name."""

from api.schemas.model import CalibrationDoc
from api.store.audit import note_change
from api.store.database import Store
from api.store.dialects.statements import FieldText, add_new
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
            if not add_new(connection, CALIBRATIONS, {"name": name, "document": document}):
                return False
            note_change(connection, name)
            keep_key(connection, request, self._prefix + name)
        return True

    def find(self, name: str) -> CalibrationDoc | None:
        """What requests take by a name; None where there is none."""
        text = self._text(name, FieldText(CALIBRATIONS.c.document, "calibration"))
        return None if text is None else CalibrationDoc.model_validate_json(text)
