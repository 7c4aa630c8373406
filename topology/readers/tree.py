"""A forest of switches with nodes below, as files describe it: every fault is reported with its line."""

from collections import Counter
from collections.abc import Callable, Mapping
from graphlib import CycleError, TopologicalSorter

from stowplan.errors import FileFormatError

Paths = dict[str, tuple[str, ...]]
Fault = Callable[[str | None, str], FileFormatError]
"""(node, None for all of them; what is wrong) -> the error, with the place of the node."""


class SwitchForest:
    """Switches, who lists whom, and which nodes sit where; lines are 1-based lines of `source`."""

    def __init__(self, source: str) -> None:
        self._source = source
        self._defined: dict[str, int] = {}
        self._parent: dict[str, tuple[str, int]] = {}
        self._home: dict[str, tuple[str | None, int]] = {}

    def define(self, switch: str, line: int) -> None:
        """Define a switch. Refuses a second definition."""
        if switch in self._defined:
            raise self._error(line, f"switch {switch!r} is already defined in line {self._defined[switch]}")
        self._defined[switch] = line

    def put_switch(self, child: str, parent: str, line: int) -> None:
        """Put one switch below another. Refuses a second parent."""
        if child in self._parent:
            other, where = self._parent[child]
            raise self._error(
                line, f"switch {child!r} is put under {parent!r}, but is already under {other!r} (line {where})"
            )
        self._parent[child] = (parent, line)

    def put_node(self, node: str, switch: str | None, line: int) -> None:
        """Put a node below a switch (None: below no switch). Refuses a second parent."""
        if node in self._home:
            other, where = self._home[node]
            raise self._error(
                line,
                f"node {node!r} is put under {_named(switch)}, but is already under {_named(other)} (line {where})",
            )
        self._home[node] = (switch, line)

    def __contains__(self, node: str) -> bool:
        """Whether the node has a place."""
        return node in self._home

    def require_switches(self, *, listed_is_enough: bool) -> None:
        """Refuse switches that are used but never defined (nor listed below another, where that is enough)."""
        used = [(switch, line, "nodes are put under") for switch, line in self._home.values() if switch is not None]
        if not listed_is_enough:
            used += [(child, line, f"switch {parent!r} lists") for child, (parent, line) in self._parent.items()]
        for switch, line, who in used:
            if switch not in self._defined and not (listed_is_enough and switch in self._parent):
                raise self._error(line, f"unknown switch: {who} {switch!r}, which the file does not define")

    def paths(self) -> Paths:
        """Switches above each node, coarsest first, nodes in the order of the file.

        Raises
        ------
        FileFormatError
            When there are no nodes, switches form a cycle, or nodes sit at different depths.
        """
        above = self._switch_paths()
        paths: Paths = {node: () if switch is None else above[switch] for node, (switch, _) in self._home.items()}
        if not paths:
            raise self._error(None, "there are no nodes in the file")
        refuse_uneven(paths, self._fault_of)
        return paths

    def insert_tier(self, paths: Paths, group_of: Mapping[str, tuple[str, ...]], what: str) -> tuple[Paths, int]:
        """Insert a grouping of the nodes as a tier, as fine as it nests; see `insert_tier`."""
        return insert_tier(paths, group_of, what, self._fault_of)

    def _switch_paths(self) -> Paths:
        graph = dict.fromkeys(self._defined, ()) | {child: (parent,) for child, (parent, _) in self._parent.items()}
        try:
            parents_first = list(TopologicalSorter(graph).static_order())
        except CycleError as error:
            cycle: list[str] = error.args[1]
            line = self._parent[cycle[1]][1]
            raise self._error(line, f"switches form a cycle: {' > '.join(cycle)}") from error
        above: Paths = {}
        for switch in parents_first:
            parent = self._parent.get(switch)
            above[switch] = (*above[parent[0]], switch) if parent else (switch,)
        return above

    def _fault_of(self, node: str | None, detail: str) -> FileFormatError:
        return self._error(None if node is None else self._home[node][1], detail)

    def _error(self, line: int | None, detail: str) -> FileFormatError:
        return FileFormatError.at(self._source, line, detail)


def insert_tier(paths: Paths, group_of: Mapping[str, tuple[str, ...]], what: str, fault: Fault) -> tuple[Paths, int]:
    """Insert a grouping of the nodes as a tier, as fine as it nests.

    Groups (accelerator domains, blocks) are stated beside the switches, not in the tree. A grouping becomes a
    tier below the finest tier whose units hold every group whole; all finer units must lie inside one group.
    Nodes without a group are alone in theirs.

    Parameters
    ----------
    paths
        Path of each node, all of one length.
    group_of
        Group of each node; a key may have several parts, the last one names the unit.
    what
        The word for a group in errors.
    fault
        The error for a node.

    Returns
    -------
    The extended paths and the position of the new tier.

    Raises
    ------
    FileFormatError
        When the grouping cuts across the units.
    """
    groups = {node: group_of.get(node, ("", node)) for node in paths}
    num_groups = len(set(groups.values()))
    depth = len(next(iter(paths.values())))
    position = next(
        k for k in range(depth, -1, -1) if len({(groups[node], paths[node][:k]) for node in paths}) == num_groups
    )
    seen: dict[tuple[str, ...], str] = {}
    for node, path in paths.items() if position < depth else ():
        unit = path[: position + 1]
        other = seen.setdefault(unit, node)
        if groups[other] != groups[node]:
            here, there = (
                f"{one!r} is in {what} {group_of[one][-1]!r}" if one in group_of else f"{one!r} is in no {what}"
                for one in (other, node)
            )
            raise fault(
                node,
                f"{what}s cut across the tree: {here} and {there}, both in unit {'/'.join(unit)!r}, while some "
                f"{what} reaches beyond such a unit; put each {what} inside one unit or make it of whole units",
            )
    extended = {node: (*path[:position], groups[node][-1], *path[position:]) for node, path in paths.items()}
    if len({path[: position + 1] for path in extended.values()}) < num_groups:
        raise fault(None, f"a {what} is called like a node that is in no {what}; rename it")
    return extended, position


def refuse_uneven(paths: Paths, fault: Fault) -> None:
    """Refuse nodes at different depths.

    Raises
    ------
    FileFormatError
        Names the first node that is not as deep as most.
    """
    usual = Counter(len(path) for path in paths.values()).most_common(1)[0][0]
    model = next(node for node, path in paths.items() if len(path) == usual)
    for node, path in paths.items():
        if len(path) != usual:
            raise fault(
                node,
                f"node {node!r} sits below {len(path)} switches ({_chain(path)}), but {model!r} and most others "
                f"below {usual} ({_chain(paths[model])}); all nodes must sit at the same depth",
            )


def _named(switch: str | None) -> str:
    return "no switch" if switch is None else repr(switch)


def _chain(path: tuple[str, ...]) -> str:
    return " > ".join(path) or "none"
