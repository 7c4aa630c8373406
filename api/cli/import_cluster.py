"""Foreign descriptions of a cluster, completed with what they do not say about GPUs, as our JSON."""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter
from pydantic_core import to_json

from api.cli.files import read_json
from api.cli.quantities import parse_quantity
from api.convert.reading import read_document
from api.schemas.snapshot import ClusterDoc, GpuTypeDoc
from stowplan.errors import InputError
from topology.cluster import Cluster, GpuType
from topology.readers import READERS, NodeDefaults, read_csv
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


def node_defaults(name: str, num_gpus: int, facts: GpuFacts, library: Path | None) -> NodeDefaults:
    """What nodes are where a file does not say: the GPU type from the facts, or by its name from a library file.

    Raises
    ------
    InputError
        When a fact is missing or no quantity, or the library has no such type.
    """
    known = () if library is None else gpu_types_in(library)
    texts = {f"--{field.name.replace('_', '-')}": getattr(facts, field.name) for field in fields(facts)}
    missing = [option for option, text in texts.items() if text is None]
    if not missing:
        memory, peak, intra, inter = (parse_quantity(text, option) for option, text in texts.items())
        kind = GpuType(
            name=name,
            memory_bytes=round(memory),
            peak_flops_per_s=peak,
            intra_node_bandwidth_bytes_per_s=intra,
            inter_node_bandwidth_bytes_per_s=inter,
        )
    elif library is None or len(missing) < len(texts):
        raise InputError(
            f"the file does not say what a {name!r} is: give {', '.join(missing)}"
            + ("" if len(missing) < len(texts) else ", or --gpu-types FILE with the GPU types of another document")
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
    """Read a cluster; the columns are for CSV only.

    Raises
    ------
    InputError
        When the format is unknown or has no columns, or the cluster is none that can be planned.
    """
    if format_ not in READERS:
        raise InputError(f"there is no format {format_!r}; the formats are {sorted(READERS)}")
    if format_ == "csv":
        cluster = read_csv(
            path, defaults, minipod_tier=minipod_tier, id_column=id_column, tier_columns=tier_columns or None
        )
    elif id_column is not None or tier_columns:
        raise InputError(f"--id-column and --tier-column go with csv; {format_} has no columns")
    else:
        cluster = READERS[format_](path, defaults, minipod_tier=minipod_tier)
    read_document(_CLUSTER, to_json(cluster_to_json(cluster)), "cluster")
    return cluster
