"""Alibaba PAI 2020 (NSDI'22), `pai_task_table.csv`, with or without the names of its columns in front.

A job is all tasks of one `job_name`. Each instance of a task asks for `plan_gpu` percent of a GPU: it counts as whole
GPUs, and what the job asked for of them is its `gpu_share`. The table does not say when a job was submitted; it stands
where its first task was launched (`pai_job_table` has submissions, but neither sizes nor GPU types). Jobs of which no
task was launched are left out.
"""

import math
from dataclasses import dataclass, field

from workloads.readers.table import (
    COUNT,
    NUMBER,
    STATE,
    build_trace,
    count,
    number,
    read_table,
    text_cell,
)
from workloads.trace import JobState, Trace
from workloads.words import state_of

COLUMNS = (
    "job_name",
    "task_name",
    "inst_num",
    "status",
    "start_time",
    "end_time",
    "plan_cpu",
    "plan_mem",
    "plan_gpu",
    "gpu_type",
)
_PERCENT = 100
# A job is as its tasks are; the first of these states that one of them has.
_DECIDING = (JobState.FAILED, JobState.RUNNING, JobState.WAITING, JobState.CANCELED, JobState.COMPLETED)


@dataclass(slots=True)
class _Tasks:
    """What is known of a job after some of its tasks."""

    start_s: float = math.inf
    end_s: float = -math.inf
    all_ended: bool = True
    num_gpus: int = 0
    asked_gpus: float = 0.0
    gpu_types: dict[str, None] = field(default_factory=dict)
    states: set[JobState] = field(default_factory=set)


def read_pai(text: str, source: str, name: str) -> Trace:
    """Read the trace.

    Raises
    ------
    FileFormatError
        Names file, line, column and what is wrong.
    """
    first_line = text.lstrip().partition("\n")[0]
    table = read_table(text, source, names=None if first_line.startswith(COLUMNS[0]) else COLUMNS)
    rows = zip(
        table.required("job_name", text_cell, "a text"),
        table.optional("inst_num", count, COUNT),
        table.optional("status", state_of, STATE),
        table.optional("start_time", number, NUMBER),
        table.optional("end_time", number, NUMBER),
        table.optional("plan_gpu", number, NUMBER),
        table.named("gpu_type"),
        strict=True,
    )
    jobs: dict[str, _Tasks] = {}
    for job_name, num_instances, status, start_s, end_s, percent, gpu_type in rows:
        job = jobs.setdefault(job_name, _Tasks())
        instances = 1 if num_instances is None else num_instances
        job.num_gpus += instances * math.ceil((percent or 0.0) / _PERCENT)
        job.asked_gpus += instances * (percent or 0.0) / _PERCENT
        job.start_s = job.start_s if start_s is None else min(job.start_s, start_s)
        job.end_s = job.end_s if end_s is None else max(job.end_s, end_s)
        job.all_ended &= end_s is not None
        if gpu_type is not None:
            job.gpu_types[gpu_type] = None
        if status is not None:
            job.states.add(status)
    launched = {job_name: job for job_name, job in jobs.items() if job.start_s < math.inf}
    return build_trace(
        name,
        source,
        {
            "id": list(launched),
            "submit_s": [job.start_s for job in launched.values()],
            "num_gpus": [job.num_gpus for job in launched.values()],
            "duration_s": [max(0.0, job.end_s - job.start_s) if job.all_ended else None for job in launched.values()],
            "gpu_type": ["|".join(job.gpu_types) or None for job in launched.values()],
            "state": [next((s for s in _DECIDING if s in job.states), None) for job in launched.values()],
            "gpu_share": [job.asked_gpus / job.num_gpus if job.num_gpus else 1.0 for job in launched.values()],
        },
        left_out={"jobs that were not launched": len(jobs) - len(launched)},
    )
