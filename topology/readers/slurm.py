"""Slurm's topology.conf: trees of switches, blocks, or both.

    SwitchName=s1 Nodes=n[001-016,20]        SwitchName=core Switches=s[1-4] LinkSpeed=100
    BlockName=b1 Nodes=n[001-018]            BlockSizes=18,36

Keywords in any case, `#` starts a comment, a backslash at the end of a line continues it. Several roots are fine.
The tiers of switches are called `switch-1` (coarsest), `switch-2`, ...; blocks form the tier `block`. Where a file
has both, blocks are inserted among the switches as fine as they nest (`SwitchForest.insert_tier`).

The same as topology.yaml (Slurm 25.05): `topology.readers.slurm_yaml`. LinkSpeed is ignored, as by Slurm. BlockSizes
and blocks without nodes (placeholders) say how Slurm plans, not how the fabric is built, and make no tier.
"""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from stowplan.errors import FileFormatError
from stowplan.files import read_text
from topology.cluster import Cluster
from topology.readers.base import NodeDefaults, build_cluster, nodes_from_paths
from topology.readers.slurm_fabric import Fabric, FabricBuilder
from topology.readers.slurm_yaml import yaml_fabric

# First keyword of a line -> the keywords that may accompany it.
_KEYWORDS: Mapping[str, frozenset[str]] = {
    "switchname": frozenset({"switches", "nodes", "linkspeed"}),
    "blockname": frozenset({"nodes"}),
    "blocksizes": frozenset(),
}
_PAIR = re.compile(r"\s*([A-Za-z]+)\s*=\s*(?:\"([^\"]*)\"|(\S+))(?=\s|$)")
_COMMENT = re.compile(r"(?<!\\)#.*")
_YAML = re.compile(r"^\s*-\s+topology\s*:", re.MULTILINE)


def read_slurm(path: Path, defaults: NodeDefaults, *, minipod_tier: str | None = None) -> Cluster:
    """Read a cluster from a topology.conf or a topology.yaml.

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
    fabric = slurm_fabric(read_text(path), str(path))
    if fabric.is_flat:
        raise FileFormatError.at(str(path), None, "describes a flat topology, which lists no nodes; give --nodes")
    return build_cluster(nodes_from_paths(fabric.paths, defaults), fabric.tiers, defaults, minipod_tier)


def slurm_fabric(text: str, source: str, chosen: str | None = None) -> Fabric:
    """Read switches and blocks; `chosen` as in `yaml_fabric`.

    Raises
    ------
    FileFormatError
        Names file, line and what is wrong.
    """
    if Path(source).suffix.lower() in (".yaml", ".yml") or _YAML.search(text):
        return yaml_fabric(text, source, chosen)
    if chosen is not None:
        raise FileFormatError.at(
            source, None, f"is a topology.conf, which has one topology, and none called {chosen!r}"
        )
    builder = FabricBuilder(source)
    for line, logical in _logical_lines(text):
        pairs = _pairs(source, line, logical)
        if "switchname" in pairs:
            builder.add_switch(pairs["switchname"], line, pairs.get("switches"), pairs.get("nodes"))
        elif "blockname" in pairs:
            builder.add_block(pairs["blockname"], line, pairs.get("nodes"))
        else:
            _check_block_sizes(source, line, pairs["blocksizes"])
    return builder.fabric()


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


def _check_block_sizes(source: str, line: int, sizes: str) -> None:
    if not re.fullmatch(r"[1-9]\d*(,[1-9]\d*)*", sizes, re.ASCII):
        raise FileFormatError.at(source, line, f"BlockSizes is {sizes!r}; expected whole numbers such as 18,36")
