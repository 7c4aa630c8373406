"""Tasks of readers: documents as they are posted, and snapshots that are to be stored."""

from dataclasses import dataclass
from typing import Generic, TypeVar

from pydantic import TypeAdapter

from api.convert.changed_snapshot import told_in
from api.convert.reading import read_document
from api.reading.texts import RequestText, reading_task, whole_snapshot
from api.schemas.base import Document
from api.schemas.request import SNAPSHOT_BODY
from api.store.resolved import LegalSnapshot, legal_snapshot
from solver.monitor import SolveMonitor

DocumentT = TypeVar("DocumentT", bound=Document)
READ_DOCUMENT = f"{__name__}:read"
READ_SNAPSHOT = f"{__name__}:read_snapshot"


@dataclass(frozen=True, slots=True, kw_only=True)
class DocumentText(Generic[DocumentT]):
    """A body that is to be a document of a kind."""

    kind: type[DocumentT]
    body: bytes


def read(text: DocumentText[DocumentT], monitor: SolveMonitor) -> DocumentT:  # noqa: ARG001 - the pool's calling convention
    """Read a document; raises what `read_document` does."""
    return read_document(TypeAdapter(text.kind), text.body)


@reading_task
def read_snapshot(text: RequestText) -> LegalSnapshot:
    """Read a snapshot, brought along or told by what is other, and check it.

    Raises
    ------
    MalformedJsonError
        When the text is not JSON.
    InputError
        When it is wrong, or refers to what there is not; pointers are relative to the text.
    """
    source = read_document(SNAPSHOT_BODY, text.body)
    whole = whole_snapshot(source, text)
    with told_in(source, whole):
        return legal_snapshot(whole)
