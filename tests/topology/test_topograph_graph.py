"""What Topograph's graph engine writes."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stowplan.errors import FileFormatError
from tests.growth import work
from tests.topology.instances import DEFAULTS
from topology.cluster import Cluster
from topology.readers.topograph import read_topograph
from topology.readers.topograph_graph import read_topograph_graph

DOMAIN, SUB_DOMAIN = "accelerator.topograph.run/domain", "accelerator.topograph.run/sub-domain"
# Of docs/engines/graph.md in https://github.com/NVIDIA/topograph, at v0.5.0 and at e2b6250 (behind v1.0.0), and of the
# model small-tree.yaml there, whose graph this is.
V05 = {"id": "I21", "type": "H100", "network_layers": ["leaf-a", "spine-a"], "attributes": {"nvlink": "nvl-1"}}
V10 = {
    "id": "I21",
    "network_layers": ["leaf-a", "spine-a"],
    "labels": {"example.com/gpu-product": "H100", DOMAIN: "nvl-1", SUB_DOMAIN: "nvl-1.rack-1"},
}
SMALL_TREE = {"S2": ("nvl2", ("I21", "I22", "I25")), "S3": ("nvl3", ("I34", "I35", "I36"))}


def instance(name: str, *layers: str, domain: str = "", sub_domain: str = "") -> dict[str, Any]:
    labels = {DOMAIN: domain, SUB_DOMAIN: sub_domain}
    return {"id": name, "network_layers": list(layers), "labels": {key: text for key, text in labels.items() if text}}


def graph(*instances: object) -> str:
    return json.dumps({"instances": instances})


def read(text: str) -> Cluster:
    return read_topograph_graph("graph.json", text, DEFAULTS)


def shape(cluster: Cluster) -> tuple[list[str], dict[str, str]]:
    return [tier.name for tier in cluster.tiers], {node.id: "/".join(node.path) for node in cluster.nodes}


def test_a_graph_and_its_model_are_one_cluster(tmp_path: Path) -> None:
    model, written = tmp_path / "model.yaml", tmp_path / "graph.json"
    blocks = [
        {"switch": leaf, "nodes": list(nodes), "annotations": {"accelerator.topology.test/domain": domain}}
        for leaf, (domain, nodes) in SMALL_TREE.items()
    ]
    model.write_text(json.dumps({"switches": {"S1": {"switches": list(SMALL_TREE)}}, "blocks": blocks}))
    written.write_text(
        graph(
            *(
                instance(node, leaf, "S1", domain=domain)
                for leaf, (domain, nodes) in SMALL_TREE.items()
                for node in nodes
            )
        )
    )
    assert read_topograph(written, DEFAULTS) == read_topograph(model, DEFAULTS)


def test_both_versions_of_an_instance() -> None:
    assert shape(read(graph(V05))) == (["switch-1", "switch-2", "domain"], {"I21": "spine-a/leaf-a/nvl-1"})
    assert shape(read(graph(V10))) == (
        ["switch-1", "switch-2", "domain", "sub-domain"],
        {"I21": "spine-a/leaf-a/nvl-1/nvl-1.rack-1"},
    )


def test_a_domain_of_several_leaves_is_above_them() -> None:
    found = read(graph(*(instance(f"n{k}", f"leaf{k}", "spine", domain=f"nvl{k // 2}") for k in range(4))))
    assert shape(found)[0] == ["switch-1", "domain", "switch-2"]
    assert found.nodes[3].path == ("spine", "nvl1", "leaf3")


def test_instances_without_switches() -> None:
    none = {"id": "a", "network_layers": None}
    assert shape(read(graph(none, {"id": "b"}))) == ([], {"a": "", "b": ""})


@given(st.lists(st.tuples(*[st.integers(0, 2)] * 3), min_size=1, max_size=12))
def test_what_is_written_is_read(places: list[tuple[int, int, int]]) -> None:
    # Pod, leaf and domain of each node; domains are told apart by their leaf, so that they nest.
    instances = [
        instance(f"n{k}", f"l{pod}.{leaf}", f"p{pod}", domain=f"d{pod}.{leaf}.{domain}")
        for k, (pod, leaf, domain) in enumerate(places)
    ]
    tiers, paths = shape(read(graph(*instances)))
    position = tiers.index("domain")
    for k, (pod, leaf, domain) in enumerate(places):
        names = [f"p{pod}", f"l{pod}.{leaf}"]
        names.insert(position, f"d{pod}.{leaf}.{domain}")
        assert paths[f"n{k}"] == "/".join(names)


def test_reading_grows_with_the_cluster() -> None:
    def large(size: int) -> str:
        return graph(*(instance(f"n{k}", f"l{k // 16}", f"s{k // 64}", domain=f"d{k // 16}") for k in range(size)))

    small, twice = large(512), large(1024)
    assert work(lambda: read(twice)) <= 2.3 * work(lambda: read(small))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('{"instances": [', "graph.json:1: no JSON: Expecting value"),
        ('{"instances": []}', "graph.json: /instances: is empty; must have an instance for each node"),
        ('{"instances": {}}', "graph.json: /instances: must be a list"),
        ('{"instances": [1]}', "graph.json: /instances/0: must be an object"),
        ('{"instances": [], "nodes": []}', "graph.json: /nodes: is no field of a graph"),
        (graph({"id": ""}), "/instances/0/id: is ''; must be a name"),
        (
            graph({"id": "a", "layers": []}),
            "/instances/0/layers: is no field of an instance; the fields are id, network_",
        ),
        (graph(V05, V05), "/instances/1/id: 'I21' is the instance of /instances/0 already"),
        (graph({"id": "a", "network_layers": ["x", 1]}), "/instances/0/network_layers: must be a list of names"),
        (graph({"id": "a", "labels": {"x": 1}}), "/instances/0/labels: must be an object of texts"),
        (
            graph(instance("a", "l", "s"), instance("b", "l", "s"), instance("c", "l")),
            "/instances/2: node 'c' sits below 1 switches (l), but 'a' and most others below 2 (s > l)",
        ),
        (
            graph(*(instance(f"n{k}", f"l{k // 2}", domain=f"d{(k + 1) // 2}") for k in range(4))),
            "/instances/1: domains cut across the tree",
        ),
    ],
)
def test_what_is_wrong_is_told_with_its_place(text: str, said: str) -> None:
    with pytest.raises(FileFormatError) as caught:
        read(text)
    assert said in caught.value.detail
