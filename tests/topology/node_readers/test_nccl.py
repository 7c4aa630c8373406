"""Topologies that NCCL writes."""

from pathlib import Path

import pytest

from stowplan.errors import FileFormatError
from tests.growth import work
from topology.gpu_catalogue import find_product
from topology.node_readers import NodeFacts, read_node_facts

SAMPLES = Path(__file__).with_name("samples")
SWITCH = '<nvlink target="fffffff:ff:ff.0" count="18" tclass="0x068000"/>'


def gpu(k: int, inside: str = SWITCH, *, device: str = "0x2330", speed: str = "32.0 GT/s PCIe") -> str:
    return (
        f'<pci busid="0000:{k:02x}:00.0" class="0x030200" vendor="0x10de" device="{device}" link_speed="{speed}" '
        f'link_width="16"><gpu dev="{k}" sm="90" rank="{k}" gdr="1">{inside}</gpu></pci>'
    )


def net(name: str, speed: object = 400000, more: str = "") -> str:
    return f'<nic><net name="{name}" dev="0" speed="{speed}" port="1" {more}/></nic>'


def system(*parts: str, hosts: int = 1) -> str:
    cpus = "\n".join(
        f'<cpu host_hash="0x{host}" numaid="0" arch="x86_64">\n' + "\n".join(parts) + "\n</cpu>"
        for host in range(hosts)
    )
    return f'<system version="1">\n{cpus}\n</system>\n'


def read(text: str, product: str | None = None) -> NodeFacts:
    return read_node_facts("topo.xml", text, None if product is None else find_product(product))


def codes(found: NodeFacts) -> list[str]:
    return [remark.code for remark in found.remarks]


@pytest.mark.parametrize(
    ("name", "num_gpus", "product", "intra", "inter", "remarks"),
    [
        # 5 + 5 + 4 + 4 links of 25 GB/s; adapters of 400 Gbit/s.
        ("h200-3-of-8", 3, "h200", 450e9, 150e9, []),
        # A virtual machine says 16 GT/s of every link.
        ("h200-1-of-8-virtual", 1, "h200", None, 50e9, ["adapter_behind_slower_link"]),
        # The file says nothing of PCIe, and the catalogue has no A100 for PCIe.
        ("a100-pcie-two-bridges", 4, None, None, 12.5e9, ["nvlink_groups", "pcie_unknown"]),
    ],
)
def test_published_files(
    name: str, num_gpus: int, product: str | None, intra: float | None, inter: float, remarks: list[str]
) -> None:
    found = read((SAMPLES / f"{name}.xml").read_text())
    assert (found.num_gpus, found.product) == (num_gpus, product)
    assert found.intra_node_bandwidth_bytes_per_s == intra
    assert found.inter_node_bandwidth_bytes_per_s == inter
    assert codes(found) == remarks


def test_a_product_that_is_said_says_how_fast_its_slot_is() -> None:
    found = read((SAMPLES / "a100-pcie-two-bridges.xml").read_text(), "a100-80gb")
    assert found.intra_node_bandwidth_bytes_per_s == pytest.approx(31.5e9, rel=1e-3)
    assert "2 groups of GPUs (GPU0 GPU1 | GPU2 GPU3)" in found.remarks[0].detail


def test_pcie_is_as_fast_as_its_slowest_link_between_gpus() -> None:
    #  cpu -- switch (5.0) -- GPU0 (4.0), GPU1 (5.0): the link above the switch carries nothing between them
    switch = '<pci busid="0000:f0:00.0" link_speed="2.5 GT/s PCIe" link_width="16">'
    below = switch + gpu(0, "", speed="16.0 GT/s PCIe") + gpu(1, "") + "</pci>"
    assert read(system(below)).intra_node_bandwidth_bytes_per_s == pytest.approx(31.5e9, rel=1e-3)
    both = system(below, gpu(2, ""))
    assert read(both).intra_node_bandwidth_bytes_per_s == pytest.approx(4e9)


