"""The benchmark of a state that goes from one process to another."""

import pytest

from benchmarks.performance.state_carriage import measure
from executor.extra import missing_extra

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(missing_extra() is not None, reason=str(missing_extra())),
]


def test_both_ways_are_measured_for_every_size_of_a_chunk() -> None:
    rows = measure(1, 1 << 25)
    assert [row["way"] for row in rows] == ["shared memory", "TCP"] * 2
    assert all(0 < float(str(row["least_s"])) <= float(str(row["s_per_gb"])) for row in rows)
