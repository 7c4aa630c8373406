"""What sacct of Slurm 22.05.8 wrote of eight jobs on two nodes with four GPUs each, with slurmdbd behind it.

Records of Slurm are kept as they were; of the JSON only what was not of this cluster alone.
"""

from typing import Any

# --parsable2; job 7 is called pi|pe, job 6 was canceled before it began, job 5 is an array of two.
STEPS = """\
JobID|User|Partition|State|Submit|Start|End|ElapsedRaw|NNodes|ReqTRES|AllocTRES|JobName
1|root|gpu|COMPLETED|2026-11-22T16:12:00|2026-11-22T16:12:04|2026-11-22T16:12:07|3|1|billing=1,cpu=1,gres/gpu:a100=2,gres/gpu=2,mem=1M,node=1|billing=1,cpu=1,gres/gpu:a100=2,gres/gpu=2,node=1|ok
1.batch|||COMPLETED|2026-11-22T16:12:04|2026-11-22T16:12:04|2026-11-22T16:12:07|3|1||cpu=1,gres/gpu:a100=2,gres/gpu=2,mem=0,node=1|batch
1.0|||COMPLETED|2026-11-22T16:12:04|2026-11-22T16:12:04|2026-11-22T16:12:06|2|1||cpu=1,gres/gpu:a100=2,gres/gpu=2,mem=0,node=1|sleep
2|root|gpu|FAILED|2026-11-22T16:12:00|2026-11-22T16:12:08|2026-11-22T16:12:09|1|2|billing=2,cpu=2,gres/gpu=8,mem=2M,node=2|billing=2,cpu=2,gres/gpu:a100=8,gres/gpu=8,node=2|bad
3|root|gpu|COMPLETED|2026-11-22T16:12:00|2026-11-22T16:12:08|2026-11-22T16:12:09|1|1|billing=1,cpu=1,mem=1M,node=1|billing=1,cpu=1,node=1|cpu
4|root|gpu|CANCELLED by 0|2026-11-22T16:12:00|2026-11-22T16:12:11|2026-11-22T16:12:20|9|1|billing=1,cpu=1,gres/g\
pu=1,mem=1M,node=1|billing=1,cpu=1,gres/gpu:a100=1,gres/gpu=1,node=1|gone
6|root|gpu|CANCELLED by 0|2026-11-22T16:12:00|None|2026-11-22T16:12:20|0|2|billing=2,cpu=2,gres/gpu=8,mem=2M,nod\
e=2||never
7|root|gpu|RUNNING|2026-11-22T16:12:00|2026-11-22T16:12:21|Unknown|4|2|billing=2,cpu=2,gres/gpu=8,mem=2M,node=2|billing=2,cpu=2,gres/gpu:a100=8,gres/gpu=8,node=2|pi|pe
5_[1-2]|root|gpu|PENDING|2026-11-22T16:12:00|Unknown|Unknown|0|1|billing=1,cpu=1,gres/gpu=1,mem=1M,node=1||arr
"""

# SLURM_TIME_FORMAT=%s, --allocations, after all had ended.
EPOCH = """\
JobID|Submit|Start|Elapsed|End|AllocTRES|QOS
1|1795363920|1795363924|00:00:03|1795363927|billing=1,cpu=1,gres/gpu:a100=2,gres/gpu=2,node=1|normal
6|1795363920|None|00:00:00|1795363940||normal
5_1|1795363920|1795363962|00:00:02|1795363964|billing=1,cpu=1,gres/gpu:a100=1,gres/gpu=1,node=1|normal
5_2|1795363920|1795363962|00:00:02|1795363964|billing=1,cpu=1,gres/gpu:a100=1,gres/gpu=1,node=1|normal
"""


def _resources(*gpus: tuple[str, int]) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = [
        {"type": "cpu", "name": None, "id": 1, "count": 1},
        {"type": "energy", "name": None, "id": 3, "count": None},
    ]
    return items + [{"type": "gres", "name": name, "id": 1001 + k, "count": n} for k, (name, n) in enumerate(gpus)]


def record(job_id: int, name: str, state: str, start: int | None, elapsed: int, /, **changes: Any) -> dict[str, Any]:
    """A record of `sacct --json`."""
    return {
        "account": "root",
        "allocation_nodes": 1 if start else 0,
        "array": {"job_id": 0, "limits": {"max": {"running": {"tasks": 0}}}, "task": None, "task_id": None},
        "association": {"account": "root", "cluster": "demo", "partition": None, "user": "root"},
        "het": {"job_id": 0, "job_offset": None},
        "job_id": job_id,
        "name": name,
        "nodes": "n1" if start else "None assigned",
        "partition": "gpu",
        "priority": 4294901759,
        "state": {"current": state, "reason": "ReqNodeNotAvail"},
        "steps": [],
        "time": {
            "elapsed": elapsed,
            "eligible": 1795363920,
            "end": 1795363940,
            "start": start,
            "submission": 1795363920,
            "suspended": 0,
            "limit": None,
        },
        "tres": {
            "allocated": _resources(("gpu", 2), ("gpu:a100", 2)) if start else [],
            "requested": _resources(("gpu", 8)),
        },
        "user": "root",
    } | changes


def document(*records: dict[str, Any]) -> dict[str, Any]:
    """What `sacct --json` writes."""
    plugin = {"type": "openapi/dbv0.0.38", "name": "Slurm OpenAPI DB v0.0.38"}
    return {"meta": {"plugin": plugin, "Slurm": {"release": "22.05.8"}}, "errors": [], "jobs": list(records)}
