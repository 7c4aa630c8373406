"""The benchmark of pipeline schedules, on few candidates."""

from collections import defaultdict

import pytest

from benchmarks.performance import pipeline_schedules
from benchmarks.performance.pipeline_schedules import cost_rows, error_rows

# How far bounds of schedules with several chunks may be below the makespan.
_LOOSE = defaultdict(float, {"interleaved": 0.15, "interleaved-zero-bubble": 0.2, "zbv": 0.25})


@pytest.mark.slow
def test_formulas_are_as_close_as_they_say(monkeypatch: pytest.MonkeyPatch) -> None:
    """Up to 8 stages with 8 micro-batches each: the largest ones, which the benchmark has, cost most of its time."""
    monkeypatch.setattr(pipeline_schedules, "_STAGES", (2, 4, 8))
    monkeypatch.setattr(pipeline_schedules, "_PER_STAGE", (0.5, 1, 2, 3, 8))
    for row in error_rows(3):
        lowest, highest, loose = row["formula lowest"], row["formula highest"], _LOOSE[str(row["schedule"])]
        assert isinstance(lowest, float)
        assert isinstance(highest, float)
        assert highest <= 1e-9
        assert lowest >= -(loose or (0.03 if row["transfers"] == "beside" else 0.01))
        if row["schedule"] in {"gpipe", "1f1b"} and row["transfers"] != "beside":
            assert lowest >= -1e-9


@pytest.mark.slow
def test_every_cost_is_measured() -> None:
    row = next(iter(cost_rows(3, 1)))
    assert row["schedule"] == "1f1b"
    for name in ("suika_us", "formula_us", "exact_us", "simulated_us"):
        taken_us = row[name]
        assert isinstance(taken_us, float)
        assert taken_us > 0
