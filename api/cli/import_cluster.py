"""`stowplan import`: foreign descriptions of a cluster, completed with what they do not say about GPUs, as our JSON.

One file of a topology becomes a cluster; what a scheduler says of nodes and jobs, a document an option, a snapshot.
"""

import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer
from pydantic import TypeAdapter
from pydantic_core import to_json

from api.cli.busy import busy
from api.cli.commands import command
from api.cli.gpu_facts import GpuFacts, gpu_facts, gpu_names, gpu_types_in
from api.cli.import_state import import_state, job_changes, state_options, takes_documents
from api.cli.node_topology import filled, node_facts_in, tell
from api.cli.options import Catalogue, readable, write
from api.cli.pretty import pretty_json
from api.convert.reading import read_document
from api.schemas.base import MAX_GPUS_PER_NODE
from api.schemas.snapshot import ClusterDoc
from models.cluster_state import READERS as STATE_READERS
from models.cluster_state import LiveSource
from stowplan.errors import InputError
from topology.cluster import Cluster
from topology.gpu_catalogue import known_product
from topology.node_readers.base import with_node_facts
from topology.readers import READERS, NodeDefaults
from topology.serialize import cluster_to_json

_CLUSTER: TypeAdapter[ClusterDoc] = TypeAdapter(ClusterDoc)


@command("import")
@takes_documents
def import_command(
    format_: Annotated[
        str, typer.Argument(metavar="FORMAT", help=f"One of {', '.join({**READERS, **STATE_READERS})}.")
    ],
    file: Annotated[
        Path | None,
        typer.Argument(
            metavar="[FILE]",
            help="File with the nodes of a cluster, - for standard input; for a snapshot with "
            "jobs none, but options such as --nodes.",
        ),
    ] = None,
    gpu_type: Annotated[
        list[str] | None,
        typer.Option(
            help="GPU type of nodes of which nobody says it; NAME=PRODUCT: what a name in documents stands for."
        ),
    ] = None,
    gpus_per_node: Annotated[
        int | None,
        typer.Option(min=1, max=MAX_GPUS_PER_NODE, help="GPUs of a node; those of the usual one if left out."),
    ] = None,
    memory: Annotated[str | None, typer.Option(help="Memory of a GPU, such as 80GiB.")] = None,
    peak_flops: Annotated[str | None, typer.Option(help="Peak of a GPU, such as 312T.")] = None,
    intra_node_bandwidth: Annotated[str | None, typer.Option(help="Between GPUs of a node: 300GB/s.")] = None,
    inter_node_bandwidth: Annotated[
        str | None, typer.Option(help="Of a node: 3.2Tbit/s/node, 400Gbit/s/gpu, 8x400Gbit/s (adapters).")
    ] = None,
    gpu_types: Annotated[
        Path | None, typer.Option(help="Take the facts from the GPU types of this cluster, snapshot or list.")
    ] = None,
    node_topology: Annotated[
        list[str] | None,
        typer.Option(
            metavar="[TYPE=]FILE",
            help="Take bandwidths and number of GPUs of a node from what `nvidia-smi topo -m` prints, or "
            "NCCL_TOPO_DUMP_FILE names.",
        ),
    ] = None,
    minipod_tier: Annotated[str | None, typer.Option(help="Tier whose units are the minipods.")] = None,
    id_column: Annotated[str | None, typer.Option(help="CSV: column of the host names.")] = None,
    tier_column: Annotated[list[str] | None, typer.Option(help="CSV: columns of the tiers, coarsest first.")] = None,
    job: Annotated[
        list[str] | None,
        typer.Option(
            metavar="ID={...}",
            help="Fields of a job that no scheduler knows, such as parallelism; one on hold is planned as released.",
        ),
    ] = None,
    taken_at: Annotated[
        str | None, typer.Option(help="Moment of the documents, such as 2026-12-07T09:00:00Z; else what they tell of.")
    ] = None,
    live: Annotated[
        bool, typer.Option("--live", help="kubernetes: ask the API of the cluster for what no option gives.")
    ] = False,
    kubeconfig: Annotated[
        Path | None, typer.Option(help="--live: ways to clusters, in place of those that kubectl takes.")
    ] = None,
    context: Annotated[str | None, typer.Option(help="--live: cluster of the kubeconfig, by context.")] = None,
    as_snapshot: Annotated[
        bool, typer.Option("--snapshot", help="Wrap the cluster as a snapshot without jobs.")
    ] = False,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="Write to this file instead.")] = None,
    _catalogue: Catalogue = None,
    **given: list[str] | None,
) -> None:
    """Turn a foreign description of a cluster, or what its scheduler says, into our JSON."""
    facts = GpuFacts(
        memory=memory,
        peak_flops=peak_flops,
        intra_node_bandwidth=intra_node_bandwidth,
        inter_node_bandwidth=inter_node_bandwidth,
    )
    names = gpu_names(gpu_type or ())
    nodes = node_facts_in(node_topology or (), names, facts)
    default = next(iter(nodes), None) if names.default is None else names.default
    facts = filled(facts, nodes.get(default or ""))
    if file is None:
        options = state_options(
            replace(names, default=default), facts, gpus_per_node, gpu_types, minipod_tier, taken_at, nodes
        )
        source = LiveSource(configuration=None if kubeconfig is None else str(kubeconfig), context=context)
        if not live and source != LiveSource():
            raise InputError("--kubeconfig and --context go with --live")
        document = import_state(format_, given, options, job_changes(job or ()), source if live else None)
    elif any(given.values()) or names.products or taken_at is not None or job or live:
        raise InputError(
            "FILE has the nodes of a cluster, without jobs; leave it out, and give --topology and the like"
        )
    else:
        if default is None:
            raise InputError("--gpu-type is missing; the file does not say which GPUs its nodes have")
        num_gpus = nodes[default].num_gpus if gpus_per_node is None and default in nodes else gpus_per_node
        defaults = node_defaults(default, num_gpus, facts, gpu_types)
        with busy(f"reading {file}"):
            cluster, remarks = with_node_facts(
                import_cluster(format_, readable(file), defaults, minipod_tier, id_column, tier_column), nodes
            )
        tell(remarks)
        found = cluster_to_json(cluster)
        document = {"cluster": found, "jobs": []} if as_snapshot else found
    text = pretty_json(document) + "\n"
    if output is None:
        sys.stdout.write(text)
    else:
        write(output, text.encode())


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
