"""Topograph model YAML: switches, blocks of nodes below them, accelerator domains. What its graph engine writes, too:
`topograph_graph.py`.

    switches: {core: {switches: [leaf-1, leaf-2]}}
    blocks: [{switch: leaf-1, nodes: ["n[01-18]"], annotations: {accelerator.topology.test/domain: nvl-1}}]

A switch that some other switch lists needs no definition of its own. Switches without nodes are left out.

The tiers of switches are called `switch-1` (coarsest), `switch-2`, ... An accelerator domain and, inside it, a
sub-domain are annotations beside the tree (on the block or, inherited, on a switch above it; the nearest wins). They
form the tiers `domain` and `sub-domain`, inserted as fine as they nest (`SwitchForest.insert_tier`): a rack's NVLink
domain becomes the finest tier, while a parent domain that spans racks (the dual-domain models, where `sub-domain` is
the rack) comes above the switches that it contains whole. Nodes without an annotation are alone in their domain.
Sub-domains are told apart together with their domain. Labels (region, zone) are ignored.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import yaml

from stowplan.errors import FileFormatError
from stowplan.files import read_text
from topology.cluster import Cluster
from topology.readers.base import NodeDefaults, build_cluster, nodes_from_paths
from topology.readers.hostlist import expand_hostlist
from topology.readers.topograph_graph import is_graph, read_topograph_graph
from topology.readers.tree import SwitchForest

_DOMAIN = re.compile(r"accelerator\.topology\.[^/]+/(domain|sub-domain)")
_SWITCH_FIELDS = ("name", "labels", "annotations", "switches")
_BLOCK_FIELDS = ("switch", "nodes", "labels", "annotations")


def read_topograph(path: Path, defaults: NodeDefaults, *, minipod_tier: str | None = None) -> Cluster:
    """Read a cluster from a Topograph model, or from what its graph engine writes.

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
    text = read_text(path)
    if is_graph(text):
        return read_topograph_graph(str(path), text, defaults, minipod_tier=minipod_tier)
    document = _Document(str(path))
    parts = dict(document.fields(document.compose(text), "the model", ("switches", "blocks")))
    model = _Model(document=document, forest=SwitchForest(document.source))
    for name, line, value in document.entries(parts.get("switches"), "switches"):
        model.add_switch(name, line, value)
    for value in document.items(parts.get("blocks"), "blocks"):
        model.add_block(value)
    model.forest.require_switches(listed_is_enough=True)
    paths = model.forest.paths()
    tiers = [f"switch-{k + 1}" for k in range(len(next(iter(paths.values()))))]
    domains, sub_domains = model.domains(paths)
    for what, groups in (("domain", domains), ("sub-domain", sub_domains)):
        if groups:
            paths, position = model.forest.insert_tier(paths, groups, what)
            tiers.insert(position, what)
    return build_cluster(nodes_from_paths(paths, defaults), tiers, defaults, minipod_tier)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Model:
    """What has been read so far; `of_switch` and `of_node` hold the domain annotations."""

    document: "_Document"
    forest: SwitchForest
    of_switch: dict[str, dict[str, str]] = field(default_factory=dict)
    of_node: dict[str, dict[str, str]] = field(default_factory=dict)

    def add_switch(self, name: str, line: int, value: yaml.Node) -> None:
        self.forest.define(name, line)
        parts = dict(self.document.fields(value, f"switch {name!r}", _SWITCH_FIELDS))
        own_name = self.document.text(parts["name"], "name") if "name" in parts else name
        if own_name != name:
            raise FileFormatError.at(self.document.source, line, f"switch {name!r} calls itself {own_name!r}")
        self.of_switch[name] = self._annotations(parts.get("annotations"))
        for child, child_line in self.document.names(parts.get("switches"), "switches"):
            self.forest.put_switch(child, name, child_line)

    def add_block(self, value: yaml.Node) -> None:
        parts = dict(self.document.fields(value, "a block", _BLOCK_FIELDS))
        switch = self.document.text(parts["switch"], "switch") if "switch" in parts else None
        annotations = self._annotations(parts.get("annotations"))
        for node, line in self.document.names(parts.get("nodes"), "nodes"):
            self.forest.put_node(node, switch, line)
            self.of_node[node] = annotations

    def domains(self, paths: Mapping[str, tuple[str, ...]]) -> tuple[dict[str, tuple[str, ...]], ...]:
        """Domain and sub-domain of the nodes that have one; a sub-domain's key starts with its domain."""
        domains: dict[str, tuple[str, ...]] = {}
        sub_domains: dict[str, tuple[str, ...]] = {}
        for node, path in paths.items():
            found: dict[str, str] = {}
            for annotations in (*(self.of_switch.get(switch, {}) for switch in path), self.of_node[node]):
                found |= annotations
            if "domain" in found:
                domains[node] = (found["domain"],)
            if "sub-domain" in found:
                sub_domains[node] = (found.get("domain", ""), found["sub-domain"])
        return domains, sub_domains

    def _annotations(self, value: yaml.Node | None) -> dict[str, str]:
        entries = self.document.entries(value, "annotations")
        matches = ((_DOMAIN.fullmatch(key), self.document.text(text, key)) for key, _, text in entries)
        return {match.group(1): text for match, text in matches if match and text}


