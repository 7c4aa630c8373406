"""`stowplan import`: foreign descriptions of a cluster, completed with what they do not say about GPUs, as our JSON."""

import sys
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Annotated, Any

import typer
from pydantic import TypeAdapter
from pydantic_core import to_json

from api.cli.commands import command
from api.cli.files import read_json
from api.cli.options import Catalogue, readable, write
from api.cli.pretty import pretty_json
from api.cli.quantities import node_bandwidth, parse_quantity
from api.convert.reading import read_document
from api.schemas.base import MAX_GPUS_PER_NODE
from api.schemas.snapshot import ClusterDoc, GpuTypeDoc
from stowplan.errors import InputError
from topology.cluster import Cluster, GpuType
from topology.gpu_catalogue import gpu_type_of, known_product
from topology.readers import READERS, NodeDefaults
from topology.serialize import cluster_to_json

_CLUSTER: TypeAdapter[ClusterDoc] = TypeAdapter(ClusterDoc)
_GPU_TYPES: TypeAdapter[tuple[GpuTypeDoc, ...]] = TypeAdapter(tuple[GpuTypeDoc, ...])


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuFacts:
    """One GPU type as given on the command line: quantities such as `80GiB`, or None."""

    memory: str | None = None
    peak_flops: str | None = None
    intra_node_bandwidth: str | None = None
    inter_node_bandwidth: str | None = None


@command("import")
def import_command(
    format_: Annotated[str, typer.Argument(metavar="FORMAT", help=f"One of {', '.join(READERS)}.")],
    file: Annotated[Path, typer.Argument(metavar="FILE", help="File of that format; - for standard input.")],
    gpu_type: Annotated[str, typer.Option(help="GPU type of the nodes.")],
    gpus_per_node: Annotated[int, typer.Option(min=1, max=MAX_GPUS_PER_NODE, help="GPUs of a node.")],
    memory: Annotated[str | None, typer.Option(help="Memory of a GPU, such as 80GiB.")] = None,
    peak_flops: Annotated[str | None, typer.Option(help="Peak of a GPU, such as 312T.")] = None,
    intra_node_bandwidth: Annotated[str | None, typer.Option(help="Between GPUs of a node: 300GB/s.")] = None,
    inter_node_bandwidth: Annotated[
        str | None, typer.Option(help="Of a node: 3.2Tbit/s/node, 400Gbit/s/gpu, 8x400Gbit/s (adapters).")
    ] = None,
    gpu_types: Annotated[
        Path | None, typer.Option(help="Take the facts from the GPU types of this cluster, snapshot or list.")
    ] = None,
    minipod_tier: Annotated[str | None, typer.Option(help="Tier whose units are the minipods.")] = None,
    id_column: Annotated[str | None, typer.Option(help="CSV: column of the host names.")] = None,
    tier_column: Annotated[list[str] | None, typer.Option(help="CSV: columns of the tiers, coarsest first.")] = None,
    as_snapshot: Annotated[
        bool, typer.Option("--snapshot", help="Wrap the cluster as a snapshot without jobs.")
    ] = False,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="Write to this file instead.")] = None,
    _catalogue: Catalogue = None,
) -> None:
    """Turn a foreign description of a cluster into our JSON."""
    facts = GpuFacts(
        memory=memory,
        peak_flops=peak_flops,
        intra_node_bandwidth=intra_node_bandwidth,
        inter_node_bandwidth=inter_node_bandwidth,
    )
    defaults = node_defaults(gpu_type, gpus_per_node, facts, gpu_types)
    cluster = import_cluster(format_, readable(file), defaults, minipod_tier, id_column, tier_column)
    document: dict[str, object] = cluster_to_json(cluster)
    text = pretty_json({"cluster": document, "jobs": []} if as_snapshot else document) + "\n"
    if output is None:
        sys.stdout.write(text)
    else:
        write(output, text.encode())


def node_defaults(name: str, num_gpus: int, facts: GpuFacts, library: Path | None) -> NodeDefaults:
    """What nodes are where a file does not say: the GPU type from the facts, or by its name from a library file, or
    from the catalogue (peak in bf16).

    Raises
    ------
    InputError
        When a fact is missing or no quantity, or the library has no such type.
    """
    known = () if library is None else gpu_types_in(library)
    texts = {f"--{field.name.replace('_', '-')}": getattr(facts, field.name) for field in fields(facts)}
    missing = [option for option, text in texts.items() if text is None]
    if not missing:
        *own, (option, of_node) = texts.items()
        memory, peak, intra = (parse_quantity(text, name) for name, text in own)
        inter = node_bandwidth(of_node or "", option, num_gpus)
        kind = GpuType(
            name=name,
            memory_bytes=round(memory),
            peak_flops_per_s=peak,
            intra_node_bandwidth_bytes_per_s=intra,
            inter_node_bandwidth_bytes_per_s=inter,
        )
    elif library is None and len(missing) == len(texts) and (product := known_product(name)) is not None:
        kind = replace(gpu_type_of(product, "bf16"), name=name)
    elif library is None or len(missing) < len(texts):
        raise InputError(
            f"the file does not say what a {name!r} is: give {', '.join(missing)}"
            + (
                ""
                if len(missing) < len(texts)
                else ", or --gpu-types FILE with the GPU types of another document, or name a GPU of the catalogue"
            )
        )
    else:
        named = {kind.name: kind for kind in known}
        if name not in named:
            raise InputError(f"{library}: has no GPU type {name!r}; it has {sorted(named)}")
        kind = named[name]
    others = tuple(other for other in known if other.name != name)
    return NodeDefaults(gpu_type=kind, num_gpus=num_gpus, other_gpu_types=others)


def gpu_types_in(path: Path) -> tuple[GpuType, ...]:
    """GPU types of a cluster, a snapshot, a plan request, or a bare list of them.

    Raises
    ------
    InputError
        When there are none, or they are wrong.
    """
    document: Any = read_json(path)
    for part in ("snapshot", "cluster", "gpu_types"):
        document = document.get(part, document) if isinstance(document, dict) else document
    try:
        read = read_document(_GPU_TYPES, to_json(document, inf_nan_mode="constants"), "list of GPU types")
    except InputError as error:
        raise InputError(f"{path}: {error.detail}", error.issues) from error
    return tuple(GpuType(**dict(kind)) for kind in read)


def import_cluster(
    format_: str,
    path: Path,
    defaults: NodeDefaults,
    minipod_tier: str | None = None,
    id_column: str | None = None,
    tier_columns: Sequence[str] | None = None,
) -> Cluster:
    """Read a cluster; the columns are for formats that have some.

    Raises
    ------
    InputError
        When the format is unknown or has no columns, or the cluster is none that can be planned.
    """
    if format_ not in READERS:
        raise InputError(f"there is no format {format_!r}; the formats are {sorted(READERS)}")
    reader = READERS[format_]
    asked = {"id_column": id_column, "tier_columns": tier_columns or None}
    columns = {name: value for name, value in asked.items() if value is not None}
    if columns and not reader.has_columns:
        tables = ", ".join(name for name, other in READERS.items() if other.has_columns)
        raise InputError(f"--id-column and --tier-column go with {tables}; {format_} has no columns")
    cluster = reader(path, defaults, minipod_tier=minipod_tier, **columns)
    read_document(_CLUSTER, to_json(cluster_to_json(cluster)), "cluster")
    return cluster
