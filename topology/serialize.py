"""The JSON form of a cluster, on plain dicts and lists.

    {"gpu_types": [{"name", "memory_bytes", "peak_flops_per_s",
                    "intra_node_bandwidth_bytes_per_s", "inter_node_bandwidth_bytes_per_s"}],
     "tiers": [{"name", "bandwidth_fraction"}],          coarsest first
     "minipod_tier": name or null,
     "core_bandwidth_fraction": number,
     "nodes": [{"id", "gpu_type", "num_gpus",
                "gpus_in_use": n (the first n GPUs) or [indices], "state": "up" | "drained" | "down", "path": [names]}]}

`tiers`, `minipod_tier`, the fractions, `gpus_in_use`, `state` and `path` may be left out. Everything else that is
missing, unknown or of a wrong type is refused.
"""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import fields
from pathlib import Path

from stowplan.errors import FileFormatError, InputError, Issue
from topology.cluster import Cluster, GpuType, Node, NodeState, Tier
from topology.files import read_text

MAX_GPUS_PER_NODE = 4096  # far above any machine; keeps a slip of the pen from filling the memory
_LARGEST_INTEGER = 2**63 - 1  # what an int64 array holds


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
    reading = _Reading()
    parts = reading.mapping(document, "", ("gpu_types", "nodes"), _OPTIONAL_PARTS)
    gpu_types = tuple(_gpu_type(reading, *item) for item in reading.items(parts.get("gpu_types", []), "/gpu_types"))
    tiers = tuple(_tier(reading, *item) for item in reading.items(parts.get("tiers", []), "/tiers"))
    nodes = tuple(_node(reading, *item) for item in reading.items(parts.get("nodes", []), "/nodes"))
    minipod_tier = parts.get("minipod_tier")
    if minipod_tier is not None:
        minipod_tier = reading.text(minipod_tier, "/minipod_tier")
    core = reading.number(parts.get("core_bandwidth_fraction", 1.0), "/core_bandwidth_fraction")
    if reading.issues:
        raise _refused(source, reading.issues)
    try:
        return Cluster(
            gpu_types=gpu_types, nodes=nodes, tiers=tiers, minipod_tier=minipod_tier, core_bandwidth_fraction=core
        )
    except InputError as error:
        raise _refused(source, error.issues) from error


def cluster_to_json(cluster: Cluster) -> dict[str, object]:
    """Give the document of a cluster; `cluster_from_json` turns it back into an equal cluster."""
    return {
        "gpu_types": [{field.name: getattr(kind, field.name) for field in fields(kind)} for kind in cluster.gpu_types],
        "tiers": [{"name": tier.name, "bandwidth_fraction": tier.bandwidth_fraction} for tier in cluster.tiers],
        "minipod_tier": cluster.minipod_tier,
        "core_bandwidth_fraction": cluster.core_bandwidth_fraction,
        "nodes": [
            {
                "id": node.id,
                "gpu_type": node.gpu_type,
                "num_gpus": node.num_gpus,
                "gpus_in_use": list(node.gpus_in_use),
                "state": node.state.value,
                "path": list(node.path),
            }
            for node in cluster.nodes
        ],
    }


_ABSENT = "absent"  # stands in for a required name whose absence is already reported
_OPTIONAL_PARTS = ("tiers", "minipod_tier", "core_bandwidth_fraction")
_OPTIONAL_OF_NODE = ("gpus_in_use", "state", "path")
_RATES = ("peak_flops_per_s", "intra_node_bandwidth_bytes_per_s", "inter_node_bandwidth_bytes_per_s")


def _refused(source: str, issues: Sequence[Issue]) -> InputError:
    noun = "error" if len(issues) == 1 else "errors"
    return InputError(f"{source}: the cluster has {len(issues)} {noun}", issues)


def _gpu_type(reading: "_Reading", pointer: str, value: object) -> GpuType:
    parts = reading.mapping(value, pointer, ("name", "memory_bytes", *_RATES))
    peak, intra, inter = (reading.number(parts.get(name, 1.0), f"{pointer}/{name}") for name in _RATES)
    return GpuType(
        name=reading.text(parts.get("name", _ABSENT), f"{pointer}/name"),
        memory_bytes=reading.integer(parts.get("memory_bytes", 1), f"{pointer}/memory_bytes"),
        peak_flops_per_s=peak,
        intra_node_bandwidth_bytes_per_s=intra,
        inter_node_bandwidth_bytes_per_s=inter,
    )


def _tier(reading: "_Reading", pointer: str, value: object) -> Tier:
    parts = reading.mapping(value, pointer, ("name",), ("bandwidth_fraction",))
    return Tier(
        name=reading.text(parts.get("name", _ABSENT), f"{pointer}/name"),
        bandwidth_fraction=reading.number(parts.get("bandwidth_fraction", 1.0), f"{pointer}/bandwidth_fraction"),
    )


