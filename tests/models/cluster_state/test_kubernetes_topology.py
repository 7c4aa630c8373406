"""Where Kubernetes' nodes are: labels of NVLink across nodes, Topograph's features, flavors of Kueue."""

import json
from collections.abc import Mapping
from typing import Any

import pytest

from models.cluster_state.base import ClusterState
from stowplan.errors import InputError
from tests.models.cluster_state.kubernetes_documents import listed, node, read

FABRIC, ACCELERATOR, CLIQUE = "fabric.topograph.run/tier-", "accelerator.topograph.run/", "nvidia.com/gpu.clique"
LEAF = "backend.coreweave.cloud/leafgroup"
# A value as the device plugin writes it: cluster and clique (docs/reference/node-labels.md of NVIDIA/topograph).
RACK = "0d4a4b5e-1c52-4a2a-9f0c-8f9a6b2c7e11.{}"


def paths(state: ClusterState) -> dict[str, str]:
    return {one.id: "/".join(one.path) for one in state.cluster.nodes}


def tiers(state: ClusterState) -> list[str]:
    return [tier.name for tier in state.cluster.tiers]


def test_labels_that_topograph_writes_from_1_0_on() -> None:
    labels = {f"{FABRIC}{k}": name for k, name in enumerate(("leaf-a", "spine-a", "core"))}
    inside = {f"{ACCELERATOR}domain": "nvl-1", f"{ACCELERATOR}sub-domain": "rack-1"}
    for setting in ({}, {"topology-labels": "topograph"}):
        state = read(setting, nodes=listed(node("a", {**labels, **inside}), node("b", {**labels, **inside})))
        assert tiers(state) == ["tier-2", "tier-1", "tier-0", "domain", "sub-domain"]
        assert paths(state)["a"] == "core/spine-a/leaf-a/nvl-1/rack-1"


def test_a_domain_of_several_leaves_is_above_them_and_not_all_nodes_need_one() -> None:
    def labels(leaf: int, domain: str) -> Mapping[str, str]:
        return {
            f"{FABRIC}0": f"leaf-{leaf}",
            f"{FABRIC}1": "spine",
            **({f"{ACCELERATOR}domain": domain} if domain else {}),
        }

    names = {"a": (0, "nvl-1"), "b": (1, "nvl-1"), "c": (2, "nvl-2"), "d": (3, "")}
    state = read(nodes=listed(*(node(name, labels(*place)) for name, place in names.items())))
    assert tiers(state) == ["tier-1", "domain", "tier-0"]
    assert paths(state) == {
        "a": "spine/nvl-1/leaf-0",
        "b": "spine/nvl-1/leaf-1",
        "c": "spine/nvl-2/leaf-2",
        "d": "spine/d/leaf-3",
    }


def test_cliques_of_the_device_plugin() -> None:
    racks = [node(f"n{k}", {CLIQUE: RACK.format(k // 2)}) for k in range(4)]
    state = read(nodes=listed(*racks))
    assert (tiers(state), paths(state)["n3"]) == (["gpu.clique"], RACK.format(1))
    assert tiers(read({"topology-labels": "none"}, nodes=listed(*racks))) == []
    below = [node(f"n{k}", {CLIQUE: RACK.format(k // 2), LEAF: f"l{k // 4}"}) for k in range(8)]
    assert tiers(read(nodes=listed(*below))) == ["leafgroup", "gpu.clique"]


def test_domains_that_cut_across_the_fabric_are_left_out() -> None:
    across = [node(f"n{k}", {CLIQUE: RACK.format((k + 1) // 2), LEAF: f"l{k // 2}"}) for k in range(4)]
    state = read(nodes=listed(*across))
    assert tiers(state) == ["leafgroup"]
    (note,) = state.notes
    assert (note.code, note.document) == ("domains_not_nested", "nodes.json")
    assert "cut across the tree" in note.detail


def feature(name: str, **elements: str) -> dict[str, Any]:
    """As docs/engines/nfd.md of NVIDIA/topograph has it."""
    attributes: dict[str, Any] = {"system.name": {"elements": {"nodename": name}}}
    if elements:
        network = {key.replace("_", "-"): value for key, value in elements.items()}
        attributes["topograph.network"] = {"elements": network}
    return {
        "apiVersion": "nfd.k8s-sigs.io/v1alpha1",
        "kind": "NodeFeature",
        "metadata": {"name": f"topograph-node-{name}", "namespace": "node-feature-discovery"},
        "spec": {"features": {"attributes": attributes}},
    }


def test_features_that_topograph_writes_for_nfd() -> None:
    said = {"fabric_tier_0": "leaf-12", "fabric_tier_1": "spine-2", "accelerator_domain": "nvl3"}
    others = feature("a")
    topology = listed(others, *(feature(name, **said) for name in ("a", "b", "not-here")))
    state = read(nodes=listed(node("a", {}), node("b", {})), topology=topology)
    assert tiers(state) == ["fabric-tier-1", "fabric-tier-0", "accelerator-domain"]
    assert paths(state)["b"] == "spine-2/leaf-12/nvl3"
    with pytest.raises(InputError, match="1 of 2 nodes with GPUs have no label 'fabric-tier-1': 'c'"):
        read(nodes=listed(node("a", {}), node("c", {})), topology=topology)


def kueue(kind: str, name: str, **spec: object) -> dict[str, Any]:
    return {"apiVersion": "kueue.x-k8s.io/v1beta1", "kind": kind, "metadata": {"name": name}, "spec": spec}


def test_flavors_say_which_of_several_topologies_nodes_have() -> None:
    nodes = listed(node("a", {"pool": "h100", "rack": "r1", "row": "w1"}))
    topologies = [kueue("Topology", label, levels=[{"nodeLabel": label}]) for label in ("rack", "row")]
    flavors = [
        kueue("ResourceFlavor", "h100", nodeLabels={"pool": "h100"}, topologyName="row"),
        kueue("ResourceFlavor", "b200", nodeLabels={"pool": "b200"}, topologyName="rack"),
        kueue("ResourceFlavor", "cpu"),
    ]
    assert tiers(read(nodes=nodes, topology=listed(*topologies, *flavors))) == ["row"]
    assert tiers(read({"topology-labels": "rack"}, nodes=nodes, topology=listed(*topologies, *flavors))) == ["rack"]
    with pytest.raises(InputError, match="topology-labels is None; must name one of the topologies: rack, row"):
        read(nodes=nodes, topology=listed(*topologies))


def test_objects_of_several_kinds_are_refused() -> None:
    both = listed(kueue("Topology", "t", levels=[{"nodeLabel": "rack"}]), feature("a", fabric_tier_0="l"))
    with pytest.raises(InputError, match="/items/1/kind: stands beside objects of kind 'Topology'"):
        read(nodes=listed(node("a", {})), topology=both)


def test_gpus_that_are_missing_are_told() -> None:
    state = read(nodes=json.dumps(node("a", {"nvidia.com/gpu.count": "7"})))
    assert [note.code for note in state.notes] == ["gpu_count_differs"]
