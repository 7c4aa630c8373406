"""Pods that wait behind our gate: each is told its host, and let go.

While a pod has gates its node selector may be added to, in the same update that lifts one (KEP-3838, stable since
Kubernetes 1.30).
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from executor.kubernetes.patches import Operation, Patch, adding, removing, same_object, testing
from executor.kubernetes.placing import UnsayableError, hosts_of_pods
from executor.kubernetes.workloads import refuse_odd_names
from models.cluster_state.base import SourceDocument
from models.cluster_state.kubernetes.objects import Object, kubernetes_objects
from models.cluster_state.kubernetes.pods import COMMAND, PLACEMENT_GATE, gpus_of_pod, job_id
from models.parallel_plan import Gpu

# What says which pod of its job one is; of several, the one before counts more.
_INDICES = (
    "jobset.sigs.k8s.io/job-global-index",
    "leaderworkerset.sigs.k8s.io/worker-index",
    "batch.kubernetes.io/job-completion-index",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class GatedPod:
    """A pod; `gate`: index of our gate among its gates, None where it has gone."""

    object: Object
    num_gpus: int
    gate: int | None


def read_gated(documents: Sequence[SourceDocument]) -> dict[str, list[GatedPod]]:
    """Pods with GPUs of jobs of which at least one waits behind our gate, in rank order, by the id of the job.

    Raises
    ------
    FileFormatError
        Names the document and the JSON pointer, and what is wrong.
    """
    jobs: dict[str, list[GatedPod]] = {}
    for _, pod in kubernetes_objects(documents, {"Pod": ("v1",)}, COMMAND):
        num_gpus = gpus_of_pod(pod)
        if not num_gpus or pod.object("status").text("phase") in ("Succeeded", "Failed"):
            continue
        gates = [gate.text("name") for gate in pod.object("spec").objects("schedulingGates")]
        gate = gates.index(PLACEMENT_GATE) if PLACEMENT_GATE in gates else None
        jobs.setdefault(job_id(pod), []).append(GatedPod(object=pod, num_gpus=num_gpus, gate=gate))
    gated = {name: pods for name, pods in jobs.items() if any(pod.gate is not None for pod in pods)}
    return {name: sorted(pods, key=lambda pod: place_in_job(pod.object)) for name, pods in gated.items()}


def lifted(pods: Sequence[GatedPod], job: str, gpus: Sequence[Gpu], node_key: str) -> list[Patch]:
    """Patches of the pods that wait.

    Raises
    ------
    UnsayableError
        When the pods ask for another number of GPUs, or one would have ranks on two hosts or selects another host.
    """
    hosts = hosts_of_pods(gpus, [pod.num_gpus for pod in pods])
    return [
        _lifted(pod.object, pod.gate, job, host, node_key)
        for pod, host in zip(pods, hosts, strict=True)
        if pod.gate is not None
    ]


def released(pod: GatedPod, job: str) -> Patch:
    """Let a pod go that waits, wherever Kubernetes puts it."""
    assert pod.gate is not None  # noqa: S101 - it waits
    return _without_gate(pod.object, pod.gate, job, (), "goes anywhere")


def _lifted(pod: Object, gate: int, job: str, host: str, node_key: str) -> Patch:
    refuse_odd_names(pod)
    selector = pod.object("spec").texts("nodeSelector")
    own = selector.get(node_key, host)
    if own != host:
        raise UnsayableError(
            "selects_another_host",
            f"pod {pod.name} selects {node_key}={own}, which nobody may change; the plan has it on {host}",
        )
    operation = (
        adding(host, "spec", "nodeSelector", node_key) if selector else adding({node_key: host}, "spec", "nodeSelector")
    )
    return _without_gate(pod, gate, job, (operation,), f"goes to {host}")


def _without_gate(pod: Object, gate: int, job: str, choice: tuple[Operation, ...], meaning: str) -> Patch:
    return Patch(
        resource="pods",
        namespace=pod.namespace,
        name=pod.name,
        subresource=None,
        operations=(
            *same_object(pod),
            testing(PLACEMENT_GATE, "spec", "schedulingGates", gate, "name"),
            *choice,
            removing("spec", "schedulingGates", gate),
        ),
        job_id=job,
        meaning=meaning,
    )


def place_in_job(pod: Object) -> tuple[object, ...]:
    """What pods of a job are sorted by: their indices where they have some, else their names, numbers as numbers."""
    metadata = pod.object("metadata")
    labels: Mapping[str, str] = {**metadata.texts("annotations"), **metadata.texts("labels")}
    indices = tuple(int(labels[key]) if labels.get(key, "").isdecimal() else 0 for key in _INDICES)
    words = tuple((not word.isdecimal(), int(word) if word.isdecimal() else 0, word) for word in _words(pod.name))
    return (indices, words)


def _words(name: str) -> list[str]:
    return re.findall(r"\d+|\D+", name)
