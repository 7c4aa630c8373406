from pathlib import Path

import pytest

from stowplan.errors import FileFormatError
from tests.topology.instances import DEFAULTS
from topology.readers.slurm import read_slurm, slurm_fabric
from topology.readers.slurm_fabric import Fabric

# After the example of topology.yaml(5) of Slurm 25.05.
SEVERAL = """
---
- topology: ib
  cluster_default: true
  tree:
    switches:
      - switch: root
        children: s[1-2]
      - switch: s1
        nodes: node[01-02]
      - switch: s2
        nodes: node[03-04]
- topology: nvl   # racks
  cluster_default: false
  block:
    block_sizes: [1, 2]
    blocks:
      - {block: b1, nodes: node01}
      - {block: b2, nodes: node02}
      - {block: b3, nodes: "node[03-04]"}
      - {block: spare}
- topology: plain
  flat: true
- topology: round
  ring:
    rings: [{ring: r0, nodes: "node[01-04]"}]
"""


def read(text: str, chosen: str | None = None) -> Fabric:
    return slurm_fabric(text, "topology.yaml", chosen)


def joined(fabric: Fabric) -> dict[str, str]:
    return {node: "/".join(path) for node, path in fabric.paths.items()}


def test_the_default_of_several() -> None:
    fabric = read(SEVERAL)
    assert fabric.tiers == ("switch-1", "switch-2")
    assert joined(fabric) == {"node01": "root/s1", "node02": "root/s1", "node03": "root/s2", "node04": "root/s2"}


def test_another_one_or_two_together() -> None:
    blocks = read(SEVERAL, "nvl")
    assert (blocks.tiers, joined(blocks)["node04"]) == (("block",), "b3")
    both = read(SEVERAL, "ib, nvl")
    assert both.tiers == ("switch-1", "switch-2", "block")
    assert joined(both)["node02"] == "root/s1/b2"
    assert read(SEVERAL, "plain") == Fabric(is_flat=True)


def test_the_same_as_topology_conf() -> None:
    conf = "SwitchName=root Switches=s[1-2]\nSwitchName=s1 Nodes=node[01-02]\nSwitchName=s2 Nodes=node[03-04]\n"
    assert slurm_fabric(conf, "topology.conf") == read(SEVERAL)


def test_names_are_texts_whatever_yaml_makes_of_them() -> None:
    fabric = read("- topology: 1e3\n  tree:\n    switches: [{switch: on, nodes: 007}]\n")
    assert joined(fabric) == {"007": "on"}


def test_a_file_becomes_a_cluster(tmp_path: Path) -> None:
    path = tmp_path / "topology.yaml"
    path.write_text(SEVERAL)
    cluster = read_slurm(path, DEFAULTS)
    assert (len(cluster.nodes), cluster.minipod_tier) == (4, "switch-2")
    path.write_text("- topology: plain\n  flat: true\n")
    with pytest.raises(FileFormatError, match="describes a flat topology, which lists no nodes; give --nodes"):
        read_slurm(path, DEFAULTS)


@pytest.mark.parametrize(
    ("text", "chosen", "said"),
    [
        (SEVERAL, "round", ":24: topology 'round' is of kind 'ring', which has no tiers; known: tree, block, flat"),
        (SEVERAL, "ice", ": has no topology 'ice'; it has ib, nvl, plain, round"),
        (SEVERAL.replace("true", "false"), None, "none with cluster_default: true; say which one (fabric)"),
        ("- topology: a\n  tree: [\n", None, ":3: is not YAML"),
        ("tree: {}\n", None, ":1: is no list of topologies"),
        ("", None, ": is no list of topologies"),
        ("- tree: {}\n", None, ":1: has no name: it must begin with `topology: name`"),
        ("- topology: a\n", None, ":1: topology 'a' has 0 of tree, block, flat; it must have one"),
        ("- topology: a\n  flat: true\n  tree: {}\n", None, ":1: topology 'a' has 2 of tree, block, flat"),
        ("- topology: a\n  flat: true\n  mesh: 2\n", None, ":3: unknown key 'mesh' of a topology"),
        ("- topology: a\n  flat: true\n- topology: a\n  flat: true\n", None, ":3: topology 'a' is already defined in"),
        ("- topology: a\n  flat: true\n  flat: true\n", None, ":3: 'flat' stands twice"),
        ("- topology: a\n  tree:\n    nodes: n1\n", None, ":3: has no list 'switches'"),
        ("- topology: a\n  tree:\n    switches: [{nodes: n1}]\n", None, ":3: has no 'switch'"),
        ("- topology: a\n  tree:\n    switches: [{switch: s, nodes: [n1]}]\n", None, ":3: must be a text"),
        ("- topology: a\n  tree:\n    switches: [{switch: s, speed: 4}]\n", None, ":3: unknown key 'speed'"),
        (
            "- topology: a\n  tree:\n    switches:\n    - {switch: s, nodes: n1}\n    - {switch: t, nodes: n1}\n",
            None,
            ":5: node 'n1'",
        ),
        ("- topology: a\n  tree:\n    switches: [{switch: s}]\n", None, ":3: switch 's' has neither"),
    ],
)
def test_what_is_wrong_is_told_with_its_line(text: str, chosen: str | None, said: str) -> None:
    with pytest.raises(FileFormatError) as refused:
        read(text, chosen)
    assert said in refused.value.detail
