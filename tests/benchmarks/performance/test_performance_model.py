"""The benchmarks of the performance model, on a few cases."""

import math

import pytest

from benchmarks.performance import performance_arena, performance_noise


def test_without_noise_there_is_no_error() -> None:
    first = next(iter(performance_noise.rows(1)))
    assert first["noise"] == 0
    assert isinstance(first["worst"], float)
    assert first["worst"] < 1e-9


@pytest.mark.skipif(not performance_arena.TABLE.is_file(), reason="the published data are not beside the checkout")
def test_one_point_calibrates_its_own_row() -> None:
    measured = performance_arena.cases()
    assert len(measured) == 236
    on_a100 = [case for case in measured if case.job == ("bert", "760M", "a100")]
    rows = {(row["rows"], row["prediction"]): row for row in performance_arena.rows(on_a100)}
    # Five rows of which one calibrates; none has several nodes.
    assert rows["all rows", "white-box"]["cases"] == 5
    assert rows["test rows", "calibrated"]["cases"] == 4
    assert rows["test rows", "calibrated"]["median"] == rows["test rows", "network"]["median"]


def test_factors_are_found_or_stay_at_a_bound() -> None:
    assert performance_arena.factor(lambda f: 6.0 / f, 2.0) == pytest.approx(3.0)
    assert performance_arena.factor(lambda f: 5.0 + 1.0 / f, 4.0) == performance_arena.FASTEST
    assert performance_arena.factor(lambda f: 1.0 / math.sqrt(f), 1e9) == performance_arena.SLOWEST
