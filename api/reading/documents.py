"""Tasks of readers: documents that refer to nothing."""

from dataclasses import dataclass
from typing import Generic, TypeVar

from pydantic import TypeAdapter

from api.convert.reading import read_document
from api.schemas.base import Document
from api.schemas.snapshot import SNAPSHOT
from api.store.snapshots import LegalSnapshot, legal_snapshot
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


def read_snapshot(body: bytes, monitor: SolveMonitor) -> LegalSnapshot:  # noqa: ARG001 - see above
    """Read a snapshot and check it; raises what `read_document` does."""
    return legal_snapshot(read_document(SNAPSHOT, body))
