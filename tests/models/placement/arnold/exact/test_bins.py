"""Groups on at most two minipods each, as items in bins: against brute force, and by hand."""

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from models.placement.arnold.exact import two_each
from models.placement.arnold.exact.bin_flow import bin_flow
from models.placement.arnold.exact.bins import Bins, RoundedBound, SearchLimitError, exchanged, searched
from models.placement.arnold.exact.packing import pack
from models.placement.arnold.exact.two_each import FewestMinipods, in_pairs
from models.placement.arnold.labels import max_spread
from solver.options import SolveOptions
from solver.solve import solve
from tests.models.placement.arnold.exact.scenes import budget, fits, seeded

# Where half of the items are larger than half a bin; two of a bin and a half make room for others.
WEIGHTS = st.lists(st.integers(-6, 12).filter(bool), min_size=1, max_size=7)
CAPACITY = 12


def fewest_bins(weights: Sequence[int]) -> int:
    """By trying every bin for every item. Shares no code with what it judges."""
    best = len(weights)

    def place(k: int, loads: list[int]) -> None:
        nonlocal best
        if k == len(weights):
            # A bin may be too full until an item that makes room comes.
            if all(load <= CAPACITY for load in loads):
                best = min(best, len(loads))
            return
        for b in range(len(loads)):
            place(k + 1, [load + weights[k] * (b == j) for j, load in enumerate(loads)])
        if len(loads) + 1 < best:
            place(k + 1, [*loads, weights[k]])

    place(0, [])
    return best


def bound(weights: Sequence[int]) -> int:
    return RoundedBound(np.array(weights), CAPACITY).of(np.array(weights))


def assert_in_bins(bins: Bins, weights: Sequence[int], num_bins: int) -> None:
    assert len(bins) <= num_bins
    assert sorted(i for members in bins for i in members) == list(range(len(weights)))
    assert all(sum(weights[i] for i in members) <= CAPACITY for members in bins)


@given(WEIGHTS)
@settings(max_examples=150, deadline=None)
def test_the_search_finds_the_fewest_bins_and_bounds_never_say_more(weights: list[int]) -> None:
    fewest = fewest_bins(weights)
    assert bound(weights) <= fewest
    assert RoundedBound(np.array(weights), CAPACITY).again(np.array(weights)) <= fewest
    found = searched(weights, CAPACITY, fewest, 10_000)
    assert found is not None
    assert_in_bins(found, weights, fewest)
    assert searched(weights, CAPACITY, fewest - 1, 10_000) is None
    assert exchanged(weights, CAPACITY, fewest - 1, num_steps=20) is None
    traded = exchanged(weights, CAPACITY, fewest + 1, num_steps=300)
    assert traded is not None
    assert_in_bins(traded, weights, fewest + 1)


@given(WEIGHTS)
@settings(max_examples=12, deadline=None)
def test_the_flow_finds_the_fewest_bins_and_its_relaxation_is_a_bound(weights: list[int]) -> None:
    fewest = fewest_bins(weights)
    relaxed, flow = (bin_flow(weights, CAPACITY, 10_000, integral=integral) for integral in (False, True))
    assert relaxed is not None
    assert flow is not None
    bound, result = (solve(it.problem, SolveOptions(relative_gap=0.0)) for it in (relaxed, flow))
    assert bound.objective is not None
    assert bound.objective <= fewest + 1e-6
    assert result.objective is not None
    assert max(1, round(result.objective)) == fewest
    assert result.incumbent is not None
    assert_in_bins(flow.bins(weights, np.rint(result.incumbent).astype(np.int64)), weights, fewest)


def test_trades_fill_bins_to_the_last() -> None:
    """Forty bins that three random items each fill exactly: best fit leaves some too full, trades mend them all."""
    rng = np.random.default_rng(7)
    cuts = np.sort(rng.integers(1, 58, (40, 2)), axis=1)
    weights = np.diff(cuts, axis=1, prepend=0, append=58).ravel().tolist()
    bins = exchanged(weights, 58, 40, num_steps=2_000)
    assert bins is not None
    assert {sum(weights[i] for i in members) for members in bins} == {58}
    assert exchanged(weights, 58, 39, num_steps=2_000) is None
    assert exchanged(weights, 58, 0, num_steps=1) is None


def test_large_items_with_little_to_make_room_are_bounded_by_rounding() -> None:
    """Of five items above half a bin two share one where the sixth makes room: four bins."""
    assert bound([7, 7, 7, 7, 7, -2]) == 4
    assert fewest_bins([7, 7, 7, 7, 7, -2]) == 4


def test_items_of_which_no_two_share_a_bin_are_told_by_what_rounding_leaves_over() -> None:
    """At t = 1/5 with r = 2/5: F(5) = 1, F(8) = 1 + 1/3 and F(11) = 2 in bins of F(12) = 2; floors alone say two."""
    assert bound([8, 5, 11]) == 3


def test_what_is_rounded_twice_says_more() -> None:
    """Nothing goes with a 6, and of three 4 two share a bin of 9: four bins, where one rounding says three."""
    weights = np.array([6, 6, 4, 4, 4])
    assert RoundedBound(weights, 9).of(weights) == 3
    assert RoundedBound(weights, 9).again(weights) == 4


def test_a_search_that_takes_too_long_says_so() -> None:
    with pytest.raises(SearchLimitError):
        searched([7, 6, 5, 5, 4, 4, 3, 3, 2, 2], CAPACITY, 4, 5)


