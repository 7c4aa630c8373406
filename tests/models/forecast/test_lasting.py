"""Quantiles of how long something lasts: what they say between, outside of, and after some time."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from models.forecast.lasting import Lasting
from stowplan.errors import InputError

# Over within 10 s in half of all cases, within 30 s in nine of ten.
KNOWN = Lasting(probabilities=(0.5, 0.9), seconds=(10.0, 30.0))


def test_quantiles_are_linear_between_those_given() -> None:
    assert [KNOWN.quantile(p) for p in (0.1, 0.5, 0.7, 0.9, 0.95)] == pytest.approx([10.0, 10.0, 20.0, 30.0, math.inf])


def test_the_mean_is_that_of_what_is_between_the_quantiles() -> None:
    # What is over by the first quantile lasts until it; what outlasts the last one lasts twice as long.
    assert KNOWN.mean_s == pytest.approx(0.5 * 10.0 + 0.4 * 20.0 + 0.1 * 60.0)
    assert Lasting(probabilities=(1.0,), seconds=(5.0,)).mean_s == 5.0


def test_probabilities_promise_nothing_outside_of_what_is_known() -> None:
    within = [KNOWN.probability_within(s) for s in (0.0, 9.9, 10.0, 20.0, 30.0, 1e9)]
    assert within == pytest.approx([0.0, 0.0, 0.5, 0.7, 0.9, 0.9])


def test_what_has_lasted_a_while_is_what_is_left_of_those_that_did() -> None:
    # At 20 s 0.7 are over; of the other 0.3, 0.2 are over 10 s later: two of three.
    left = KNOWN.after(20.0)
    assert left is not None
    assert left.probabilities == pytest.approx((2 / 3,))
    assert left.seconds == (10.0,)
    assert KNOWN.after(30.0) is None
    assert Lasting(probabilities=(1.0,), seconds=(5.0,)).after(2.0) == Lasting(probabilities=(1.0,), seconds=(3.0,))


@pytest.mark.parametrize(
    ("probabilities", "seconds", "pointer"),
    [
        ((), (), "/probabilities"),
        ((0.5,), (1.0, 2.0), "/probabilities"),
        ((0.0,), (1.0,), "/probabilities/0"),
        ((0.5, 0.5), (1.0, 2.0), "/probabilities/1"),
        ((0.5, 0.6), (2.0, 1.0), "/seconds/1"),
        ((0.5,), (math.nan,), "/seconds/0"),
    ],
)
def test_what_is_no_distribution_is_refused(
    probabilities: tuple[float, ...], seconds: tuple[float, ...], pointer: str
) -> None:
    with pytest.raises(InputError) as refused:
        Lasting(probabilities=probabilities, seconds=seconds)
    assert [issue.pointer for issue in refused.value.issues] == [pointer]


@given(
    probabilities=st.lists(st.integers(1, 100), min_size=1, max_size=6, unique=True).map(sorted),
    steps=st.lists(st.integers(1, 50), min_size=6, max_size=6),
    limit_s=st.floats(0, 400),
)
def test_quantile_and_probability_are_inverse(probabilities: list[int], steps: list[int], limit_s: float) -> None:
    seconds = tuple(float(sum(steps[: k + 1])) for k in range(len(probabilities)))
    lasting = Lasting(probabilities=tuple(p / 100 for p in probabilities), seconds=seconds)
    for k, probability in enumerate(lasting.probabilities):
        assert lasting.probability_within(lasting.quantile(probability)) == pytest.approx(probability)
        assert lasting.quantile(probability) == seconds[k]
    within = lasting.probability_within(limit_s)
    if within > 0:
        assert lasting.quantile(within) <= limit_s + 1e-6
