"""Content addresses of snapshots and of whole inputs."""

import hashlib

from pydantic import BaseModel

from api.schemas.plan import UsedOptionsDoc


def snapshot_id(text: str) -> str:
    """Id of a snapshot: a hash of its document with defaults filled in, as JSON text."""
    return "snapshot-" + hashlib.sha256(text.encode()).hexdigest()[:32]


def input_hash(policy: str, snapshot: str, parameters: BaseModel, options: UsedOptionsDoc) -> str:
    """SHA-256 of everything that a plan depends on; `snapshot` is the id of its content."""
    parts = (policy, snapshot, parameters.model_dump_json(), options.model_dump_json())
    return "sha256:" + hashlib.sha256("\n".join(parts).encode()).hexdigest()
