"""What is changed of a cluster, as requests to its API: built by pure functions, written down, then sent."""

import json
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from executor.connected.kubernetes.api import MANAGER, PODS, Json, Resource
from executor.connected.kubernetes.gangs import GangPod
from executor.connected.kubernetes.terms import HOSTNAME, NODE, NODES

STRATEGIC = "application/strategic-merge-patch+json"
MERGE = "application/merge-patch+json"
APPLY = "application/apply-patch+yaml"
# The API server takes no more in all annotations of an object (validation of `ObjectMeta`).
MAX_ANNOTATIONS_BYTES = 256 * 1024
_TYPES = {STRATEGIC: "strategic", MERGE: "merge"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Patch:
    """A patch of an object, or of a part of it such as its status."""

    resource: Resource
    namespace: str | None
    name: str
    body: Json
    content_type: str = STRATEGIC
    part: str | None = None

    @property
    def line(self) -> str:
        """The command that does the same."""
        where = [] if self.namespace is None else ["-n", self.namespace]
        part = [] if self.part is None else [f"--subresource={self.part}"]
        what = f"{self.resource.plural}.{self.resource.group}" if self.resource.group else self.resource.kind.lower()
        body = json.dumps(self.body, separators=(",", ":"))
        if self.content_type == APPLY:
            words = ["kubectl", "apply", "--server-side", "--force-conflicts", "--field-manager", MANAGER, *part]
            return f"{shlex.join([*words, '-f', '-'])} <<< {shlex.quote(body)}"
        words = ["kubectl", "patch", what, self.name, *where, *part, f"--type={_TYPES[self.content_type]}", "-p", body]
        return shlex.join(words)

    @property
    def document(self) -> Mapping[str, Any]:
        """The request."""
        return {
            "verb": "patch",
            "path": self.resource.path(self.namespace, self.name, self.part),
            "contentType": self.content_type,
            "body": self.body,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Delete:
    """A pod is deleted, if it is still the one that was seen."""

    pod: GangPod

    @property
    def line(self) -> str:
        """The command that does the same."""
        return shlex.join(["kubectl", "delete", "pod", self.pod.name, "-n", self.pod.namespace])

    @property
    def document(self) -> Mapping[str, Any]:
        """The request."""
        return {"verb": "delete", "path": PODS.path(self.pod.namespace, self.pod.name), "uid": self.pod.uid}


def lift(pod: GangPod, gate: str, node: str | None, hostname: str | None) -> Patch:
    """Let a pod go, to a node where one is given.

    Nodes may be asked for only while a pod is gated, so both stand in one patch. It names the uid: a pod that was made
    anew under the same name is another one.
    """
    notes = {} if node is None else {"annotations": {NODE: node}}
    spec = {} if hostname is None else {"nodeSelector": {HOSTNAME: hostname}}
    body = {
        "metadata": {"uid": pod.uid, **notes},
        "spec": {**spec, "schedulingGates": [{"$patch": "delete", "name": gate}]},
    }
    return Patch(resource=PODS, namespace=pod.namespace, name=pod.name, body=body)


def intend(pod: GangPod, nodes: Sequence[str]) -> Patch:
    """Note on the first pod of a gang where all of it goes, before any of it starts: whoever takes over goes on so."""
    body = {"metadata": {"uid": pod.uid, "annotations": {NODES: ",".join(nodes)}}}
    return Patch(resource=PODS, namespace=pod.namespace, name=pod.name, body=body)
