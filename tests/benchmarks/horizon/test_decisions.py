"""Rows of decisions by size: targets beside what was measured, and growth where a size is twice the one before."""

import pytest

from benchmarks.horizon import decisions
from models.allocation.horizon.instance import horizon_instance
from models.allocation.horizon.parameters import HorizonParameters
from models.clock import PhaseClock


def test_every_size_has_a_row_and_twice_the_size_a_growth(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decisions, "_SIZES", ((16, 3, 100.0), (32, 6, 0.0), (48, 10, None)))
    rows = list(decisions._generated(HorizonParameters(num_intervals=2), seeds=2, runs=1))
    assert [(row["gpus"], row["jobs"], row["decisions"], row["unproven"]) for row in rows] == [
        (16, 3, 2, 0),
        (32, 6, 2, 0),
        (48, 10, 2, 0),
    ]
    assert [row["met"] for row in rows] == [True, False, None]
    assert [row["growth"] is None for row in rows] == [True, False, True]
    assert all({"build_s", "solve_s", "place_s", "verify_s"} <= set(row) for row in rows)


def test_rows_with_tiers_are_of_placement_classes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decisions, "_TIERED", ((160, 12, 100.0),))
    parameters = HorizonParameters(num_intervals=2)
    (row,) = decisions._tiered(parameters, seeds=1, runs=1)
    assert (row["source"], row["gpus"], row["jobs"], row["met"]) == ("tiered", 160, 12, True)
    request = decisions.below_leaves(decisions._request(160, 12, 0, parameters))
    assert horizon_instance(request.snapshot, parameters, PhaseClock()).num_packing > 0
