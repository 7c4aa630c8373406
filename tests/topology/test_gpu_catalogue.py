import math

import pytest

from stowplan.errors import InputError
from topology.cluster import Cluster, Node
from topology.gpu_catalogue import GpuProduct, find_product, gpu_type_of, known_product, products

_NAMES = [
    "a10",
    "a40",
    "l20",
    "v100",
    "a100-40gb",
    "a100-80gb",
    "h100",
    "h200",
    "l40s",
    "b200",
    "gb200",
    "h20",
    "mi300x",
    "mi325x",
]


def test_products() -> None:
    assert [product.name for product in products()] == _NAMES


@pytest.mark.parametrize("product", products(), ids=lambda product: product.name)
def test_complete_and_positive(product: GpuProduct) -> None:
    figures = [
        product.memory_bytes,
        product.memory_bandwidth_bytes_per_s,
        product.intra_node_bandwidth_bytes_per_s,
        product.inter_node_bandwidth_bytes_per_s,
        product.gpus_per_node,
        *product.peak_flops_per_s.values(),
    ]
    assert all(math.isfinite(figure) and figure > 0 for figure in figures)
    assert {"fp32", "fp16"} <= product.peak_flops_per_s.keys() <= {"fp32", "tf32", "fp16", "bf16", "fp8", "fp4"}
    assert product.tdp_w is not None
    # What a data centre gives a card or a module.
    assert 100.0 <= product.tdp_w <= 1500.0
    assert product.node
    assert product.source
    # Memory is faster than the links between GPUs of a node, and these are faster than a GPU's part of the network.
    assert product.memory_bandwidth_bytes_per_s > product.intra_node_bandwidth_bytes_per_s
    share = product.inter_node_bandwidth_bytes_per_s / product.gpus_per_node
    assert product.intra_node_bandwidth_bytes_per_s > share
    # Dense, not sparse: tensor cores double their rate from TF32 to 16 bits.
    if "tf32" in product.peak_flops_per_s:
        ratio = product.peak("bf16") / product.peak("tf32")
        assert ratio == pytest.approx(2.0, rel=0.03)
    # And again to 8 and to 4 bits.
    for wide, narrow in (("bf16", "fp8"), ("fp8", "fp4")):
        if narrow in product.peak_flops_per_s:
            assert product.peak(narrow) / product.peak(wide) == pytest.approx(2.0, rel=0.03)


def test_suikas_cluster() -> None:
    """900 GB/s of NVLink, both directions, and eight times 400 Gb/s per node (Suika section 5.1)."""
    h100 = find_product("h100")
    assert 2 * h100.intra_node_bandwidth_bytes_per_s == 900e9
    assert h100.inter_node_bandwidth_bytes_per_s == 8 * 400e9 / 8


@pytest.mark.parametrize(
    ("name", "gpus"), [("a100", 4), ("v100", 16), ("a40", 2), ("a10", 2), ("l20", 16), ("h100", 8)]
)
def test_nodes_of_arenas_table_1(name: str, gpus: int) -> None:
    assert find_product(name).gpus_per_node == gpus


def test_precision_falls_back_to_the_same_width() -> None:
    v100 = find_product("v100")
    assert v100.peak("bf16") == v100.peak("fp16") == 125e12
    assert v100.peak("tf32") == v100.peak("fp32") == 15.7e12


def test_unknown_precision_lists_what_there_is() -> None:
    with pytest.raises(InputError, match=r"'v100' at precision 'fp8'; known: fp32, fp16$"):
        find_product("v100").peak("fp8")


def test_block_scales_are_those_of_blackwell() -> None:
    assert find_product("b200").peak("mxfp8") == find_product("b200").peak("fp8")
    with pytest.raises(InputError, match="'h100' at precision 'mxfp8'"):
        find_product("h100").peak("mxfp8")


def test_a_rack_is_a_node() -> None:
    """GB200 NVL72: 180 PFLOP/s dense in 16 bits and 13.4 TB in all, 1.8 TB/s of NVLink in both directions."""
    gb200 = find_product("gb200")
    assert gb200.gpus_per_node * gb200.peak("bf16") == 180e15
    assert gb200.gpus_per_node * gb200.memory_bytes == pytest.approx(13.4e12, rel=0.001)
    assert 2 * gb200.intra_node_bandwidth_bytes_per_s == 1.8e12


@pytest.mark.parametrize(
    ("name", "product"),
    [
        ("H100", "h100"),
        ("NVIDIA H100 80GB HBM3", "h100"),
        ("NVIDIA A100-SXM4-80GB", "a100-80gb"),
        ("a100_80gb", "a100-80gb"),
        ("A100 80 GB", "a100-80gb"),
        ("a100", "a100-40gb"),
        ("Tesla V100-SXM2-32GB", "v100"),
        ("NVIDIA L40S", "l40s"),
        ("NVIDIA GB200", "gb200"),
        ("AMD Instinct MI300X", "mi300x"),
    ],
)
def test_aliases(name: str, product: str) -> None:
    assert find_product(name).name == product


def test_unknown_name_gives_near_matches_and_all_names() -> None:
    with pytest.raises(InputError) as raised:
        find_product("h100x")
    assert "'h100x'" in raised.value.detail
    assert "did you mean 'h100'" in raised.value.detail
    assert raised.value.detail.endswith(f"known: {', '.join(_NAMES)}")


def test_name_without_near_match() -> None:
    with pytest.raises(InputError, match=r"no GPU product 'xyzzy' in the catalogue; known: a10, "):
        find_product("xyzzy")
    assert known_product("xyzzy") is None
    assert known_product("") is None


def test_gpu_types_make_a_cluster() -> None:
    kinds = tuple(gpu_type_of(product, "bf16") for product in products())
    nodes = tuple(
        Node(id=product.name, gpu_type=product.name, num_gpus=product.gpus_per_node) for product in products()
    )
    cluster = Cluster(gpu_types=kinds, nodes=nodes)
    assert {kind.name: kind.peak_flops_per_s for kind in cluster.gpu_types}["v100"] == 125e12
    assert gpu_type_of(find_product("a100"), "fp32").peak_flops_per_s == 19.5e12
