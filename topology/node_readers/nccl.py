"""The topology of a node as NCCL writes it (NCCL_TOPO_DUMP_FILE), version 1: processors, PCIe switches, GPUs with their
NVLinks, adapters with their speeds.

    <system version="1">
      <cpu numaid="0" ...>
        <pci busid="0000:18:00.0" vendor="0x10de" device="0x2330" link_speed="32.0 GT/s PCIe" link_width="16">
          <gpu dev="0" sm="90" rank="0" gdr="1">
            <nvlink target="0000:07:00.0" count="18" tclass="0x068000"/>
          </gpu>
        </pci>
        <pci busid="0000:19:00.0" ...><nic><net name="mlx5_0" speed="400000" port="1" .../></nic></pci>

Speeds of `net` are in Mbit/s. NVLinks lead to a GPU of the file, or to a switch, of which NCCL knows only that there is
one (`tclass`). The file says nothing of cables and switches outside of the node.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from xml.parsers import expat

from stowplan.errors import FileFormatError
from topology.gpu_catalogue import GpuProduct, known_product
from topology.node_readers.base import NodeFacts, Remark
from topology.node_readers.links import NVLINK, Wiring, pcie_bytes_per_s, usual_pcie_bytes_per_s

_CHILDREN: Mapping[str, frozenset[str]] = {
    "": frozenset({"system"}),
    "system": frozenset({"cpu"}),
    "cpu": frozenset({"pci", "nic"}),
    "pci": frozenset({"pci", "gpu", "nic", "pcilink"}),
    "gpu": frozenset({"nvlink", "c2c"}),
    "nic": frozenset({"net"}),
}
_VERSION = "1"
_MAX_DEPTH = 64
# What NVLinks lead to that is no switch: GPUs that do not take part, and processors.
_NO_SWITCHES = ("0x03", "0x068001")
_MAX_GPUS = 4096
_SPEED = re.compile(r"(\d+(?:\.\d+)?) GT/s\b.*")
_WHOLE = re.compile(r"\d{1,9}")
_MEGABIT_BYTES = 1e6 / 8


@dataclass(slots=True, kw_only=True)
class _Element:
    tag: str
    line: int
    attributes: Mapping[str, str]
    parent: "_Element | None" = None
    children: list["_Element"] = field(default_factory=list)

    def below(self, tag: str) -> Iterator["_Element"]:
        """Elements of a tag below, in the order of the file."""
        for child in self.children:
            if child.tag == tag:
                yield child
            yield from child.below(tag)

    def buses(self) -> Iterator["_Element"]:
        """PCIe devices from this one up."""
        above: _Element | None = self
        while above is not None:
            if above.tag == "pci":
                yield above
            above = above.parent

    @property
    def pcie_bytes_per_s(self) -> float | None:
        """Of the link of a PCIe device; None where the file does not say."""
        rate = _SPEED.fullmatch(self.attributes.get("link_speed", ""))
        width = self.attributes.get("link_width", "")
        if rate is None or not _WHOLE.fullmatch(width) or int(width) == 0:
            return None
        return pcie_bytes_per_s(float(rate[1]), int(width))


def read_nccl_topology(source: str, text: str, product: GpuProduct | None) -> NodeFacts:
    """Read a dump.

    Parameters
    ----------
    source
        What the text is called.
    product
        The GPUs of the node, as far as somebody says which they are; the dump has their PCI numbers.

    Raises
    ------
    FileFormatError
        Names file, line and what is wrong.
    """
    cpus, remarks = _host(source, _parse(source, text))
    gpus = [gpu for cpu in cpus for gpu in cpu.below("gpu")]
    if not gpus:
        detail = "has no GPUs: give what NCCL_TOPO_DUMP_FILE writes while all GPUs of the node take part"
        raise FileFormatError.at(source, None, detail)
    if len(gpus) > _MAX_GPUS:
        raise FileFormatError.at(source, None, f"has {len(gpus)} GPUs; a node has at most {_MAX_GPUS}")
    named = _product(source, gpus, product)
    wiring = _wiring(source, gpus, usual_pcie_bytes_per_s(named or product))
    intra, of_links = wiring.bandwidth(NVLINK.get(_capability(source, gpus)))
    inter, of_adapters = _adapters(source, [nic for cpu in cpus for nic in cpu.below("nic")])
    return NodeFacts(
        source=source,
        num_gpus=len(gpus),
        product=None if named is None else named.name,
        intra_node_bandwidth_bytes_per_s=intra,
        inter_node_bandwidth_bytes_per_s=inter,
        remarks=(*remarks, *of_links, *of_adapters),
    )


def _parse(source: str, text: str) -> _Element:
    root = _Element(tag="", line=0, attributes={})
    stack = [root]
    parser = expat.ParserCreate()

    def begin(tag: str, attributes: dict[str, str]) -> None:
        above, line = stack[-1], parser.CurrentLineNumber
        if tag not in _CHILDREN.get(above.tag, ()):
            wanted = " or ".join(sorted(_CHILDREN.get(above.tag, ()))) or "nothing"
            where = f"in <{above.tag}>" if above.tag else "at the top"
            raise FileFormatError.at(source, line, f"<{tag}> stands {where}, where {wanted} may")
        if len(stack) > _MAX_DEPTH:
            raise FileFormatError.at(source, line, "is nested too deeply")
        found = _Element(tag=tag, line=line, attributes=attributes, parent=above)
        if tag == "system" and attributes.get("version") != _VERSION:
            detail = f"is a topology of version {attributes.get('version')!r}; read is {_VERSION!r}, of NCCL"
            raise FileFormatError.at(source, line, detail)
        above.children.append(found)
        stack.append(found)

    def refuse(*_: object) -> None:
        raise FileFormatError.at(source, parser.CurrentLineNumber, "has a document type; NCCL writes none")

    parser.StartElementHandler = begin
    parser.EndElementHandler = lambda _: stack.pop()
    # No entities, so that nothing grows while it is read.
    parser.StartDoctypeDeclHandler = refuse
    try:
        parser.Parse(text, True)
    except expat.ExpatError as error:
        raise FileFormatError.at(source, error.lineno, f"no XML: {expat.ErrorString(error.code)}") from error
    return root


def _host(source: str, root: _Element) -> tuple[list[_Element], list[Remark]]:
    """Processors of one host: with NVLink across nodes, NCCL writes those of several into one file."""
    cpus = list(root.below("cpu"))
    hosts = list(dict.fromkeys(cpu.attributes.get("host_hash", "") for cpu in cpus))
    if len(hosts) < 2:
        return cpus, []
    detail = f"has {len(hosts)} hosts, whose GPUs NVLink connects; the first one is the node"
    ours = [cpu for cpu in cpus if cpu.attributes.get("host_hash", "") == hosts[0]]
    return ours, [Remark(code="several_hosts", detail=detail, source=source)]


def _product(source: str, gpus: Sequence[_Element], said: GpuProduct | None) -> GpuProduct | None:
    """What the GPUs are by their PCI numbers; None for numbers that the catalogue does not have."""
    numbers: dict[tuple[str, str], _Element] = {}
    for gpu in gpus:
        bus = next(gpu.buses()).attributes
        numbers.setdefault((bus.get("vendor", ""), bus.get("device", "")), gpu)
    if len(numbers) > 1:
        (_, first), (number, other) = list(numbers.items())[:2]
        detail = (
            f"is {':'.join(number)}, another GPU than that of line {first.line}; GPUs of a node must be of one type"
        )
        raise FileFormatError.at(source, other.line, detail)
    (vendor, device), gpu = next(iter(numbers.items()))
    found = known_product("-".join(("pci", vendor.removeprefix("0x"), device.removeprefix("0x"))))
    if found is not None and said is not None and found.name != said.name:
        detail = f"is {vendor}:{device}, which is the GPU {found.name}, and not {said.name}"
        raise FileFormatError.at(source, gpu.line, detail)
    return found


def _capability(source: str, gpus: Sequence[_Element]) -> int:
    return min(_number(source, gpu, "sm") for gpu in gpus)


def _wiring(source: str, gpus: Sequence[_Element], usual_pcie: float | None) -> Wiring:
    names: dict[str, str] = {}
    seen: set[str] = set()
    for gpu in gpus:
        bus, name = next(gpu.buses()).attributes.get("busid", ""), f"GPU{_number(source, gpu, 'dev')}"
        if not bus or bus in names or name in seen:
            raise FileFormatError.at(source, gpu.line, f"{name} at {bus!r} has no busid or dev of its own")
        names[bus] = name
        seen.add(name)
    switched, direct = dict.fromkeys(names.values(), 0), {name: dict[str, int]() for name in names.values()}
    for gpu, name in zip(gpus, names.values(), strict=True):
        for link in gpu.below("nvlink"):
            count, target = _number(source, link, "count"), link.attributes.get("target", "")
            if names.get(target) == name:
                raise FileFormatError.at(source, link.line, f"an NVLink of {name} leads to itself ({target})")
            if target in names:
                direct[name][names[target]] = direct[name].get(names[target], 0) + count
            elif not link.attributes.get("tclass", "").startswith(_NO_SWITCHES):
                switched[name] += count
    return Wiring(
        source=source,
        gpus=tuple(names.values()),
        switched=switched,
        direct=direct,
        pcie_bytes_per_s=_slowest(gpus) or usual_pcie,
    )


def _slowest(gpus: Sequence[_Element]) -> float | None:
    """The slowest PCIe link below what all GPUs hang from; None where the file does not say of any."""
    chains = [list(gpu.buses()) for gpu in gpus]
    shared = set.intersection(*({id(bus) for bus in chain} for chain in chains))
    rates = (bus.pcie_bytes_per_s for chain in chains for bus in chain if id(bus) not in shared)
    return min((rate for rate in rates if rate is not None), default=None)


def _adapters(source: str, nics: Sequence[_Element]) -> tuple[float | None, list[Remark]]:
    """Bandwidth of all adapters together; None where the file does not say."""
    ports: dict[tuple[str, str], _Element] = {}
    for nic in nics:
        for net in nic.children:
            if net.attributes.get("keep") != "0":
                ports.setdefault((net.attributes.get("name", ""), net.attributes.get("port", "")), net)
    # Ports that NCCL uses as one are named together, and stand there on their own, too.
    merged = {part for name, _ in ports if "+" in name for part in name.split("+")}
    ports = {key: net for key, net in ports.items() if key[0] not in merged}
    if not ports:
        detail = "has no adapters; the network of the usual node counts, or --inter-node-bandwidth"
        return None, [Remark(code="no_adapters", detail=detail, source=source)]
    total, remarks, slower = 0.0, [], []
    for (name, _), net in ports.items():
        speed = net.attributes.get("speed", "")
        if not _WHOLE.fullmatch(speed) or int(speed) == 0:
            # Drivers of some adapters, such as virtual ones, do not know it: NCCL writes -1.
            detail = f"{name} has the speed {speed!r}; the network of the usual node counts, or --inter-node-bandwidth"
            return None, [Remark(code="adapters_without_speed", detail=detail, source=source)]
        rate = int(speed) * _MEGABIT_BYTES
        link = next(net.buses(), None)
        if link is not None and link.pcie_bytes_per_s is not None and link.pcie_bytes_per_s < rate:
            slower.append((name, rate, link.pcie_bytes_per_s))
        total += rate
    if slower:
        name, rate, of_link = slower[0]
        detail = f"{name} carries {rate / 1e9:g} GB/s, its PCIe link {of_link / 1e9:.3g}; counted is the adapter"
        remarks.append(Remark(code="adapter_behind_slower_link", detail=detail, source=source, count=len(slower)))
    return total, remarks


def _number(source: str, element: _Element, key: str) -> int:
    text = element.attributes.get(key, "")
    if not _WHOLE.fullmatch(text):
        raise FileFormatError.at(source, element.line, f"{key} of <{element.tag}> is {text!r}; must be a whole number")
    return int(text)