def test_adapters_add_up_once_each() -> None:
    #  Two ports of one adapter, one that nobody uses, and two that NCCL uses as one, which stand there alone, too.
    parts = [net("mlx5_0"), net("mlx5_0"), net("mlx5_1", 200000), net("mlx5_9", 100000, 'keep="0"')]
    assert read(system(gpu(0), gpu(1), *parts)).inter_node_bandwidth_bytes_per_s == 75e9
    merged = system(gpu(0), gpu(1), net("mlx5_0+mlx5_1", 800000), net("mlx5_0"), net("mlx5_1"))
    assert read(merged).inter_node_bandwidth_bytes_per_s == 100e9
    assert codes(read(system(gpu(0), gpu(1)))) == ["no_adapters"]
    unknown = read(system(gpu(0), gpu(1), net("mlx5_0"), net("eth0", -1)))
    assert (unknown.inter_node_bandwidth_bytes_per_s, codes(unknown)) == (None, ["adapters_without_speed"])


def test_links_to_processors_and_to_gpus_that_take_no_part_do_not_count() -> None:
    links = '<nvlink target="{}" count="{}" tclass="{}"/>'
    others = links.format("0000:99:00.0", 2, "0x030200") + links.format("0004:00:00.0", 3, "0x068001")
    pair = [gpu(k, links.format(f"0000:{1 - k:02x}:00.0", 4, "0x030200") + others) for k in range(2)]
    assert read(system(*pair)).intra_node_bandwidth_bytes_per_s == 4 * 25e9


def test_of_several_hosts_the_first_is_the_node() -> None:
    found = read(system(gpu(0), gpu(1), net("mlx5_0"), hosts=3))
    assert (found.num_gpus, codes(found)) == (2, ["several_hosts"])


def test_elements_are_read_once() -> None:
    def large(num: int) -> str:
        return system(*(gpu(k) for k in range(num)), *(net(f"mlx5_{k}") for k in range(num)))

    small, twice = large(100), large(200)
    assert work(lambda: read(twice)) <= 2.3 * work(lambda: read(small))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (system(gpu(0)).replace("</cpu>", ""), ":5: no XML: mismatched tag"),
        (system(gpu(0)).replace('version="1"', 'version="2"'), ":1: is a topology of version '2'; read is '1'"),
        (
            system(gpu(0, '<xgmi target="0000:01:00.0" count="1"/>')),
            ":3: <xgmi> stands in <gpu>, where c2c or nvlink may",
        ),
        (system(), "topo.xml: has no GPUs: give what NCCL_TOPO_DUMP_FILE writes"),
        (system(gpu(0), gpu(1, device="0x2335")), ":4: is 0x10de:0x2335, another GPU than that of line 3"),
        (system(gpu(0), gpu(0)), ":4: GPU0 at '0000:00:00.0' has no busid or dev of its own"),
        (system(gpu(0, SWITCH.replace("18", "x"))), ":3: count of <nvlink> is 'x'; must be a whole number"),
        (
            system(gpu(0, '<nvlink target="0000:00:00.0" count="12" tclass="0x030200"/>')),
            ":3: an NVLink of GPU0 leads to itself (0000:00:00.0)",
        ),
        ('<!DOCTYPE a [<!ENTITY b "c">]>' + system(gpu(0)), ":1: has a document type"),
        ("<system version='1'>" + "<cpu>" + "<pci>" * 70, ":1: is nested too deeply"),
        ("<graphs version='1'/><system", ":1: <graphs> stands at the top, where system may"),
    ],
)
def test_what_is_wrong_is_told_with_its_line(text: str, said: str) -> None:
    with pytest.raises(FileFormatError) as caught:
        read(text)
    assert said in caught.value.detail


def test_another_gpu_than_was_said_is_refused() -> None:
    with pytest.raises(FileFormatError, match="0x10de:0x2330, which is the GPU h100, and not a100-40gb"):
        read(system(gpu(0)), "a100")
