"""Blends: weights hold after any number of samples, and no sample of a source is left out or given twice."""

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from executor.data.blend import place_of, shares_of


@given(weights=st.lists(st.floats(1e-3, 1e3), min_size=1, max_size=5), count=st.integers(1, 300))
@settings(max_examples=60, deadline=None)
def test_sources_get_their_weights_and_count_without_gaps(weights: list[float], count: int) -> None:
    shares = shares_of(weights)
    places = [place_of(number, shares) for number in range(count)]
    for k, weight in enumerate(weights):
        assert [number for source, number in places if source == k] == list(range(Counter(places_of(places))[k]))
        assert abs(Counter(places_of(places))[k] - count * weight / sum(weights)) <= len(weights)


def places_of(places: list[tuple[int, int]]) -> list[int]:
    return [source for source, _ in places]


def test_two_sources_take_turns_as_by_hand() -> None:
    # floor(n / 3) grows at n = 2, 5, ...
    assert [place_of(n, shares_of([1.0, 2.0])) for n in range(6)] == [(1, 0), (1, 1), (0, 0), (1, 2), (1, 3), (0, 1)]


@pytest.mark.parametrize("number", [0, 10**15])
def test_any_sample_is_found_at_once(number: int) -> None:
    source, place = place_of(number, shares_of([0.7, 0.2, 0.1]))
    assert place <= number * [0.7, 0.2, 0.1][source] + 3


def test_tiny_weight_still_has_its_place() -> None:
    assert place_of(10**9 - 1, shares_of([1e-12, 1.0]))[0] == 1
    assert place_of(10**9, shares_of([1e-12, 1.0]))[0] == 0
