"""Nodes as `kubectl get nodes -o json` has them, those with whole GPUs."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from models.cluster_state.base import Notes, SourceDocument
from models.cluster_state.gpus import KnownGpus
from models.cluster_state.kubernetes.objects import Object, kubernetes_objects
from topology.cluster import NodeState
from topology.gpu_catalogue import known_product

COMMAND = "kubectl get nodes -o json"
GPU_RESOURCES = ("nvidia.com/gpu", "amd.com/gpu")
# Labels that name the product, those of the vendors' own discovery first.
_PRODUCT_LABELS = (
    "nvidia.com/gpu.product",
    "amd.com/gpu.product-name",
    "cloud.google.com/gke-accelerator",
    "gpu.nvidia.com/model",
)
# What stands there beside name and memory of the usual module. PCIe cards and NVL pairs are other products.
_FORM = re.compile(r"-(sxm\d?|hbm\d[a-z]?)(?=-|$)", re.IGNORECASE)
_SLICES = re.compile(r"nvidia\.com/mig-.+")
_SHARED = "-SHARED"
# Taints of nodes with GPUs that jobs with GPUs tolerate: ExtendedResourceToleration puts the first two on their pods.
TOLERATED = frozenset({"nvidia.com/gpu", "amd.com/gpu", "sku"})
_BLOCKS = ("NoSchedule", "NoExecute")
_UNREACHABLE = "node.kubernetes.io/"
_MAX_GPUS = 4096
_REASON_CHARS = 1024
_STAMPS = ("lastHeartbeatTime", "lastTransitionTime")


@dataclass(frozen=True, slots=True, kw_only=True)
class KubernetesNode:
    """A node with GPUs of one type."""

    object: Object
    gpu_type: str
    num_gpus: int
    state: NodeState
    reason: str | None

    @property
    def labels(self) -> Mapping[str, str]:
        """Its labels."""
        return self.object.object("metadata").texts("labels")


@dataclass(frozen=True, slots=True, kw_only=True)
class KubernetesNodes:
    """The nodes that are planned, by name; the names of the others; and the last moment that they tell of, in seconds
    since 1970 (0: none)."""

    documents: Sequence[SourceDocument]
    planned: dict[str, KubernetesNode]
    left_out: set[str]
    seen_s: float


def read_nodes(
    documents: Sequence[SourceDocument], gpus: KnownGpus, notes: Notes, tolerated: frozenset[str]
) -> KubernetesNodes:
    """Read the nodes.

    Parameters
    ----------
    tolerated
        Keys of taints that jobs tolerate, beside `TOLERATED`.

    Raises
    ------
    FileFormatError
        Names the document and the JSON pointer, and what is wrong.
    """
    planned: dict[str, KubernetesNode] = {}
    left_out: set[str] = set()
    seen_s = 0.0
    for _, found in kubernetes_objects(documents, {"Node": ("v1",)}, COMMAND):
        name = found.name
        if name in planned or name in left_out:
            raise found.fault(f"node {name!r} stands there twice", "metadata", "name")
        conditions = list(found.object("status").objects("conditions"))
        stamps = (condition.time_s(key) for condition in conditions for key in _STAMPS)
        seen_s = max([seen_s, *(stamp for stamp in stamps if stamp is not None)])
        why = _left_out(found)
        if why is not None:
            left_out.add(name)
            notes.add(why[0], found.document, found.pointer, f"node {name!r} {why[1]}; it is left out")
            continue
        planned[name] = _node(found, conditions, gpus, notes, TOLERATED | tolerated)
    if not planned:
        raise documents[0].fault(f"none of the {len(left_out)} nodes has GPUs that can be planned", pointer="/items")
    return KubernetesNodes(documents=documents, planned=planned, left_out=left_out, seen_s=seen_s)


def product_of(labels: Mapping[str, str], gpus: KnownGpus) -> str | None:
    """Name of the GPU product that labels tell: as they say it where somebody said what that is, else the catalogue's,
    where it knows it.

    GFD says the memory in MiB where the product's name does not.
    """
    said = next((labels[key] for key in _PRODUCT_LABELS if labels.get(key)), None)
    if said is None or gpus.is_said(said):
        return said
    bare = _FORM.sub("", said)
    memory = labels.get("nvidia.com/gpu.memory", "")
    sized = [f"{bare}-{round(int(memory) / 1000 / 20) * 20}gb"] if memory.isdigit() else []
    for name in (said, *([] if re.search(r"\d+gb", bare, re.IGNORECASE) else sized), bare):
        product = known_product(name)
        if product is not None:
            return product.name
    return said


def _left_out(node: Object) -> tuple[str, str] | None:
    """Code and words for why a node is not planned; None where it is."""
    allocatable, labels = node.object("status", "allocatable"), node.object("metadata").texts("labels")
    slices = [key for key in allocatable.value if _SLICES.fullmatch(key) and allocatable.count(key)]
    if slices:
        return "gpu_slices", f"has slices of GPUs (MIG): {', '.join(slices)}"
    if not any(node.object("status", part).count(key) for part in ("allocatable", "capacity") for key in GPU_RESOURCES):
        return "no_gpus", "has no GPUs"
    if labels.get("nvidia.com/gpu.product", "").endswith(_SHARED) or labels.get("nvidia.com/gpu.replicas", "1") != "1":
        return "shared_gpus", "shares GPUs among pods (time slicing, MPS)"
    return None


def _node(
    node: Object, conditions: Sequence[Object], gpus: KnownGpus, notes: Notes, tolerated: frozenset[str]
) -> KubernetesNode:
    labels = node.object("metadata").texts("labels")
    has = {
        part: max(node.object("status", part).count(key) for key in GPU_RESOURCES)
        for part in ("allocatable", "capacity")
    }
    state, reason = _state(node, conditions, tolerated)
    counted = labels.get("nvidia.com/gpu.count", "")
    if counted.isdecimal() and int(counted) != has["capacity"]:
        detail = f"node {node.name!r} has {has['capacity']} GPUs; its label nvidia.com/gpu.count says {counted}"
        notes.add("gpu_count_differs", node.document, f"{node.pointer}/metadata/labels", detail)
    num_gpus = has["allocatable"]
    if num_gpus < has["capacity"]:
        detail = f"node {node.name!r} has {has['capacity']} GPUs, of which {num_gpus} can be given to pods"
        notes.add("gpus_not_allocatable", node.document, f"{node.pointer}/status/allocatable", detail)
        if num_gpus == 0:
            num_gpus, state, reason = has["capacity"], NodeState.DOWN, "none of its GPUs can be given to pods"
    if num_gpus > _MAX_GPUS:
        raise node.fault(f"has {num_gpus} GPUs; at most {_MAX_GPUS}", "status", "allocatable")
    pointer = f"{node.pointer}/metadata/labels"
    return KubernetesNode(
        object=node,
        gpu_type=gpus.name(product_of(labels, gpus), node.document, pointer),
        num_gpus=num_gpus,
        state=state,
        reason=None if reason is None else reason[:_REASON_CHARS],
    )


def _state(node: Object, conditions: Sequence[Object], tolerated: frozenset[str]) -> tuple[NodeState, str | None]:
    ready = next((condition for condition in conditions if condition.text("type") == "Ready"), None)
    if ready is not None and ready.text("status") != "True":
        words = filter(None, (ready.text("reason"), ready.text("message")))
        return NodeState.DOWN, f"not ready: {': '.join(words) or ready.text('status')}"
    taints = [taint for taint in node.object("spec").objects("taints") if taint.text("effect") in _BLOCKS]
    closed = [taint for taint in taints if taint.text("key") not in tolerated]
    if node.object("spec").value.get("unschedulable") is True:
        others = (_words(taint) for taint in closed if not taint.text("key").startswith(_UNREACHABLE))
        return NodeState.DRAINED, "; ".join(["cordoned", *others])
    if closed:
        return NodeState.DRAINED, "; ".join(_words(taint) for taint in closed)
    return NodeState.UP, None


def _words(taint: Object) -> str:
    value = taint.text("value")
    return f"taint {taint.text('key')}{'=' if value else ''}{value}:{taint.text('effect')}"


def gpus_of(containers: Iterator[Object]) -> int:
    """GPUs that containers ask for, in all."""
    total = 0
    for container in containers:
        asked = container.object("resources", "limits"), container.object("resources", "requests")
        total += max(part.count(key) for part in asked for key in GPU_RESOURCES)
    return total
