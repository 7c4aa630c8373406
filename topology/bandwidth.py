"""Shares of the inter-node bandwidth that groups of nodes have between them, by the tiers that they span.

Two nodes have the fraction of their finest common tier (the core's where they share no unit). A collective is as fast
as its worst pair of nodes (Suika appendix A.2), so a group has the least fraction of its pairs.

`fractions[d]` is the fraction of two nodes with exactly d units in common, from the coarsest on; paths have
`len(fractions) - 1` units.
"""

from collections import Counter
from collections.abc import Sequence
from itertools import pairwise

from stowplan.living import found_once
from topology.cluster import Cluster

_Path = tuple[str, ...]


def fractions_of(cluster: Cluster) -> tuple[float, ...]:
    """Fractions by the number of common units: the core's, then those of the tiers."""
    return (cluster.core_bandwidth_fraction, *(tier.bandwidth_fraction for tier in cluster.tiers))


@found_once
def has_all_bandwidth(cluster: Cluster) -> bool:
    """Whether any nodes have all of the bandwidth between them, wherever they are."""
    return all(fraction == 1.0 for fraction in fractions_of(cluster))


def num_shared(a: _Path, b: _Path) -> int:
    """How many units two paths have in common, from the coarsest on."""
    count = 0
    for left, right in zip(a, b, strict=True):
        if left != right:
            break
        count += 1
    return count


def group_fraction(fractions: Sequence[float], paths: Sequence[_Path]) -> float:
    """Share of a group of different nodes with these paths; 1 for a single node, which needs no network."""
    if len(paths) < 2:
        return 1.0
    if len(set(fractions)) == 1:
        return fractions[0]
    # In sorted order, what any two have in common is the least that neighbours between them have.
    shared = {num_shared(a, b) for a, b in pairwise(sorted(paths))}
    return min(fractions[d] for d in shared)


def best_fractions(fractions: Sequence[float], paths: Sequence[_Path]) -> list[float]:
    """The largest share that any n of the nodes with these paths can have, for n = 1, 2, ... all of them."""
    best = [0.0] * len(paths)
    # Fewer nodes can have at least as much; a larger share overwrites a smaller one.
    for least in sorted(set(fractions)):
        room = _most_nodes(fractions, paths, least)
        best[:room] = [least] * room
    best[:1] = [1.0] * len(best[:1])
    return best


def _most_nodes(fractions: Sequence[float], paths: Sequence[_Path], least: float) -> int:
    """The most nodes of which any two have at least the share `least`.

    From the finest tier up: a unit whose pairs have it holds what its sub-units hold together, another one what the
    best of them holds.
    """
    num_tiers = len(fractions) - 1
    units = {path: count if fractions[-1] >= least else 1 for path, count in Counter(paths).items()}
    for depth in reversed(range(num_tiers)):
        coarser: dict[_Path, int] = {}
        for path, count in units.items():
            known = coarser.get(path[:depth], 0)
            coarser[path[:depth]] = known + count if fractions[depth] >= least else max(known, count)
        units = coarser
    return max(units.values(), default=0)
