"""Writes what Slurm writes, in the shape of every version of its data parser.

Sources: `tests/models/cluster_state/slurm_samples/README.md`.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

VERSIONS = range(38, 45)
NOW_S = 1_800_000_000
# From which version on a field is `{"set", "infinite", "number"}`.
_WRAPPED = dict.fromkeys(
    ("priority", "node_count", "tasks", "time_limit", "array_job_id", "array_task_id", "array_max_tasks", "het_job_id"),
    39,
) | dict.fromkeys(
    ("submit_time", "start_time", "end_time", "eligible_time", "deadline", "last_sched_evaluation", "last_busy"), 40
)
UNLIMITED = float("inf")


def node(name: str, gres: str = "gpu:h100:8(S:0-1)", *states: str, reason: str = "", **fields: Any) -> dict[str, Any]:
    """A node as the newest version has it."""
    known = {"name": name, "state": list(states or ("IDLE",)), "gres": gres, "gres_used": "", "reason": reason}
    return {**known, "partitions": ["gpu"], "features": [], "last_busy": NOW_S, **fields}


def job(number: int, **fields: Any) -> dict[str, Any]:
    """A job that waits for 8 GPUs, as the newest version has it, with numbers not wrapped yet."""
    known: dict[str, Any] = {
        "job_id": number,
        "name": f"train-{number}",
        "user_name": "ada",
        "account": "llm",
        "qos": "normal",
        "partition": "gpu",
        "job_state": ["PENDING"],
        "state_reason": "Resources",
        "dependency": "",
        "hold": False,
        "priority": 1000,
        "requeue": True,
        "restart_cnt": 0,
        "nodes": "",
        "node_count": 1,
        "tasks": 1,
        "tres_req_str": "cpu=8,mem=64G,node=1,billing=8",
        "tres_per_node": "gres/gpu:h100:8",
        "tres_per_job": "",
        "tres_per_socket": "",
        "tres_per_task": "",
        "tres_alloc_str": "",
        "gres_detail": [],
        "array_job_id": 0,
        "array_task_id": None,
        "array_max_tasks": 0,
        "array_task_string": "",
        "het_job_id": 0,
        "het_job_offset": 0,
        "submit_time": NOW_S - 7200,
        "eligible_time": NOW_S - 7200,
        "start_time": 0,
        "end_time": 0,
        "deadline": 0,
        "last_sched_evaluation": NOW_S,
        "time_limit": 1440,
        "resv_name": "",
        "required_nodes": "",
        "excluded_nodes": "",
        "features": "",
        "shared": [],
    }
    return {**known, **fields}


def running(number: int, nodes: str, detail: Sequence[str], hours: float = 1.0, **fields: Any) -> dict[str, Any]:
    """A job that has run for so long."""
    start_s = NOW_S - int(hours * 3600)
    known = {"job_state": ["RUNNING"], "state_reason": "None", "nodes": nodes, "gres_detail": list(detail)}
    times = {"start_time": start_s, "end_time": start_s + 86_400, "node_count": len(detail) or 1}
    return job(number, **{**known, **times, **fields})


def reservation(name: str, nodes: str, from_s: float, until_s: float, *flags: str, **fields: Any) -> dict[str, Any]:
    """A reservation from and until so many seconds from now."""
    times = {"start_time": int(NOW_S + from_s), "end_time": int(NOW_S + until_s)}
    return {"name": name, "node_list": nodes, "flags": list(flags), "users": "ada", "accounts": "", **times, **fields}


def run(number: int, state: str, start_s: int, end_s: int, gpus: int, task: int | None = None) -> dict[str, Any]:
    """A run of a job as sacct has it, of a task of array `number` where `task` is given."""
    times = {"start": start_s, "end": end_s, "elapsed": max(0, end_s - start_s)}
    allocated = [
        {"type": "cpu", "name": "", "id": 1, "count": 8},
        {"type": "gres", "name": "gpu", "id": 1001, "count": gpus},
        {"type": "gres", "name": "gpu:h100", "id": 1002, "count": gpus},
    ]
    array = {"job_id": 0 if task is None else number, "task_id": {"set": task is not None, "number": task or 0}}
    known = {"job_id": number, "array": array, "het": {"job_id": 0, "job_offset": {"set": False, "number": 0}}}
    return {**known, "state": {"current": [state]}, "time": times, "tres": {"allocated": allocated, "requested": []}}


def document(key: str, records: Sequence[Mapping[str, Any]], version: int = 44, indent: int | None = None) -> str:
    """The text that a version writes of records under a key."""
    plugin = {"type": f"openapi/v0.0.{version}"} if version < 39 else {"data_parser": f"data_parser/v0.0.{version}"}
    known = {"meta": {"plugin": plugin}, key: [_written(record, version) for record in records]}
    return json.dumps({**known, "errors": [], "warnings": []}, indent=indent)


def _written(record: Mapping[str, Any], version: int) -> dict[str, Any]:
    written = {}
    for key, value in record.items():
        if key in _WRAPPED and (value is None or isinstance(value, int | float)):
            written[key] = _number(value, is_wrapped=version >= _WRAPPED[key])
        else:
            written[key] = value
    if version < 40 and "job_state" in written:
        written["job_state"] = written["job_state"][0]
    if version < 39 and "gres" in written:
        written["state"], written["state_flags"] = written["state"][0].lower(), written["state"][1:]
    return written


def _number(value: float | None, *, is_wrapped: bool) -> Any:
    if not is_wrapped:
        return None if value in (None, UNLIMITED) else value
    known = value is not None and value != UNLIMITED
    return {"set": known, "infinite": value == UNLIMITED, "number": value if known else 0}
