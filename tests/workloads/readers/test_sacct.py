import pytest

from stowplan.errors import FileFormatError
from tests.workloads.readers.slurm_samples import EPOCH, STEPS
from workloads.readers.sacct import FIELDS, read_sacct
from workloads.trace import JobState, Trace


def _read(text: str) -> Trace:
    return read_sacct(text, "sacct.txt", "slurm")


def test_records_of_jobs_with_their_steps() -> None:
    trace = _read(STEPS)
    facts = [(job.id, job.num_gpus, job.gpu_type, job.duration_s, job.waited_s, job.state) for job in trace.jobs]
    assert facts == [
        ("1", 2, "a100", 3.0, 4.0, JobState.COMPLETED),
        ("2", 8, "a100", 1.0, 8.0, JobState.FAILED),
        ("3", 0, None, 1.0, 8.0, JobState.COMPLETED),
        ("4", 1, "a100", 9.0, 11.0, JobState.CANCELED),
        # It never began: what it asked for counts.
        ("6", 8, None, None, None, JobState.CANCELED),
        ("7", 8, "a100", 4.0, 21.0, JobState.RUNNING),
    ]
    assert [job.application for job in trace.jobs][-1] == "pi|pe"
    assert {(job.user, job.queue, job.submit_s) for job in trace.jobs} == {("root", "gpu", 0.0)}
    assert [job.num_nodes for job in trace.jobs] == [1, 2, 1, 1, 2, 2]
    assert trace.left_out == {"steps of jobs": 2, "array tasks that have not begun": 1}
    # 2026-11-22T16:12:00, with the cluster's clock taken as UTC.
    assert trace.origin_s == 1795363920.0


def test_times_in_seconds_and_elapsed_in_hours() -> None:
    trace = _read(EPOCH)
    facts = [(job.id, job.num_gpus, job.duration_s, job.waited_s) for job in trace.jobs]
    assert facts == [("1", 2, 3.0, 4.0), ("6", 0, None, None), ("5_1", 1, 2.0, 42.0), ("5_2", 1, 2.0, 42.0)]
    assert trace.origin_s == 1795363920.0


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("00:00:03", 3), ("01:02:03", 3723), ("2-03:04:05", 183845), ("02:03", 123), ("00:01.500", 1)],
)
def test_elapsed(text: str, seconds: int) -> None:
    trace = _read(f"JobID|Submit|Elapsed|AllocTRES\n1|2026-01-01T00:00:00|{text}|gres/gpu=1\n")
    assert trace.jobs[0].duration_s == seconds


def test_time_limits() -> None:
    rows = "\n".join(
        f"{k}|2026-01-01T00:00:00|{limit}|cpu=1" for k, limit in enumerate(("90", "UNLIMITED", "Partition_Limit", ""))
    )
    limits = [job.time_limit_s for job in _read(f"JobID|Submit|TimelimitRaw|AllocTRES\n{rows}\n").jobs]
    assert limits == [5400.0, None, None, None]
    written = _read("JobID|Submit|Timelimit|AllocTRES\n1|2026-01-01T00:00:00|1-00:00:00|cpu=1\n")
    assert written.jobs[0].time_limit_s == 86400.0


@pytest.mark.parametrize(
    ("resources", "num_gpus", "gpu_type"),
    [
        ("cpu=8,gres/gpu:a100=4,gres/gpu=4,gres/gpumem=10G,node=1", 4, "a100"),
        ("gres/gpu:a100=4,gres/gpu:h100=2", 6, "a100|h100"),
        ("gres/gpu=3,gres/gpu:v100=1", 3, "v100"),
        ("cpu=8,gres/shard=2", 0, None),
    ],
)
def test_gpus_in_resources(resources: str, num_gpus: int, gpu_type: str | None) -> None:
    (job,) = _read(f"JobID|Submit|AllocTRES\n1|2026-01-01T00:00:00|{resources}\n").jobs
    assert (job.num_gpus, job.gpu_type) == (num_gpus, gpu_type)


def test_the_closing_separator_of_parsable_is_no_column() -> None:
    (job,) = _read("JobID|Submit|AllocTRES|\n1|2026-01-01T00:00:00|gres/gpu=2|\n").jobs
    assert job.num_gpus == 2


def test_ids_that_slurm_gave_twice_are_told_apart_and_requeued_runs_left_out() -> None:
    rows = ["7|2020-01-01T00:00:00|COMPLETED|cpu=1", "7|2026-01-01T00:00:00|FAILED|cpu=1"]
    rows.append("8|2026-01-01T00:00:00|REQUEUED|cpu=1")
    trace = _read("\n".join(["JobID|Submit|State|AllocTRES", *rows]))
    assert [job.id for job in trace.jobs] == ["7", "7#2"]
    assert trace.left_out == {"runs that were requeued": 1}


@pytest.mark.parametrize(
    ("text", "detail"),
    [
        ("JobID|State\n1|COMPLETED\n", f"sacct.txt:1: there is no column 'Submit'.*--format={FIELDS}"),
        ("JobID|Submit\n1|2026-01-01T00:00:00\n", "sacct.txt:1: there is no column 'AllocTRES'"),
        (
            "JobID|JobName|Submit|AllocTRES\n1|pi|pe|2026-01-01T00:00:00|cpu=1\n",
            r"sacct.txt:2: has 5 cells; the header names 4 columns. Is there a \| in the name of a job\?",
        ),
        (
            "JobID|Submit|AllocTRES\n\n1|yesterday|cpu=1\n",
            "sacct.txt:3: column 'Submit' is 'yesterday'; must be a time",
        ),
        (
            "JobID|Submit|AllocTRES\n1.batch|2026-01-01|cpu=1\n2|2026-01-01T00:00:00|four\n",
            "sacct.txt:3: column 'AllocTRES' is 'four'; must be trackable resources",
        ),
        (
            "JobID|Submit|State|AllocTRES\n1|2026-01-01T00:00:00|EATEN|cpu=1\n",
            "sacct.txt:2: column 'State' is 'EATEN'; must be a state",
        ),
        (
            "JobID|Submit|Elapsed|AllocTRES\n1|2026-01-01T00:00:00|long|cpu=1\n",
            "column 'Elapsed' is 'long'; must be a time such as 1-02:30:00",
        ),
        ("JobID|Submit|AllocTRES\n", "sacct.txt: there are no jobs in the file"),
        ("", "sacct.txt:1: has no header"),
    ],
)
def test_what_is_wrong_is_told_with_its_line(text: str, detail: str) -> None:
    with pytest.raises(FileFormatError, match=detail):
        _read(text)
