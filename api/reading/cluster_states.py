"""Tasks of readers: documents of schedulers become snapshots."""

from pydantic import TypeAdapter

from api.convert.cluster_state import imported_body
from api.convert.reading import read_document
from api.schemas.cluster_state import ImportBody
from solver.monitor import SolveMonitor

READ_STATE = f"{__name__}:read_state_body"
_BODY: TypeAdapter[ImportBody] = TypeAdapter(ImportBody)


def read_state_body(body: bytes, monitor: SolveMonitor) -> bytes:  # noqa: ARG001 - the pool's calling convention
    """JSON of the snapshot that a body describes; raises what `read_document` and `imported_body` do."""
    return imported_body(read_document(_BODY, body)).model_dump_json().encode()
