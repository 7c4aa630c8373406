"""A JobSet that runs the agents of a deployment under Kubernetes. It is written, never applied.

One replicated job per stage group: hosts that hold the same pipeline stages. Its pods are tied to exactly these nodes,
one pod a node, and each pod asks Kubernetes for the name of its node, which tells the agent its ranks. So the scheduler
may swap pods inside a group but never break the placement. Pods use the network of the host: rank 0 is found under
the address of its node, and RDMA devices need no plug-in.
"""

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import yaml

from executor.deployment import Deployment
from executor.kubernetes.names import HOSTNAME, MAX_LABEL, digest, dns_label
from executor.launch.agent import GPUS_GIVEN
from executor.launch.base import LaunchBackend, RunState, RunStatus, read_launch
from executor.rank_table import Rank, hosts_of
from executor.training_options import Device

_API = "jobset.x-k8s.io/v1alpha2"
# Put on every pod by the controller.
_SET_LABEL = "jobset.sigs.k8s.io/jobset-name"
# Shared memory between the ranks of a host, for NCCL.
_SHARED_MEMORY = "/dev/shm"  # noqa: S108 - a mount point in a container, not a file of ours
_COMMENT = """\
# Needs the JobSet controller (v0.8 or later). The image must hold the executor: Stowplan's Dockerfile makes one.
# The volume holds the runs and their checkpoints and must be shared by all nodes: replace hostPath where it is not a
# mounted file system. One pod runs on each node.
"""


def jobset_manifest(deployment: Deployment, folder: Path, checkpoints: Path) -> str:
    """YAML of the JobSet; all that is written in the folders of the run and of the checkpoints outlives the pods."""
    volume = os.path.commonpath([folder, checkpoints])
    groups = {_group_name(stages): hosts for stages, hosts in stage_groups(deployment.ranks()).items()}
    # The names of pods are the longest: set, group, job 0, pod, and five letters of Kubernetes's own.
    longest = max(len(f"-{name}-0-{len(hosts) - 1}-abcde") for name, hosts in groups.items())
    name = dns_label(deployment.name, MAX_LABEL - longest)
    manifest = {
        "apiVersion": _API,
        "kind": "JobSet",
        "metadata": {"name": name, "labels": {"app.kubernetes.io/managed-by": "stowplan"}},
        "spec": {
            # Collectives cannot go on without a rank: any failed job ends the set.
            "failurePolicy": {"maxRestarts": 0},
            "successPolicy": {"operator": "All"},
            "replicatedJobs": [
                _replicated_job(deployment, folder, volume, name, group, hosts) for group, hosts in groups.items()
            ],
        },
    }
    return _COMMENT + yaml.safe_dump(manifest, sort_keys=False)


def stage_groups(ranks: Sequence[Rank]) -> dict[tuple[int, ...], list[str]]:
    """Hosts by the pipeline stages that they hold, in rank order."""
    groups: dict[tuple[int, ...], list[str]] = {}
    for host, group in hosts_of(ranks).items():
        groups.setdefault(tuple(sorted({rank.pipe for rank in group})), []).append(host)
    return groups


def _group_name(stages: tuple[int, ...]) -> str:
    """`stages-4`, or `stages-4-7` for a run of stages; others are written in short, since names are."""
    first, last = stages[0], stages[-1]
    if len(stages) == last - first + 1:
        return f"stages-{first}-{last}" if last > first else f"stages-{first}"
    return f"stages-{first}-{last}-{digest(' '.join(map(str, stages)))}"


def _replicated_job(
    deployment: Deployment, folder: Path, volume: str, name: str, group: str, hosts: list[str]
) -> dict[str, Any]:
    return {
        "name": group,
        "replicas": 1,
        "template": {
            "spec": {
                "parallelism": len(hosts),
                "completions": len(hosts),
                "completionMode": "Indexed",
                "backoffLimit": 0,
                "activeDeadlineSeconds": round(deployment.launch.time_limit_s),
                "template": {
                    "spec": _pod(deployment, folder, volume, name, hosts),
                    "metadata": {"labels": {"stowplan/group": group}},
                },
            }
        },
    }


def _pod(deployment: Deployment, folder: Path, volume: str, name: str, hosts: list[str]) -> dict[str, Any]:
    counts = {host: len(group) for host, group in hosts_of(deployment.ranks()).items()}
    gpus = max(counts[host] for host in hosts) if deployment.training.device is Device.CUDA else 0
    resources = {"resources": {"limits": {"nvidia.com/gpu": gpus}}} if gpus else {}
    return {
        "restartPolicy": "Never",
        "hostNetwork": True,
        "dnsPolicy": "ClusterFirstWithHostNet",
        "affinity": {
            "nodeAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": {
                    "nodeSelectorTerms": [{"matchExpressions": [{"key": HOSTNAME, "operator": "In", "values": hosts}]}]
                }
            },
            "podAntiAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": [
                    {
                        "topologyKey": HOSTNAME,
                        "labelSelector": {"matchLabels": {_SET_LABEL: name}},
                    }
                ]
            },
        },
        "containers": [
            {
                "name": "agent",
                "image": deployment.launch.image,
                "command": [deployment.launch.python, "-P", "-m", "executor.launch.agent", str(folder), "$(NODE_NAME)"],
                "env": [
                    {"name": "NODE_NAME", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}},
                    # A pod sees the GPUs that it was given, and counts them from 0.
                    *([{"name": GPUS_GIVEN, "value": "1"}] if gpus else []),
                ],
                **resources,
                "volumeMounts": [
                    {"name": "runs", "mountPath": volume},
                    {"name": "shared-memory", "mountPath": _SHARED_MEMORY},
                ],
            }
        ],
        "volumes": [
            {"name": "runs", "hostPath": {"path": volume, "type": "Directory"}},
            {"name": "shared-memory", "emptyDir": {"medium": "Memory"}},
        ],
    }


class KubernetesBackend(LaunchBackend):
    """Runs that somebody else starts and deletes with `kubectl`; what the agents write is read as everywhere."""

    name: ClassVar[str] = "kubernetes"
    starts_runs: ClassVar[bool] = False

    def start(self, folder: Path) -> None:
        """Do nothing: `kubectl apply -f jobset.yaml` is the user's."""
        read_launch(folder)

    def status(self, folder: Path) -> RunStatus:
        """State of the run from what the agents wrote; before that, what there is to do."""
        found = super().status(folder)
        if found.state is not RunState.STARTING:
            return found
        manifest = folder / "jobset.yaml"
        by_hand = f"kubectl apply -f {manifest} starts it, kubectl delete -f {manifest} ends it"
        return replace(found, detail=f"{found.detail}; {by_hand}")

    def stop(self, folder: Path, grace_s: float = 10.0) -> None:  # noqa: ARG002 - Kubernetes has its own grace
        """Do nothing: ranks that are asked to stop end by themselves, the JobSet is deleted with `kubectl`."""
        read_launch(folder)
