"""Shares of the inter-node bandwidth, by hand and against trying all sets of nodes."""

from dataclasses import replace
from itertools import combinations
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.growth import work
from tests.models.placement.scenes import cluster, node
from topology.bandwidth import best_fractions, group_fraction, has_all_bandwidth
from topology.cluster import Tier

# pod p: racks r (x x) and s (x); pod q: rack r (x x). Cores have 0.1, pods 0.5, racks 0.8 of the bandwidth.
FRACTIONS = (0.1, 0.5, 0.8)
PATHS = (("p", "r"), ("p", "r"), ("p", "s"), ("q", "r"), ("q", "r"))


def test_a_group_has_the_share_of_its_worst_pair() -> None:
    assert group_fraction(FRACTIONS, PATHS[:1]) == 1.0
    assert group_fraction(FRACTIONS, PATHS[:2]) == 0.8
    assert group_fraction(FRACTIONS, PATHS[:3]) == 0.5
    # Both racks are called r, but they are two.
    assert group_fraction(FRACTIONS, (PATHS[0], PATHS[4])) == 0.1
    assert group_fraction((0.3,), ((), ())) == 0.3


def test_nodes_have_all_bandwidth_where_the_core_and_every_tier_has() -> None:
    one = cluster(node("n"))
    assert has_all_bandwidth(one)
    assert not has_all_bandwidth(replace(one, core_bandwidth_fraction=0.5))
    tiers = tuple(Tier(name=name, bandwidth_fraction=fraction) for name, fraction in (("pod", 1.0), ("rack", 0.5)))
    nodes = tuple(replace(each, path=("p", "r")) for each in one.nodes)
    assert not has_all_bandwidth(replace(one, tiers=tiers, nodes=nodes))
    assert has_all_bandwidth(replace(one, tiers=tiers[:1], nodes=tuple(replace(each, path=("p",)) for each in nodes)))


def test_the_least_spread_of_so_many_nodes() -> None:
    """Two fit into a rack, three into pod p, four span the pods."""
    assert best_fractions(FRACTIONS, PATHS) == [1.0, 0.8, 0.5, 0.1, 0.1]


@pytest.mark.parametrize(("racks", "best"), [(0.1, [1.0, 0.5, 0.1]), (0.5, [1.0, 0.5, 0.5])])
def test_a_tier_may_be_slower_than_the_one_above_it(racks: float, best: list[float]) -> None:
    """One node of each rack is better than two of one, where racks are slow."""
    assert best_fractions((0.5, racks), (("r",), ("r",), ("s",))) == best


def test_without_nodes_there_is_nothing_to_share() -> None:
    assert best_fractions((1.0,), ()) == []


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 2**32 - 1))
def test_shares_are_those_of_all_pairs_and_of_all_sets(seed: int) -> None:
    rng = Random(seed)  # noqa: S311 - reproducible instances, no secret
    num_tiers = rng.randint(0, 3)
    fractions = [rng.choice((0.1, 0.2, 0.5, 1.0)) for _ in range(num_tiers + 1)]
    paths = [tuple(rng.choice("ab") for _ in range(num_tiers)) for _ in range(rng.randint(1, 6))]

    def share(chosen: tuple[tuple[str, ...], ...]) -> float:
        pairs = [next((d for d in range(num_tiers) if a[d] != b[d]), num_tiers) for a, b in combinations(chosen, 2)]
        return min((fractions[d] for d in pairs), default=1.0)

    assert group_fraction(fractions, paths) == share(tuple(paths))
    tried = [max(share(chosen) for chosen in combinations(paths, n)) for n in range(1, len(paths) + 1)]
    assert best_fractions(fractions, paths) == tried


def test_the_work_grows_with_the_nodes() -> None:
    def cost(num_nodes: int) -> int:
        paths = [(f"p{k // 64}", f"r{k // 8}") for k in range(num_nodes)]
        return work(lambda: best_fractions(FRACTIONS, paths)) + work(lambda: group_fraction(FRACTIONS, paths))

    assert cost(2000) <= 2.3 * cost(1000)
