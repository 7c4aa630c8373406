"""Spreads of all tiers together against brute force and the declared program at gap 0, and its parts by hand."""

import functools
import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations_with_replacement

import numpy as np
import pytest

from models.placement.arnold.exact.bins import SearchLimitError
from models.placement.arnold.tiers import by_spreads, inside
from models.placement.arnold.tiers.by_spreads import Found, search_by_spreads
from models.placement.arnold.tiers.inside import Fewest, held_by_number
from models.placement.arnold.tiers.instance import TierInstance, WeightedTier
from models.placement.arnold.tiers.model import tier_model
from models.placement.arnold.tiers.partition import Components, components
from models.placement.arnold.tiers.rows import BinKind, RowSearch
from models.placement.arnold.tiers.tree import UnitTree
from solver.compilers.pyomo import compile_pyomo
from solver.options import SolveOptions
from solver.result import TerminationReason
from solver.solve import solve
from tests.models.placement.arnold.exact.scenes import best_tiers, fits, seeded
from tests.models.placement.arnold.tiers.test_search import CASES


def three_tiers(rng: np.random.Generator) -> TierInstance:
    """Leaves of up to 4 nodes in 1 to 3 minipods of each of 1 to 3 pods."""
    units = [
        (pod, (pod, minipod))
        for pod in range(int(rng.integers(1, 4)))
        for minipod in range(int(rng.integers(1, 4)))
        for _ in range(int(rng.integers(1, 5)))
    ]
    free = rng.choice([0, 1, 2, 3, 4, 4, 4], len(units)).astype(np.int64)
    number = {minipod: k for k, minipod in enumerate(dict.fromkeys(minipod for _, minipod in units))}
    weights = rng.choice([0.5, 1, 2], 3).tolist()
    size = int(rng.integers(1, max(2, min(9, int(free.sum())))))
    alpha = float(rng.choice([0, 0.1, 0.3, 0.5, 0.7, 0.9, 1]))
    return TierInstance(
        num_groups=max(1, int(free.sum() * rng.uniform(0.4, 1)) // size),
        group_size=size,
        free_nodes=free,
        tiers=(
            WeightedTier(name="pod", weight=weights[0], unit=np.array([pod for pod, _ in units])),
            WeightedTier(name="minipod", weight=weights[1], unit=np.array([number[minipod] for _, minipod in units])),
            WeightedTier(name="leaf", weight=weights[2], unit=np.arange(free.size)),
        ),
        minipod_weight=alpha,
        spread_weight=1 - alpha,
    )


def found_value(data: TierInstance, found: Found) -> float:
    """Objective of what was found, inf where nothing was; it must be a solution."""
    if found.counts is None:
        return math.inf
    assert (found.counts.sum(axis=1) == data.group_size).all()
    assert (found.counts.sum(axis=0) <= data.free_nodes).all()
    assert (found.counts >= 0).all()
    return data.objective(found.counts)


def test_small_trees_are_found_and_proven_without_a_start() -> None:
    for data in CASES[:150]:
        found = search_by_spreads(data, math.inf)
        assert found_value(data, found) == pytest.approx(best_tiers(data)), data
        assert found.bound == pytest.approx(best_tiers(data)), data


def _agrees_with_the_program(data: TierInstance) -> bool:
    """Whether all was proven."""
    found = search_by_spreads(data, math.inf)
    result = solve(compile_pyomo(tier_model(data)).problem, SolveOptions(solver="highs", relative_gap=0.0))
    assert result.termination is TerminationReason.OPTIMAL
    assert result.objective is not None
    value = found_value(data, found)
    assert found.bound <= result.objective + 1e-6, data
    assert value >= result.objective - 1e-6, data
    return value <= found.bound + 1e-6


PROGRAMS = [
    data for rng in seeded(18, 200) if (data := three_tiers(rng)).has_room and data.num_groups * data.num_bins <= 40
]


def test_three_tiers_agree_with_the_program() -> None:
    assert all(_agrees_with_the_program(data) for data in PROGRAMS if data.num_groups * data.num_bins <= 12)


def test_bins_may_be_finer_than_all_weighted_tiers() -> None:
    """Minipods of which only the units above have a weight: what a unit holds is dealt to its minipods."""
    for data in (replace(data, tiers=data.tiers[:-1]) for data in CASES[:100]):
        found = search_by_spreads(data, math.inf)
        assert found_value(data, found) == pytest.approx(best_tiers(data)), data
        assert found.bound == pytest.approx(best_tiers(data)), data
    small = (data for data in PROGRAMS if data.num_groups * data.num_bins <= 12)
    assert all(_agrees_with_the_program(replace(data, tiers=data.tiers[:-1])) for data in small)


@pytest.mark.slow
def test_many_trees_of_three_tiers_agree_with_the_program() -> None:
    assert len(PROGRAMS) > 60
    assert sum([_agrees_with_the_program(data) for data in PROGRAMS]) >= 0.95 * len(PROGRAMS)


def test_nothing_is_said_of_what_is_known_to_be_best() -> None:
    for data in CASES[:50]:
        found = search_by_spreads(data, best_tiers(data))
        assert found.counts is None
        assert found.bound == pytest.approx(best_tiers(data))


def test_what_is_stopped_or_too_large_keeps_its_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    data = CASES[0]
    stopped = search_by_spreads(data, math.inf, lambda: True)
    assert stopped.counts is None
    assert -math.inf < stopped.bound <= best_tiers(data) + 1e-9
    monkeypatch.setattr(by_spreads, "_MOST_COUNTS", 1)
    assert search_by_spreads(data, math.inf) == Found(counts=None, bound=-math.inf)


def test_wherever_the_clock_ends_it_bounds_hold_and_between_two_asks_little_is_done(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """At most one placement inside a unit is begun, and one partition tried; after the end it is asked once more."""
    begun = tried = asks = 0
    first = inside.Inside.__init__

    def beginning(self: inside.Inside) -> None:
        nonlocal begun
        begun += 1
        first(self)

    def trying(free: Sequence[int], size: int, num_groups: int, spread: int, max_steps: int) -> Components | None:
        nonlocal tried
        tried += 1
        return components(free, size, num_groups, spread, max_steps)

    def ends_after(most: float) -> bool:
        nonlocal begun, tried, asks
        assert begun <= 1
        assert tried <= 1
        begun, tried, asks = 0, 0, asks + 1
        return asks > most

    monkeypatch.setattr(inside.Inside, "__init__", beginning)
    monkeypatch.setattr(inside, "components", trying)
    longest = 0
    for data in PROGRAMS[:8]:
        asks = 0
        whole = search_by_spreads(data, math.inf, lambda: ends_after(math.inf))
        value, longest = found_value(data, whole), max(longest, asks)
        assert whole.bound == pytest.approx(value)
        for most in range(asks):
            begun = tried = asks = 0
            found = search_by_spreads(data, math.inf, functools.partial(ends_after, most))
            assert 0 <= found.bound <= value + 1e-9 <= found_value(data, found) + 2e-9
            assert asks <= most + 2
    assert longest > 40


def test_without_steps_bounds_hold(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever search ends early leaves a cost open, and never raises a bound."""
    for limit in ("_PARTITION_STEPS", "_ALL_ROW_STEPS", "_MOST_SETS"):
        monkeypatch.setattr(inside, limit, 1)
    num_open = 0
    for data in CASES[:100]:
        found = search_by_spreads(data, math.inf)
        assert found.bound <= best_tiers(data) + 1e-9 <= found_value(data, found) + 2e-9
        num_open += found.bound < found_value(data, found) - 1e-9
    assert num_open > 0


def test_components_are_split_as_brute_force_says() -> None:
    """The fewest of all units: `components` may say no only where fewer do, or none do."""
    fewest = Fewest(4)
    for number in range(1, 6):
        for free in combinations_with_replacement((5, 4, 3, 1), number):
            for num_groups, spread in ((1, 2), (2, 2), (2, 3), (3, 2)):
                expected = next((k for k in range(1, number + 1) if fits(free[:k], 4, num_groups, spread)), math.inf)
                assert fewest.at_least(free, num_groups, spread) == expected, (free, num_groups, spread)


def test_components_have_the_units_and_nodes_that_they_need() -> None:
    """Two groups of 38 on five leaves each: 8 8 8 8 6 and 8 8 8 8 8; with a leaf of 5 for the 6 there are none."""
    found = components((8, 8, 8, 8, 8, 8, 8, 8, 8, 6), 38, 2, 5, 1_000)
    assert found is not None
    assert sorted(k for part in found for k in part) == list(range(10))
    assert [len(part) for part in found] == [5, 5]
    assert components((8, 8, 8, 8, 8, 8, 8, 8, 8, 5), 38, 2, 5, 1_000) is None
    with pytest.raises(SearchLimitError):
        components((8, 8, 8, 8, 8, 8, 8, 8, 8, 5), 38, 2, 5, 0)


def test_a_row_shares_a_bin_between_neighbours() -> None:
    """Three groups of 4 on two bins each: 3 | 1 2 ... in one minipod, whose second bin two groups share."""
    kinds = [BinKind(units=(0,), free=3, bins=(7, 8)), BinKind(units=(1,), free=6, bins=(9,))]
    row = RowSearch(kinds, 4, (2, 2), 1_000).find(3, 3)
    assert row is not None
    assert [sum(group.values()) for group in row] == [4, 4, 4]
    assert {k: sum(group.get(k, 0) for group in row) for k in (7, 8, 9)} == {7: 3, 8: 3, 9: 6}
    assert RowSearch(kinds, 4, (1, 2), 1_000).find(3, 3) is None
    assert RowSearch(kinds, 4, (2, 1), 1_000).find(3, 3) is None
    assert RowSearch(kinds, 4, (2, 2), 1_000).find(3, 2) is None


def test_units_hold_most_where_they_are_inside_one_another() -> None:
    """One minipod with leaves of 4 and 2, another with 3 and 3: two leaves hold 6 in one minipod, 7 in two."""
    data = TierInstance(
        num_groups=1,
        group_size=1,
        free_nodes=np.array([4, 2, 3, 3]),
        tiers=(
            WeightedTier(name="minipod", weight=1.0, unit=np.array([0, 0, 1, 1])),
            WeightedTier(name="leaf", weight=1.0, unit=np.arange(4)),
        ),
        minipod_weight=0.5,
        spread_weight=0.5,
    )
    held = held_by_number(UnitTree(data), 0, 0)
    assert held[1, 1:3].tolist() == [4, 6]
    assert held[2, 2:5].tolist() == [7, 10, 12]
    assert held[0, 0] == 0
    assert (held[0, 1:] < 0).all()


def test_the_work_does_not_grow_faster_than_the_tree(monkeypatch: pytest.MonkeyPatch) -> None:
    """Twice the pods and groups: at most 2.3 times the placements inside units that are looked at."""
    made: list[int] = []
    for num_pods in (8, 16):
        data = TierInstance(
            num_groups=5 * num_pods,
            group_size=5,
            free_nodes=np.full(4 * num_pods, 8),
            tiers=(
                WeightedTier(name="pod", weight=1.0, unit=np.repeat(np.arange(num_pods), 4)),
                WeightedTier(name="leaf", weight=1.0, unit=np.arange(4 * num_pods)),
            ),
            minipod_weight=0.1,
            spread_weight=0.9,
        )
        count = 0
        first = inside.Inside.__init__

        def counted(self: inside.Inside, first: object = first) -> None:
            nonlocal count
            count += 1
            first(self)  # type: ignore[operator]

        with monkeypatch.context() as patch:
            patch.setattr(inside.Inside, "__init__", counted)
            search_by_spreads(data, math.inf)
        made.append(count)
    assert 0 < made[1] <= 2.3 * made[0]
