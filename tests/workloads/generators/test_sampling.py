import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stowplan.errors import InputError
from tests.workloads.jobs import jobs_of, trace_job
from workloads.generators.sampling import Busiest, busiest_window, down_sampled
from workloads.trace import Trace, sorted_trace


def test_the_busiest_window_by_submissions_and_by_gpu_time() -> None:
    #  a   b c d        e     submissions at 0, 10, 11, 12, 30 s
    trace = jobs_of((0.0, 1, 1.0), (10.0, 1, 1.0), (11.0, 1, 1.0), (12.0, 1, 1.0), (30.0, 8, 100.0))
    assert [(job.id, job.submit_s) for job in busiest_window(trace, 2.0).jobs] == [("b", 0.0), ("c", 1.0)]
    assert [job.id for job in busiest_window(trace, 2.5).jobs] == ["b", "c", "d"]
    assert [job.id for job in busiest_window(trace, 2.5, Busiest.GPU_TIME).jobs] == ["e"]


@given(st.lists(st.integers(0, 30), min_size=1, max_size=12), st.integers(1, 12))
def test_no_other_window_has_more_jobs(submits: list[int], length_s: int) -> None:
    trace = sorted_trace("t", [trace_job(str(k), float(at)) for k, at in enumerate(submits)])
    most = max(len(trace.window(start, start + length_s).jobs) for start in range(31))
    assert len(busiest_window(trace, length_s).jobs) == most


def test_a_share_of_the_jobs_is_drawn_in_order_and_by_seed() -> None:
    trace = sorted_trace("t", [trace_job(str(k), float(k)) for k in range(100)], origin_s=5.0)
    sample = down_sampled(trace, 0.2, np.random.default_rng(1))
    assert len(sample.jobs) == 20
    assert set(sample.jobs) <= set(trace.jobs)
    assert sample.origin_s == 5.0
    assert sample == down_sampled(trace, 0.2, np.random.default_rng(1))
    assert sample != down_sampled(trace, 0.2, np.random.default_rng(2))
    assert len(down_sampled(trace, 1e-9, np.random.default_rng(1)).jobs) == 1


def test_what_cannot_be_sampled_is_refused() -> None:
    empty = Trace(name="t", jobs=())
    with pytest.raises(InputError, match="no busiest time"):
        busiest_window(empty, 5.0)
    with pytest.raises(InputError, match="no share"):
        down_sampled(jobs_of((0.0, 1, None)), 1.5, np.random.default_rng(1))
