from pathlib import Path

import pytest

from stowplan.errors import FileFormatError
from tests.topology.instances import DEFAULTS
from topology.cluster import Cluster
from topology.readers.slurm import read_slurm

TREE = r"""
# Two pods of two leaves.
SwitchName=core Switches=pod[1-2]           # comment after text
switchname=pod1 SWITCHES=leaf[1-2] LinkSpeed=100
SwitchName=pod2 \
    Switches=leaf3,\
leaf4
SwitchName=leaf1 Nodes=n[001-002]
SwitchName=leaf2 Nodes=n[003-004,020]
SwitchName=leaf3 Nodes="r[1-2]n[1-2]"
SwitchName=leaf4 Nodes=login,gpu7  # a backslash in a comment continues nothing \
"""


def _write(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "topology.conf"
    path.write_text(text)
    return path


def _read(tmp_path: Path, text: str) -> Cluster:
    return read_slurm(_write(tmp_path, text), DEFAULTS)


def _paths(cluster: Cluster) -> dict[str, str]:
    return {node.id: "/".join(node.path) for node in cluster.nodes}


def _tiers(cluster: Cluster) -> list[str]:
    return [tier.name for tier in cluster.tiers]


def test_a_tree(tmp_path: Path) -> None:
    cluster = _read(tmp_path, TREE)
    assert _paths(cluster) == {
        "n001": "core/pod1/leaf1",
        "n002": "core/pod1/leaf1",
        "n003": "core/pod1/leaf2",
        "n004": "core/pod1/leaf2",
        "n020": "core/pod1/leaf2",
        "r1n1": "core/pod2/leaf3",
        "r1n2": "core/pod2/leaf3",
        "r2n1": "core/pod2/leaf3",
        "r2n2": "core/pod2/leaf3",
        "login": "core/pod2/leaf4",
        "gpu7": "core/pod2/leaf4",
    }
    assert _tiers(cluster) == ["switch-1", "switch-2", "switch-3"]
    assert cluster.minipod_tier == "switch-2"


def test_windows_line_ends_and_several_roots(tmp_path: Path) -> None:
    path = tmp_path / "topology.conf"
    path.write_bytes(b"SwitchName=a Nodes=n1\r\nSwitchName=b \\\r\n Nodes=n2\r\n")
    cluster = read_slurm(path, DEFAULTS)
    assert _paths(cluster) == {"n1": "a", "n2": "b"}
    assert cluster.minipod_tier == "switch-1"


def test_blocks(tmp_path: Path) -> None:
    cluster = _read(tmp_path, "BlockName=b1 Nodes=n[1-2]\nBlockName=b2 Nodes=n[3-4]\nBlockName=b3\nBlockSizes=2,4\n")
    assert _paths(cluster) == {"n1": "b1", "n2": "b1", "n3": "b2", "n4": "b2"}
    assert _tiers(cluster) == ["block"]
    assert cluster.minipod_tier == "block"


def test_blocks_below_switches(tmp_path: Path) -> None:
    """n3 is in no block, so it is alone in its own."""
    text = "SwitchName=s Nodes=n[1-5]\nBlockName=b1 Nodes=n[1-2]\nBlockName=b2 Nodes=n[4-5]\n"
    cluster = _read(tmp_path, text)
    assert _paths(cluster) == {"n1": "s/b1", "n2": "s/b1", "n3": "s/n3", "n4": "s/b2", "n5": "s/b2"}
    assert _tiers(cluster) == ["switch-1", "block"]


def test_blocks_above_leaf_switches(tmp_path: Path) -> None:
    """Each block is made of two whole leaves."""
    text = "SwitchName=core Switches=l[1-4]\n"
    text += "".join(f"SwitchName=l{k} Nodes=n{k}\n" for k in range(1, 5))
    cluster = _read(tmp_path, text + "BlockName=b1 Nodes=n[1-2]\nBlockName=b2 Nodes=n[3-4]\n")
    assert _paths(cluster) == {"n1": "core/b1/l1", "n2": "core/b1/l2", "n3": "core/b2/l3", "n4": "core/b2/l4"}
    assert _tiers(cluster) == ["switch-1", "block", "switch-2"]


@pytest.mark.parametrize(
    ("text", "line", "reason"),
    [
        ("# nothing\n", "", "there are no nodes in the file"),
        (
            "\nSwitchName=a Nodes=n1\nSwitchName=b Nodes=n[1-2]\n",
            ":3",
            "node 'n1' is put under 'b', but is already under 'a' (line 2)",
        ),
        ("SwitchName=a Nodes=n1,n1\n", ":1", "node 'n1' is put under 'a', but is already under 'a' (line 1)"),
        (
            "BlockName=a Nodes=n1\nBlockName=b Nodes=n1\n",
            ":2",
            "node 'n1' is put under 'b', but is already under 'a' (line 1)",
        ),
        ("SwitchName=a Switches=b,c\nSwitchName=b Nodes=n1\n", ":1", "unknown switch: switch 'a' lists 'c'"),
        (
            "SwitchName=l Nodes=n1\nSwitchName=a Switches=l\n\nSwitchName=b Switches=l\n",
            ":4",
            "switch 'l' is put under 'b', but is already under 'a' (line 2)",
        ),
        (
            "SwitchName=a Switches=b\nSwitchName=b Switches=c\nSwitchName=c Switches=a\nSwitchName=l Nodes=n1\n",
            ":1",
            "switches form a cycle: a > b > c > a",
        ),
        (
            "SwitchName=r Switches=a\nSwitchName=a Switches=b Nodes=n3\nSwitchName=b Nodes=n[1-2]\n",
            ":2",
            "node 'n3' sits below 2 switches (r > a), but 'n1' and most others below 3 (r > a > b)",
        ),
        ('SwitchName=a Nodes=""\n', ":1", "hostlist '' has an empty name"),
        ("SwitchName=a Switches=a\n", ":1", "switches form a cycle: a > a"),
        ("SwitchName=a Nodes=n1\nSwitchName=a Nodes=n2\n", ":2", "switch 'a' is already defined in line 1"),
        ("BlockName=a Nodes=n1\nBlockName=a Nodes=n2\n", ":2", "block 'a' is already defined in line 1"),
        ("SwitchName=a Nodes=n[1-\n", ":1", "hostlist 'n[1-' has unbalanced or nested brackets"),
        ("SwitchName=a \\\n  Nodes=n1 \\\n  Nodes=n2\n", ":1", "keyword 'Nodes' stands twice in the line"),
        ("SwitchName=a Nodes=n1 n2\n", ":1", "cannot read 'n2'; expected KEYWORD=VALUE"),
        ("Nodes=n1\n", ":1", "the line has none of SwitchName=, BlockName= and BlockSizes="),
        ("SwitchName=a Nodes=n1 Speed=4\n", ":1", "unknown keyword 'speed'"),
        ("BlockName=a Switches=b\n", ":1", "unknown keyword 'switches'"),
        ("SwitchName=a\n", ":1", "switch 'a' has neither Switches= nor Nodes="),
        ("SwitchName=a Nodes=n[1-2]\nBlockName=n1 Nodes=n2\n", "", "a block is called like a node that is in no block"),
        ("SwitchName=a[1-2] Nodes=n1\n", ":1", "'a[1-2]' is a list; expected one name"),
        ("BlockName=a Nodes=n1\nBlockSizes=2,x\n", ":2", "BlockSizes is '2,x'"),
        (
            "SwitchName=r Switches=a\nSwitchName=a Nodes=n[1-2]\nSwitchName=odd Nodes=n3\n",
            ":3",
            "node 'n3' sits below 1 switches (odd), but 'n1' and most others below 2 (r > a)",
        ),
        (
            "SwitchName=a Nodes=n[1-2]\nBlockName=b Nodes=n[2-3]\n",
            ":2",
            "node 'n3' sits below 0 switches (none), but 'n1' and most others below 1 (a)",
        ),
        (
            "SwitchName=a Nodes=n[1-2]\nSwitchName=b Nodes=n[3-4]\nBlockName=x Nodes=n[2-3]\n",
            ":1",
            "blocks cut across the tree: 'n1' is in no block and 'n2' is in block 'x', both in unit 'a'",
        ),
    ],
)
def test_errors_name_file_and_line(tmp_path: Path, text: str, line: str, reason: str) -> None:
    path = _write(tmp_path, text)
    with pytest.raises(FileFormatError) as caught:
        read_slurm(path, DEFAULTS)
    assert caught.value.detail.startswith(f"{path}{line}: {reason}")
