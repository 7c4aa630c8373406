"""What Slurm's topology files describe, whichever way they are written: switches, blocks, or both."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from stowplan.errors import FileFormatError
from topology.readers.hostlist import expand_hostlist
from topology.readers.tree import Paths, SwitchForest


@dataclass(frozen=True, slots=True, kw_only=True)
class Fabric:
    """Tiers, coarsest first, and the unit of each tier above every node. is_flat: nodes are below nothing, and are not
    listed."""

    tiers: tuple[str, ...] = ()
    paths: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    is_flat: bool = False


class FabricBuilder:
    """Takes switches and blocks as a file lists them; lines are 1-based lines of `source`."""

    def __init__(self, source: str) -> None:
        self._source = source
        self._forest = SwitchForest(source)
        self._blocks: dict[str, int] = {}
        self._block_of: dict[str, tuple[str, ...]] = {}
        self._block_lines: dict[str, int] = {}

    def add_switch(self, name: str, line: int, switches: str | None, nodes: str | None) -> None:
        """Add a switch with what is below it, as hostlists."""
        switch = self._name(line, name)
        self._forest.define(switch, line)
        if switches is None and nodes is None:
            raise FileFormatError.at(self._source, line, f"switch {switch!r} has neither Switches= nor Nodes=")
        for child in self._names(line, switches):
            self._forest.put_switch(child, switch, line)
        for node in self._names(line, nodes):
            self._forest.put_node(node, switch, line)

    def add_block(self, name: str, line: int, nodes: str | None) -> None:
        """Add a block with its nodes, as a hostlist; None for a placeholder."""
        block = self._name(line, name)
        if block in self._blocks:
            raise FileFormatError.at(
                self._source, line, f"block {block!r} is already defined in line {self._blocks[block]}"
            )
        self._blocks[block] = line
        for node in self._names(line, nodes):
            if node in self._block_lines:
                raise FileFormatError.at(
                    self._source,
                    line,
                    f"node {node!r} is put under {block!r}, but is already under {self._block_of[node][-1]!r} "
                    f"(line {self._block_lines[node]})",
                )
            self._block_of[node], self._block_lines[node] = (block,), line

    def fabric(self) -> Fabric:
        """All of it; blocks are inserted among the switches as fine as they nest."""
        forest = self._forest
        for node, line in self._block_lines.items():
            if node not in forest:
                forest.put_node(node, None, line)
        forest.require_switches(listed_is_enough=False)
        paths: Paths = forest.paths()
        tiers = [f"switch-{k + 1}" for k in range(len(next(iter(paths.values()))))]
        if self._block_of:
            paths, position = forest.insert_tier(paths, self._block_of, "block")
            tiers.insert(position, "block")
        return Fabric(tiers=tuple(tiers), paths=paths)

    def _name(self, line: int, text: str) -> str:
        """Read one name."""
        names = self._names(line, text)
        if names != [text]:
            raise FileFormatError.at(self._source, line, f"{text!r} is a list; expected one name")
        return text

    def _names(self, line: int, expression: str | None) -> list[str]:
        """Expand a hostlist; nothing for an absent one."""
        if expression is None:
            return []
        try:
            return expand_hostlist(expression)
        except ValueError as error:
            raise FileFormatError.at(self._source, line, str(error)) from error
