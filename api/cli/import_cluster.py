"""`stowplan import`: foreign descriptions of a cluster, completed with what they do not say about GPUs, as our JSON.

One file of a topology becomes a cluster; what a scheduler says of nodes and jobs, a document an option, a snapshot.
"""

import sys
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from api.cli.busy import busy
from api.cli.commands import command
from api.cli.gpu_facts import GpuFacts, gpu_names
from api.cli.import_state import import_state, job_changes, state_options, takes_documents
from api.cli.node_topology import filled, node_facts_in, tell
from api.cli.paths import Catalogue, readable, write
from api.cli.pretty import pretty_json
from api.schemas.limits import MAX_GPUS_PER_NODE
from models.cluster_state import READERS as STATE_READERS
from models.cluster_state import LiveSource
from stowplan.errors import InputError
from topology.node_readers.base import with_node_facts
from topology.readers import READERS
from topology.serialize import cluster_to_json


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
    output: Annotated[
        str | None, typer.Option("--output", "-o", metavar="FILE", help="Write to this file instead.")
    ] = None,
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
        # Only now: the documents of requests take half a second to load, and no import of a queue needs them.
        from api.cli.import_topology import import_cluster, node_defaults

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
        write(Path(output), text.encode())
