"""Pods of a job: one on each of its hosts, in rank order, with as many GPUs as the plan has there.

torchrun reads its arguments from `PET_` variables (`torch/distributed/argparse_util.py`). Which of the GPUs of its node
a pod gets is the device plugin's to say, so `CUDA_VISIBLE_DEVICES` is left to it.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import yaml

from executor.deployment import DEFAULT_PORT
from executor.export.job import ExportedJob
from executor.export.kubernetes.options import Settings
from executor.kubernetes.names import LABEL_VALUE, SUBDOMAIN
from models.cluster_state.kubernetes.pods import PLACEMENT_GATE
from models.wording import counted
from stowplan.errors import InputError, Issue

# Container of a pod; the runtimes of Kubeflow Trainer call it so, too.
CONTAINER = "node"
_SHM = "shared-memory"
# What etcd takes at most of an object.
_MAX_BYTES = 1_500_000
_MANAGED = {"app.kubernetes.io/managed-by": "stowplan"}


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacedPods:
    """Hosts of a job in rank order, and how many ranks each has."""

    hosts: tuple[str, ...]
    num_ranks: tuple[int, ...]

    def alike(self, controller: str) -> int:
        """How many ranks each host has, for a controller with one template for all pods.

        Raises
        ------
        InputError
            When they differ.
        """
        counts = dict(zip(self.num_ranks, self.hosts, strict=True))
        if len(counts) > 1:
            few = " and ".join(f"{counted(count, 'GPU')} on {host}" for count, host in list(counts.items())[:2])
            raise InputError(
                f"{controller} has one template for all of its pods, and the plan has {few}: jobset with pin=selector "
                "can have that"
            )
        return self.num_ranks[0]


def placed_pods(job: ExportedJob) -> PlacedPods:
    """Where the pods of a job go.

    Raises
    ------
    InputError
        When the ranks of a host are not one after another, or a host has no name of a node.
    """
    hosts = job.in_one_go("torchrun")
    wrong = [host for host in hosts if not (SUBDOMAIN.fullmatch(host) and LABEL_VALUE.fullmatch(host))]
    if wrong:
        issues = [
            Issue(
                code="bad_node_name",
                pointer="",
                detail=f"{host!r} is no name of a node of Kubernetes; must be of letters a to z, digits, and between "
                "them dots and dashes, 63 at most",
            )
            for host in wrong
        ]
        raise InputError(f"job {job.name!r} cannot be exported", issues)
    return PlacedPods(hosts=tuple(hosts), num_ranks=tuple(len(ranks) for ranks in hosts.values()))


def metadata(name: str, settings: Settings) -> dict[str, Any]:
    """Of the object."""
    queue = {} if settings.queue is None else {"kueue.x-k8s.io/queue-name": settings.queue}
    return {"name": name, "namespace": settings.namespace, **_marks(settings, _MANAGED | queue)}


def pod_metadata(settings: Settings) -> dict[str, Any]:
    """Of the template of its pods."""
    return _marks(settings, _MANAGED)


def torchrun_variables(num_nodes: int, num_ranks: int, master: str, node_rank: Mapping[str, Any]) -> list[Any]:
    """What torchrun is told; `node_rank` is a `value` or `valueFrom`."""
    return [
        {"name": "PET_NNODES", "value": str(num_nodes)},
        {"name": "PET_NPROC_PER_NODE", "value": str(num_ranks)},
        {"name": "PET_NODE_RANK", **node_rank},
        {"name": "PET_MASTER_ADDR", "value": master},
        {"name": "PET_MASTER_PORT", "value": str(DEFAULT_PORT)},
    ]


def from_metadata(kind: str, key: str) -> dict[str, Any]:
    """A variable with what a label or an annotation of the pod says."""
    return {"valueFrom": {"fieldRef": {"fieldPath": f"metadata.{kind}['{key}']"}}}


def command_words(settings: Settings) -> tuple[list[str], list[str]]:
    """Command and arguments of the container, in which Kubernetes would replace `$(NAME)`."""
    return ["torchrun"], [word.replace("$", "$$") for word in settings.command]


def limits(settings: Settings, num_gpus: int) -> dict[str, str]:
    """What a pod asks for."""
    return {settings.gpu_resource: str(num_gpus), **settings.resources}


def pinned(settings: Settings, host: str | None) -> dict[str, Any]:
    """What brings a pod to its host: the host itself, or a gate behind which it waits to be told."""
    if host is None:
        return {"schedulingGates": [{"name": PLACEMENT_GATE}]}
    return {"nodeSelector": {settings.node_key: host}}


def volumes(settings: Settings) -> tuple[list[Any], list[Any]]:
    """Volumes, and where they are mounted; shared memory for NCCL first."""
    limit = {} if settings.shm is None else {"sizeLimit": settings.shm}
    named: list[Any] = [{"name": _SHM, "emptyDir": {"medium": "Memory", **limit}}]
    mounts: list[Any] = [{"name": _SHM, "mountPath": "/dev/shm"}]  # noqa: S108 - a mount point in a container
    for k, volume in enumerate(settings.volumes):
        named.append({"name": f"volume-{k}", **volume.source})
        read_only = {"readOnly": True} if volume.read_only else {}
        mounts.append({"name": f"volume-{k}", "mountPath": volume.path, **read_only})
    return named, mounts


def pod_spec(settings: Settings, *, num_gpus: int, host: str | None, variables: list[Any]) -> dict[str, Any]:
    """Of a pod with one container; without a restart policy."""
    command, args = command_words(settings)
    named, mounts = volumes(settings)
    said = {
        "serviceAccountName": settings.service_account,
        "priorityClassName": settings.priority_class,
        "hostNetwork": True if settings.host_network else None,
        "dnsPolicy": "ClusterFirstWithHostNet" if settings.host_network else None,
        "tolerations": [dict(one) for one in settings.tolerations] or None,
    }
    return {
        **{name: value for name, value in said.items() if value is not None},
        **pinned(settings, host),
        "containers": [
            {
                "name": CONTAINER,
                "image": settings.image,
                "command": command,
                "args": args,
                "env": variables,
                "resources": {"limits": limits(settings, num_gpus)},
                "volumeMounts": mounts,
            }
        ],
        "volumes": named,
    }


def manifest(comment: str, *documents: Mapping[str, Any]) -> str:
    """YAML of objects.

    Raises
    ------
    InputError
        When one is larger than Kubernetes stores.
    """
    for document in documents:
        num_bytes = len(json.dumps(document))
        if num_bytes > _MAX_BYTES:
            raise InputError(
                f"the {document['kind']} has {num_bytes} bytes, and Kubernetes stores {_MAX_BYTES} of an object; one "
                "template for all pods is small: pin=gate, or job"
            )
    return comment + "---\n".join(yaml.dump(document, Dumper=_Plain, sort_keys=False) for document in documents)


class _Plain(yaml.SafeDumper):
    """Writes what occurs twice twice: anchors are for people's files."""

    def ignore_aliases(self, data: Any) -> bool:  # noqa: ARG002 - as PyYAML calls it
        """Everything is written in full."""
        return True


def _marks(settings: Settings, labels: Mapping[str, str]) -> dict[str, Any]:
    annotations = {"annotations": dict(settings.annotations)} if settings.annotations else {}
    return {"labels": {**settings.labels, **labels}, **annotations}
