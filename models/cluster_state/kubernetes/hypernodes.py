"""HyperNodes of Volcano: a tree whose tier 1 is the finest; members are nodes, or hypernodes of lower tiers."""

import re
from collections.abc import Mapping, Sequence

from models.cluster_state.kubernetes.objects import Object

MAX_TIERS = 16

Tree = tuple[Mapping[str, str], Mapping[str, str]]
"""Node -> the hypernode that has it, hypernode -> the one above it."""


def hypernode_units(
    nodes: Sequence[Object], hypernodes: Sequence[Object]
) -> tuple[tuple[str, ...], dict[str, tuple[str, ...]]]:
    """Tiers, coarsest first, and node -> its unit of each. Where a branch skips a tier, the unit below it counts.

    Raises
    ------
    FileFormatError
        When a node is in no hypernode, something is in two, or tiers do not fall; names the place.
    """
    known = {found.name: found for found in hypernodes}
    tiers = {found.name: _tier(found) for found in hypernodes}
    of_node, parent = _tree(nodes, hypernodes)
    for below, above in parent.items():
        if below in tiers and tiers[above] <= tiers[below]:
            detail = f"is {tiers[above]}, of {above!r}, which has {below!r} of tier {tiers[below]}; must be above it"
            raise known[above].fault(detail, "spec", "tier")
    depth = max(tiers.values())
    paths = {}
    for node in nodes:
        unit = of_node.get(node.name)
        if unit is None:
            detail = f"node {node.name!r} is in no hypernode of {hypernodes[0].document.name}"
            raise node.fault(detail, "metadata", "name")
        by_tier = {}
        while unit is not None:
            by_tier[tiers[unit]] = unit
            unit = parent.get(unit)
        paths[node.name] = _path(by_tier, depth)
    return tuple(f"tier-{depth - k}" for k in range(depth)), paths


def _path(by_tier: Mapping[int, str], depth: int) -> tuple[str, ...]:
    """Units from the coarsest tier to the finest."""
    path: list[str] = []
    lowest = by_tier[min(by_tier)]
    for tier in range(depth, 0, -1):
        below = [by_tier[other] for other in range(tier, 0, -1) if other in by_tier]
        path.append(below[0] if below else lowest)
    return tuple(path)


def _tree(nodes: Sequence[Object], hypernodes: Sequence[Object]) -> Tree:
    labels = {node.name: node.object("metadata").texts("labels") for node in nodes}
    names: dict[str, Mapping[str, str]] = {found.name: {} for found in hypernodes}
    of_node: dict[str, str] = {}
    parent: dict[str, str] = {}
    for found in hypernodes:
        for member in found.object("spec").objects("members"):
            kind = member.text("type")
            if kind not in ("Node", "HyperNode"):
                raise member.fault(f"is {kind!r}; must be Node or HyperNode", "type")
            above, candidates = (of_node, labels) if kind == "Node" else (parent, names)
            for name in _members(member, candidates):
                if above.setdefault(name, found.name) != found.name:
                    raise member.fault(f"has {name!r}, which {above[name]!r} has, too", "selector")
    return of_node, parent


def _tier(hypernode: Object) -> int:
    tier = hypernode.object("spec").number("tier")
    if tier is None or not 1 <= tier <= MAX_TIERS or tier != int(tier):
        raise hypernode.fault(f"is {tier}; must be a whole number from 1 to {MAX_TIERS}", "spec", "tier")
    return int(tier)


def _members(member: Object, candidates: Mapping[str, Mapping[str, str]]) -> list[str]:
    """Names that the selector of a member means."""
    selector = member.object("selector")
    exact = selector.object("exactMatch").text("name")
    if exact:
        return [exact]
    pattern = selector.object("regexMatch").text("pattern")
    if pattern:
        try:
            compiled = re.compile(pattern)
        except re.error as error:
            raise selector.fault(f"is {pattern!r}, no regular expression: {error}", "regexMatch", "pattern") from error
        return [name for name in candidates if compiled.fullmatch(name)]
    wanted = selector.object("labelMatch").texts("matchLabels")
    if not wanted:
        raise member.fault("has neither exactMatch nor regexMatch nor labelMatch with matchLabels", "selector")
    return [name for name, labels in candidates.items() if wanted.items() <= labels.items()]
