"""What users say to be governed, and where the connection notes what it decided.

spec.schedulingGates: [{name: stowplan/placement}]     of a pod: it waits for us, and nobody else starts it
spec.controllerName: stowplan/placement                of an AdmissionCheck of Kueue: so do the workloads it checks
metadata.annotations of a pod
    stowplan/pods: "16"                                how many pods its gang has
    stowplan/parallelism: '{"tp": 8, "pp": 4, "dp": 4}'    Arnold places it, where its options are given
metadata.annotations of the first pod, or of the Workload
    stowplan/nodes: gpu-17,gpu-18,...                  ours: the nodes of its pods in rank order, before any starts
    stowplan/quota-since: 2026-12-07T09:00:00Z         ours, of a Workload: the admission that they are meant for
"""

from collections.abc import Sequence
from dataclasses import dataclass

from models.cluster_state.kubernetes.pods import PLACEMENT_GATE

CONTROLLER = PLACEMENT_GATE
NUM_PODS = "stowplan/pods"
PARALLELISM = "stowplan/parallelism"
NODES = "stowplan/nodes"
QUOTA_SINCE = "stowplan/quota-since"
QUEUE_LABEL = "kueue.x-k8s.io/queue-name"


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """Who is governed of those that ask for it: those of `namespaces` and `queues` (empty: all). may_delete: jobs may
    lose their GPUs, by deleting their pods, where a controller makes new ones."""

    namespaces: Sequence[str] = ()
    queues: Sequence[str] = ()
    may_delete: bool = False

    def govern(self, namespace: str, queue: str) -> bool:
        """Whether a pod or workload of this namespace and queue may be governed."""
        return (not self.namespaces or namespace in self.namespaces) and (not self.queues or queue in self.queues)
