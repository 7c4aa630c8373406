"""What users say to be governed, and where the connector notes what it decided: names of gates, annotations, labels.

spec.schedulingGates: [{name: stowplan/placement}]     of a pod: it waits for us, and nobody else starts it
metadata.annotations of a pod
    stowplan/pods: "16"                                how many pods its gang has
    stowplan/parallelism: '{"tp": 8, "pp": 4, "dp": 4}'    Arnold places it, where its options are given
    stowplan/node: gpu-17                              ours: the node that the pod was given
metadata.annotations of the first pod, or of the Workload
    stowplan/nodes: gpu-17,gpu-18,...                  ours: the nodes of the gang in rank order, before any starts
    stowplan/quota-since: 2026-12-07T09:00:00Z         ours, of a Workload: the admission that they are meant for
"""

from collections.abc import Sequence
from dataclasses import dataclass

from stowplan.errors import InputError

PREFIX = "stowplan/"
GATE = f"{PREFIX}placement"
NUM_PODS = f"{PREFIX}pods"
PARALLELISM = f"{PREFIX}parallelism"
NODE = f"{PREFIX}node"
NODES = f"{PREFIX}nodes"
QUOTA_SINCE = f"{PREFIX}quota-since"
HOSTNAME = "kubernetes.io/hostname"
QUEUE_LABEL = "kueue.x-k8s.io/queue-name"


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """Who is governed: pods behind `gate`, and workloads behind an admission check whose controller is called as the
    gate is. `namespaces`, `queues`: only those (empty: all). may_delete: jobs may be taken their GPUs, by deleting
    their pods, where a controller makes new ones."""

    gate: str = GATE
    namespaces: Sequence[str] = ()
    queues: Sequence[str] = ()
    may_delete: bool = False

    def __post_init__(self) -> None:
        prefix, slash, name = self.gate.rpartition("/")
        if not name or (slash and not prefix) or len(name) > 63 or not self.gate.isascii() or " " in self.gate:
            raise InputError(f"the gate is {self.gate!r}; must be a name of Kubernetes, such as {GATE}")

    def govern(self, namespace: str, queue: str) -> bool:
        """Whether a pod or workload of this namespace and queue may be governed."""
        return (not self.namespaces or namespace in self.namespaces) and (not self.queues or queue in self.queues)