class _Document:
    """Typed access to composed YAML nodes; every fault carries the line of the node."""

    def __init__(self, source: str) -> None:
        self.source = source

    def compose(self, text: str) -> yaml.Node:
        try:
            root = yaml.compose(text, Loader=yaml.SafeLoader)
        except yaml.MarkedYAMLError as error:
            mark = error.problem_mark or error.context_mark
            line = mark.line + 1 if mark else None
            raise FileFormatError.at(self.source, line, f"no YAML: {error.problem or error.context}") from error
        except yaml.reader.ReaderError as error:
            line = text.count("\n", 0, error.position) + 1
            raise FileFormatError.at(self.source, line, f"no YAML: {error.reason}") from error
        except RecursionError as error:
            raise FileFormatError.at(self.source, None, "is nested too deeply") from error
        if root is None:
            raise FileFormatError.at(self.source, None, "is empty; expected a model with switches and blocks")
        return root

    def entries(self, node: yaml.Node | None, what: str) -> Iterator[tuple[str, int, yaml.Node]]:
        """Yield (key, line, value) of a mapping; nothing for an absent or null one."""
        if node is None or _is_null(node):
            return
        if not isinstance(node, yaml.MappingNode):
            raise self._error(node, f"{what} must be a mapping")
        seen: dict[str, int] = {}
        for key_node, value in node.value:
            key, line = self.text(key_node, f"a key of {what}"), key_node.start_mark.line + 1
            if key in seen:
                raise self._error(key_node, f"{key!r} is already defined in line {seen[key]}")
            seen[key] = line
            yield key, line, value

    def fields(self, node: yaml.Node, what: str, known: tuple[str, ...]) -> Iterator[tuple[str, yaml.Node]]:
        """Yield (name, value) of a mapping with known fields only."""
        for name, line, value in self.entries(node, what):
            if name not in known:
                raise FileFormatError.at(
                    self.source, line, f"{what} has no field {name!r}; the fields are {list(known)}"
                )
            yield name, value

    def items(self, node: yaml.Node | None, what: str) -> list[yaml.Node]:
        """Give the items of a list; none for an absent or null one."""
        if node is None or _is_null(node):
            return []
        if not isinstance(node, yaml.SequenceNode):
            raise self._error(node, f"{what} must be a list")
        return list(node.value)

    def names(self, node: yaml.Node | None, what: str) -> Iterator[tuple[str, int]]:
        """Yield (name, line) of a list of hostlist expressions."""
        for item in self.items(node, what):
            try:
                names = expand_hostlist(self.text(item, f"an item of {what}"))
            except ValueError as error:
                raise self._error(item, str(error)) from error
            yield from ((name, item.start_mark.line + 1) for name in names)

    def text(self, node: yaml.Node, what: str) -> str:
        if not isinstance(node, yaml.ScalarNode) or _is_null(node):
            raise self._error(node, f"{what} must be a name")
        return str(node.value)

    def _error(self, node: yaml.Node, detail: str) -> FileFormatError:
        return FileFormatError.at(self.source, node.start_mark.line + 1, detail)


def _is_null(node: yaml.Node) -> bool:
    return bool(node.tag == "tag:yaml.org,2002:null")
