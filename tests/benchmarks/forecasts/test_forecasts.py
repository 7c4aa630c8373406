"""Promises at random instants, on a history in which they can be kept, and on a published one."""

import numpy as np
import pytest

from benchmarks.forecasts.forecasts import TRACES, promises
from models.forecast.history import history_of
from models.forecast.learning import learn_from, report_of
from models.forecast.report import FORECASTER, TRIVIAL
from tests.models.forecast.histories import made_history
from tests.paths import SHARED
from workloads.readers import read_trace

PUBLISHED = SHARED / "data" / "traces"


def test_promises_of_a_steady_site_are_kept() -> None:
    learned = learn_from(history_of(made_history(3000)))
    found = promises(learned, np.random.default_rng(0))
    # Some 60 jobs of bert run at any time; a few hundred jobs in all are asked, each many times.
    assert found.num_promised > 10_000
    assert found.kept == pytest.approx(0.95, abs=0.03)


@pytest.mark.slow
@pytest.mark.skipif(not PUBLISHED.exists(), reason="the published traces are not beside the checkout")
def test_a_published_cluster_that_changes() -> None:
    """ITP 07: on the last tenth, the 90 % quantile of the history before covers 77 % of the jobs."""
    learned = learn_from(history_of(read_trace(PUBLISHED / "itp" / "cluster07.csv")))
    report = report_of(learned)
    own, trivial = report.of(FORECASTER), report.of(TRIVIAL)
    assert own.pinball < 0.9 * trivial.pinball
    assert trivial.coverage_90 < 0.8 < 0.86 < own.coverage_90 < 0.92
    assert 0.93 < (promises(learned, np.random.default_rng(0)).kept or 0.0) < 0.98


def test_the_traces_that_are_measured_are_those_published() -> None:
    if PUBLISHED.exists():
        assert all((PUBLISHED / file).exists() for file in TRACES)
    assert len(set(TRACES)) == len(TRACES)
