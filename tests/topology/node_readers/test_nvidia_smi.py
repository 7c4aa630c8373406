"""Matrices of `nvidia-smi topo -m`."""

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stowplan.errors import FileFormatError
from tests.growth import work
from topology.gpu_catalogue import find_product
from topology.node_readers import NodeFacts, read_node_facts

SAMPLES = Path(__file__).with_name("samples")
# Hybrid cube mesh of a DGX-1V: NVLinks between two GPUs, four other GPUs each (NVIDIA's white paper of it).
CUBE_MESH = {
    frozenset(pair): lanes
    for lanes, pairs in {
        1: ((0, 1), (0, 2), (1, 3), (2, 3), (4, 5), (4, 6), (5, 7), (6, 7)),
        2: ((0, 3), (0, 4), (1, 2), (1, 5), (2, 6), (3, 7), (4, 7), (5, 6)),
    }.items()
    for pair in pairs
}


def matrix(num_gpus: int, link: Callable[[int, int], str], nics: Sequence[str] = (), *, tab: str = "    ") -> str:
    """A matrix as drivers of these years print it."""
    devices = [*(f"GPU{k}" for k in range(num_gpus)), *nics]

    def cell(one: int, other: int) -> str:
        if one == other:
            return " X "
        return link(one, other) if max(one, other) < num_gpus else "SYS"

    lines = [tab.join(["", *devices, "CPU Affinity", "NUMA Affinity", "GPU NUMA ID"])]
    for k, device in enumerate(devices):
        behind = ["0-55,112-167", "0", "", "N/A"] if k < num_gpus else []
        lines.append(tab.join([device, *(cell(k, j) for j in range(len(devices))), *behind]))
    return "\n".join([*lines, "", "Legend:", "", "  X    = Self", "", "NIC Legend:", "", "  NIC0: mlx5_0", ""])


def read(text: str, product: str | None) -> NodeFacts:
    return read_node_facts("topo.txt", text, None if product is None else find_product(product))


def codes(found: NodeFacts) -> list[str]:
    return [remark.code for remark in found.remarks]


@pytest.mark.parametrize(
    ("name", "product", "expected"), [("h100-4-direct", "h100", 450e9), ("a100-4-direct", "a100", 300e9)]
)
def test_links_between_pairs_add_up(name: str, product: str, expected: float) -> None:
    # 6 + 6 + 6 links of 25 GB/s, 4 + 4 + 4 of 25 GB/s: what the data sheets say of all links of these GPUs.
    found = read((SAMPLES / f"{name}.txt").read_text(), product)
    assert found.num_gpus == 4
    assert found.intra_node_bandwidth_bytes_per_s == expected
    assert found.inter_node_bandwidth_bytes_per_s is None
    assert codes(found) == ["adapters_without_speed"]


@pytest.mark.parametrize(
    ("num_gpus", "lanes", "product", "expected"),
    [
        (8, 18, "h100", 450e9),
        (8, 8, "h100", 200e9),
        (8, 12, "a100-80gb", 300e9),
        (16, 6, "v100", 150e9),
        (3, 6, "v100", 150e9),
        (4, 18, "gb200", 900e9),
        (2, 4, "a40", 56.25e9),
    ],
)
def test_links_behind_switches_are_counted_once(num_gpus: int, lanes: int, product: str, expected: float) -> None:
    found = read(matrix(num_gpus, lambda *_: f"NV{lanes}"), product)
    assert (found.num_gpus, found.intra_node_bandwidth_bytes_per_s) == (num_gpus, expected)
    assert found.remarks == ()


def test_headers_of_other_versions() -> None:
    plain = matrix(2, lambda *_: "NV18", ["NIC0"])
    underlined = matrix(2, lambda *_: "NV18", ["NIC0"], tab="\t").splitlines()
    underlined[0] = f"\t\x1b[4m{underlined[0].strip()}\x1b[0m"
    older = plain.replace("NIC0", "mlx5_0").replace("    NUMA Affinity    GPU NUMA ID", "")
    prompt = f"user@host:~$ nvidia-smi topo -m\n{plain}"
    expected = read(plain, "h100")
    assert all(read(text, "h100") == expected for text in ("\n".join(underlined), older, prompt))


