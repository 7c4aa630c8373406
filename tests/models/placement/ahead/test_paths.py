"""Splits of a number over minipods: the shortest path against trying everything, prices against the shortest path."""

from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from models.placement.ahead.paths import shortest_path, split_by_price
from stowplan.arrays import FloatMatrix, IntVector


@st.composite
def tables(draw: st.DrawFn) -> FloatMatrix:
    """What up to three nodes of up to four minipods cost, the cheapest first."""
    rows = [
        sorted(draw(st.lists(st.sampled_from([0.0, 0.5, 1.0, 3.0]), max_size=3)))
        for _ in range(draw(st.integers(1, 4)))
    ]
    return np.array([np.cumsum([0.0, *row, *[np.inf] * (3 - len(row))]) for row in rows])


def cost_of(costs: FloatMatrix, price: float, taken: IntVector) -> float:
    return float(sum(costs[j, x] + price for j, x in enumerate(taken.tolist()) if x))


@given(costs=tables(), price=st.sampled_from([0.0, 0.7, 2.0]), total=st.integers(1, 8))
def test_splits_are_bounded_by_each_other(costs: FloatMatrix, price: float, total: int) -> None:
    room = np.isfinite(costs).sum(axis=1) - 1
    tried = [
        cost_of(costs, price, np.array(taken))
        for taken in product(*(range(size + 1) for size in room))
        if sum(taken) == total
    ]
    exact, least = shortest_path(costs, price, total)
    split, bound = split_by_price(costs, price, total)
    if not tried:
        assert (exact, split, least, bound) == (None, None, np.inf, np.inf)
        return
    assert exact is not None
    assert split is not None
    assert exact.sum() == split.sum() == total
    assert least == pytest.approx(min(tried))
    assert cost_of(costs, price, exact) == pytest.approx(least)
    assert bound <= least + 1e-9
    assert cost_of(costs, price, split) >= least - 1e-9


def test_many_minipods_are_split_nearly_exactly_by_price() -> None:
    costs = np.cumsum(np.sort(np.random.default_rng(0).random((200, 30)), axis=1), axis=1)
    costs = np.hstack([np.zeros((200, 1)), costs])
    split, bound = split_by_price(costs, 0.4, 800)
    assert split is not None
    assert split.sum() == 800
    assert bound <= cost_of(costs, 0.4, split) <= 1.002 * bound
