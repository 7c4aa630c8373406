"""GPU types as commands that read clusters are told of them: by name, by facts, or from another document."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from api.cli.quantities import node_bandwidth, parse_quantity
from stowplan.errors import InputError
from topology.cluster import GpuType
from topology.gpu_catalogue import gpu_type_of, known_product


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuFacts:
    """One GPU type as given on the command line: quantities such as `80GiB`, or None."""

    memory: str | None = None
    peak_flops: str | None = None
    intra_node_bandwidth: str | None = None
    inter_node_bandwidth: str | None = None

    @property
    def options(self) -> dict[str, str | None]:
        """What was given by option."""
        return {f"--{item.name.replace('_', '-')}": getattr(self, item.name) for item in fields(self)}


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuNames:
    """The type of nodes of which nobody says it, and which products names in documents stand for."""

    default: str | None = None
    products: Mapping[str, str] = field(default_factory=dict)


def gpu_names(texts: Sequence[str]) -> GpuNames:
    """Read `h100` and `gpu80=a100-80gb`; of several without `=` the last one counts."""
    plain = [text for text in texts if "=" not in text]
    pairs = (text.split("=", 1) for text in texts if "=" in text)
    return GpuNames(default=plain[-1] if plain else None, products=dict(pairs))


def gpu_facts(name: str, num_gpus: int, facts: GpuFacts, known: Sequence[GpuType], library: Path | None) -> GpuType:
    """A GPU type by its facts, or by its name among those `known` from a library, or from the catalogue (peak in bf16).

    Raises
    ------
    InputError
        When a fact is missing or no quantity, or the library has no such type.
    """
    texts = facts.options
    missing = [option for option, text in texts.items() if text is None]
    if not missing:
        *own, (option, of_node) = texts.items()
        memory, peak, intra = (parse_quantity(text or "", name) for name, text in own)
        return GpuType(
            name=name,
            memory_bytes=round(memory),
            peak_flops_per_s=peak,
            intra_node_bandwidth_bytes_per_s=intra,
            inter_node_bandwidth_bytes_per_s=node_bandwidth(of_node or "", option, num_gpus),
        )
    product = known_product(name)
    if library is None and product is not None:
        return _corrected(replace(gpu_type_of(product, "bf16"), name=name), num_gpus, texts)
    if library is None or len(missing) < len(texts):
        raise InputError(
            f"the file does not say what a {name!r} is: give {', '.join(missing)}"
            + (
                ""
                if len(missing) < len(texts)
                else ", or --gpu-types FILE with the GPU types of another document, or name a GPU of the catalogue"
            )
        )
    named = {kind.name: kind for kind in known}
    if name not in named:
        raise InputError(f"{library}: has no GPU type {name!r}; it has {sorted(named)}")
    return named[name]


def _corrected(kind: GpuType, num_gpus: int, texts: Mapping[str, str | None]) -> GpuType:
    """A type of the catalogue with the facts that were given in place of its own."""
    values: dict[str, Any] = {}
    for option, text in texts.items():
        if text is None:
            continue
        if option == "--inter-node-bandwidth":
            values["inter_node_bandwidth_bytes_per_s"] = node_bandwidth(text, option, num_gpus)
        elif option == "--memory":
            values["memory_bytes"] = round(parse_quantity(text, option))
        elif option == "--peak-flops":
            values["peak_flops_per_s"] = parse_quantity(text, option)
        else:
            values["intra_node_bandwidth_bytes_per_s"] = parse_quantity(text, option)
    return replace(kind, **values)
