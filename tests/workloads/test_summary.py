import pytest

from tests.workloads.jobs import jobs_of, trace_job
from workloads.summary import SizeClass, summarise
from workloads.trace import JobState, Trace, sorted_trace


def test_figures_of_three_jobs() -> None:
    #  GPUs  a 4 |========|              0 to 3600 s
    #        b 2     |====|              1800 to 3600 s
    #        c 8          |====|         3600 to 5400 s: begins when a and b end
    summary = summarise(jobs_of((0.0, 4, 3600.0), (1800.0, 2, 1800.0), (3600.0, 8, 1800.0)))
    assert (summary.num_jobs, summary.num_gpu_jobs) == (3, 3)
    assert (summary.first_submit_s, summary.last_submit_s, summary.span_s) == (0.0, 3600.0, 3600.0)
    assert summary.gpu_jobs_per_h == pytest.approx(3.0)
    assert summary.gpu_hours == pytest.approx(4 + 1 + 4)
    assert summary.mean_wanted_gpus == pytest.approx(9.0)
    assert summary.most_wanted_gpus == 8
    assert summary.sizes == (
        SizeClass(num_gpus=2, num_jobs=1, gpu_hours=1.0),
        SizeClass(num_gpus=4, num_jobs=1, gpu_hours=4.0),
        SizeClass(num_gpus=8, num_jobs=1, gpu_hours=4.0),
    )
    assert summary.duration_s is not None
    assert (summary.duration_s.median, summary.duration_s.mean, summary.duration_s.most) == (1800.0, 2400.0, 3600.0)


def test_jobs_that_would_run_together_want_their_gpus_together() -> None:
    assert summarise(jobs_of((0.0, 4, 100.0), (99.0, 2, 1.0), (99.5, 1, 50.0))).most_wanted_gpus == 7


def test_what_is_not_known_counts_nothing_and_is_told() -> None:
    trace = sorted_trace(
        "t",
        [
            trace_job("a", 0.0, 2, duration_s=3600.0, state=JobState.RUNNING, user="u", queue="q", gpu_share=0.5),
            trace_job("b", 10.0, 1, user="u", queue="p", waited_s=7.0),
            trace_job("c", 20.0, 0, queue="q"),
        ],
        left_out={"steps of jobs": 4},
    )
    summary = summarise(trace)
    assert (summary.num_gpu_jobs, summary.num_users, summary.num_sharing, summary.num_cut_off) == (2, 1, 1, 1)
    assert summary.gpu_hours == 2.0
    assert summary.queues == {"q": 2, "p": 1}
    assert list(summary.queues) == ["q", "p"]
    assert summary.states == {"running": 1}
    # The job without GPUs is not missed.
    assert (summary.missing["duration_s"], summary.missing["state"], summary.missing["priority"]) == (1, 1, 2)
    assert "queue" not in summary.missing
    assert summary.left_out == {"steps of jobs": 4}
    assert summary.waited_s is not None
    assert summary.waited_s.num_jobs == 1


def test_an_empty_trace_and_one_of_one_moment_have_no_load() -> None:
    empty = summarise(Trace(name="t", jobs=()))
    assert (empty.num_jobs, empty.mean_wanted_gpus, empty.most_wanted_gpus, empty.duration_s) == (0, None, 0, None)
    of_a_moment = summarise(jobs_of((5.0, 1, 10.0), (5.0, 1, 0.0)))
    assert (of_a_moment.mean_wanted_gpus, of_a_moment.gpu_jobs_per_h) == (None, None)
