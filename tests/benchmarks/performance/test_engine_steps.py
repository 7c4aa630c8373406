"""Steps of both engines in the same ranks: they train alike, and every figure is there."""

import pytest

from benchmarks.performance.engine_steps import measure
from executor.extra import missing_extra
from models.transformer import Precision

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(missing_extra() is not None, reason=str(missing_extra())),
]


def test_both_engines_do_the_same_steps() -> None:
    """Of one rank: that engines agree on all kinds of plans is what the tests of the trainer show."""
    row = measure(1, 1, 1, 3, Precision.FP32, num_steps=6)
    assert (row["plan"], row["precision"]) == ("PP1 DP1 TP1", "fp32")
    assert float(str(row["loss_difference"])) < 1e-5
    assert all(float(str(row[name])) > 0 for name in ("deepspeed_s", "native_s", "ratio", "cpu_ratio"))
