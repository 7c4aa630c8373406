"""Shipped priors on the published rows: what issue and README say of them holds."""

import tomllib

import numpy as np
import pytest

from benchmarks.performance.published_steps.figures import Errors, after_one_point, memory_figures, rankings
from benchmarks.performance.published_steps.fit import PARAMETERS, text_of, with_values
from benchmarks.performance.published_steps.rows import TABLE, Case, cases, predicted_s
from models.performance.iteration.priors import FILE, Priors, priors

pytestmark = pytest.mark.skipif(not TABLE.is_file(), reason="the published data are not beside the checkout")


@pytest.fixture(scope="module")
def timed() -> list[Case]:
    return [case for case in cases()[0] if case.measured_s is not None]


@pytest.fixture(scope="module")
def errors(timed: list[Case]) -> np.ndarray:
    return np.array([predicted_s(case) / case.known_s - 1.0 for case in timed])


def test_times(timed: list[Case], errors: np.ndarray) -> None:
    found = Errors.of(errors)
    assert found.num_rows >= 290
    assert found.median < 0.08
    assert found.p90 < 0.17
    assert found.within_20 > 0.9
    assert Errors.of(after_one_point(timed, errors)).median < 0.07


def test_order_of_plans(timed: list[Case], errors: np.ndarray) -> None:
    groups = rankings(timed, errors)
    assert len(groups) >= 5
    assert np.mean([group.correlation for group in groups]) > 0.7
    assert max(group.loss for group in groups) < 0.02


def test_memory(timed: list[Case]) -> None:
    found = memory_figures(timed)
    assert found["refused %"] < 3
    assert found["median error %"] < 5


def test_a_row_that_cannot_be_expressed_says_why() -> None:
    assert all(why for _, why in cases()[1])


def test_fitted_values_are_written_as_they_are_read() -> None:
    values = [parameter.usual for parameter in PARAMETERS]
    written = text_of(with_values(values))
    assert written.startswith(FILE.read_text().split("\n", maxsplit=1)[0])
    found = Priors.of(tomllib.loads(written))
    assert found.link == 0.75
    assert found.gpus["hopper"].fp8 == 0.6
    assert found.software.keys() == priors().software.keys()