def test_two_groups_are_said_and_pcie_counts() -> None:
    found = read(matrix(8, lambda i, j: "NV4" if i // 4 == j // 4 else "SYS"), "a100")
    assert found.intra_node_bandwidth_bytes_per_s == pytest.approx(31.5e9, rel=1e-3)
    assert codes(found) == ["nvlink_groups", "gpus_across_processors"]
    assert "(GPU0 GPU1 GPU2 GPU3 | GPU4 GPU5 GPU6 GPU7)" in found.remarks[0].detail


def test_islands_of_pcie() -> None:
    found = read(matrix(4, lambda i, j: "PIX" if i // 2 == j // 2 else "NODE"), "l40s")
    assert found.intra_node_bandwidth_bytes_per_s == pytest.approx(31.5e9, rel=1e-3)
    assert found.remarks == ()
    assert codes(read(matrix(2, lambda *_: "PHB"), None)) == ["pcie_unknown"]


def test_links_to_some_of_the_others() -> None:
    mesh = matrix(8, lambda i, j: f"NV{CUBE_MESH[pair]}" if (pair := frozenset((i, j))) in CUBE_MESH else "SYS")
    found = read(mesh, "v100")
    assert found.intra_node_bandwidth_bytes_per_s == 150e9
    assert codes(found) == ["nvlink_not_to_all"]
    broken = read(matrix(3, lambda i, j: "NV4" if 0 in (i, j) else "NV2"), "a100")
    assert (broken.intra_node_bandwidth_bytes_per_s, codes(broken)) == (150e9, ["nvlinks_differ"])


def test_who_knows_no_product_is_told_what_is_missing() -> None:
    found = read(matrix(8, lambda *_: "NV18"), None)
    assert (found.intra_node_bandwidth_bytes_per_s, codes(found)) == (None, ["nvlink_unknown"])
    alone = read(matrix(1, lambda *_: ""), "h100")
    assert (alone.num_gpus, alone.intra_node_bandwidth_bytes_per_s, alone.remarks) == (1, None, ())


@given(st.integers(2, 12), st.data())
def test_what_is_written_is_read(num_gpus: int, data: st.DataObject) -> None:
    # Groups of GPUs, each with links between all of its pairs; the figure does not depend on how GPUs are numbered.
    group = data.draw(st.lists(st.integers(0, 2), min_size=num_gpus, max_size=num_gpus))
    found = read(matrix(num_gpus, lambda i, j: "NV1" if group[i] == group[j] else "PXB"), "h100")
    assert found.num_gpus == num_gpus
    if len(set(group)) == 1:
        assert found.intra_node_bandwidth_bytes_per_s == 25e9 * (num_gpus - 1)
    else:
        assert found.intra_node_bandwidth_bytes_per_s == pytest.approx(63e9, rel=1e-3)
        assert ("nvlink_groups" in codes(found)) == (len(set(group)) < num_gpus)


def test_rows_are_read_once() -> None:
    small, large = (matrix(size, lambda *_: "NV18") for size in (32, 64))
    # A matrix of twice the GPUs has four times the cells.
    assert work(lambda: read(large, "h100")) <= 4.6 * work(lambda: read(small, "h100"))


GOOD = matrix(2, lambda *_: "NV18", ["NIC0"])


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "topo.txt: is none of: what NCCL_TOPO_DUMP_FILE names, what `nvidia-smi topo -m` prints"),
        ("GPU 0: NVIDIA H100 80GB HBM3\n", "is none of"),
        ("\n".join(GOOD.splitlines()[1:]), "has no header with GPU0 and so on"),
        (GOOD.replace("\nNIC0", "\nNIC1", 1), ":4: begins with 'NIC1'; the columns are GPU0, GPU1, NIC0"),
        (GOOD.replace("\nNIC0", "\nGPU1", 1), ":4: GPU1 has a row in line 3 already"),
        ("\n".join(GOOD.splitlines()[:3]), "topo.txt: has no row for NIC0"),
        (GOOD.replace("GPU0     X ", "GPU0    SYS", 1), ":2: GPU0 reaches itself by 'SYS'; must be X"),
        (GOOD.replace("NV18", "NVX", 1), ":2: GPU0 reaches GPU1 by 'NVX'; must be one of NV1, NV2, ..., PIX"),
        (GOOD.replace("NV18", "NV17", 1), ":2: GPU0 reaches GPU1 by NV17, GPU1 reaches GPU0 by NV18"),
        (GOOD.replace("GPU1    NIC0", "GPU1    GPU1", 1), ":1: has two columns GPU1"),
        (GOOD.replace("GPU1    NIC0", "NIC0    GPU1", 1), ":1: has columns of GPUs behind others"),
        ("GPU0    GPU1\nGPU0    X    NV1\nGPU1    NV1\n", ":3: has 1 links for 2 columns"),
    ],
)
def test_what_is_wrong_is_told_with_its_line(text: str, said: str) -> None:
    with pytest.raises(FileFormatError) as caught:
        read(text, "h100")
    assert said in caught.value.detail
