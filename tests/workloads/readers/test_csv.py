import pytest

from stowplan.errors import FileFormatError, InputError
from workloads.readers.csv import COLUMNS, read_csv
from workloads.trace import JobState, Trace, TraceJob


def _read(text: str, columns: str | None = None) -> Trace:
    return read_csv(text, "jobs.csv", "jobs", columns=columns)


def test_columns_are_what_the_caller_says() -> None:
    text = "job,submit_time,gpu_num,run_h,how,note\nb,70,2,0.5,KILLED,x\na,60,0,,Pass,y\n"
    trace = _read(text, "id=job, submit=submit_time, gpus=gpu_num, duration=run_h:h, state=how")
    assert trace.jobs == (
        TraceJob(id="a", submit_s=60.0, num_gpus=0, state=JobState.COMPLETED),
        TraceJob(id="b", submit_s=70.0, num_gpus=2, duration_s=1800.0, state=JobState.CANCELED),
    )
    assert trace.origin_s is None


def test_start_and_end_give_duration_and_waiting_and_jobs_without_names_get_some() -> None:
    text = "from,begin,until,n\n2026-03-01 00:00:10,2026-03-01T00:00:15,2026-03-01 01:00:15+01:00,4\n"
    text += "2026-03-01 00:00:00,,,1\n"
    trace = _read(text, "submit=from,start=begin,end=until,gpus=n")
    facts = [(job.id, job.submit_s, job.duration_s, job.waited_s) for job in trace.jobs]
    assert facts == [("job-2", 0.0, None, None), ("job-1", 10.0, 0.0, 5.0)]
    assert trace.origin_s == 1772323200.0  # 2026-03-01 00:00:00 UTC


@pytest.mark.parametrize(
    ("cell", "unit", "submit_s", "origin_s"),
    [("1772323200", "", 0.0, 1772323200.0), ("1772323200500", ":ms", 0.0, 1772323200.5), ("90", ":min", 5400.0, None)],
)
def test_large_numbers_count_from_1970(cell: str, unit: str, submit_s: float, origin_s: float | None) -> None:
    trace = _read(f"t,n\n{cell},1\n", f"submit=t{unit},gpus=n")
    assert (trace.jobs[0].submit_s, trace.origin_s) == (submit_s, origin_s)


def test_a_column_may_end_like_a_unit() -> None:
    assert _read("t:h,n\n5,1\n", "submit=t:h,gpus=n").jobs[0].submit_s == 5.0


def test_names_of_fields_are_taken_for_what_they_are() -> None:
    assert _read("t,n\n5,1\n", "submit_s=t,num_gpus=n").jobs[0].num_gpus == 1


@pytest.mark.parametrize(
    ("columns", "detail"),
    [
        ("", "'' is no what=column; what may be id, submit, gpus"),
        ("submit", "'submit' is no what=column"),
        ("submit=t,gpu=n", "'gpu=n' is no what=column; did you mean gpus?"),
        ("submit=t,submit_s=n", "submit is named twice"),
        ("submit=t,gpus=m", r"there is no column 'm' for gpus; the columns are \['t', 'n'\]"),
    ],
)
def test_columns_that_are_none_are_refused(columns: str, detail: str) -> None:
    with pytest.raises(InputError, match=f"columns: {detail}"):
        _read("t,n\n5,1\n", columns)


@pytest.mark.parametrize(
    ("text", "columns", "detail"),
    [
        ("t,n\n5,1\n", "submit=t", "jobs.csv:1: no column is named as gpus; say it, as in gpus=..."),
        ("id,submit_s\na,5\n", None, "jobs.csv:1: no column is named as gpus"),
        ("id,submit_s,num_gpus,deadlines\n", None, "column 'deadlines' is none of ours; did you mean deadline_s?"),
        ("t,n\n,1\n", "submit=t,gpus=n", "jobs.csv:2: column 't' is empty"),
        ("t,n\n5,1\nlate,1\n", "submit=t,gpus=n", "jobs.csv:3: column 't' is 'late'; must be a number"),
        ("t,n\n2026-03-01,1\n5,1\n", "submit=t,gpus=n", "jobs.csv:3: column 't' is '5'; must be a time"),
        (
            "t,n,p\n5,1,0\n",
            "submit=t,gpus=n,priority=p",
            "jobs.csv:2: column 'p' is '0'; must be a whole number above 0",
        ),
        ("t,n,s\n5,1,1.5\n", "submit=t,gpus=n,share=s", "column 's' is '1.5'; must be a number above 0, at most 1"),
        ('t,n\n"5\n,1\n', "submit=t,gpus=n", "jobs.csv:3: no CSV: unexpected end of data"),
        ('t,n\n5,1\n"6\n7",1\n', "submit=t,gpus=n", r"jobs.csv:4: column 't' is '6\\n7'"),
        ("id,submit_s,num_gpus,origin_s\na,0,1,5\nb,0,1,6\n", None, "column 'origin_s' has several values"),
        ("t,t\n", "submit=t,gpus=t", "jobs.csv:1: column 2 is called 't'; give each a name of its own"),
        ("t,n\n", "submit=t,gpus=n", "jobs.csv: there are no jobs in the file"),
        ("", None, "jobs.csv:1: has no header"),
    ],
)
def test_what_is_wrong_is_told_with_line_and_column(text: str, columns: str | None, detail: str) -> None:
    with pytest.raises(FileFormatError, match=detail):
        _read(text, columns)


def test_every_column_is_one_of_a_job_or_gives_one() -> None:
    assert set(COLUMNS.values()) - {"start_s", "end_s"} == set(TraceJob.__slots__)
