"""Slurm's topology.conf: trees of switches, blocks, or both.

    SwitchName=s1 Nodes=n[001-016,20]        SwitchName=core Switches=s[1-4] LinkSpeed=100
    BlockName=b1 Nodes=n[001-018]            BlockSizes=18,36

Keywords in any case, `#` starts a comment, a backslash at the end of a line continues it. Several roots are fine.
The tiers of switches are called `switch-1` (coarsest), `switch-2`, ...; blocks form the tier `block`. Where a file
has both, blocks are inserted among the switches as fine as they nest (`SwitchForest.insert_tier`).

LinkSpeed is ignored, as by Slurm. BlockSizes and blocks without nodes (placeholders) say how Slurm plans, not how the
fabric is built, and make no tier.
"""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from stowplan.errors import FileFormatError
from stowplan.files import read_text
from topology.cluster import Cluster
from topology.readers.base import NodeDefaults, build_cluster, nodes_from_paths
from topology.readers.hostlist import expand_hostlist
from topology.readers.tree import SwitchForest

# First keyword of a line -> the keywords that may accompany it.
_KEYWORDS: Mapping[str, frozenset[str]] = {
    "switchname": frozenset({"switches", "nodes", "linkspeed"}),
    "blockname": frozenset({"nodes"}),
    "blocksizes": frozenset(),
}
_PAIR = re.compile(r"\s*([A-Za-z]+)\s*=\s*(?:\"([^\"]*)\"|(\S+))(?=\s|$)")
_COMMENT = re.compile(r"(?<!\\)#.*")


def read_slurm(path: Path, defaults: NodeDefaults, *, minipod_tier: str | None = None) -> Cluster:
    """Read a cluster from a topology.conf.

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
    source = str(path)
    forest = SwitchForest(source)
    blocks = _Blocks(source)
    for line, text in _logical_lines(read_text(path)):
        pairs = _pairs(source, line, text)
        if "switchname" in pairs:
            _add_switch(source, forest, line, pairs)
        elif "blockname" in pairs:
            blocks.add(line, pairs)
        else:
            _check_block_sizes(source, line, pairs["blocksizes"])
    for node, line in blocks.lines.items():
        if node not in forest:
            forest.put_node(node, None, line)
    forest.require_switches(listed_is_enough=False)
    paths = forest.paths()
    tiers = [f"switch-{k + 1}" for k in range(len(next(iter(paths.values()))))]
    if blocks.of_node:
        paths, position = forest.insert_tier(paths, blocks.of_node, "block")
        tiers.insert(position, "block")
    return build_cluster(nodes_from_paths(paths, defaults), tiers, defaults, minipod_tier)


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Yield (number of the first physical line, text) without comments, continuations joined, blank lines left out."""
    start, joined = 1, ""
    for number, physical in enumerate(text.split("\n"), start=1):
        start = start if joined else number
        # As in Slurm a comment ends with its physical line: a backslash inside it continues nothing.
        stripped = _COMMENT.sub("", physical).rstrip()
        joined += stripped.removesuffix("\\")
        if stripped.endswith("\\"):
            continue
        if joined.strip():
            yield start, joined
        joined = ""
    if joined.strip():
        yield start, joined


def _pairs(source: str, line: int, text: str) -> dict[str, str]:
    """Read KEY=VALUE pairs; keys in lower case, the first one decides which others may follow."""
    pairs: dict[str, str] = {}
    position = 0
    while text[position:].strip():
        match = _PAIR.match(text, position)
        if match is None:
            raise FileFormatError.at(source, line, f"cannot read {text[position:].strip()!r}; expected KEYWORD=VALUE")
        keyword = match.group(1).lower()
        if keyword in pairs:
            raise FileFormatError.at(source, line, f"keyword {match.group(1)!r} stands twice in the line")
        pairs[keyword] = match.group(2) or match.group(3) or ""
        position = match.end()
    kind = next((known for known in _KEYWORDS if known in pairs), None)
    if kind is None:
        raise FileFormatError.at(source, line, "the line has none of SwitchName=, BlockName= and BlockSizes=")
    unknown = sorted(pairs.keys() - {kind} - _KEYWORDS[kind])
    if unknown:
        raise FileFormatError.at(
            source, line, f"unknown keyword {unknown[0]!r}; beside {kind!r} may stand {sorted(_KEYWORDS[kind])}"
        )
    return pairs


def _add_switch(source: str, forest: SwitchForest, line: int, pairs: dict[str, str]) -> None:
    switch = _name(source, line, pairs["switchname"])
    forest.define(switch, line)
    if "switches" not in pairs and "nodes" not in pairs:
        raise FileFormatError.at(source, line, f"switch {switch!r} has neither Switches= nor Nodes=")
    for child in _names(source, line, pairs.get("switches")):
        forest.put_switch(child, switch, line)
    for node in _names(source, line, pairs.get("nodes")):
        forest.put_node(node, switch, line)


class _Blocks:
    """Blocks and which nodes they hold; `of_node` in the form that `SwitchForest.insert_tier` takes."""

    def __init__(self, source: str) -> None:
        self._source = source
        self._defined: dict[str, int] = {}
        self.of_node: dict[str, tuple[str, ...]] = {}
        self.lines: dict[str, int] = {}

    def add(self, line: int, pairs: dict[str, str]) -> None:
        block = _name(self._source, line, pairs["blockname"])
        if block in self._defined:
            raise FileFormatError.at(
                self._source, line, f"block {block!r} is already defined in line {self._defined[block]}"
            )
        self._defined[block] = line
        for node in _names(self._source, line, pairs.get("nodes")):
            if node in self.lines:
                raise FileFormatError.at(
                    self._source,
                    line,
                    f"node {node!r} is put under {block!r}, but is already under {self.of_node[node][-1]!r} "
                    f"(line {self.lines[node]})",
                )
            self.of_node[node], self.lines[node] = (block,), line


def _check_block_sizes(source: str, line: int, sizes: str) -> None:
    if not re.fullmatch(r"[1-9]\d*(,[1-9]\d*)*", sizes, re.ASCII):
        raise FileFormatError.at(source, line, f"BlockSizes is {sizes!r}; expected whole numbers such as 18,36")


def _name(source: str, line: int, text: str) -> str:
    """Read one name."""
    names = _names(source, line, text)
    if names != [text]:
        raise FileFormatError.at(source, line, f"{text!r} is a list; expected one name")
    return text


def _names(source: str, line: int, expression: str | None) -> list[str]:
    """Expand a hostlist; nothing for an absent one."""
    if expression is None:
        return []
    try:
        return expand_hostlist(expression)
    except ValueError as error:
        raise FileFormatError.at(source, line, str(error)) from error
