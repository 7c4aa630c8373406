"""Documents as kubectl writes them, with the labels of real nodes (sources beside them), small."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from models.cluster_state import SourceDocument, StateOptions, read_state
from models.cluster_state.base import ClusterState

AT = "2026-11-20T12:00:00Z"
# GPU feature discovery on a DGX H100 (docs.nvidia.com, GPU Operator, "MIG support in Kubernetes").
GFD_H100 = {
    "nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3",
    "nvidia.com/gpu.count": "8",
    "nvidia.com/gpu.memory": "81559",
    "nvidia.com/gpu.replicas": "1",
    "nvidia.com/gpu.sharing-strategy": "none",
}
GPU_TAINT = {"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"}


def node(name: str, labels: Mapping[str, str], *, gpus: int = 8, **changes: Any) -> dict[str, Any]:
    """A node that is ready."""
    ready = {"type": "Ready", "status": "True", "lastHeartbeatTime": AT, "lastTransitionTime": "2026-11-01T00:00:00Z"}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name,
            "labels": {
                "kubernetes.io/hostname": name,
                **GFD_H100,
                "nvidia.com/gpu.count": str(changes.get("capacity", gpus)),
                **labels,
            },
        },
        "spec": {"taints": [GPU_TAINT], **changes.get("spec", {})},
        "status": {
            "capacity": {"cpu": "208", "nvidia.com/gpu": str(changes.get("capacity", gpus))},
            "allocatable": {"cpu": "207", "nvidia.com/gpu": str(gpus), **changes.get("allocatable", {})},
            "conditions": changes.get("conditions", [ready]),
        },
    }


def pod(name: str, job: str, *, node: str | None = None, gpus: int = 8, **spec: Any) -> dict[str, Any]:
    """A pod of a JobSet's job."""
    resources = {"limits": {"nvidia.com/gpu": str(gpus)}, "requests": {"nvidia.com/gpu": str(gpus)}}
    status = {"phase": "Running", "startTime": "2026-11-20T11:00:00Z"} if node else {"phase": "Pending"}
    where = {"nodeName": node} if node else {}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": "team",
            "creationTimestamp": "2026-11-20T10:30:00Z",
            "labels": {"jobset.sigs.k8s.io/jobset-name": job, "batch.kubernetes.io/job-name": f"{job}-workers-0"},
        },
        "spec": {"containers": [{"name": "main", "resources": resources}], "priority": 100, **where, **spec},
        "status": status,
    }


def workload(owner: str, *, pods: int, gpus: int = 8, conditions: Sequence[str] = (), **spec: Any) -> dict[str, Any]:
    """A workload of Kueue."""
    container = {"name": "main", "resources": {"requests": {"nvidia.com/gpu": str(gpus)}}}
    return {
        "apiVersion": "kueue.x-k8s.io/v1beta1",
        "kind": "Workload",
        "metadata": {
            "name": f"jobset-{owner}-1a2b3",
            "namespace": "team",
            "creationTimestamp": "2026-11-20T11:30:00Z",
            "ownerReferences": [{"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "name": owner}],
        },
        "spec": {
            "queueName": "team-queue",
            "priority": 1000,
            "podSets": [{"name": "workers", "count": pods, "template": {"spec": {"containers": [container]}}}],
            **spec,
        },
        "status": {"conditions": [{"type": one, "status": "True"} for one in conditions]},
    }


def listed(*items: dict[str, Any]) -> str:
    """As `kubectl get -o json` writes them."""
    return json.dumps({"apiVersion": "v1", "kind": "List", "metadata": {"resourceVersion": ""}, "items": items})


def read(settings: Mapping[str, str] | None = None, **documents: str) -> ClusterState:
    """What documents by role say."""
    given = {role: [SourceDocument(name=f"{role}.json", text=text)] for role, text in documents.items()}
    return read_state("kubernetes", given, StateOptions(settings=settings or {}))
