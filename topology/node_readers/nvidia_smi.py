"""The matrix of `nvidia-smi topo -m`: how each GPU and adapter of a node reaches each other one.

            GPU0    GPU1    NIC0    CPU Affinity    NUMA Affinity   GPU NUMA ID
    GPU0     X      NV18    PIX     0-55,112-167    0               N/A
    GPU1    NV18     X      SYS     0-55,112-167    0               N/A
    NIC0    PIX     SYS      X

Adapters are NICs, in older versions mlx5_0 and the like. The header may be underlined by codes of the terminal. NV18
are 18 NVLinks: to switches where all of a row together are more than a GPU has, else between the two. How fast links
are, the matrix does not say: that comes with the product.
"""

import re
from collections.abc import Mapping, Sequence

from stowplan.errors import FileFormatError
from topology.gpu_catalogue import GpuProduct
from topology.node_readers.base import NodeFacts, Remark
from topology.node_readers.links import NVLINK, NvLink, Wiring, compute_capability, usual_pcie_bytes_per_s

_ESCAPES = re.compile(r"\x1b\[[\d;]*m")
_GPU = re.compile(r"GPU\d+")
_NVLINKS = re.compile(r"NV(\d{1,3})")
_SELF = "X"
# SOC and PSB: as older drivers have SYS and a switch of a board with two GPUs.
_PCIE = ("PIX", "PXB", "PHB", "NODE", "SYS", "SOC", "PSB")
_ACROSS = ("SYS", "SOC")
# Columns behind those of devices.
_NO_DEVICES = ("CPU", "NUMA")
_END = "Legend:"
_MOST_NVLINKS = max(kind.most for kind in NVLINK.values())

Matrix = Mapping[str, Sequence[str]]


def read_nvidia_smi_topology(source: str, text: str, product: GpuProduct | None) -> NodeFacts:
    """Read a matrix.

    Parameters
    ----------
    source
        What the text is called.
    product
        The GPUs of the node, which the matrix does not name.

    Raises
    ------
    FileFormatError
        Names file, line and what is wrong.
    """
    devices, matrix = _matrix(source, text)
    gpus = [device for device in devices if _GPU.fullmatch(device)]
    capability = compute_capability(product)
    nvlink = None if capability is None else NVLINK.get(capability)
    wiring = _wiring(source, gpus, matrix, nvlink, usual_pcie_bytes_per_s(product))
    bandwidth, remarks = wiring.bandwidth(nvlink)
    across = any(link in _ACROSS for gpu in gpus for link in matrix[gpu][: len(gpus)])
    if across and bandwidth is not None and bandwidth == wiring.pcie_bytes_per_s:
        detail = "some GPUs reach each other through both processors (SYS); counted is what PCIe carries at best"
        remarks.append(Remark(code="gpus_across_processors", detail=detail, source=source))
    if len(devices) > len(gpus):
        detail = (
            f"has {len(devices) - len(gpus)} adapters, and does not say how fast they are; give --inter-node-bandwidth "
            "(8x400Gbit/s) where they are not those of the usual node"
        )
        remarks.append(Remark(code="adapters_without_speed", detail=detail, source=source))
    return NodeFacts(
        source=source, num_gpus=len(gpus), intra_node_bandwidth_bytes_per_s=bandwidth, remarks=tuple(remarks)
    )


def _matrix(source: str, text: str) -> tuple[list[str], Matrix]:
    """Devices in the order of the columns, GPUs first, and the links of each; symmetric."""
    rows = enumerate((_ESCAPES.sub("", line).split() for line in text.splitlines()), start=1)
    number, header = next(((k, words) for k, words in rows if _is_header(words)), (0, []))
    if not header:
        raise FileFormatError.at(source, None, "has no header with GPU0 and so on; give all of `nvidia-smi topo -m`")
    devices = _columns(source, number, header)
    lines: dict[str, int] = {}
    matrix: dict[str, list[str]] = {}
    for number, words in rows:
        if not words:
            continue
        if words[0] == _END:
            break
        if words[0] not in devices:
            raise FileFormatError.at(source, number, f"begins with {words[0]!r}; the columns are {', '.join(devices)}")
        if words[0] in matrix:
            raise FileFormatError.at(source, number, f"{words[0]} has a row in line {lines[words[0]]} already")
        matrix[words[0]], lines[words[0]] = _row(source, number, words, devices), number
    missing = [device for device in devices if device not in matrix]
    if missing:
        raise FileFormatError.at(source, None, f"has no row for {', '.join(missing)}; give all of `nvidia-smi topo -m`")
    _refuse_one_sided(source, devices, matrix, lines)
    return devices, matrix


def _is_header(words: Sequence[str]) -> bool:
    return bool(words) and _GPU.fullmatch(words[0]) is not None and _SELF not in words


def _refuse_one_sided(source: str, devices: Sequence[str], matrix: Matrix, lines: Mapping[str, int]) -> None:
    """Refuse a matrix that is not symmetric."""
    position = {device: k for k, device in enumerate(devices)}
    for device, links in matrix.items():
        for other, k in position.items():
            back = matrix[other][position[device]]
            if links[k] != back:
                detail = f"{device} reaches {other} by {links[k]}, {other} reaches {device} by {back}; must be the same"
                raise FileFormatError.at(source, lines[device], detail)


def _columns(source: str, number: int, words: Sequence[str]) -> list[str]:
    devices: list[str] = []
    for word in words:
        if word in _NO_DEVICES:
            break
        if word in devices:
            raise FileFormatError.at(source, number, f"has two columns {word}")
        devices.append(word)
    gpus = [device for device in devices if _GPU.fullmatch(device)]
    if devices[: len(gpus)] != gpus:
        raise FileFormatError.at(source, number, "has columns of GPUs behind others; they must come first")
    return devices


def _row(source: str, number: int, words: Sequence[str], devices: Sequence[str]) -> list[str]:
    links = list(words[1 : len(devices) + 1])
    if len(links) < len(devices):
        raise FileFormatError.at(source, number, f"has {len(links)} links for {len(devices)} columns")
    for other, link in zip(devices, links, strict=True):
        if other == words[0] and link != _SELF:
            raise FileFormatError.at(source, number, f"{other} reaches itself by {link!r}; must be {_SELF}")
        if other != words[0] and link not in _PCIE and not _NVLINKS.fullmatch(link):
            known = ", ".join(("NV1, NV2, ...", *_PCIE))
            raise FileFormatError.at(source, number, f"{words[0]} reaches {other} by {link!r}; must be one of {known}")
    return links


def _wiring(
    source: str, gpus: Sequence[str], matrix: Matrix, nvlink: NvLink | None, pcie_bytes_per_s: float | None
) -> Wiring:
    direct: dict[str, dict[str, int]] = {}
    for gpu in gpus:
        found = {other: _NVLINKS.fullmatch(link) for other, link in zip(gpus, matrix[gpu], strict=False)}
        direct[gpu] = {other: int(match[1]) for other, match in found.items() if match}
    most = _MOST_NVLINKS if nvlink is None else nvlink.most
    switched = {gpu: max(others.values()) for gpu, others in direct.items() if sum(others.values()) > most}
    return Wiring(
        source=source,
        gpus=gpus,
        switched=switched,
        direct={gpu: {} if gpu in switched else others for gpu, others in direct.items()},
        pcie_bytes_per_s=pcie_bytes_per_s,
    )
