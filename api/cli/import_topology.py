"""`stowplan import` of a file that has the nodes of a cluster and no jobs."""

from collections.abc import Sequence
from pathlib import Path

from pydantic import TypeAdapter
from pydantic_core import to_json

from api.cli.gpu_facts import GpuFacts, gpu_facts
from api.cli.gpu_library import gpu_types_in
from api.convert.reading import read_document
from api.schemas.snapshot import ClusterDoc
from models.cluster_state import READERS as STATE_READERS
from stowplan.errors import InputError
from topology.cluster import Cluster
from topology.gpu_catalogue import known_product
from topology.readers import READERS, NodeDefaults
from topology.serialize import cluster_to_json

_CLUSTER: TypeAdapter[ClusterDoc] = TypeAdapter(ClusterDoc)


def node_defaults(name: str, num_gpus: int | None, facts: GpuFacts, library: Path | None) -> NodeDefaults:
    """What nodes are where a file does not say; see `gpu_facts`.

    Raises
    ------
    InputError
        When a fact is missing or no quantity, or the library has no such type, or nobody says how many GPUs there are.
    """
    known = () if library is None else gpu_types_in(library)
    if num_gpus is None:
        product = known_product(name)
        if product is None:
            raise InputError("--gpus-per-node is missing; only of GPUs of the catalogue the usual node is known")
        num_gpus = product.gpus_per_node
    kind = gpu_facts(name, num_gpus, facts, known, library)
    return NodeDefaults(
        gpu_type=kind, num_gpus=num_gpus, other_gpu_types=tuple(other for other in known if other.name != name)
    )


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
        if format_ in STATE_READERS:
            roles = ", ".join(f"--{role}" for role in STATE_READERS[format_].roles)
            raise InputError(f"{format_} takes no FILE but options: {roles}")
        raise InputError(f"there is no format {format_!r}; the formats are {sorted({**READERS, **STATE_READERS})}")
    reader = READERS[format_]
    asked = {"id_column": id_column, "tier_columns": tier_columns or None}
    columns = {name: value for name, value in asked.items() if value is not None}
    if columns and not reader.has_columns:
        tables = ", ".join(name for name, other in READERS.items() if other.has_columns)
        raise InputError(f"--id-column and --tier-column go with {tables}; {format_} has no columns")
    cluster = reader(path, defaults, minipod_tier=minipod_tier, **columns)
    read_document(_CLUSTER, to_json(cluster_to_json(cluster)), "cluster")
    return cluster
