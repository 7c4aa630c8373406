from pathlib import Path

import pytest

from stowplan.errors import FileFormatError
from tests.topology.instances import DEFAULTS, shared_data
from topology.arrays import cluster_arrays
from topology.cluster import Cluster
from topology.readers.topograph import read_topograph

DOMAIN = "accelerator.topology.test/domain"


def _write(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "model.yaml"
    path.write_text(text)
    return path


def _paths(cluster: Cluster) -> dict[str, str]:
    return {node.id: "/".join(node.path) for node in cluster.nodes}


@pytest.mark.parametrize(
    ("name", "num_nodes", "tiers", "num_units", "minipod_tier", "example"),
    [
        ("small-tree", 6, ["switch-1", "switch-2", "domain"], [1, 2, 2], "switch-2", ("I25", "S1/S2/nvl2")),
        (
            "medium",
            8,
            ["switch-1", "switch-2", "switch-3", "domain"],
            [1, 2, 4, 4],
            "switch-2",
            ("1302", "sw3/sw22/sw13/nvl3"),
        ),
        (
            "large",
            96,
            ["switch-1", "switch-2", "switch-3", "domain"],
            [1, 6, 12, 12],
            "switch-2",
            ("srv5208", "core/spine-5/leaf-5-2/nvl-5-2"),
        ),
        (
            "nvl72",
            72,
            ["switch-1", "switch-2", "switch-3", "domain"],
            [1, 2, 4, 4],
            "switch-2",
            ("node2118", "core/spine-2/leaf-2-1/nvl-2-1"),
        ),
        # Parent domains of six racks lie above the spines, which they contain whole.
        (
            "dual-xclr-regular",
            96,
            ["switch-1", "domain", "switch-2", "switch-3", "sub-domain"],
            [1, 2, 6, 12, 12],
            "domain",
            ("srv4101", "core/nvl-2/spine-4/leaf-4-1/rack07"),
        ),
        # Here a parent domain is all racks of one switch; three racks have no nodes, one is not even listed.
        (
            "dual-xclr-irregular",
            255,
            ["switch-1", "switch-2", "domain", "switch-3", "sub-domain"],
            [1, 2, 2, 29, 29],
            "switch-2",
            ("node0032", "core/sw-01/domain-01/rack-1-04/rack-1-04"),
        ),
    ],
)
def test_the_published_models(
    name: str, num_nodes: int, tiers: list[str], num_units: list[int], minipod_tier: str, example: tuple[str, str]
) -> None:
    cluster = read_topograph(shared_data(f"topograph/{name}.yaml"), DEFAULTS)
    arrays = cluster_arrays(cluster)
    assert len(arrays.node_ids) == num_nodes
    assert list(arrays.tiers) == tiers
    assert [len(labels) for labels in arrays.unit_labels] == num_units
    assert cluster.minipod_tier == minipod_tier
    assert _paths(cluster)[example[0]] == example[1]


def test_irregular_racks_keep_the_nodes_they_have() -> None:
    cluster = read_topograph(shared_data("topograph/dual-xclr-irregular.yaml"), DEFAULTS)
    arrays = cluster_arrays(cluster)
    racks = dict(zip(arrays.labels("switch-3"), arrays.free_nodes("switch-3").tolist(), strict=True))
    assert racks["core/sw-01/domain-01/rack-1-04"] == 7
    assert racks["core/sw-02/domain-02/rack-2-15"] == 5
    assert sorted(set(racks.values())) == [5, 7, 9]


def test_a_switch_that_is_only_listed_is_a_leaf_and_empty_ones_are_left_out(tmp_path: Path) -> None:
    text = """
switches:
  core: {switches: [a, b, empty]}
  a:
blocks:
- {switch: a, nodes: [n1]}
- {switch: b, nodes: ['n[2-3]']}
"""
    cluster = read_topograph(_write(tmp_path, text), DEFAULTS)
    assert _paths(cluster) == {"n1": "core/a", "n2": "core/b", "n3": "core/b"}
    assert [tier.name for tier in cluster.tiers] == ["switch-1", "switch-2"]


def test_domains_are_inherited_from_switches_and_may_be_absent(tmp_path: Path) -> None:
    text = f"""
switches:
  a: {{annotations: {{{DOMAIN}: x}}}}
  b: {{labels: {{{DOMAIN}: no}}}}
blocks:
- {{switch: a, nodes: [n1, n2]}}
- {{switch: a, nodes: [n3], annotations: {{{DOMAIN}: y}}}}
- {{switch: b, nodes: [n4, n5]}}
"""
    cluster = read_topograph(_write(tmp_path, text), DEFAULTS)
    assert _paths(cluster) == {"n1": "a/x", "n2": "a/x", "n3": "a/y", "n4": "b/n4", "n5": "b/n5"}


def test_sub_domains_of_one_name_are_told_apart_by_their_domain(tmp_path: Path) -> None:
    def block(node: str, domain: str) -> str:
        sub = "accelerator.topology.test/sub-domain"
        return f"- {{switch: a, nodes: [{node}], annotations: {{{DOMAIN}: {domain}, {sub}: rack1}}}}\n"

    text = "switches: {a: {}}\nblocks:\n" + block("n1", "x") + block("n2", "y") + block("n3", "y")
    cluster = read_topograph(_write(tmp_path, text), DEFAULTS)
    assert _paths(cluster) == {"n1": "a/x/rack1", "n2": "a/y/rack1", "n3": "a/y/rack1"}


def test_blocks_without_switches(tmp_path: Path) -> None:
    text = f"blocks:\n- nodes: ['n[1-2]']\n  annotations: {{{DOMAIN}: x}}\n"
    cluster = read_topograph(_write(tmp_path, text), DEFAULTS)
    assert _paths(cluster) == {"n1": "x", "n2": "x"}
    assert cluster.minipod_tier == "domain"


@pytest.mark.parametrize(
    ("text", "line", "reason"),
    [
        ("", "", "is empty"),
        ("# a comment\n", "", "is empty"),
        ("switches: {}\n", "", "there are no nodes in the file"),
        ("switches:\n  a: [\n", ":3", "no YAML: "),
        ("switches:\n\ta: 1\n", ":2", "no YAML: "),
        ("switches: {}\n\n\x07", ":3", "no YAML: special characters are not allowed"),
        ("[" * 5_000, "", "is nested too deeply"),
        ("- a\n", ":1", "the model must be a mapping"),
        ("switches: {}\ncapacity_blocks: []\n", ":2", "the model has no field 'capacity_blocks'"),
        ("switches:\n  a: {}\n  b: {}\n  a: {}\n", ":4", "'a' is already defined in line 2"),
        ("switches:\n  a: {nodes: [n1]}\n", ":2", "switch 'a' has no field 'nodes'"),
        ("switches:\n  a: {name: b}\n", ":2", "switch 'a' calls itself 'b'"),
        ("switches:\n  a:\n    switches: b\n", ":3", "switches must be a list"),
        ("switches:\n  a:\n    switches:\n    - [b]\n", ":4", "an item of switches must be a name"),
        (
            "switches:\n  a:\n    switches:\n    - b\n    - b\n",
            ":5",
            "switch 'b' is put under 'a', but is already under 'a' (line 4)",
        ),
        (
            "switches:\n  a: {switches: [l]}\n  b: {switches: [l]}\n",
            ":3",
            "switch 'l' is put under 'b', but is already under 'a' (line 2)",
        ),
        (
            "switches:\n  a: {switches: [b]}\n  b: {switches: [a]}\nblocks: [{switch: a, nodes: [n1]}]\n",
            ":2",
            "switches form a cycle: a > b > a",
        ),
        ("switches:\n  a: {}\nblocks:\n- switch: c\n  nodes: [n1]\n", ":5", "unknown switch: nodes are put under 'c'"),
        ("switches:\n  a: {}\nblocks:\n- switch: a\n  nodes: ['n[1-']\n", ":5", "hostlist 'n[1-' has unbalanced"),
        (
            "switches:\n  a: {}\nblocks:\n- switch: a\n  nodes: [n1]\n- switch: a\n  nodes: [n1]\n",
            ":7",
            "node 'n1' is put under 'a', but is already under 'a' (line 5)",
        ),
        ("blocks:\n- switch:\n", ":2", "switch must be a name"),
        ("blocks:\n- nodes: [n1]\n  annotations: {x: [1]}\n", ":3", "x must be a name"),
        (
            "switches:\n  a: {switches: [b]}\nblocks:\n- {switch: b, nodes: ['n[1-2]']}\n- {switch: a, nodes: [n3]}\n",
            ":5",
            "node 'n3' sits below 1 switches (a), but 'n1' and most others below 2 (a > b)",
        ),
        (
            f"switches: {{a: {{}}, b: {{}}}}\nblocks:\n"
            f"- {{switch: a, nodes: [n1], annotations: {{{DOMAIN}: x}}}}\n"
            f"- {{switch: b, nodes: [n2], annotations: {{{DOMAIN}: x}}}}\n"
            f"- {{switch: b, nodes: [n3], annotations: {{{DOMAIN}: y}}}}\n",
            ":5",
            "domains cut across the tree: 'n2' is in domain 'x' and 'n3' is in domain 'y', both in unit 'b'",
        ),
    ],
)
def test_errors_name_file_and_line(tmp_path: Path, text: str, line: str, reason: str) -> None:
    path = _write(tmp_path, text)
    with pytest.raises(FileFormatError) as caught:
        read_topograph(path, DEFAULTS)
    assert caught.value.detail.startswith(f"{path}{line}: {reason}")
