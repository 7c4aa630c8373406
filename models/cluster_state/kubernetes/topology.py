"""Which units of a fabric a node is in: by labels that clouds and Topograph write, or as a topology of Kueue, KAI or
Volcano says.

Presets, coarsest first:

    gke         cloud.google.com/gce-topology-{block,subblock}
    eks         topology.k8s.aws/network-node-layer-{1,2,3}
    oci         oci.oraclecloud.com/rdma.{hpc_island_id,network_block_id,local_block_id}
    coreweave   backend.coreweave.cloud/{fabric,superpod,leafgroup}
    topograph   fabric.topograph.run/tier-N (largest N first); before 1.0 network.topology.nvidia.com/ with tier-N, or
                core, spine, leaf, or datacenter, spine, block
    aks         topology.kubernetes.io/zone: AKS writes no labels of its fabric; Topograph does

A tier is called as its label is behind the last "/". Beside the labels of a preset, those of NVLink across nodes count
(accelerator.topograph.run/domain and sub-domain, before 1.0 network.topology.nvidia.com/accelerator; without them
nvidia.com/gpu.clique): they are a tier as fine as they nest, and not every node needs one. With NFD, Topograph writes
NodeFeatures in place of labels.
"""

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from models.cluster_state.base import Notes, SourceDocument
from models.cluster_state.kubernetes.hypernodes import MAX_TIERS, hypernode_units
from models.cluster_state.kubernetes.objects import Object, kubernetes_objects
from stowplan.errors import FileFormatError, InputError
from topology.readers.tree import insert_tier

_TOPOGRAPH = "network.topology.nvidia.com/"
_FABRIC = "fabric.topograph.run/"
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
# Of NVLink across nodes, coarsest first; the first of these that some node has count.
_ACCELERATORS = (
    ("accelerator.topograph.run/domain", "accelerator.topograph.run/sub-domain"),
    (f"{_TOPOGRAPH}accelerator",),
    ("nvidia.com/gpu.clique",),
)
_TIER = re.compile(f"({re.escape(_FABRIC)}|{re.escape(_TOPOGRAPH)}|fabric-)" + r"tier-(\d+)")
# Attributes of NodeFeatures that Topograph writes, and where they say which node they are of.
_NETWORK, _NAME = "topograph.network", "system.name"
_FEATURE_ACCELERATORS = ("accelerator-domain", "accelerator-sub-domain")
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
    "NodeFeature": ("nfd.k8s-sigs.io/v1alpha1",),
    "ResourceFlavor": ("kueue.x-k8s.io/v1beta1", "kueue.x-k8s.io/v1beta2"),
}
_NAMED = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Units:
    """Tiers, coarsest first, and node -> its unit of each."""

    tiers: tuple[str, ...] = ()
    paths: Mapping[str, tuple[str, ...]]


def units_of(nodes: Sequence[Object], documents: Sequence[SourceDocument], setting: str | None, notes: Notes) -> Units:
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
    labels = {node.name: node.object("metadata").texts("labels") for node in nodes}
    if not documents:
        chosen, accelerators = _labels(labels, setting)
        return _by_labels(nodes, labels, chosen, accelerators, notes)
    found: dict[str, list[Object]] = {}
    for kind, one in kubernetes_objects(documents, _KINDS, _COMMAND):
        found.setdefault(kind, []).append(one)
    flavors = found.pop("ResourceFlavor", [])
    if len(found) > 1:
        first, other = list(found)[:2]
        raise found[other][0].fault(f"stands beside objects of kind {first!r}; give one or the other", "kind")
    if "HyperNode" in found:
        tiers, paths = hypernode_units(nodes, found["HyperNode"])
        return Units(tiers=tiers, paths=paths)
    if "NodeFeature" in found:
        features = _features(found["NodeFeature"])
        chosen = _tiers({label for one in features.values() for label in one})
        return _by_labels(nodes, features, chosen, _FEATURE_ACCELERATORS, notes)
    topologies = {one.name: one for one in found.get("Topology", ())}
    return _by_labels(nodes, labels, _levels(topologies, setting or _of_flavors(flavors, labels)), (), notes)


def _features(objects: Sequence[Object]) -> dict[str, Mapping[str, str]]:
    """Node -> what Topograph says of it; features that others write are not looked at."""
    found: dict[str, Mapping[str, str]] = {}
    for one in objects:
        attributes = one.object("spec", "features", "attributes")
        said = attributes.object(_NETWORK).texts("elements")
        if said:
            found[attributes.object(_NAME, "elements").text("nodename")] = said
    return found


def _of_flavors(flavors: Sequence[Object], labels: Mapping[str, Mapping[str, str]]) -> str | None:
    """The topology that Kueue's flavors have for the nodes; None where that is none, or several."""
    named = {
        flavor.object("spec").text("topologyName")
        for flavor in flavors
        if any(flavor.object("spec").texts("nodeLabels").items() <= of_node.items() for of_node in labels.values())
    }
    named.discard("")
    return named.pop() if len(named) == 1 else None


