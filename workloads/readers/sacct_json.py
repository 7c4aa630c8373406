"""Slurm's accounting as JSON, from `sacct --allusers --json`, of Slurm 22.05 and later.

Tried on what 22.05.8 writes. Later versions wrap numbers (`{"set": true, "infinite": false, "number": 5}`), give a job
several states, and write 0 for a time that has not come; that is read after Slurm's documentation. Ids are those of
`sacct --parsable2`: `5_2` is task 2 of array 5.
"""

import json
from typing import Any

from stowplan.errors import FileFormatError, pointer_of
from workloads.readers.slurm_records import gpus_among, told_apart
from workloads.readers.table import STATE, build_trace
from workloads.trace import Trace
from workloads.words import state_of

_S_PER_MINUTE = 60
_GPU = "gpu"


def read_sacct_json(text: str, source: str, name: str) -> Trace:
    """Read records.

    Raises
    ------
    FileFormatError
        Names file, line or JSON pointer, and what is wrong.
    """
    try:
        document = json.loads(text)
    except ValueError as error:
        line = error.lineno if isinstance(error, json.JSONDecodeError) else None
        raise FileFormatError.at(source, line, f"is not JSON: {error}") from error
    jobs = document.get("jobs") if isinstance(document, dict) else None
    if not isinstance(jobs, list):
        raise FileFormatError.at(source, None, "has no list of jobs; give what sacct --json writes")
    rows: list[dict[str, Any]] = []
    num_pending = num_requeued = 0
    for k, record in enumerate(jobs):
        job = _Record(source, pointer_of("jobs", k), record)
        if job.waits_in_array():
            num_pending += 1
        elif "REQUEUED" in job.states():
            num_requeued += 1
        else:
            rows.append(job.fields())
    columns = {name: [row[name] for row in rows] for name in rows[0]} if rows else {"submit_s": []}
    if rows:
        columns["id"] = told_apart(columns["id"])
    left_out = {"array tasks that have not begun": num_pending, "runs that were requeued": num_requeued}
    return build_trace(name, source, columns, absolute=True, left_out=left_out)


class _Record:
    """One job; `pointer` says where it stands."""

    def __init__(self, source: str, pointer: str, value: object) -> None:
        self._source = source
        self._pointer = pointer
        self._value = value

    def fields(self) -> dict[str, Any]:
        """Fields of a `TraceJob`, with the submission since 1970."""
        submit_s = self._number("time", "submission")
        if not submit_s:
            raise self._fault(("time", "submission"), "is missing; must be when the job was submitted")
        start_s = self._number("time", "start") or None
        gpus = self._gpus("allocated")
        if gpus is None:
            gpus = self._gpus("requested") or gpus_among(())
        limit = self._number("time", "limit")
        nodes = self._number("allocation_nodes")
        return {
            "id": self._id(),
            "submit_s": submit_s,
            "num_gpus": gpus.num,
            "duration_s": None if start_s is None else self._number("time", "elapsed"),
            "gpu_type": gpus.types,
            "application": self._text("name"),
            "user": self._text("user") or self._text("association", "user"),
            "queue": self._text("partition"),
            "state": self._state(),
            "num_nodes": int(nodes) if nodes else None,
            "waited_s": None if start_s is None else max(0.0, start_s - submit_s),
            "time_limit_s": limit * _S_PER_MINUTE if limit else None,
        }

    def waits_in_array(self) -> bool:
        """Whether the record stands for tasks of an array that have not begun."""
        return bool(self._number("array", "job_id")) and self._task() is None

    def states(self) -> list[str]:
        """Words for the state; newer versions give several."""
        given = self._get("state", "current")
        words = given if isinstance(given, list) else [] if given is None else [given]
        if not all(isinstance(word, str) for word in words):
            raise self._fault(("state", "current"), f"is {given!r}; must be the name of a state")
        return [str(word) for word in words]

    def _id(self) -> str:
        array, job_id = self._number("array", "job_id"), self._number("job_id")
        if job_id is None:
            raise self._fault(("job_id",), "is missing; must be the id of the job")
        if array:
            return f"{array:.0f}_{self._task():.0f}"
        het = self._number("het", "job_id")
        return f"{het:.0f}+{self._number('het', 'job_offset') or 0:.0f}" if het else f"{job_id:.0f}"

    def _task(self) -> float | None:
        return self._number("array", "task_id")

    def _state(self) -> Any:
        words = self.states()
        try:
            return state_of(words[0]) if words else None
        except ValueError as error:
            raise self._fault(("state", "current"), f"is {words[0]!r}; must be {STATE}") from error

    def _gpus(self, which: str) -> Any:
        """GPUs among the resources; None where there are no resources at all."""
        resources = self._get("tres", which)
        if not resources:
            return None
        counts = []
        for k, item in enumerate(resources if isinstance(resources, list) else [resources]):
            if not isinstance(item, dict):
                raise self._fault(("tres", which, k), "is no resource with type, name and count")
            kind, _, gpu_type = str(item.get("name") or "").partition(":")
            if item.get("type") == "gres" and kind == _GPU:
                counts.append((gpu_type or None, int(self._plain(item.get("count"), ("tres", which, k, "count")) or 0)))
        return gpus_among(counts)

    def _number(self, *path: str) -> float | None:
        return self._plain(self._get(*path), path)

    def _text(self, *path: str) -> str | None:
        value = self._get(*path)
        if value is not None and not isinstance(value, str):
            raise self._fault(path, f"is {value!r}; must be a text")
        return (value or "").strip() or None

    def _plain(self, value: object, path: tuple[str | int, ...]) -> float | None:
        """A number, wrapped or not; None where it is not set."""
        if isinstance(value, dict):
            value = value.get("number") if value.get("set") and not value.get("infinite") else None
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < float("inf"):
            raise self._fault(path, f"is {value!r}; must be a number from 0 on")
        return float(value)

    def _get(self, *path: str) -> object:
        value = self._value
        for k, key in enumerate(path):
            if value is None:
                return None
            if not isinstance(value, dict):
                raise self._fault(path[:k], "must be an object")
            value = value.get(key)
        return value

    def _fault(self, path: tuple[str | int, ...], detail: str) -> FileFormatError:
        return FileFormatError.at(self._source, None, f"{self._pointer}{pointer_of(*path)} {detail}")
