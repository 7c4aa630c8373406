"""Outputs of ibnetdiscover: a plain fat tree, a rail-optimised one, and what is wrong with others."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from stowplan.errors import FileFormatError
from tests.growth import work
from tests.topology.instances import DEFAULTS
from topology.cluster import Cluster
from topology.readers.ibnetdiscover import read_ibnetdiscover

# As the manual page of infiniband-diags and published outputs of ConnectX-7 on QM9700 have it.
HEAD = """#
# Topology file: generated on Fri Jul 19 02:49:25 2024
#
# Initiated from node 9c05 port 9c05

"""


def switch(name: str, links: Sequence[tuple[str, str]]) -> str:
    ports = "".join(f'[{k}]\t"{guid}"[1](1) \t\t# "{what}" lid 22 2xNDR\n' for k, (guid, what) in enumerate(links, 1))
    head = f"vendid=0x2c9\ndevid=0xd2f2\nsysimgguid=0x{name}\nswitchguid=0x{name}({name})\n"
    return f'{head}Switch\t129 "S-{name}"\t\t# "MF0;{name}:MQM9700/U1" enhanced port 0 lid 1 lmc 0\n{ports}\n'


def adapter(guid: str, what: str, leaf: str) -> str:
    head = f"vendid=0x2c9\ndevid=0x1021\nsysimgguid=0x{guid}\ncaguid=0x{guid}\n"
    return f'{head}Ca\t1 "H-{guid}"\t\t# "{what}"\n[1](1) \t"S-{leaf}"[1]\t\t# lid 5 lmc 0 "{leaf}" lid 1 2xNDR\n\n'


def tree(num_pods: int, hosts_of_pod: int, rails: int = 1) -> str:
    """Pods of leaves, one for each rail, below two spines; two cores above all. A leaf also has SHArP's adapter."""
    text = HEAD
    cores = {f"core{k}": [(f"S-p{pod}spine{k}", "s") for pod in range(num_pods)] for k in range(2)}
    for pod in range(num_pods):
        leaves = [f"p{pod}leaf{rail}" for rail in range(rails)]
        for k in range(2):
            text += switch(f"p{pod}spine{k}", [*((f"S-{leaf}", "l") for leaf in leaves), (f"S-core{k}", "c")])
        for rail, leaf in enumerate(leaves):
            names = [(f"p{pod}h{host}r{rail}", f"node{pod}-{host} mlx5_{rail}") for host in range(hosts_of_pod)]
            names.append((f"{leaf}sharp", "Mellanox Technologies Aggregation Node"))
            up = [(f"S-p{pod}spine{k}", "s") for k in range(2)]
            text += switch(leaf, [*((f"H-{guid}", what) for guid, what in names), *up])
            text += "".join(adapter(guid, what, leaf) for guid, what in names)
    return text + "".join(switch(name, links) for name, links in cores.items())


def read(tmp_path: Path, text: str) -> Cluster:
    path = tmp_path / "ibnetdiscover.txt"
    path.write_text(text)
    return read_ibnetdiscover(path, DEFAULTS)


@pytest.mark.parametrize("rails", [1, 8])
def test_hosts_below_the_same_leaves_are_one_unit(tmp_path: Path, rails: int) -> None:
    #        core0 core1
    #       /           \
    #    pod 0: spines  pod 1: spines
    #    leaf of each rail, hosts on all of them
    cluster = read(tmp_path, tree(2, 3, rails))
    assert [tier.name for tier in cluster.tiers] == ["switch-1", "switch-2"]
    assert {node.id: node.path for node in cluster.nodes} == {
        f"node{pod}-{host}": (f"p{pod}spine0", f"p{pod}leaf0") for pod in range(2) for host in range(3)
    }


def test_one_switch_is_one_unit(tmp_path: Path) -> None:
    hosts = [(f"h{k}", f"node{k} HCA-1") for k in range(2)]
    text = HEAD + switch("only", [(f"H-{guid}", what) for guid, what in hosts])
    cluster = read(tmp_path, text + "".join(adapter(guid, what, "only") for guid, what in hosts))
    assert {node.id: node.path for node in cluster.nodes} == {"node0": ("only",), "node1": ("only",)}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "has no hosts on switches"),
        (HEAD + "SW  1  1 0x9c05 4x NDR - CA\n", "ibnetdiscover.txt:6: is 'SW  1  1 0x9c05"),
        (HEAD + switch("a", [("H-x", "node HCA-1")]), "1 nodes are linked and not described, such as 'H-x'"),
        (HEAD + adapter("x", "node HCA-1", "a") * 2, "node 'H-x' is already described in line 10"),
        (HEAD + adapter("x", "", "a"), "adapter 'H-x' does not say of which host it is"),
    ],
)
def test_what_is_wrong_is_named(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(FileFormatError) as caught:
        read(tmp_path, text)
    assert message in str(caught.value)


def test_reading_grows_with_the_fabric(tmp_path: Path) -> None:
    small, large = (tree(num_pods, 8) for num_pods in (8, 16))
    assert work(lambda: read(tmp_path, large)) < 2.3 * work(lambda: read(tmp_path, small))
