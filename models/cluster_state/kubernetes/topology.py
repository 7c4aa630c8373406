"""Which units of a fabric a node is in: by labels that clouds and Topograph write, or as a topology of Kueue, KAI or
Volcano says.

Presets, coarsest first:

    gke         cloud.google.com/gce-topology-{block,subblock}
    eks         topology.k8s.aws/network-node-layer-{1,2,3}
    oci         oci.oraclecloud.com/rdma.{hpc_island_id,network_block_id,local_block_id}
    coreweave   backend.coreweave.cloud/{fabric,superpod,leafgroup}
    topograph   network.topology.nvidia.com/tier-N (largest N first), accelerator; before 1.0 core, spine, leaf,
                accelerator, or datacenter, spine, block
    aks         topology.kubernetes.io/zone: AKS writes no labels of its fabric; Topograph does

A tier is called as its label is behind the last "/".
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from models.cluster_state.base import SourceDocument
from models.cluster_state.kubernetes.hypernodes import MAX_TIERS, hypernode_units
from models.cluster_state.kubernetes.objects import Object, kubernetes_objects
from stowplan.errors import InputError

_TOPOGRAPH = "network.topology.nvidia.com/"
_OCI = "oci.oraclecloud.com/rdma."
_COREWEAVE = "backend.coreweave.cloud/"
_AWS = "topology.k8s.aws/network-node-layer-"
_GCE = "cloud.google.com/gce-topology-"

PRESETS: Mapping[str, tuple[tuple[str, ...], ...]] = MappingProxyType(
    {
        "gke": ((f"{_GCE}block", f"{_GCE}subblock"),),
        "eks": ((f"{_AWS}1", f"{_AWS}2", f"{_AWS}3"),),
        "oci": ((f"{_OCI}hpc_island_id", f"{_OCI}network_block_id", f"{_OCI}local_block_id"),),
        "coreweave": ((f"{_COREWEAVE}fabric", f"{_COREWEAVE}superpod", f"{_COREWEAVE}leafgroup"),),
        "topograph": (
            (f"{_TOPOGRAPH}core", f"{_TOPOGRAPH}spine", f"{_TOPOGRAPH}leaf"),
            (f"{_TOPOGRAPH}datacenter", f"{_TOPOGRAPH}spine", f"{_TOPOGRAPH}block"),
        ),
        "aks": (("topology.kubernetes.io/zone",),),
    }
)
"""Name -> sets of labels, coarsest first; the one of which nodes have most counts. A fabric with fewer tiers lacks the
coarsest."""

NONE = "none"
_FOUND_BY_THEMSELVES = ("topograph", "gke", "eks", "oci", "coreweave")
_ACCELERATOR = f"{_TOPOGRAPH}accelerator"
_TIER = re.compile(re.escape(_TOPOGRAPH) + r"tier-(\d+)")
_HOST_LABELS = frozenset({"kubernetes.io/hostname", f"{_GCE}host"})
_COMMAND = "kubectl get topologies.kueue.x-k8s.io -o json"
_KINDS = {
    "Topology": (
        "kueue.x-k8s.io/v1alpha1",
        "kueue.x-k8s.io/v1beta1",
        "kueue.x-k8s.io/v1beta2",
        "kai.scheduler/v1alpha1",
    ),
    "HyperNode": ("topology.volcano.sh/v1alpha1",),
}
_NAMED = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Units:
    """Tiers, coarsest first, and node -> its unit of each."""

    tiers: tuple[str, ...] = ()
    paths: Mapping[str, tuple[str, ...]]


def units_of(nodes: Sequence[Object], documents: Sequence[SourceDocument], setting: str | None) -> Units:
    """Where nodes are.

    Parameters
    ----------
    documents
        Topologies; with them `setting` names one, where there are several.
    setting
        Else a preset, labels with commas between them, `none`, or None for the preset whose labels there are.

    Raises
    ------
    FileFormatError
        When some nodes lack labels that others have, or a topology has not all nodes.
    InputError
        When there is no such topology.
    """
    if not documents:
        return _by_labels(nodes, _labels(nodes, setting))
    hypernodes, topologies = [], {}
    for kind, found in kubernetes_objects(documents, _KINDS, _COMMAND):
        if kind == "HyperNode":
            hypernodes.append(found)
        else:
            topologies[found.name] = found
    if hypernodes and topologies:
        raise hypernodes[0].fault("stands beside topologies by labels; give one or the other", "kind")
    if hypernodes:
        tiers, paths = hypernode_units(nodes, hypernodes)
        return Units(tiers=tiers, paths=paths)
    return _by_labels(nodes, _levels(topologies, setting))


def _levels(topologies: Mapping[str, Object], setting: str | None) -> tuple[str, ...]:
    """Labels of a topology of Kueue or KAI, coarsest first."""
    if setting not in topologies and (setting is not None or len(topologies) != 1):
        known = ", ".join(sorted(topologies)) or "none"
        raise InputError(f"topology is {setting!r}; must name one of the topologies: {known}")
    chosen = topologies[setting] if setting is not None else next(iter(topologies.values()))
    labels = [level.text("nodeLabel") for level in chosen.object("spec").objects("levels")]
    if not labels or not all(labels):
        raise chosen.fault("must be a list of levels with a nodeLabel each", "spec", "levels")
    return tuple(label for label in labels if label not in _HOST_LABELS)


def _labels(nodes: Sequence[Object], setting: str | None) -> tuple[str, ...]:
    """Labels of tiers, coarsest first."""
    if setting == NONE:
        return ()
    present = {label for node in nodes for label in node.object("metadata").texts("labels")}
    names = _FOUND_BY_THEMSELVES if setting is None else (setting,)
    for name in names:
        if name not in PRESETS:
            return _listed(name)
        found = _of_preset(name, present)
        if found:
            return found
    if setting is not None:
        wanted = ", ".join(label for labels in PRESETS[setting] for label in labels)
        raise InputError(f"topology is {setting!r}, and no node has a label of it: {wanted}")
    return ()


def _of_preset(name: str, present: Iterable[str]) -> tuple[str, ...]:
    present = set(present)
    found: tuple[str, ...] = ()
    if name == "topograph":
        numbered = sorted((int(match[1]) for label in present if (match := _TIER.fullmatch(label))), reverse=True)
        found = tuple(f"{_TOPOGRAPH}tier-{k}" for k in numbered)
    if not found:
        found = max((tuple(label for label in labels if label in present) for labels in PRESETS[name]), key=len)
    if name == "topograph" and _ACCELERATOR in present:
        found = (*found, _ACCELERATOR)
    return found


def _listed(setting: str) -> tuple[str, ...]:
    labels = tuple(label.strip() for label in setting.split(","))
    if not all("/" in label or len(labels) > 1 for label in labels) or not all(labels):
        known = ", ".join((*PRESETS, NONE))
        raise InputError(
            f"topology is {setting!r}; must be labels with commas between them, coarsest first, or {known}"
        )
    if len(set(labels)) < len(labels) or len(labels) > MAX_TIERS:
        raise InputError(f"topology is {setting!r}; must be at most {MAX_TIERS} labels, each once")
    return labels


def _by_labels(nodes: Sequence[Object], labels: Sequence[str]) -> Units:
    of_node = {node.name: node.object("metadata").texts("labels") for node in nodes}
    for label in labels:
        lacking = [node for node in nodes if not of_node[node.name].get(label)]
        if lacking:
            names = ", ".join(repr(node.name) for node in lacking[:_NAMED]) + (", ..." if len(lacking) > _NAMED else "")
            raise lacking[0].fault(
                f"{len(lacking)} of {len(nodes)} nodes with GPUs have no label {label!r}: {names}; label them, name "
                f"other labels, coarsest first (setting topology), or say {NONE!r}",
                "metadata",
                "labels",
            )
    paths = {name: tuple(found[label] for label in labels) for name, found in of_node.items()}
    return Units(tiers=_tier_names(labels), paths=paths)


def _tier_names(labels: Sequence[str]) -> tuple[str, ...]:
    short = tuple(label.rpartition("/")[2] for label in labels)
    return short if len(set(short)) == len(short) else tuple(labels)
