"""What holds for every reader in the registry."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from stowplan.errors import FileFormatError
from tests.topology.instances import DEFAULTS
from topology.cluster import Cluster
from topology.readers import READERS
from topology.serialize import cluster_from_json, cluster_to_json

Tree = dict[str, dict[str, list[str]]]

# Pods of leaves of nodes: leaf and node names are given numbers, so each is unique.
trees = st.lists(st.lists(st.integers(1, 3), min_size=1, max_size=3), min_size=1, max_size=3)


def _tree(sizes: list[list[int]]) -> Tree:
    """Give names: {pod: {leaf: nodes}}."""
    return {
        f"p{i}": {f"l{i}-{j}": [f"n{i}-{j}-{k}" for k in range(size)] for j, size in enumerate(leaves)}
        for i, leaves in enumerate(sizes)
    }


def _as_csv(tree: Tree) -> str:
    rows = [f"{node},{pod},{leaf}" for pod, leaves in tree.items() for leaf, nodes in leaves.items() for node in nodes]
    return "\n".join(["host,switch-1,switch-2", *rows])


def _as_slurm(tree: Tree) -> str:
    lines = [f"SwitchName={pod} Switches={','.join(leaves)}" for pod, leaves in tree.items()]
    lines += [
        f"SwitchName={leaf} Nodes={','.join(nodes)}" for leaves in tree.values() for leaf, nodes in leaves.items()
    ]
    return "\n".join(lines)


def _as_topograph(tree: Tree) -> str:
    switches = {pod: {"switches": list(leaves)} for pod, leaves in tree.items()}
    blocks = [{"switch": leaf, "nodes": nodes} for leaves in tree.values() for leaf, nodes in leaves.items()]
    return json.dumps({"switches": switches, "blocks": blocks})  # JSON is YAML


def _as_slurm_yaml(tree: Tree) -> str:
    switches: list[dict[str, str]] = [{"switch": pod, "children": ",".join(leaves)} for pod, leaves in tree.items()]
    switches += [
        {"switch": leaf, "nodes": ",".join(nodes)} for leaves in tree.values() for leaf, nodes in leaves.items()
    ]
    return yaml.safe_dump([{"topology": "ib", "tree": {"switches": switches}}], sort_keys=False)


def _as_graph(tree: Tree) -> str:
    instances = [
        {"id": node, "network_layers": [leaf, pod]}
        for pod, leaves in tree.items()
        for leaf, nodes in leaves.items()
        for node in nodes
    ]
    return json.dumps({"instances": instances})


# Name of a file -> format, and what writes it.
WRITERS = {
    "hosts.csv": ("csv", _as_csv),
    "topology.conf": ("slurm", _as_slurm),
    "topology.yaml": ("slurm", _as_slurm_yaml),
    "model.yaml": ("topograph", _as_topograph),
    "graph.json": ("topograph", _as_graph),
}


@settings(max_examples=25, deadline=None)
@given(trees)
def test_all_formats_of_one_fabric_give_one_cluster(
    tmp_path_factory: pytest.TempPathFactory, sizes: list[list[int]]
) -> None:
    folder = tmp_path_factory.mktemp("formats")
    tree, clusters = _tree(sizes), {}
    for name, (format_, write) in WRITERS.items():
        (folder / name).write_text(write(tree))
        clusters[name] = READERS[format_](folder / name, DEFAULTS)
    cluster: Cluster = clusters["hosts.csv"]
    assert all(other == cluster for other in clusters.values())
    assert cluster_from_json(cluster_to_json(cluster), "test") == cluster
    expected = {node: (pod, leaf) for pod, leaves in tree.items() for leaf, nodes in leaves.items() for node in nodes}
    assert {node.id: node.path for node in cluster.nodes} == expected


@pytest.mark.parametrize("name", sorted(WRITERS))
def test_defaults_and_minipod_tier_are_taken_over(tmp_path: Path, name: str) -> None:
    path, (format_, write) = tmp_path / name, WRITERS[name]
    path.write_text(write(_tree([[2, 1], [1]])))
    cluster = READERS[format_](path, replace(DEFAULTS, num_gpus=4), minipod_tier="switch-2")
    assert cluster.minipod_tier == "switch-2"
    assert {node.num_gpus for node in cluster.nodes} == {4}
    assert {tier.bandwidth_fraction for tier in cluster.tiers} == {1.0}


@pytest.mark.parametrize("name", sorted(READERS))
def test_a_file_that_cannot_be_read_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(FileFormatError, match=r"none: cannot be read: No such file or directory"):
        READERS[name](tmp_path / "none", DEFAULTS)
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(FileFormatError, match="is not UTF-8"):
        READERS[name](tmp_path / "binary", DEFAULTS)
