"""GPU products: what vendors' data sheets say, and the node that each usually sits in. The shipped ones are in
`gpus.toml`, a user's own in the file of `stowplan.catalogue`.

    [gpu.NAME]
    memory_bytes                      printed number of GB, 10^9 bytes each: drivers report 0 to 7 % more, so that what
                                      fits here fits there
    peak_flops_per_s                  table of dense peaks (without sparsity), as printed: fp32, tf32, fp16, bf16, fp8,
                                      fp4; a precision without hardware is left out. mxfp8 is fp8 with block scales,
                                      which blackwell has, at the same peak
    memory_bandwidth_bytes_per_s      of the device memory
    intra_node_bandwidth_bytes_per_s  of one GPU to the others of its node (NVLink or PCIe), in one direction: data
                                      sheets add up both (NVLink of an H100: 900 GB/s printed, 450 GB/s here); PCIe 4.0
                                      x16 carries 31.5 GB/s
    inter_node_bandwidth_bytes_per_s  of the whole node, in one direction
    gpus_per_node, node               the usual node, and what it is
    architecture                      whose GPUs reach like shares of peaks: volta, ampere, ada, hopper, blackwell,
                                      cdna3; may be left out
    num_multiprocessors               streaming multiprocessors (compute units), each at work on a tile of a matrix
                                      product at a time; may be left out
    tdp_w                             power of one GPU at most, as printed (of a range the most); may be left out

Look-ups ignore the vendor's name, case and separators.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path
from types import MappingProxyType
from typing import Any

from stowplan.catalogue import Catalogue, Section, own_file
from stowplan.errors import InputError
from stowplan.tables import Keys, positive, read_table, text, whole
from topology.cluster import GpuType

# What stands in for a precision that a product lacks: tensor cores of the same width first, then plain FP32 units.
_STAND_IN = MappingProxyType({"bf16": "fp16", "tf32": "fp32"})
_BLOCK_SCALED = {"mxfp8": "fp8"}
_SCALING = ("blackwell",)
_PRECISIONS = ("fp32", "tf32", "fp16", "bf16", "fp8", "fp4")
_MAX_GPUS_PER_NODE = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuProduct:
    """One product.

    `peak_flops_per_s`: precision -> dense peak. The rest: see the keys of the file.
    """

    name: str
    memory_bytes: int
    peak_flops_per_s: Mapping[str, float]
    memory_bandwidth_bytes_per_s: float
    intra_node_bandwidth_bytes_per_s: float
    inter_node_bandwidth_bytes_per_s: float
    gpus_per_node: int
    node: str
    source: str
    architecture: str | None = None
    num_multiprocessors: int | None = None
    tdp_w: float | None = None

    def peak(self, precision: str) -> float:
        """FLOP/s at a precision: bf16 falls back to fp16 and tf32 to fp32 where the product lacks them; mxfp8 is as
        fast as fp8 where tensor cores apply its scales.

        Raises
        ------
        InputError
            When the product has neither; the detail lists what it has.
        """
        known_as = _BLOCK_SCALED.get(precision, precision) if self.architecture in _SCALING else precision
        for key in (known_as, _STAND_IN.get(precision, precision)):
            if key in self.peak_flops_per_s:
                return self.peak_flops_per_s[key]
        known = ", ".join(self.peak_flops_per_s)
        raise InputError(f"no peak of {self.name!r} at precision {precision!r}; known: {known}")


def products() -> tuple[GpuProduct, ...]:
    """All products."""
    return tuple(entry.value for entry in _catalogue(own_file()).entries)


def known_product(name: str) -> GpuProduct | None:
    """Product of this name or alias, whatever the case and separators; None for another name."""
    return _known(own_file(), name)


def find_product(name: str) -> GpuProduct:
    """Product of this name or alias, whatever the case and separators; `a100` is the one with 40 GB.

    Raises
    ------
    InputError
        For another name; the detail gives near matches and all names.
    """
    product = known_product(name)
    if product is None:
        raise _catalogue(own_file()).unknown("GPU product", name)
    return product


def gpu_type_of(product: GpuProduct, precision: str) -> GpuType:
    """GPU type for a snapshot, with the peak at one precision (`GpuProduct.peak`)."""
    return GpuType(
        name=product.name,
        memory_bytes=product.memory_bytes,
        peak_flops_per_s=product.peak(precision),
        intra_node_bandwidth_bytes_per_s=product.intra_node_bandwidth_bytes_per_s,
        inter_node_bandwidth_bytes_per_s=product.inter_node_bandwidth_bytes_per_s,
    )


@cache
def _catalogue(own: str | None) -> Catalogue[GpuProduct]:
    return _SECTION.read(own)


# Performance models ask for the same few names over and over.
@lru_cache
def _known(own: str | None, name: str) -> GpuProduct | None:
    entry = _catalogue(own).find(name)
    return None if entry is None else entry.value


def _peaks(value: object) -> Mapping[str, float]:
    """Peaks by precision, in the order of the precisions."""
    peaks = read_table(value, Keys(optional=dict.fromkeys(_PRECISIONS, positive)))
    if not peaks:
        raise InputError(f"is empty; must have at least one of {', '.join(_PRECISIONS)}")
    return MappingProxyType({precision: peaks[precision] for precision in _PRECISIONS if precision in peaks})


_KEYS = Keys(
    required={
        "memory_bytes": whole(),
        "peak_flops_per_s": _peaks,
        "memory_bandwidth_bytes_per_s": positive,
        "intra_node_bandwidth_bytes_per_s": positive,
        "inter_node_bandwidth_bytes_per_s": positive,
        "gpus_per_node": whole(_MAX_GPUS_PER_NODE),
        "node": text,
    },
    optional={"architecture": text, "num_multiprocessors": whole(_MAX_GPUS_PER_NODE), "tdp_w": positive},
)


def _product(name: str, source: str, values: dict[str, Any]) -> GpuProduct:
    return GpuProduct(name=name, source=source, **values)


def _key(name: str) -> str:
    """Name without vendor, case and separators."""
    squeezed = "".join(character for character in name.lower() if character.isalnum())
    return squeezed.removeprefix("nvidia").removeprefix("tesla")


_SECTION = Section(
    name="gpu", shipped=Path(__file__).with_name("gpus.toml"), keys=lambda _: _KEYS, build=_product, key=_key
)
