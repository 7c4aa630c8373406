"""What Topograph's graph engine writes: instances with the switches above them, the closest first.

    {"instances": [{"id": "I21", "network_layers": ["leaf-a", "spine-a"],
                    "labels": {"accelerator.topograph.run/domain": "nvl-1"}}]}

Nodes are called as instances are, which is as the provider calls them. Topograph 0.5 had the accelerator domain in
`attributes` (`nvlink`); 1.0 has it, and a sub-domain inside of it, in `labels`, whose other keys are ignored. Tiers are
those of Topograph's model (`topograph.py`).
"""

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from stowplan.errors import FileFormatError
from topology.cluster import Cluster
from topology.readers.base import NodeDefaults, build_cluster, nodes_from_paths
from topology.readers.tree import Paths, insert_tier, refuse_uneven

# A model begins otherwise.
_MARK = re.compile(r'\s*\{\s*"instances"\s*:')
_FIELDS = ("id", "network_layers", "labels", "type", "attributes", "capacity_block")
_LABELS = "accelerator.topograph.run/"
_DOMAIN, _SUB_DOMAIN = "domain", "sub-domain"


def is_graph(text: str) -> bool:
    """Whether a text is what the graph engine writes."""
    return _MARK.match(text) is not None


def read_topograph_graph(source: str, text: str, defaults: NodeDefaults, *, minipod_tier: str | None = None) -> Cluster:
    """Read a cluster; tiers of switches are called `switch-1` (coarsest), `switch-2`, ...

    Parameters
    ----------
    source
        What the text is called.
    defaults
        What nodes are; the format does not say.
    minipod_tier
        Name of the minipod tier; None for `default_minipod_tier`.

    Raises
    ------
    FileFormatError
        Names the source, the JSON pointer and what is wrong.
    InputError
        When no tier is called `minipod_tier`.
    """
    paths: Paths = {}
    groups: dict[str, dict[str, tuple[str, ...]]] = {_DOMAIN: {}, _SUB_DOMAIN: {}}
    places: dict[str, str] = {}
    for pointer, instance in _instances(source, text):
        name = _text(source, pointer, instance, "id")
        if name in places:
            raise _fault(source, f"{pointer}/id", f"{name!r} is the instance of {places[name]} already")
        places[name] = pointer
        paths[name] = tuple(reversed(_layers(source, pointer, instance)))
        domain, sub_domain = _domains(source, pointer, instance)
        if domain:
            groups[_DOMAIN][name] = (domain,)
        if sub_domain:
            groups[_SUB_DOMAIN][name] = (domain, sub_domain)
    if not paths:
        raise _fault(source, "/instances", "is empty; must have an instance for each node")

    def fault(node: str | None, detail: str) -> FileFormatError:
        return _fault(source, "/instances" if node is None else places[node], detail)

    refuse_uneven(paths, fault)
    tiers = [f"switch-{k + 1}" for k in range(len(next(iter(paths.values()))))]
    for what, group_of in groups.items():
        if group_of:
            paths, position = insert_tier(paths, group_of, what, fault)
            tiers.insert(position, what)
    return build_cluster(nodes_from_paths(paths, defaults), tiers, defaults, minipod_tier)


def _instances(source: str, text: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Pointer and value of each."""
    try:
        document = json.loads(text)
    except json.JSONDecodeError as error:
        raise FileFormatError.at(source, error.lineno, f"no JSON: {error.msg} (column {error.colno})") from error
    except (ValueError, RecursionError) as error:
        raise FileFormatError.at(source, None, f"no readable JSON: {error}") from error
    unknown = next((key for key in document if key != "instances"), None)
    if unknown is not None:
        raise _fault(source, f"/{unknown}", "is no field of a graph; it has instances")
    instances = document["instances"]
    if not isinstance(instances, list):
        raise _fault(source, "/instances", "must be a list")
    for k, instance in enumerate(instances):
        pointer = f"/instances/{k}"
        if not isinstance(instance, dict):
            raise _fault(source, pointer, "must be an object")
        strange = next((key for key in instance if key not in _FIELDS), None)
        if strange is not None:
            detail = f"is no field of an instance; the fields are {', '.join(_FIELDS)}"
            raise _fault(source, f"{pointer}/{strange}", detail)
        yield pointer, instance


def _layers(source: str, pointer: str, instance: Mapping[str, Any]) -> list[str]:
    # Without any, Topograph writes null.
    layers = instance.get("network_layers") or []
    if not isinstance(layers, list) or not all(isinstance(name, str) and name for name in layers):
        raise _fault(source, f"{pointer}/network_layers", "must be a list of names of switches, the closest first")
    return layers


def _domains(source: str, pointer: str, instance: Mapping[str, Any]) -> tuple[str, str]:
    """Accelerator domain and sub-domain; empty where there is none."""
    parts = {key: instance.get(key) or {} for key in ("labels", "attributes")}
    for key, part in parts.items():
        if not isinstance(part, dict) or not all(isinstance(text, str) for text in part.values()):
            raise _fault(source, f"{pointer}/{key}", "must be an object of texts")
    domain = parts["labels"].get(_LABELS + _DOMAIN) or parts["attributes"].get("nvlink") or ""
    return domain, parts["labels"].get(_LABELS + _SUB_DOMAIN) or ""


def _text(source: str, pointer: str, instance: Mapping[str, Any], key: str) -> str:
    text = instance.get(key)
    if not isinstance(text, str) or not text:
        raise _fault(source, f"{pointer}/{key}", f"is {text!r}; must be a name")
    return text


def _fault(source: str, pointer: str, detail: str) -> FileFormatError:
    return FileFormatError(f"{source}: {pointer}: {detail}")