def _node(reading: "_Reading", pointer: str, value: object) -> Node:
    parts = reading.mapping(value, pointer, ("id", "gpu_type", "num_gpus"), _OPTIONAL_OF_NODE)
    num_gpus = reading.integer(parts.get("num_gpus", 1), f"{pointer}/num_gpus")
    if num_gpus > MAX_GPUS_PER_NODE:
        reading.fault("out_of_range", f"{pointer}/num_gpus", f"is {num_gpus}; at most {MAX_GPUS_PER_NODE}")
    state = reading.text(parts.get("state", "up"), f"{pointer}/state")
    known = [value.value for value in NodeState]
    if state and state not in known:
        reading.fault("unknown_value", f"{pointer}/state", f"is {state!r}; must be one of {known}")
    return Node(
        id=reading.text(parts.get("id", _ABSENT), f"{pointer}/id"),
        gpu_type=reading.text(parts.get("gpu_type", _ABSENT), f"{pointer}/gpu_type"),
        num_gpus=num_gpus,
        gpus_in_use=_gpus_in_use(reading, f"{pointer}/gpus_in_use", parts.get("gpus_in_use", 0)),
        state=NodeState(state) if state in known else NodeState.UP,
        path=tuple(
            reading.text(unit, where) for where, unit in reading.items(parts.get("path", []), f"{pointer}/path")
        ),
    )


def _gpus_in_use(reading: "_Reading", pointer: str, value: object) -> tuple[int, ...]:
    """A count n stands for the first n GPUs; more than the node has is caught by the cluster."""
    if isinstance(value, list):
        return tuple(reading.integer(gpu, where) for where, gpu in reading.items(value, pointer))
    count = reading.integer(value, pointer, expected="an integer or a list of integers")
    if not 0 <= count <= MAX_GPUS_PER_NODE:
        reading.fault("out_of_range", pointer, f"is {count}; a count must be 0 to {MAX_GPUS_PER_NODE}")
        return ()
    return tuple(range(count))


class _Reading:
    """Reads typed values and collects faults; what it returns after a fault is a stand-in that never leaves."""

    def __init__(self) -> None:
        self.issues: list[Issue] = []

    def fault(self, code: str, pointer: str, detail: str) -> None:
        self.issues.append(Issue(code=code, pointer=pointer, detail=detail))

    def mapping(
        self, value: object, pointer: str, required: tuple[str, ...], optional: tuple[str, ...] = ()
    ) -> Mapping[str, object]:
        if not isinstance(value, dict):
            self.fault("wrong_type", pointer, f"is {_kind(value)}; must be an object")
            return {}
        known = (*required, *optional)
        for name in value:
            if name not in known:
                where = f"{pointer}/{str(name).replace('~', '~0').replace('/', '~1')}"
                self.fault("unknown_field", where, f"there is no such field; the fields are {list(known)}")
        for name in required:
            if name not in value:
                self.fault("missing_field", f"{pointer}/{name}", "is missing")
        return value

    def items(self, value: object, pointer: str) -> list[tuple[str, object]]:
        if not isinstance(value, list):
            self.fault("wrong_type", pointer, f"is {_kind(value)}; must be a list")
            return []
        return [(f"{pointer}/{k}", item) for k, item in enumerate(value)]

    def text(self, value: object, pointer: str) -> str:
        if not isinstance(value, str):
            self.fault("wrong_type", pointer, f"is {_kind(value)}; must be a string")
            return ""
        if not value:
            self.fault("wrong_length", pointer, "is empty; must have at least one character")
        return value

    def integer(self, value: object, pointer: str, expected: str = "an integer") -> int:
        if not isinstance(value, int) or isinstance(value, bool):
            self.fault("wrong_type", pointer, f"is {_kind(value)}; must be {expected}")
            return 1
        if abs(value) > _LARGEST_INTEGER:
            self.fault("out_of_range", pointer, "does not fit into 64 bits")
            return 1
        return value

    def number(self, value: object, pointer: str) -> float:
        if not isinstance(value, int | float) or isinstance(value, bool):
            self.fault("wrong_type", pointer, f"is {_kind(value)}; must be a number")
            return 1.0
        try:
            number = float(value)
        except OverflowError:
            number = math.inf
        if not math.isfinite(number):
            self.fault("not_finite", pointer, "is NaN or infinite; must be a finite number")
            return 1.0
        return number


def _kind(value: object) -> str:
    """JSON's word for the type of a value."""
    words = {
        dict: "an object",
        list: "a list",
        str: "a string",
        bool: "a boolean",
        int: "an integer",
        float: "a number",
    }
    return "null" if value is None else words.get(type(value), type(value).__name__)
