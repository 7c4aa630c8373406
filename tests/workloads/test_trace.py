import math
import pickle
from typing import Any

import pytest
from hypothesis import given, settings

from stowplan.errors import InputError
from tests.workloads.jobs import jobs_of, trace_job, traces
from workloads.trace import JobState, Trace, TraceJob, jobs_from_columns, sorted_trace


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("id", ""),
        ("id", " a"),
        ("queue", "b\n"),
        ("submit_s", -1.0),
        ("submit_s", math.nan),
        ("submit_s", math.inf),
        ("num_gpus", -1),
        ("num_gpus", 1.5),
        ("duration_s", -0.1),
        ("waited_s", math.nan),
        ("deadline_s", 0.0),
        ("iterations", 0),
        ("time_limit_s", -5.0),
        ("global_batch", 0),
        ("priority", 0),
        ("num_nodes", 2.5),
        ("gpu_share", 0.0),
        ("gpu_share", 1.1),
    ],
)
def test_an_illegal_job_cannot_be_built(name: str, value: Any) -> None:
    fields: dict[str, Any] = {"id": "a", "submit_s": 0.0, "num_gpus": 1, name: value}
    with pytest.raises(InputError) as error:
        TraceJob(**fields)
    assert [issue.pointer for issue in error.value.issues] == [f"/{name}"]
    # Nor column by column.
    with pytest.raises(InputError) as error:
        jobs_from_columns({key: [item] for key, item in fields.items()})
    assert [issue.pointer for issue in error.value.issues] == [f"/{name}"]


def test_all_faults_of_a_job_are_told_at_once() -> None:
    with pytest.raises(InputError) as error:
        trace_job("a", -1.0, -1, gpu_share=2.0)
    assert {issue.pointer for issue in error.value.issues} == {"/submit_s", "/num_gpus", "/gpu_share"}
    assert "is 2.0; must be a number above 0, at most 1" in str(error.value)


@settings(max_examples=15)
@given(traces())
def test_columns_build_what_calls_build(trace: Trace) -> None:
    names = TraceJob.__slots__
    columns = {name: [getattr(job, name) for job in trace.jobs] for name in names}
    assert tuple(jobs_from_columns(columns)) == trace.jobs


def test_fields_without_a_column_have_their_defaults() -> None:
    assert jobs_from_columns({"id": ["a"], "submit_s": [0.0], "num_gpus": [2]}) == [trace_job("a", 0.0, 2)]
    with pytest.raises(ValueError, match="not equally long"):
        jobs_from_columns({"id": ["a"], "submit_s": [0.0, 1.0], "num_gpus": [2]})


def test_a_job_survives_pickling_and_cannot_be_changed() -> None:
    job = jobs_from_columns({"id": ["a"], "submit_s": [0.0], "num_gpus": [2]})[0]
    assert pickle.loads(pickle.dumps(job)) == job  # noqa: S301 - our own
    with pytest.raises(AttributeError):
        job.num_gpus = 3  # type: ignore[misc]


def test_a_trace_refuses_jobs_out_of_order_and_ids_that_repeat() -> None:
    with pytest.raises(InputError) as error:
        Trace(name="t", jobs=(trace_job("a", 1.0), trace_job("b", 0.0)))
    assert [issue.pointer for issue in error.value.issues] == ["/jobs/1/submit_s"]
    with pytest.raises(InputError) as error:
        Trace(name="t", jobs=(trace_job("a", 0.0), trace_job("b", 0.0), trace_job("a", 0.0)))
    assert [issue.pointer for issue in error.value.issues] == ["/jobs/0/id", "/jobs/2/id"]
    with pytest.raises(InputError, match="origin_s"):
        Trace(name="t", jobs=(), origin_s=math.nan)
    with pytest.raises(InputError, match="/name"):
        Trace(name="", jobs=())


def test_jobs_of_one_moment_keep_their_order() -> None:
    trace = sorted_trace("t", [trace_job("b", 5.0), trace_job("z", 1.0), trace_job("a", 5.0)])
    assert [job.id for job in trace.jobs] == ["z", "b", "a"]


def test_a_window_has_its_first_moment_and_not_its_last_and_moves_time_zero() -> None:
    trace = sorted_trace("t", [trace_job(str(at), float(at)) for at in (0, 10, 15, 20)], origin_s=1000.0)
    window = trace.window(10.0, 20.0)
    assert [(job.id, job.submit_s) for job in window.jobs] == [("10", 0.0), ("15", 5.0)]
    assert window.origin_s == 1010.0
    assert jobs_of((0.0, 1, None)).window(5.0, 6.0).jobs == ()
    for begin, end in ((5.0, 5.0), (-1.0, 5.0), (math.nan, 5.0)):
        with pytest.raises(InputError, match="window"):
            trace.window(begin, end)


def test_jobs_are_chosen_by_queue_and_by_gpus() -> None:
    trace = sorted_trace(
        "t", [trace_job("a", 0.0, 0, queue="x"), trace_job("b", 1.0, 2, queue="y"), trace_job("c", 2.0)]
    )
    assert [job.id for job in trace.gpu_only().jobs] == ["b", "c"]
    assert [job.id for job in trace.in_queues("x", "y").jobs] == ["a", "b"]
    assert [job.id for job in trace.where(lambda job: job.state is JobState.FAILED).jobs] == []
    with pytest.raises(InputError, match=r"has no queue 'z'; it has \['x', 'y'\]"):
        trace.in_queues("z")
