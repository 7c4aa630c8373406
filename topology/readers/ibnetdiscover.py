"""InfiniBand fabrics as `ibnetdiscover` prints them.

    Switch  129 "S-9c0591..."   # "MF0;leaf-1:MQM9700/U1" enhanced port 0 lid 1 lmc 0
    [1]     "H-b83fd2..."[1](b83fd2...)     # "node005 mlx5_2" lid 22 2xNDR

Hosts are named by the first word of what their adapters describe themselves as; adapters of switches (SHArP's
aggregation nodes) are none. A switch to which hosts are linked is a leaf; others are as high above the leaves as the
fewest links go. Switches of tier k are all that are at most as high as that, and its units are what these connect:
hosts that share a leaf (all leaves of their rails, where adapters of a host are on switches of their own), then hosts
below the same spines, and so on. A unit is called after the first of its highest switches. The tier above which
everything hangs together is left out, unless it is the only one.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import networkx as nx

from stowplan.errors import FileFormatError
from stowplan.files import read_text
from topology.cluster import Cluster
from topology.readers.base import NodeDefaults, build_cluster, nodes_from_paths

_NODE = re.compile(r'(Switch|Ca|Rt)\s+\d+\s+"([SHR]-[^"]+)"\s*#\s*"([^"]*)"')
_LINK = re.compile(r'\[\d+\]\S*\s+"([SHR]-[^"]+)"')
_ENDED = ("vendid=", "devid=", "sysimgguid=", "switchguid=", "caguid=", "rtguid=", "Chassis", "Non-Chassis")
_NO_HOSTS = ("Aggregation Node",)
_SWITCH = "S-"


def read_ibnetdiscover(path: Path, defaults: NodeDefaults, *, minipod_tier: str | None = None) -> Cluster:
    """Read a cluster from the output of `ibnetdiscover`; tiers are called `switch-1` (coarsest), `switch-2`, ...

    Parameters
    ----------
    path
        The file.
    defaults
        What nodes are; the format does not say.
    minipod_tier
        Name of the minipod tier; None for `default_minipod_tier`.

    Raises
    ------
    FileFormatError
        Names file, line and what is wrong.
    InputError
        When no tier is called `minipod_tier`.
    """
    fabric = _read(str(path))
    paths = _paths(fabric)
    tiers = [f"switch-{k + 1}" for k in range(len(next(iter(paths.values()))))]
    return build_cluster(nodes_from_paths(paths, defaults), tiers, defaults, minipod_tier)


@dataclass(slots=True)
class _Fabric:
    """Names of switches and links between them by GUID; the switches that each host is linked to."""

    source: str
    names: dict[str, str] = field(default_factory=dict)
    hosts: dict[str, str] = field(default_factory=dict)
    links: "nx.Graph[str]" = field(default_factory=nx.Graph)


def _read(source: str) -> _Fabric:
    fabric = _Fabric(source)
    guid: str | None = None
    lines: dict[str, int] = {}
    for number, line in enumerate(read_text(Path(source)).splitlines(), start=1):
        text = line.strip()
        if not text or text.startswith(("#", *_ENDED)):
            continue
        node = _NODE.match(text)
        if node:
            guid = _add(fabric, (node[1], node[2], node[3]), number, lines)
            continue
        link = _LINK.match(text)
        if link is None or guid is None:
            raise FileFormatError.at(source, number, f"is {text[:60]!r}; must be a node or a port of one")
        fabric.links.add_edge(guid, link[1])
    unknown = sorted(set(fabric.links) - lines.keys())
    if unknown:
        detail = f"{len(unknown)} nodes are linked and not described, such as {unknown[0]!r}; give the whole output"
        raise FileFormatError.at(source, None, detail)
    if not fabric.hosts or not fabric.names:
        raise FileFormatError.at(source, None, "has no hosts on switches; give the output of ibnetdiscover")
    return fabric


def _add(fabric: _Fabric, node: tuple[str, str, str], number: int, lines: dict[str, int]) -> str:
    kind, guid, description = node
    if guid in lines:
        raise FileFormatError.at(fabric.source, number, f"node {guid!r} is already described in line {lines[guid]}")
    lines[guid] = number
    fabric.links.add_node(guid)
    if kind == "Switch":
        # Mellanox: MF0;name:model/unit.
        fabric.names[guid] = description.partition(";")[2].partition(":")[0] or guid
    elif kind == "Ca" and not any(words in description for words in _NO_HOSTS):
        name = description.split()[0] if description.split() else ""
        if not name:
            raise FileFormatError.at(fabric.source, number, f"adapter {guid!r} does not say of which host it is")
        fabric.hosts[guid] = name
    return guid


def _paths(fabric: _Fabric) -> dict[str, tuple[str, ...]]:
    """Host -> its unit of each tier, coarsest first."""
    leaves: dict[str, set[str]] = defaultdict(set)
    for guid, host in fabric.hosts.items():
        leaves[host] |= {other for other in fabric.links[guid] if other.startswith(_SWITCH)}
    alone = sorted(host for host, found in leaves.items() if not found)
    if alone:
        detail = f"{len(alone)} hosts are linked to no switch: {', '.join(alone[:3])}"
        raise FileFormatError.at(fabric.source, None, detail)
    switches = fabric.links.subgraph(fabric.names)
    first = {leaf for found in leaves.values() for leaf in found}
    found = nx.multi_source_dijkstra_path_length(switches, first, weight=None)
    height = {guid: int(links) for guid, links in found.items()}
    by_tier = [_units(switches, height, leaves, top) for top in range(max(height.values()), -1, -1)]
    # Above all of them there is nothing to choose.
    while len(by_tier) > 1 and len(set(by_tier[0].values())) == 1:
        by_tier.pop(0)
    names = _distinct(fabric.names)
    return {host: tuple(names[units[host]] for units in by_tier) for host in leaves}


def _units(
    switches: "nx.Graph[str]", height: Mapping[str, int], leaves: Mapping[str, Iterable[str]], top: int
) -> dict[str, str]:
    """Host -> the first of the highest switches of what it is connected with by switches of at most a height."""
    graph: nx.Graph[str] = nx.Graph(switches.subgraph([switch for switch, above in height.items() if above <= top]))
    # A host connects all of its leaves.
    for found in leaves.values():
        nx.add_path(graph, found)
    unit_of: dict[str, str] = {}
    for part in nx.connected_components(graph):
        name = min(part, key=lambda switch: (-height[switch], switch))
        unit_of.update(dict.fromkeys(part, name))
    return {host: unit_of[next(iter(found))] for host, found in leaves.items()}


def _distinct(names: Mapping[str, str]) -> dict[str, str]:
    """Names that several switches have get their GUID."""
    seen: dict[str, int] = defaultdict(int)
    for name in names.values():
        seen[name] += 1
    return {guid: name if seen[name] == 1 else f"{name} {guid}" for guid, name in names.items()}