def _levels(topologies: Mapping[str, Object], setting: str | None) -> tuple[str, ...]:
    """Labels of a topology of Kueue or KAI, coarsest first."""
    if setting not in topologies and (setting is not None or len(topologies) != 1):
        known = ", ".join(sorted(topologies)) or "none"
        raise InputError(f"topology-labels is {setting!r}; must name one of the topologies: {known}")
    chosen = topologies[setting] if setting is not None else next(iter(topologies.values()))
    labels = [level.text("nodeLabel") for level in chosen.object("spec").objects("levels")]
    if not labels or not all(labels):
        raise chosen.fault("must be a list of levels with a nodeLabel each", "spec", "levels")
    return tuple(label for label in labels if label not in _HOST_LABELS)


def _labels(labels: Mapping[str, Mapping[str, str]], setting: str | None) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Labels of tiers, coarsest first, and those of NVLink across nodes."""
    if setting == NONE:
        return (), ()
    present = {label for of_node in labels.values() for label in of_node}
    accelerators = next((names for names in _ACCELERATORS if present.intersection(names)), ())
    for name in _FOUND_BY_THEMSELVES if setting is None else (setting,):
        if name not in PRESETS:
            return _listed(name), ()
        found = _of_preset(name, present)
        if found:
            return found, accelerators
    if setting is not None:
        wanted = ", ".join(label for labels in PRESETS[setting] for label in labels)
        raise InputError(f"topology-labels is {setting!r}, and no node has a label of it: {wanted}")
    return (), accelerators


def _of_preset(name: str, present: Collection[str]) -> tuple[str, ...]:
    found = _tiers(present) if name == "topograph" else ()
    return found or max((tuple(label for label in labels if label in present) for labels in PRESETS[name]), key=len)


def _tiers(present: Iterable[str]) -> tuple[str, ...]:
    """Labels of Topograph's tiers, coarsest first; of several families the one with most."""
    families: dict[str, list[int]] = {}
    for label in present:
        if match := _TIER.fullmatch(label):
            families.setdefault(match[1], []).append(int(match[2]))
    family = max(sorted(families), key=lambda name: len(families[name]), default="")
    return tuple(f"{family}tier-{k}" for k in sorted(families.get(family, ()), reverse=True))


def _listed(setting: str) -> tuple[str, ...]:
    labels = tuple(label.strip() for label in setting.split(","))
    if not all("/" in label or len(labels) > 1 for label in labels) or not all(labels):
        known = ", ".join((*PRESETS, NONE))
        raise InputError(
            f"topology-labels is {setting!r}; must be labels with commas between them, coarsest first, or {known}"
        )
    if len(set(labels)) < len(labels) or len(labels) > MAX_TIERS:
        raise InputError(f"topology-labels is {setting!r}; must be at most {MAX_TIERS} labels, each once")
    return labels


def _by_labels(
    nodes: Sequence[Object],
    of_node: Mapping[str, Mapping[str, str]],
    labels: Sequence[str],
    accelerators: Sequence[str],
    notes: Notes,
) -> Units:
    for label in labels:
        lacking = [node for node in nodes if not of_node.get(node.name, {}).get(label)]
        if lacking:
            names = ", ".join(repr(node.name) for node in lacking[:_NAMED]) + (", ..." if len(lacking) > _NAMED else "")
            raise lacking[0].fault(
                f"{len(lacking)} of {len(nodes)} nodes with GPUs have no label {label!r}: {names}; label them, name "
                f"other labels, coarsest first (--topology-labels, in a request settings), or say {NONE!r}",
                "metadata",
                "labels",
            )
    paths = {node.name: tuple(of_node[node.name][label] for label in labels) if labels else () for node in nodes}
    tiers = list(_tier_names(labels))
    objects = {node.name: node for node in nodes}

    def fault(name: str | None, detail: str) -> FileFormatError:
        return objects[name or nodes[0].name].fault(detail, "metadata", "labels")

    above: tuple[str, ...] = ()
    for label in accelerators:
        said = {node.name: of_node.get(node.name, {}).get(label, "") for node in nodes}
        groups = {
            name: (*(of_node[name].get(other, "") for other in above), value) for name, value in said.items() if value
        }
        if not groups:
            continue
        try:
            paths, position = insert_tier(paths, groups, label, fault)
        except FileFormatError as error:
            notes.add("domains_not_nested", nodes[0].document, "", f"{error.detail}; {label} is left out")
            continue
        tiers.insert(position, _tier_names((label,))[0])
        above = (*above, label)
    return Units(tiers=tuple(tiers), paths=paths)


def _tier_names(labels: Sequence[str]) -> tuple[str, ...]:
    short = tuple(label.rpartition("/")[2] for label in labels)
    return short if len(set(short)) == len(short) else tuple(labels)
