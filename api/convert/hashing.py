"""Content addresses of snapshots and of whole inputs."""

import hashlib
from collections.abc import Iterable, Mapping

from pydantic import BaseModel

from api.schemas.plan import UsedOptionsDoc
from stowplan.catalogue import own_digest


def snapshot_id(text: str) -> str:
    """Id of a snapshot: a hash of its document with defaults filled in, as JSON text."""
    return snapshot_id_of(hashlib.sha256(text.encode()).hexdigest())


def snapshot_id_of(digest: str) -> str:
    """The same of the SHA-256 of that text."""
    return "snapshot-" + digest[:32]


def input_hash(policy: str, snapshot: str, parameters: BaseModel, options: UsedOptionsDoc) -> str:
    """SHA-256 of everything that a plan depends on; `snapshot` is the id of its content."""
    return input_hashes(policy, (snapshot,), parameters, options)[snapshot]


def input_hashes(
    policy: str, snapshots: Iterable[str], parameters: BaseModel, options: UsedOptionsDoc
) -> Mapping[str, str]:
    """The same of each of the snapshots."""
    texts = parameters.model_dump_json(), options.model_dump_json()
    return {snapshot: hash_of(policy, snapshot, *texts) for snapshot in dict.fromkeys(snapshots)}


def hash_of(*parts: str) -> str:
    """SHA-256 of texts, and of what names in them stand for: of the user's catalogue, where there is one."""
    own = own_digest()
    texts = parts if own is None else (*parts, own)
    return "sha256:" + hashlib.sha256("\n".join(texts).encode()).hexdigest()
