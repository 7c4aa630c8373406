"""Documents of schedulers that become a snapshot: what is posted, and what is answered."""

import json
from typing import Annotated, Any

from pydantic import AwareDatetime, Field

from api.schemas.base import MAX_ITEMS, Document, Name
from api.schemas.snapshot import GpuTypeDoc, SnapshotDoc
from models.cluster_state import READERS

_MAX_DOCUMENTS = 64


class SourceDocumentDoc(Document):
    """A text of a scheduler."""

    role: Name
    """What it is, such as nodes or queue."""
    name: Name | None = None
    """What messages call it, such as squeue.json (null: its role)."""
    text: str
    """All of it, as the scheduler wrote it."""


class ImportBody(Document):
    """What a scheduler says of a cluster and its jobs."""

    format: Annotated[str, Field(json_schema_extra={"enum": list(READERS)})]
    documents: Annotated[tuple[SourceDocumentDoc, ...], Field(min_length=1, max_length=_MAX_DOCUMENTS)]
    gpu_type: Name | None = None
    """The GPU of nodes of which nobody says it."""
    gpu_products: Annotated[dict[Name, Name], Field(max_length=256, default_factory=dict)]
    """Name of a GPU type in the documents -> product of the catalogue that it is, where it is called otherwise."""
    gpu_types: Annotated[tuple[GpuTypeDoc, ...], Field(max_length=256)] = ()
    """Facts of GPU types by the name that they have in the documents, for those that the catalogue does not know."""
    node_topologies: Annotated[dict[Name, str], Field(max_length=256, default_factory=dict)]
    """GPU type -> what `nvidia-smi topo -m` prints on a node with such GPUs, or NCCL writes as NCCL_TOPO_DUMP_FILE: its
    bandwidths stand in place of those of the usual node."""
    jobs: Annotated[dict[Name, dict[str, Any]], Field(max_length=MAX_ITEMS)] = Field(
        default_factory=dict, examples=[{"7": {"parallelism": {"tp": 8, "pp": 2, "dp": 4}}}]
    )
    """Job id -> fields of a job of a snapshot that schedulers know nothing of, such as its parallelism or transformer;
    they stand in place of what the scheduler says. A job that somebody holds is planned as if it was released."""
    minipod_tier: Name | None = None
    """The tier whose units are the minipods (null: the coarsest one with several units)."""
    taken_at: AwareDatetime | None = None
    """The moment of the documents (null: the last one that they tell of)."""
    settings: Annotated[dict[Name, Name], Field(max_length=64, default_factory=dict)]
    """What only one format knows."""


class ImportNoteDoc(Document):
    """Something that was left out or assumed."""

    code: str
    detail: str
    """Of the first place."""
    document: str
    pointer: str
    """JSON pointer into that document; empty for all of it."""
    count: int
    """At how many places."""


class HeldJobDoc(Document):
    """A job that cannot start whatever is free, and is not in the snapshot."""

    id: str
    num_gpus: int
    why: str


class ImportedSnapshotDoc(Document):
    """The snapshot, ready for `POST /v1/plans`, and what is not in it."""

    snapshot: SnapshotDoc
    held: tuple[HeldJobDoc, ...]
    notes: tuple[ImportNoteDoc, ...]


_META = {"plugin": {"data_parser": "data_parser/v0.0.44"}}
_NODE = {"name": "n1", "state": ["IDLE"], "gres": "gpu:h100:8(S:0-1)", "partitions": ["gpu"]}
_JOB = {
    "job_id": 7,
    "job_state": ["PENDING"],
    "partition": "gpu",
    "tres_per_node": "gres/gpu:h100:8",
    "submit_time": {"set": True, "infinite": False, "number": 1795491546},
}
IMPORT_EXAMPLE: dict[str, Any] = {
    "format": "slurm",
    "documents": [
        {"role": "nodes", "name": "nodes.json", "text": json.dumps({"meta": _META, "nodes": [_NODE]})},
        {"role": "queue", "name": "squeue.json", "text": json.dumps({"meta": _META, "jobs": [_JOB]})},
    ],
}
