"""Which jobs say how long jobs take, and which histories say too little."""

from dataclasses import replace

import pytest

from models.forecast.history import MIN_ENDED, history_of
from stowplan.errors import FileFormatError, InputError
from tests.models.forecast.histories import job, made_history
from workloads.readers.csv import read_csv
from workloads.trace import JobState, Trace, TraceJob


def _trace(jobs: list[TraceJob]) -> Trace:
    return Trace(name="t", jobs=tuple(jobs))


def _ended(count: int) -> list[TraceJob]:
    return [job(f"e{k}", 10.0 * k, 5.0 + k % 7) for k in range(count)]


def test_what_runs_at_the_end_is_censored_and_what_never_began_is_left_out() -> None:
    jobs = [
        *_ended(MIN_ENDED),
        job("runs", 3000.0, 50.0, state=JobState.RUNNING, waited_s=30.0),
        job("waits", 3001.0, None, state=JobState.WAITING),
        job("canceled", 3002.0, 0.0, state=JobState.CANCELED),
    ]
    history = history_of(_trace(jobs))
    assert len(history.jobs) == MIN_ENDED + 1
    assert history.left_out == {"without a duration": 1, "never began": 1}
    assert (history.start_s[-1], history.now_s) == (3030.0, 3080.0)
    # 20 s after its start it has lasted 20 s; the others have ended.
    lasted_s, ended = history.lasted_until(3050.0)
    assert lasted_s[-1] == 20.0
    assert ended.tolist() == history.ended.tolist() == [True] * MIN_ENDED + [False]


@pytest.mark.parametrize(
    ("jobs", "code", "says"),
    [
        (_ended(3), "too_few_jobs", "3 of 3 jobs ended, none still runs; a forecaster needs at least 200"),
        ([replace(one, state=JobState.RUNNING) for one in _ended(300)], "too_few_jobs", "no job ended, 300 still run"),
        ([job(f"a{k}", float(k), 60.0) for k in range(300)], "all_alike", "all 300 jobs that ended took 60.0 s"),
        ([], "too_few_jobs", "no job ended"),
    ],
)
def test_histories_that_say_too_little_are_refused(jobs: list[TraceJob], code: str, says: str) -> None:
    with pytest.raises(InputError, match="cannot be learned from") as refused:
        history_of(_trace(jobs))
    (issue,) = refused.value.issues
    assert (issue.code, issue.pointer) == (code, "/jobs")
    assert says in issue.detail


def test_of_a_very_long_history_the_newest_jobs_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("models.forecast.history.MAX_JOBS", 250)
    history = history_of(made_history(300))
    assert history.jobs[0].id == "j50"
    assert history.left_out == {"before the last 250": 50}


@pytest.mark.parametrize(
    ("rows", "says"),
    [
        # A job of -5 s.
        ("0,1,-5", "f.csv:2: column 'duration_s' is '-5'; must be a number from 0 on"),
        # Nobody knows by how much these two times differ.
        (
            "2026-03-01 10:00,1,5\n2026-03-01T10:00+01:00,1,5",
            "f.csv:3: column 'submit_s' .* in line 2 names none",
        ),
        ("2026-03-01 10:00:00Z,1,5\n2026-03-01 10:00:00,1,5", "f.csv:3: column 'submit_s' .* in line 2 names one"),
    ],
)
def test_files_that_cannot_be_read_say_where(rows: str, says: str) -> None:
    with pytest.raises(FileFormatError, match=says):
        read_csv(f"submit_s,num_gpus,duration_s\n{rows}\n", "f.csv", "f")


def test_a_job_that_ends_before_it_starts_is_no_job_of_no_time() -> None:
    text = "submit,gpus,from,to\n0,1,10,20\n0,1,30,20\n"
    with pytest.raises(FileFormatError, match=r"f\.csv:3: column 'to' is 10 s before the start"):
        read_csv(text, "f.csv", "f", columns="submit=submit,gpus=gpus,start=from,end=to")
