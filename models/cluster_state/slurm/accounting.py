"""Earlier runs of jobs, as `sacct --allusers --duplicates --json` has them: one for each time that it was requeued."""

from dataclasses import dataclass

from models.cluster_state.base import SourceDocument
from models.cluster_state.slurm.gres import Gpus, requested_gpus
from models.cluster_state.slurm.records import Record, slurm_records

COMMAND = "sacct --allusers --duplicates --json"
_GRES = "gres"


@dataclass(frozen=True, slots=True, kw_only=True)
class EarlierRuns:
    """How often a job has run before, and for how many GPUs x seconds in all."""

    num: int = 0
    gpu_s: float = 0.0


def read_accounting(document: SourceDocument) -> dict[str, EarlierRuns]:
    """Runs that have ended, by the id of the job as `squeue` has it.

    Raises
    ------
    FileFormatError
        Names the document and the JSON pointer, and what is wrong.
    """
    runs: dict[str, EarlierRuns] = {}
    for record in slurm_records(document, "jobs", COMMAND):
        times = record.record("time")
        if times.time_s("start") is None or times.time_s("end") is None:
            continue
        gpus = _gpus(record)
        if gpus is None:
            continue
        name = _id(record)
        before = runs.get(name, EarlierRuns())
        gpu_s = before.gpu_s + gpus.num * max(0.0, times.number("elapsed") or 0.0)
        runs[name] = EarlierRuns(num=before.num + 1, gpu_s=gpu_s)
    return runs


def _id(record: Record) -> str:
    number = record.count("job_id")
    if not number:
        raise record.fault("job_id", "is missing; must be the id of the job")
    array, het = record.record("array"), record.record("het")
    task = array.number("task_id")
    if array.count("job_id") and task is not None:
        return f"{array.count('job_id')}_{task:.0f}"
    return f"{het.count('job_id')}+{het.count('job_offset')}" if het.count("job_id") else f"{number}"


def _gpus(record: Record) -> Gpus | None:
    """GPUs that a run had."""
    tres = record.record("tres")
    found = tres.value.get("allocated")
    if not isinstance(found, list):
        return None
    items = [Record(record.document, f"{tres.pointer}/allocated/{k}", item) for k, item in enumerate(found)]
    texts = [f"gres/{item.text('name')}={item.count('count')}" for item in items if item.text("type") == _GRES]
    return requested_gpus(",".join(texts))
