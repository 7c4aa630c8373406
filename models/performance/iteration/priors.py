"""What GPUs, links and software reach of what data sheets say, as fitted to published step times: `priors.toml`.

[common]
memory          share of the memory bandwidth
link, network   share of the bandwidth between GPUs of a node, and between nodes
misaligned      share of their rate that products of attention with heads of odd sizes reach
launch_s        seconds to start the kernels of a layer, once a pass
fp8_traffic     memory traffic with 8-bit products, which convert their inputs, over that without
scale_loss      what every doubling of more than 8 GPUs adds to the time of an iteration: stragglers, congestion

[gpu.FAMILY]    architectures: of products in the GPU catalogue; shares of the dense peak: matrix (of 16 and 32 bits),
                fp8, attention (fused)
[software.NAME] traffic: times the memory traffic of fused operations; matrix, attention: times the shares of the
                family; tensor_exposed: part of tensor-parallel communication that no computation hides; overlap:
                exponent k of the gradient reduction, 1 is none; overhead_bytes: what of a GPU's memory is used beside
                tensors: libraries, buffers of collectives, fragments; host_s: seconds that the host takes to launch the
                kernels of a layer, once a pass, which no published step shows: of one host, whose GPU waited for it
                (`python -m benchmarks gpu-steps`); 0 where nobody has measured
"""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any

from models.software import Software

FILE = Path(__file__).with_name("priors.toml")
# Of products whose architecture no family has: what is usual.
_USUAL = "ampere"


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuPrior:
    """Shares of the dense peak that one family of GPUs reaches."""

    matrix: float
    fp8: float
    attention: float


@dataclass(frozen=True, slots=True, kw_only=True)
class SoftwarePrior:
    """What one software is like."""

    traffic: float
    matrix: float
    attention: float
    tensor_exposed: float
    overlap: float
    overhead_bytes: float
    host_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Priors:
    """All of the file."""

    memory: float
    link: float
    network: float
    misaligned: float
    launch_s: float
    fp8_traffic: float
    scale_loss: float
    gpus: Mapping[str, GpuPrior]
    families: Mapping[str, str]
    software: Mapping[Software, SoftwarePrior]

    def gpu(self, architecture: str | None) -> GpuPrior:
        """Of the family that has an architecture; of the usual one where none has it."""
        return self.gpus[self.families.get(architecture or "", _USUAL)]

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> "Priors":
        """From the file's tables."""
        gpus = {name: dict(table) for name, table in document["gpu"].items()}
        families = {own: name for name, table in gpus.items() for own in table.pop("architectures")}
        return cls(
            **document["common"],
            gpus=MappingProxyType({name: GpuPrior(**table) for name, table in gpus.items()}),
            families=MappingProxyType(families),
            software=MappingProxyType(
                {Software(name): SoftwarePrior(**table) for name, table in document["software"].items()}
            ),
        )


@cache
def priors() -> Priors:
    """The shipped ones."""
    return Priors.of(tomllib.loads(FILE.read_text(encoding="utf-8")))
