"""Patches of objects of Kubernetes (JSON patches, RFC 6902), each guarded by what it was made of."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from models.cluster_state.kubernetes.objects import Object
from stowplan.errors import pointer_of

Operation = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Patch:
    """A change of one object.

    `resource` as kubectl names it (`workloads.v1beta2.kueue.x-k8s.io`), `namespace` empty where it has none,
    `subresource` None for the object itself.
    `operations` begin with tests: an object that is another one by now, or says something else, is left as it is.
    `job_id`: whose it is in the plan. `meaning`: for people.
    """

    resource: str
    namespace: str
    name: str
    subresource: str | None
    operations: tuple[Operation, ...]
    job_id: str
    meaning: str

    @property
    def text(self) -> str:
        """JSON."""
        return json.dumps(self.operations) + "\n"

    def kubectl(self, file: str | None = None) -> Sequence[str]:
        """Words of the command that applies it, from a file where one is given."""
        below = () if self.subresource is None else (f"--subresource={self.subresource}",)
        where = ("--namespace", self.namespace) if self.namespace else ()
        what = ("--patch", self.text.rstrip()) if file is None else ("--patch-file", file)
        return ("kubectl", "patch", self.resource, self.name, *where, "--type=json", *below, *what)


def same_object(found: Object) -> tuple[Operation, ...]:
    """The test that an object of a name is still the one that was read; none where the document does not say."""
    uid = found.object("metadata").text("uid")
    return (testing(uid, "metadata", "uid"),) if uid else ()


def testing(value: object, *path: str | int) -> Operation:
    """`value` must stand at the path."""
    return {"op": "test", "path": pointer_of(*path), "value": value}


def adding(value: object, *path: str | int) -> Operation:
    """Put `value` at the path, in place of what may be there; in a list before what is there."""
    return {"op": "add", "path": pointer_of(*path), "value": value}


def removing(*path: str | int) -> Operation:
    """Take away what stands at the path."""
    return {"op": "remove", "path": pointer_of(*path)}
