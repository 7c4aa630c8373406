import json
from typing import Any

import pytest

from stowplan.errors import FileFormatError
from tests.workloads.readers.slurm_samples import document, record
from workloads.readers.sacct_json import read_sacct_json
from workloads.trace import JobState, Trace


def _read(*records: dict[str, Any]) -> Trace:
    return read_sacct_json(json.dumps(document(*records)), "sacct.json", "slurm")


def _number(value: int) -> dict[str, Any]:
    return {"set": True, "infinite": False, "number": value}


def test_records_of_jobs() -> None:
    began = record(1, "ok", "COMPLETED", 1795363924, 3)
    never = record(6, "never", "CANCELLED", None, 0)
    trace = _read(began, never)
    facts = [(job.id, job.num_gpus, job.gpu_type, job.duration_s, job.waited_s, job.state) for job in trace.jobs]
    assert facts == [
        ("1", 2, "a100", 3.0, 4.0, JobState.COMPLETED),
        ("6", 8, None, None, None, JobState.CANCELED),
    ]
    assert [job.num_nodes for job in trace.jobs] == [1, None]
    assert {(job.user, job.queue, job.time_limit_s) for job in trace.jobs} == {("root", "gpu", None)}
    assert trace.origin_s == 1795363920.0


def test_numbers_and_states_of_later_versions() -> None:
    later = record(1, "ok", "", 1795363924, 3, state={"current": ["RUNNING", "COMPLETING"], "reason": "None"})
    later["time"] |= {"limit": _number(60), "end": 0}
    waiting = record(2, "next", "", None, 0, state={"current": ["PENDING"]})
    waiting["time"] |= {"start": 0, "limit": {"set": False, "infinite": True, "number": 0}}
    waiting["array"] |= {"job_id": 0, "task_id": {"set": False, "infinite": False, "number": 0}}
    first, second = _read(later, waiting).jobs
    assert (first.state, first.time_limit_s, first.duration_s) == (JobState.RUNNING, 3600.0, 3.0)
    assert (second.state, second.time_limit_s, second.duration_s, second.num_gpus) == (JobState.WAITING, None, None, 8)


def test_ids_are_those_of_the_text() -> None:
    task = record(8, "arr", "COMPLETED", 1795363962, 2, array={"job_id": 5, "task": None, "task_id": 1})
    later = record(9, "arr", "COMPLETED", 1795363962, 2, array={"job_id": 5, "task": "", "task_id": _number(2)})
    part = record(10, "het", "COMPLETED", 1795363962, 2, het={"job_id": 9, "job_offset": 1})
    pending = record(5, "arr", "PENDING", None, 0, array={"job_id": 5, "task": "3-4", "task_id": None})
    again = record(1, "run", "REQUEUED", 1795363962, 2)
    trace = _read(task, later, part, pending, again)
    assert [job.id for job in trace.jobs] == ["5_1", "5_2", "9+1"]
    assert trace.left_out == {"array tasks that have not begun": 1, "runs that were requeued": 1}


@pytest.mark.parametrize(
    ("changes", "detail"),
    [
        ({"time": {"submission": None}}, "/jobs/0/time/submission is missing"),
        ({"time": {"submission": "noon"}}, "/jobs/0/time/submission is 'noon'; must be a number from 0 on"),
        ({"time": 5}, "/jobs/0/time must be an object"),
        ({"job_id": None}, "/jobs/0/job_id is missing"),
        ({"state": {"current": "EATEN"}}, "/jobs/0/state/current is 'EATEN'; must be a state"),
        ({"state": {"current": 5}}, "/jobs/0/state/current is 5; must be the name of a state"),
        ({"partition": 5}, "/jobs/0/partition is 5; must be a text"),
        ({"tres": {"allocated": ["gpu"]}}, "/jobs/0/tres/allocated/0 is no resource"),
        (
            {"tres": {"allocated": [{"type": "gres", "name": "gpu", "count": "two"}]}},
            "/jobs/0/tres/allocated/0/count is 'two'",
        ),
    ],
)
def test_what_is_wrong_is_told_with_its_place(changes: dict[str, Any], detail: str) -> None:
    with pytest.raises(FileFormatError, match=f"sacct.json: {detail}"):
        _read(record(1, "ok", "COMPLETED", 1795363924, 3, **changes))


@pytest.mark.parametrize(
    ("text", "detail"),
    [
        ('{"jobs": [\n  oops]}', "sacct.json:2: is not JSON"),
        ("{}", "sacct.json: has no list of jobs"),
        ("[]", "sacct.json: has no list of jobs"),
        ('{"jobs": [5]}', "sacct.json: /jobs/0 must be an object"),
        ('{"jobs": []}', "sacct.json: there are no jobs"),
    ],
)
def test_what_is_no_accounting_is_refused(text: str, detail: str) -> None:
    with pytest.raises(FileFormatError, match=detail):
        read_sacct_json(text, "sacct.json", "slurm")
