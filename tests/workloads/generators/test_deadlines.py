from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stowplan.errors import InputError
from tests.workloads.jobs import jobs_of, trace_job
from workloads.generators.deadlines import ARENA, DeadlineParameters, with_deadlines
from workloads.trace import Trace, sorted_trace


def _trace(num_jobs: int) -> Trace:
    return sorted_trace("t", [trace_job(str(k), float(k), duration_s=100.0 + k) for k in range(num_jobs)])


@settings(max_examples=25)
@given(st.integers(0, 2**32), st.floats(0.1, 2), st.floats(0, 2), st.floats(0.1, 10))
def test_deadlines_lie_within_their_bounds(seed: int, tightest: float, more: float, loosening: float) -> None:
    parameters = DeadlineParameters(tightest=tightest, loosest=tightest + more, loosening=loosening)
    for job in with_deadlines(_trace(5), seed, parameters).jobs:
        assert job.deadline_s is not None
        assert job.duration_s is not None
        tightness = job.deadline_s / job.duration_s / loosening
        assert tightest - 1e-9 <= tightness <= tightest + more + 1e-9


def test_tightness_is_uniform_and_arena_loosens_it() -> None:
    jobs = with_deadlines(_trace(2000), 1).jobs
    tightness = np.array([(job.deadline_s or 0.0) / (job.duration_s or 1.0) for job in jobs])
    # The standard deviation of a mean of 2,000 is 0.0065, of a quartile 0.0097.
    assert tightness.mean() == pytest.approx(1.0, abs=0.035)
    assert np.quantile(tightness, (0.25, 0.75)) == pytest.approx([0.75, 1.25], abs=0.05)
    loosened = with_deadlines(_trace(2000), 1, ARENA).jobs
    assert [job.deadline_s for job in loosened] == pytest.approx([5 * (job.deadline_s or 0.0) for job in jobs])


def test_a_longer_trace_begins_as_a_shorter_one() -> None:
    assert with_deadlines(_trace(9), 4).jobs[:5] == with_deadlines(_trace(5), 4).jobs
    assert with_deadlines(_trace(5), 4) != with_deadlines(_trace(5), 5)


def test_a_share_of_the_jobs_goes_without() -> None:
    jobs = with_deadlines(_trace(1000), 1, DeadlineParameters(share=0.25)).jobs
    assert sum(job.deadline_s is not None for job in jobs) == pytest.approx(250, abs=70)
    # The deadlines of the others stay.
    all_jobs = with_deadlines(_trace(1000), 1).jobs
    assert all(job.deadline_s in (None, other.deadline_s) for job, other in zip(jobs, all_jobs, strict=True))
    assert {job.deadline_s for job in with_deadlines(_trace(9), 1, DeadlineParameters(share=0)).jobs} == {None}


def test_what_has_no_deadline_is_refused() -> None:
    with pytest.raises(InputError, match="2 jobs have no duration, 'b' the first"):
        with_deadlines(jobs_of((0.0, 1, 5.0), (1.0, 1, None), (2.0, 1, 0.0)), 1)
    for wrong in ({"tightest": 0.0}, {"tightest": 2.0}, {"loosening": -1.0}, {"share": 1.1}):
        with pytest.raises(InputError):
            replace(DeadlineParameters(), **wrong)
