"""Curves, conformal calibration and drift, by hand."""

import math
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from models.forecast.calibration import PRIOR, Calibration, Followed, Scores
from models.forecast.curves import Curves
from models.forecast.history import History
from tests.models.forecast.histories import job

# H is 0 at 1 s, 1 at e s, 3 at e^2 s: linear in log t.
KNOTS = np.exp([0.0, 1.0, 2.0])
ONE = Curves(knots_s=KNOTS, hazards=np.array([[0.0, 1.0, 3.0]]))


def _many(count: int) -> Curves:
    return Curves(knots_s=KNOTS, hazards=np.tile(ONE.hazards, (count, 1)))


def _followed(durations_s: Sequence[float | None], at_s: float, before: Scores | None = None) -> Calibration:
    """Jobs that begin at time 0; None: runs."""
    jobs = tuple(
        job(f"j{k}", 0.0, duration_s if duration_s is not None else 1e6, waited_s=0.0)
        for k, duration_s in enumerate(durations_s)
    )
    history = History(name="h", jobs=jobs, origin_s=0.0, now_s=at_s, left_out={})
    return Followed(history, _many(len(jobs)), 0, before or Scores()).calibration(len(jobs), at_s)


def test_curves_are_linear_in_the_logarithm_of_time() -> None:
    jobs = np.zeros(4, dtype=np.int64)
    times = np.exp([0.5, 1.0, 1.5, 9.0])
    np.testing.assert_allclose(ONE.at(jobs, times), [0.5, 1.0, 2.0, 3.0])
    np.testing.assert_allclose(ONE.seconds(jobs, np.array([0.5, 1.0, 2.0, 3.0])), np.exp([0.5, 1.0, 1.5, 2.0]))
    assert ONE.seconds(jobs[:1], np.array([3.1]))[0] == math.inf


def test_without_censoring_it_is_split_conformal() -> None:
    # Four scores: the k-th smallest has level k / 5, so the map has hazard -log(1 - k / 5) there.
    times = [float(np.exp(h)) for h in (0.2, 0.4, 0.6, 0.8)]
    found = _followed(times, at_s=100.0)
    np.testing.assert_allclose(found.hazards[1:], [-math.log(1 - k / 5) for k in (1, 2, 3, 4)])
    np.testing.assert_allclose(found.scores[1:], [0.2, 0.4, 0.6, 0.8])
    # Drift: four ended, hazards add up to 2.
    assert found.drift == pytest.approx((4 + PRIOR) / (2 + PRIOR))


def test_a_job_that_runs_is_not_counted_as_ended() -> None:
    # Ended at H = 0.2 and 0.8; one runs at H = 0.4: with 3, 2 and 1 left the steps are log 4/3, none, log 2.
    found = _followed([math.exp(0.2), math.exp(0.8), None], at_s=math.exp(0.8))
    assert len(found.scores) == 3
    hazards = [math.log(4 / 3), math.log(4 / 3) + math.log(3 / 2)]
    # The one that runs is seen until e^0.8, as far as the second: it counts as left there.
    np.testing.assert_allclose(found.hazards[1:], hazards)


def test_quantiles_by_hand() -> None:
    # Twice as fast as the model says, no map: over with 1 - exp(-2) when H is 1, at e s.
    plain = Calibration(drift=2.0, scores=np.zeros(1), hazards=np.zeros(1))
    levels = np.array([1 - math.exp(-2.0), 1 - math.exp(-6.1)])
    new = plain.quantiles(ONE, np.array([0]), np.array([1.0]), levels)
    np.testing.assert_allclose(new, [[math.e, math.inf]])
    # At e s (H = 1) another H = 1 is left: at e^1.5 s.
    aged = plain.quantiles(ONE, np.array([0]), np.array([math.e]), levels[:1])
    np.testing.assert_allclose(aged, [[math.exp(1.5)]])


def test_those_scored_before_count_with_those_that_came_since() -> None:
    before = Scores(hazards=(0.2, 0.4), scaled=(0.2, 0.4), ended=(True, True))
    found = _followed([math.exp(0.6), math.exp(0.8)], 100.0, before)
    assert len(found.scores) == 5
    np.testing.assert_allclose(found.hazards[-1], -math.log(1 - 4 / 5))


@given(
    scores=st.lists(st.floats(0.01, 2.9), min_size=1, max_size=30),
    age_s=st.floats(1.0, 7.0),
    drift=st.floats(0.2, 5.0),
)
def test_quantiles_are_monotone_and_not_below_the_age(scores: list[float], age_s: float, drift: float) -> None:
    found = _followed([float(np.exp(min(score, 1.0))) for score in scores], at_s=1e3)
    calibration = Calibration(drift=drift, scores=found.scores, hazards=found.hazards)
    levels = np.linspace(0.05, 0.99, 20)
    row = calibration.quantiles(ONE, np.array([0]), np.array([age_s]), levels)[0]
    known = row[row < math.inf]
    assert (np.diff(known) >= 0).all()
    assert (row >= age_s).all()
