"""What the links inside a node carry, in one direction, and what its GPUs have of each other by them.

NVLink, by compute capability: NVIDIA's "NVLink and NVSwitch" page (sum of both directions: 300 GB/s over 6 links of
a V100, 600 over 12 of an A100, 900 over 18 of an H100, 1800 over 18 of a B200), for 8.6 the GA102 whitepaper (4 links,
112.5 GB/s). PCIe, a lane by its rate: 8b/10b up to 5 GT/s, 128b/130b up to 32, flits of 242 in 256 bytes from 64 on.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import networkx as nx

from topology.gpu_catalogue import GpuProduct
from topology.node_readers.base import Remark


class NvLink(NamedTuple):
    """A generation: what one link carries, and how many a GPU has at most."""

    bytes_per_s: float
    most: int


NVLINK: Mapping[int, NvLink] = {
    60: NvLink(20e9, 4),
    70: NvLink(25e9, 6),
    80: NvLink(25e9, 12),
    86: NvLink(14.0625e9, 4),
    90: NvLink(25e9, 18),
    100: NvLink(50e9, 18),
    103: NvLink(50e9, 18),
}
_CAPABILITY = {"volta": 70, "ampere": 80, "ada": 89, "hopper": 90, "blackwell": 100}
# Products of an architecture on its smaller chip, whose links are others.
_SMALLER = {"a10": 86, "a40": 86}
_PCIE_GT_PER_S = {"volta": 8.0, "ampere": 16.0, "ada": 16.0, "hopper": 32.0, "blackwell": 32.0}
_LANES = 16
# GPUs are called otherwise.
_SWITCH = ""
_NAMED = 4


def compute_capability(product: GpuProduct | None) -> int | None:
    """Of a product, as 90 for 9.0; None where its architecture is not known."""
    if product is None or product.architecture is None:
        return None
    return _SMALLER.get(product.name, _CAPABILITY.get(product.architecture))


def pcie_bytes_per_s(gt_per_s: float, num_lanes: int) -> float:
    """What so many lanes carry at a rate in GT/s."""
    payload = 0.8 if gt_per_s <= 5.0 else 128 / 130 if gt_per_s < 64.0 else 242 / 256
    return gt_per_s * 1e9 * payload / 8 * num_lanes


def usual_pcie_bytes_per_s(product: GpuProduct | None) -> float | None:
    """What the slot of a product carries at best; None where nobody knows."""
    rate = None if product is None else _PCIE_GT_PER_S.get(product.architecture or "")
    return None if rate is None else pcie_bytes_per_s(rate, _LANES)


@dataclass(frozen=True, slots=True, kw_only=True)
class Wiring:
    """GPUs of a node. switched: GPU -> NVLinks into switches; direct: GPU -> GPU -> NVLinks between both, said of
    either; pcie_bytes_per_s: of the slowest PCIe link between GPUs."""

    source: str
    gpus: Sequence[str]
    switched: Mapping[str, int] = field(default_factory=dict)
    direct: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    pcie_bytes_per_s: float | None = None

    def bandwidth(self, nvlink: NvLink | None) -> tuple[float | None, list[Remark]]:
        """Of one GPU to the others of the node, and what is to be said of it; None where it is not known.

        Plans do not know which GPUs of a node a job has: of groups that NVLink does not connect, PCIe counts.
        """
        if len(self.gpus) < 2:
            return None, []
        groups = self._groups()
        if len(groups) > 1:
            return self._between(groups)
        if nvlink is None:
            detail = "has NVLinks, and nobody knows how fast those of such GPUs are; give --intra-node-bandwidth"
            return None, [self._remark("nvlink_unknown", detail)]
        lanes = {gpu: self.switched.get(gpu, 0) + sum(self.direct.get(gpu, {}).values()) for gpu in self.gpus}
        least = min(self.gpus, key=lanes.__getitem__)
        remarks = []
        if lanes[least] < max(lanes.values()):
            detail = f"{least} has {lanes[least]} NVLinks, another GPU {max(lanes.values())}; the least counts"
            remarks.append(self._remark("nvlinks_differ", detail))
        lonely = next((gpu for gpu in self.gpus if not self._reaches_all(gpu)), None)
        if lonely is not None:
            detail = (
                f"{lonely} has NVLinks to {len(self.direct[lonely])} of {len(self.gpus) - 1} other GPUs; what it has "
                "to all of them together counts"
            )
            remarks.append(self._remark("nvlink_not_to_all", detail))
        return lanes[least] * nvlink.bytes_per_s, remarks

    def _groups(self) -> list[list[str]]:
        """GPUs that NVLink connects, in their order."""
        graph: nx.Graph[str] = nx.Graph()
        graph.add_nodes_from(self.gpus)
        graph.add_edges_from((gpu, _SWITCH) for gpu, lanes in self.switched.items() if lanes)
        graph.add_edges_from((gpu, other) for gpu, others in self.direct.items() for other in others)
        group = {gpu: k for k, part in enumerate(nx.connected_components(graph)) for gpu in part}
        found: dict[int, list[str]] = {}
        for gpu in self.gpus:
            found.setdefault(group[gpu], []).append(gpu)
        return list(found.values())

    def _reaches_all(self, gpu: str) -> bool:
        return bool(self.switched.get(gpu)) or len(self.direct.get(gpu, {})) == len(self.gpus) - 1

    def _between(self, groups: Sequence[Sequence[str]]) -> tuple[float | None, list[Remark]]:
        remarks = []
        if len(groups) < len(self.gpus):
            named = " | ".join(" ".join(group) for group in groups[:_NAMED]) + (" | ..." if groups[_NAMED:] else "")
            detail = f"its NVLinks connect {len(groups)} groups of GPUs ({named}); between them PCIe counts"
            remarks.append(self._remark("nvlink_groups", detail))
        if self.pcie_bytes_per_s is None:
            detail = "nobody knows how fast its PCIe links are; give --intra-node-bandwidth, or --gpu-type"
            remarks.append(self._remark("pcie_unknown", detail))
        return self.pcie_bytes_per_s, remarks

    def _remark(self, code: str, detail: str) -> Remark:
        return Remark(code=code, detail=detail, source=self.source)
