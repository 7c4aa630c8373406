"""Clusters as commands take them: a file, or a few words."""

import re
from dataclasses import replace
from pathlib import Path

from api.schemas.base import MAX_GPUS_PER_NODE
from stowplan.errors import InputError
from topology.cluster import Cluster, GpuType, Node
from topology.gpu_catalogue import GpuProduct, find_product, gpu_type_of
from topology.serialize import load_cluster_json

CLUSTER_HELP = (
    "A file of `stowplan import`, or nodes by GPU: h100:64, or a100=a100-40gb:80x4,v100:20x16; those are a100-00, "
    "a100-01, ..., v100-00, ...."
)
_PART = re.compile(r"(?:(?P<name>[^=:,]+)=)?(?P<product>[^=:,]+):(?P<nodes>[0-9]+)(?:x(?P<gpus>[0-9]+))?")
_MAX_NODES = 100_000


def cluster_of(text: str) -> Cluster:
    """The cluster in a file whose name ends in .json, or NAME=GPU:NODESxGPUS for every GPU type, with commas.

    The name is the GPU's where it is left out, the GPUs of a node what is usual for the GPU.

    Raises
    ------
    InputError
        When it is no cluster, or there is no such GPU.
    FileFormatError
        When the file cannot be read.
    """
    if text.endswith(".json"):
        return load_cluster_json(Path(text))
    kinds: list[GpuType] = []
    nodes: list[Node] = []
    for part in text.split(","):
        found = _PART.fullmatch(part.strip())
        if found is None:
            raise InputError(f"--cluster: {part!r} is none; write GPU:NODES or NAME=GPU:NODESxGPUS, such as h100:64x8")
        product = find_product(found["product"])
        kind = gpu_type_of(product, _precision(product))
        kinds.append(replace(kind, name=found["name"] or kind.name))
        num_nodes, num_gpus = int(found["nodes"]), int(found["gpus"] or product.gpus_per_node)
        if not (1 <= num_nodes <= _MAX_NODES and 1 <= num_gpus <= MAX_GPUS_PER_NODE):
            raise InputError(
                f"--cluster: {part!r} must have 1 to {_MAX_NODES:,} nodes of 1 to {MAX_GPUS_PER_NODE:,} GPUs"
            )
        width = len(str(num_nodes - 1))
        nodes += (
            Node(id=f"{kinds[-1].name}-{k:0{width}}", gpu_type=kinds[-1].name, num_gpus=num_gpus)
            for k in range(num_nodes)
        )
    return Cluster(gpu_types=tuple(kinds), nodes=tuple(nodes))


def _precision(product: GpuProduct) -> str:
    """What is trained in: older GPUs have no bf16."""
    return next(name for name in ("bf16", "fp16", *product.peak_flops_per_s) if name in product.peak_flops_per_s)
