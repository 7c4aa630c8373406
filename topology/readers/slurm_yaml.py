"""Slurm's topology.yaml (Slurm 25.05 and later): a list of topologies, each of one kind.

    - topology: ib
      cluster_default: true
      tree:
        switches:
          - {switch: core, children: "leaf[1-2]"}
          - {switch: leaf1, nodes: "n[01-16]"}
    - topology: nvl
      block:
        block_sizes: [18]
        blocks:
          - {block: b1, nodes: "n[01-18]"}
    - topology: plain
      flat: true

Rings and tori are refused: they have no tiers. block_sizes and blocks without nodes say how Slurm plans, not how the
fabric is built.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import yaml

from stowplan.errors import FileFormatError
from topology.readers.slurm_fabric import Fabric, FabricBuilder

MAX_CHARS = 16 * 2**20
_KINDS = ("tree", "block", "flat")
_UNREADABLE = ("ring", "torus3d")


class _Topology(NamedTuple):
    """One topology: what is below its kind, and the line where it begins."""

    name: str
    is_default: bool
    kind: str
    content: yaml.Node
    line: int


def yaml_fabric(text: str, source: str, chosen: str | None = None) -> Fabric:
    """Read switches and blocks.

    Parameters
    ----------
    chosen
        Names of the topologies that are read together, with commas between them: a tree and blocks, say. None for the
        one that is the cluster's default, or the only one.

    Raises
    ------
    FileFormatError
        Names file, line and what is wrong.
    """
    topologies = _topologies(text, source)
    wanted = _chosen(topologies, source, chosen)
    if all(topology.kind == "flat" for topology in wanted):
        return Fabric(is_flat=True)
    builder = FabricBuilder(source)
    for topology in wanted:
        if topology.kind == "tree":
            for line, fields in _items(source, topology.content, "switches", "switch", ("children", "nodes")):
                builder.add_switch(fields["switch"], line, fields.get("children"), fields.get("nodes"))
        elif topology.kind == "block":
            for line, fields in _items(source, topology.content, "blocks", "block", ("nodes",)):
                builder.add_block(fields["block"], line, fields.get("nodes"))
    return builder.fabric()


def _chosen(topologies: Sequence[_Topology], source: str, chosen: str | None) -> list[_Topology]:
    """The topologies that are asked for, or the default."""
    names = [topology.name for topology in topologies]
    if chosen is None:
        default = [topology for topology in topologies if topology.is_default] or topologies
        if len(default) > 1 and not default[0].is_default:
            detail = (
                f"has the topologies {', '.join(names)} and none with cluster_default: true; say which one (fabric)"
            )
            raise FileFormatError.at(source, None, detail)
        wanted = [default[0]]
    else:
        asked = [name.strip() for name in chosen.split(",")]
        unknown = [name for name in asked if name not in names]
        if unknown:
            raise FileFormatError.at(source, None, f"has no topology {unknown[0]!r}; it has {', '.join(names)}")
        wanted = [topology for topology in topologies if topology.name in asked]
    for topology in wanted:
        if topology.kind in _UNREADABLE:
            detail = (
                f"topology {topology.name!r} is of kind {topology.kind!r}, which has no tiers; known: tree, block, flat"
            )
            raise FileFormatError.at(source, topology.line, detail)
    return wanted


def _topologies(text: str, source: str) -> list[_Topology]:
    if len(text) > MAX_CHARS:
        raise FileFormatError.at(source, None, f"has {len(text)} characters; at most {MAX_CHARS}")
    try:
        whole = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.MarkedYAMLError as error:
        line = None if error.problem_mark is None else error.problem_mark.line + 1
        raise FileFormatError.at(source, line, f"is not YAML: {error.problem}") from error
    except (yaml.YAMLError, RecursionError) as error:
        raise FileFormatError.at(source, None, f"is not readable YAML: {error}") from error
    if not isinstance(whole, yaml.SequenceNode) or not whole.value:
        line = None if whole is None else _line(whole)
        raise FileFormatError.at(source, line, "is no list of topologies, as in `- topology: name`")
    topologies = [_topology(source, node) for node in whole.value]
    lines: dict[str, int] = {}
    for topology in topologies:
        if topology.name in lines:
            detail = f"topology {topology.name!r} is already defined in line {lines[topology.name]}"
            raise FileFormatError.at(source, topology.line, detail)
        lines[topology.name] = topology.line
    return topologies


def _topology(source: str, node: yaml.Node) -> _Topology:
    fields = _mapping(source, node)
    line = _line(node)
    if "topology" not in fields:
        raise FileFormatError.at(source, line, "has no name: it must begin with `topology: name`")
    unknown = sorted(fields.keys() - {"topology", "cluster_default", *_KINDS, *_UNREADABLE})
    if unknown:
        raise FileFormatError.at(source, _line(fields[unknown[0]]), f"unknown key {unknown[0]!r} of a topology")
    kinds = [kind for kind in (*_KINDS, *_UNREADABLE) if kind in fields]
    name = _text(source, fields["topology"])
    if len(kinds) != 1:
        detail = f"topology {name!r} has {len(kinds)} of {', '.join(_KINDS)}; it must have one"
        raise FileFormatError.at(source, line, detail)
    default = fields.get("cluster_default")
    is_default = default is not None and _text(source, default).lower() in ("true", "yes", "on")
    return _Topology(name, is_default, kinds[0], fields[kinds[0]], line)


def _items(
    source: str, content: yaml.Node, collection: str, name: str, others: tuple[str, ...]
) -> Iterator[tuple[int, dict[str, str]]]:
    """Line and texts of each item of the list that a tree or block topology holds."""
    fields = _mapping(source, content)
    listed = fields.get(collection)
    if not isinstance(listed, yaml.SequenceNode):
        raise FileFormatError.at(source, _line(content), f"has no list {collection!r}")
    for item in listed.value:
        texts = {key: _text(source, value) for key, value in _mapping(source, item).items()}
        unknown = sorted(texts.keys() - {name, *others})
        if unknown or name not in texts:
            what = f"unknown key {unknown[0]!r}" if unknown else f"has no {name!r}"
            raise FileFormatError.at(source, _line(item), f"{what}; must have {name!r}, and may have {list(others)}")
        yield _line(item), {key: value for key, value in texts.items() if value}


def _mapping(source: str, node: yaml.Node) -> dict[str, yaml.Node]:
    if not isinstance(node, yaml.MappingNode):
        raise FileFormatError.at(source, _line(node), "must be keys with values, as in `key: value`")
    fields: dict[str, yaml.Node] = {}
    for key, value in node.value:
        name = _text(source, key)
        if name in fields:
            raise FileFormatError.at(source, _line(key), f"{name!r} stands twice")
        fields[name] = value
    return fields


def _text(source: str, node: yaml.Node) -> str:
    """A text as it is written, whatever YAML makes of it: a node may be called 1e3."""
    if not isinstance(node, yaml.ScalarNode):
        raise FileFormatError.at(source, _line(node), "must be a text")
    return "" if node.tag == "tag:yaml.org,2002:null" else str(node.value)


def _line(node: yaml.Node) -> int:
    return int(node.start_mark.line) + 1
