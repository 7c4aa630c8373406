"""GPU products: what vendors' data sheets say, and the node that each usually sits in.

Peaks are dense (without sparsity), as printed. Bandwidths count one direction, as the formulas do: data sheets add up
both (NVLink of an H100: 900 GB/s printed, 450 GB/s here), PCIe 4.0 x16 carries 31.5 GB/s. Memory is the printed number
of GB, 10^9 bytes each: drivers report 0 to 7 % more, so that what fits here fits there.
"""

import difflib
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from stowplan.errors import InputError
from topology.cluster import GpuType

# What stands in for a precision that a product lacks: tensor cores of the same width first, then plain FP32 units.
_STAND_IN = MappingProxyType({"bf16": "fp16", "tf32": "fp32"})
_GB = 10**9
_PCIE_4 = 31.5e9
_GBIT = 1e9 / 8


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuProduct:
    """One product.

    `peak_flops_per_s`: precision (fp32, tf32, fp16, bf16) -> dense peak; precisions without hardware are missing.
    `memory_bandwidth_bytes_per_s`: device memory. `intra_node_bandwidth_bytes_per_s`: of one GPU to the others of its
    node (NVLink or PCIe). `inter_node_bandwidth_bytes_per_s`: of the whole node, for the one that `node` describes.
    `source`: where the figures are from.
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

    def peak(self, precision: str) -> float:
        """FLOP/s at a precision: bf16 falls back to fp16 and tf32 to fp32 where the product lacks them.

        Raises
        ------
        InputError
            When the product has neither; the detail lists what it has.
        """
        for key in (precision, _STAND_IN.get(precision, precision)):
            if key in self.peak_flops_per_s:
                return self.peak_flops_per_s[key]
        known = ", ".join(self.peak_flops_per_s)
        raise InputError(f"no peak of {self.name!r} at precision {precision!r}; known: {known}")


def _peaks(*, fp32: float, fp16: float, tf32: float | None = None, bf16: float | None = None) -> Mapping[str, float]:
    """Peaks from TFLOP/s, without the missing ones."""
    given = {"fp32": fp32, "tf32": tf32, "fp16": fp16, "bf16": bf16}
    return MappingProxyType({name: 1e12 * value for name, value in given.items() if value is not None})


PRODUCTS: tuple[GpuProduct, ...] = (
    GpuProduct(
        name="a10",
        memory_bytes=24 * _GB,
        peak_flops_per_s=_peaks(fp32=31.2, tf32=62.5, fp16=125.0, bf16=125.0),
        memory_bandwidth_bytes_per_s=600e9,
        intra_node_bandwidth_bytes_per_s=_PCIE_4,
        inter_node_bandwidth_bytes_per_s=200 * _GBIT,
        gpus_per_node=2,
        node="2 GPUs on PCIe 4.0, one ConnectX-6 of 200 Gb/s (Arena Table 1)",
        source="NVIDIA A10 Tensor Core GPU data sheet",
    ),
    GpuProduct(
        name="a40",
        memory_bytes=48 * _GB,
        peak_flops_per_s=_peaks(fp32=37.4, tf32=74.8, fp16=149.7, bf16=149.7),
        memory_bandwidth_bytes_per_s=696e9,
        intra_node_bandwidth_bytes_per_s=_PCIE_4,
        inter_node_bandwidth_bytes_per_s=100 * _GBIT,
        gpus_per_node=2,
        node="2 GPUs on PCIe 4.0 without NVLink bridge, one ConnectX-5 of 100 Gb/s (Arena Table 1)",
        source="NVIDIA A40 data sheet",
    ),
    GpuProduct(
        name="l20",
        memory_bytes=48 * _GB,
        # There is no public data sheet: FP32 from shaders and boost clock, tensor cores as in open FLOP counters.
        peak_flops_per_s=_peaks(fp32=59.35, tf32=59.75, fp16=119.5, bf16=119.5),
        memory_bandwidth_bytes_per_s=864e9,
        intra_node_bandwidth_bytes_per_s=_PCIE_4,
        inter_node_bandwidth_bytes_per_s=200 * _GBIT,
        gpus_per_node=16,
        node="16 GPUs on PCIe 4.0, one ConnectX-6 of 200 Gb/s (Arena Table 1)",
        source="TechPowerUp GPU database, NVIDIA L20; tensor peak as in VeOmni's FLOP counter",
    ),
    GpuProduct(
        name="v100",
        memory_bytes=32 * _GB,
        peak_flops_per_s=_peaks(fp32=15.7, fp16=125.0),
        memory_bandwidth_bytes_per_s=900e9,
        intra_node_bandwidth_bytes_per_s=150e9,
        inter_node_bandwidth_bytes_per_s=8 * 100 * _GBIT,
        gpus_per_node=16,
        node="DGX-2: 16 GPUs on NVSwitch, eight ConnectX-5 of 100 Gb/s",
        source="NVIDIA Tesla V100 data sheet, V100 SXM2 32 GB",
    ),
    GpuProduct(
        name="a100-40gb",
        memory_bytes=40 * _GB,
        peak_flops_per_s=_peaks(fp32=19.5, tf32=156.0, fp16=312.0, bf16=312.0),
        memory_bandwidth_bytes_per_s=1555e9,
        intra_node_bandwidth_bytes_per_s=300e9,
        inter_node_bandwidth_bytes_per_s=100 * _GBIT,
        gpus_per_node=4,
        node="4 GPUs on NVLink, one ConnectX-5 of 100 Gb/s (Arena Table 1)",
        source="NVIDIA A100 Tensor Core GPU data sheet, A100 40 GB SXM",
    ),
    GpuProduct(
        name="a100-80gb",
        memory_bytes=80 * _GB,
        peak_flops_per_s=_peaks(fp32=19.5, tf32=156.0, fp16=312.0, bf16=312.0),
        memory_bandwidth_bytes_per_s=2039e9,
        intra_node_bandwidth_bytes_per_s=300e9,
        inter_node_bandwidth_bytes_per_s=8 * 200 * _GBIT,
        gpus_per_node=8,
        node="DGX A100: 8 GPUs on NVSwitch, eight ConnectX-6 of 200 Gb/s",
        source="NVIDIA A100 Tensor Core GPU data sheet, A100 80 GB SXM",
    ),
    GpuProduct(
        name="h100",
        memory_bytes=80 * _GB,
        peak_flops_per_s=_peaks(fp32=67.0, tf32=494.5, fp16=989.5, bf16=989.5),
        memory_bandwidth_bytes_per_s=3350e9,
        intra_node_bandwidth_bytes_per_s=450e9,
        inter_node_bandwidth_bytes_per_s=8 * 400 * _GBIT,
        gpus_per_node=8,
        node="DGX H100: 8 GPUs on NVSwitch, eight ConnectX-7 of 400 Gb/s (as in Suika section 5.1)",
        source="NVIDIA H100 Tensor Core GPU data sheet, H100 SXM",
    ),
    GpuProduct(
        name="h200",
        memory_bytes=141 * _GB,
        peak_flops_per_s=_peaks(fp32=67.0, tf32=494.5, fp16=989.5, bf16=989.5),
        memory_bandwidth_bytes_per_s=4800e9,
        intra_node_bandwidth_bytes_per_s=450e9,
        inter_node_bandwidth_bytes_per_s=8 * 400 * _GBIT,
        gpus_per_node=8,
        node="DGX H200: 8 GPUs on NVSwitch, eight ConnectX-7 of 400 Gb/s",
        source="NVIDIA H200 Tensor Core GPU data sheet, H200 SXM",
    ),
    GpuProduct(
        name="l40s",
        memory_bytes=48 * _GB,
        peak_flops_per_s=_peaks(fp32=91.6, tf32=183.0, fp16=362.05, bf16=362.05),
        memory_bandwidth_bytes_per_s=864e9,
        intra_node_bandwidth_bytes_per_s=_PCIE_4,
        inter_node_bandwidth_bytes_per_s=4 * 200 * _GBIT,
        gpus_per_node=8,
        node="8 GPUs on PCIe 4.0, four adapters of 200 Gb/s (NVIDIA's reference 2-8-5, its fifth adapter for storage)",
        source="NVIDIA L40S data sheet",
    ),
    GpuProduct(
        name="b200",
        memory_bytes=180 * _GB,
        peak_flops_per_s=_peaks(fp32=80.0, tf32=1100.0, fp16=2250.0, bf16=2250.0),
        memory_bandwidth_bytes_per_s=8000e9,
        intra_node_bandwidth_bytes_per_s=900e9,
        inter_node_bandwidth_bytes_per_s=8 * 400 * _GBIT,
        gpus_per_node=8,
        node="DGX B200: 8 GPUs on NVSwitch, eight ConnectX-7 of 400 Gb/s",
        source="NVIDIA Blackwell architecture technical brief, HGX B200 at 1,000 W; DGX B200 user guide (1,440 GB)",
    ),
)

# Other names, among them those that the driver reports. A plain "a100" is the 40 GB product: that of Arena's cluster,
# and a plan that fits it fits the larger one too.
_ALIASES = MappingProxyType(
    {
        "a100": "a100-40gb",
        "a100-sxm4-40gb": "a100-40gb",
        "a100-sxm4-80gb": "a100-80gb",
        "h100-80gb": "h100",
        "h100-sxm": "h100",
        "h100-80gb-hbm3": "h100",
        "h200-sxm": "h200",
        "v100-32gb": "v100",
        "v100-sxm2-32gb": "v100",
    }
)


def _key(name: str) -> str:
    """Name without vendor, case and separators."""
    squeezed = "".join(character for character in name.lower() if character.isalnum())
    return squeezed.removeprefix("nvidia").removeprefix("tesla")


_BY_NAME = {product.name: product for product in PRODUCTS}
_BY_KEY = {_key(name): product for name, product in _BY_NAME.items()} | {
    _key(alias): _BY_NAME[name] for alias, name in _ALIASES.items()
}


def known_product(name: str) -> GpuProduct | None:
    """Product of this name or alias, whatever the case and separators; None for another name."""
    return _BY_KEY.get(_key(name))


def find_product(name: str) -> GpuProduct:
    """Product of this name or alias, whatever the case and separators; `a100` is the one with 40 GB.

    Raises
    ------
    InputError
        For another name; the detail gives near matches and all names.
    """
    product = known_product(name)
    if product is not None:
        return product
    near = difflib.get_close_matches(name.lower(), [*_BY_NAME, *_ALIASES], cutoff=0.5)
    hint = f"did you mean {' or '.join(map(repr, near))}? " if near else ""
    raise InputError(f"no GPU product {name!r} in the catalogue; {hint}known: {', '.join(_BY_NAME)}")


def gpu_type_of(product: GpuProduct, precision: str) -> GpuType:
    """GPU type for a snapshot, with the peak at one precision (`GpuProduct.peak`)."""
    return GpuType(
        name=product.name,
        memory_bytes=product.memory_bytes,
        peak_flops_per_s=product.peak(precision),
        intra_node_bandwidth_bytes_per_s=product.intra_node_bandwidth_bytes_per_s,
        inter_node_bandwidth_bytes_per_s=product.inter_node_bandwidth_bytes_per_s,
    )
