"""The JSON form of a cluster, on plain dicts and lists.

    {"gpu_types": [{"name", "memory_bytes", "peak_flops_per_s",
                    "intra_node_bandwidth_bytes_per_s", "inter_node_bandwidth_bytes_per_s"}],
     "tiers": [{"name", "bandwidth_fraction"}],          coarsest first
     "minipod_tier": name or null,
     "core_bandwidth_fraction": number,
     "nodes": [{"id", "gpu_type", "num_gpus",
                "gpus_in_use": n (the first n GPUs) or [indices], "state": "up" | "drained" | "down", "path": [names],
                "state_reason": text or null}]}

`tiers`, `minipod_tier`, the fractions, `gpus_in_use`, `state`, `path` and `state_reason` may be left out. Everything
else that is missing, unknown or of a wrong type is refused.
"""

import json
from collections.abc import Sequence
from pathlib import Path

from stowplan.errors import FileFormatError, InputError, Issue
from stowplan.files import read_text
from stowplan.records import Reading, to_document
from topology.cluster import Cluster, Node

MAX_GPUS_PER_NODE = 4096  # far above any machine; keeps a slip of the pen from filling the memory


def load_cluster_json(path: Path) -> Cluster:
    """Read a cluster from a JSON file.

    Raises
    ------
    FileFormatError
        When the file cannot be read or is not JSON; names the line.
    InputError
        When the document is no legal cluster; the issues point into the document.
    """
    source = str(path)
    try:
        document: object = json.loads(read_text(path))
    except json.JSONDecodeError as error:
        raise FileFormatError.at(source, error.lineno, f"no JSON: {error.msg} (column {error.colno})") from error
    except (ValueError, RecursionError) as error:
        raise FileFormatError.at(source, None, f"no readable JSON: {error}") from error
    return cluster_from_json(document, source)


def cluster_from_json(document: object, source: str) -> Cluster:
    """Build the cluster that a decoded JSON document describes; `source` names the document in errors.

    Raises
    ------
    InputError
        With one issue per fault, pointers relative to the document.
    """
    reading = Reading({(Node, "num_gpus"): _num_gpus, (Node, "gpus_in_use"): _gpus_in_use}, empty_text=False)
    try:
        cluster: Cluster = reading.record(Cluster, document, "")
    except InputError as error:
        raise _refused(source, error.issues) from error
    if reading.issues:
        raise _refused(source, reading.issues)
    return cluster


def cluster_to_json(cluster: Cluster) -> dict[str, object]:
    """Give the document of a cluster; `cluster_from_json` turns it back into an equal cluster."""
    document: dict[str, object] = to_document(cluster)
    nodes = document.pop("nodes")
    return document | {"nodes": nodes}


def _refused(source: str, issues: Sequence[Issue]) -> InputError:
    noun = "error" if len(issues) == 1 else "errors"
    return InputError(f"{source}: the cluster has {len(issues)} {noun}", issues)


def _num_gpus(reading: Reading, value: object, pointer: str) -> int:
    count: int = reading.integer(value, pointer)
    if count > MAX_GPUS_PER_NODE:
        reading.fault("out_of_range", pointer, f"is {count}; at most {MAX_GPUS_PER_NODE}")
    return count


def _gpus_in_use(reading: Reading, value: object, pointer: str) -> tuple[int, ...]:
    """A count n stands for the first n GPUs; more than the node has is caught by the cluster."""
    if isinstance(value, list):
        indices: tuple[int, ...] = reading.items(int, value, pointer)
        return indices
    count: int = reading.integer(value, pointer, expected="an integer or a list of integers")
    if not 0 <= count <= MAX_GPUS_PER_NODE:
        reading.fault("out_of_range", pointer, f"is {count}; a count must be 0 to {MAX_GPUS_PER_NODE}")
        return ()
    return tuple(range(count))