def test_a_flow_that_would_be_too_large_is_not_declared() -> None:
    assert bin_flow(list(range(1, 40)), 60, 100, integral=False) is None


def test_two_each_is_decided_exactly() -> None:
    """Random minipods, many smaller than a group and some larger: the fewest, and how it is proven."""
    arguments = set()
    for rng in seeded(18, 600):
        size = int(rng.integers(3, 8))
        free = np.sort(rng.integers(1, size + 3, rng.integers(3, 7)))[::-1]
        num_groups = max(1, int(free.sum()) // size - int(rng.integers(0, 2)))
        lower = int(np.searchsorted(np.cumsum(free), num_groups * size)) + 1
        if num_groups > 4 or not num_groups + 1 < lower <= free.size:
            continue
        fewest = FewestMinipods(free, size, num_groups, lower, budget())
        fewest.find()
        expected = next((k for k in range(1, free.size + 1) if fits(free[:k].tolist(), size, num_groups, 2)), None)
        assert fewest.upper == expected, (free, size, num_groups)
        assert fewest.lower == (free.size + 1 if expected is None else expected)
        arguments.add(fewest.argument)
        if expected is not None:
            labels = pack(free[:expected], size, num_groups, 2, fewest.components)
            assert max_spread(labels) <= 2
            assert (np.bincount(labels.ravel(), minlength=expected) <= free[:expected]).all()
    assert {None, "sizes of pieces, rounded"} <= arguments


@pytest.mark.slow
def test_groups_of_58_need_the_fewest_minipods_that_a_program_says() -> None:
    """The program knows all minipods, those too that have just a group between them."""
    arguments = set()
    for rng in seeded(58, 60):
        free = np.sort(rng.integers(1, 69, rng.integers(16, 40)))[::-1]
        num_groups = int(0.99 * free.sum()) // 58
        lower = int(np.searchsorted(np.cumsum(free), num_groups * 58)) + 1
        if lower <= num_groups + 1:
            continue
        fewest = FewestMinipods(free, 58, num_groups, lower, budget())
        fewest.find()
        assert fewest.lower == (free.size + 1 if fewest.upper is None else fewest.upper)
        arguments.add(fewest.argument)
        if fewest.upper is not None:
            labels = pack(free, 58, num_groups, 2, fewest.components)
            assert max_spread(labels) <= 2
            assert (np.bincount(labels.ravel(), minlength=free.size) <= free).all()
        if (known := fewest.lower - 1) * 58 - free[:known].sum() <= (known - num_groups) * 58:
            flow = bin_flow((58 - free[:known]).tolist(), 58, 100_000, integral=True)
            assert flow is not None
            bound = solve(flow.problem, SolveOptions(relative_gap=0.0, time_limit_s=20)).bound
            assert bound is not None
            assert bound > known - num_groups + 1e-6
    assert {"sizes of pieces, rounded", "search", "flow over bins"} <= arguments


def test_what_rounding_does_not_tell_a_search_does() -> None:
    """Three groups of 25, at most two minipods each: 25 + 18 + 18 + 13 is one short of them, 18 + 18 + 13 one short of
    two, and 18 + 6, beside 18 + 13, one short of one."""
    free = np.array([25, 18, 18, 13, 6, 5])
    assert RoundedBound(25 - free, 25).of(25 - free) <= free.size - 3
    fewest = FewestMinipods(free, 25, 3, 5, budget())
    fewest.find()
    assert (fewest.lower, fewest.upper, fewest.argument) == (7, None, "search")
    assert not fits(free.tolist(), 25, 3, 2)


def test_between_two_starts_of_trades_the_clock_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    asks = iter([False, True])
    seeds: list[int] = []
    monkeypatch.setattr(two_each, "exchanged", lambda *_, seed, **__: seeds.append(seed))
    items = two_each._Items([5, 4, 4], 7, 1)
    assert items.traded((9, 1), lambda: next(asks)) is None
    assert seeds == [1, 2]


@pytest.mark.parametrize("num_free", [False, True])
def test_no_more_trades_than_there_is_time_for(monkeypatch: pytest.MonkeyPatch, *, num_free: bool) -> None:
    """Neither on the way up, where nothing fits, nor on the way down, where everything does."""
    spent = budget()
    tried: list[int] = []

    def fits(self: FewestMinipods, num_minipods: int, *_: object) -> bool:
        tried.append(num_minipods)
        if num_free and num_minipods > 20:
            return self._found(num_minipods, ())
        if len(tried) >= 3:
            spent.monitor.canceled.set()
        return False

    monkeypatch.setattr(FewestMinipods, "_fits", fits)
    FewestMinipods(np.full(100, 4), 7, 10, 12, spent)._gallop()
    assert len(tried) == 3


def test_a_minipod_that_holds_just_a_group_goes_anywhere() -> None:
    components = in_pairs(np.array([5, 5, 4, 3, 2, 1]), 5, 4)
    assert components is not None
    assert sorted(j for component in components for j in component.tolist()) == list(range(6))


def test_a_minipod_that_holds_just_a_group_is_in_one_component_in_any_order() -> None:
    components = in_pairs(np.array([0, 5, 5]), 5, 1)
    assert components is not None
    assert sorted(j for component in components for j in component.tolist()) == list(range(3))
