"""Small requests that tests change one field of."""

import copy
import json
from typing import Any

Json = dict[str, Any]

_GPU_TYPE: Json = {
    "memory_bytes": 80_000_000_000,
    "peak_flops_per_s": 312e12,
    "intra_node_bandwidth_bytes_per_s": 3e11,
    "inter_node_bandwidth_bytes_per_s": 2.5e10,
}


def table_job(job_id: str, **fields: Any) -> Json:
    """A job that runs on 1 to 4 GPUs of type a, faster the more it gets."""
    entries = [{"gpu_type": "a", "num_gpus": n, "value": float(n) ** 0.9} for n in (1, 2, 4)]
    return {"id": job_id, "performance": {"kind": "throughput_table", "entries": entries}, **fields}


def sia_request(jobs: list[Json] | None = None, **fields: Any) -> Json:
    """Two nodes of four GPUs each, in two pods; two jobs unless told otherwise."""
    nodes = [{"id": f"n{k}", "gpu_type": "a", "num_gpus": 4, "path": [f"pod{k}"]} for k in range(2)]
    cluster = {"gpu_types": [{"name": "a", **_GPU_TYPE}], "tiers": [{"name": "pod"}], "nodes": nodes}
    jobs = [table_job("j0"), table_job("j1")] if jobs is None else jobs
    return {"policy": "sia", "snapshot": {"cluster": cluster, "jobs": jobs}, **fields}


def arnold_request(**fields: Any) -> Json:
    """Six nodes of two GPUs in two minipods; tp 2, pp 2, dp 2 fill a matrix of two rows and two columns."""
    nodes = [{"id": f"n{k}", "gpu_type": "a", "num_gpus": 2, "path": [f"pod{k // 3}"]} for k in range(6)]
    cluster = {
        "gpu_types": [{"name": "a", **_GPU_TYPE}],
        "tiers": [{"name": "pod"}],
        "minipod_tier": "pod",
        "nodes": nodes,
    }
    job = {"id": "llm", "min_gpus": 8, "max_gpus": 8, "parallelism": {"tp": 2, "pp": 2, "dp": 2}}
    return {"policy": "arnold", "snapshot": {"cluster": cluster, "jobs": [job]}, "parameters": {"alpha": 0.3}, **fields}


def changed(request: Json, pointer: str, value: Any) -> Json:
    """A copy with `value` at the JSON pointer; a new key or the next index is added."""
    document = copy.deepcopy(request)
    *parents, last = pointer.removeprefix("/").split("/")
    place: Any = document
    for part in parents:
        place = place[int(part)] if isinstance(place, list) else place.setdefault(part, {})
    if isinstance(place, list):
        place[int(last) : int(last) + 1] = [value]
    else:
        place[last] = value
    return document


def hard_request() -> Json:
    """Forty groups of six nodes in twenty minipods that are nearly full: minutes of branch and bound."""
    free = [8, 17, 12, 9, 15, 11, 20, 6, 13, 10, 14, 16, 9, 12, 18, 7, 13, 11, 10, 19]
    nodes = [
        {"id": f"n{pod}-{k}", "gpu_type": "a", "num_gpus": 2, "path": [f"pod{pod}"]}
        for pod, count in enumerate(free)
        for k in range(count)
    ]
    request = changed(arnold_request(), "/snapshot/cluster/nodes", nodes)
    job = {"id": "llm", "parallelism": {"tp": 2, "pp": 6, "dp": 40}}
    return changed(changed(request, "/snapshot/jobs/0", job), "/options", {"relative_gap": 0.0, "solver": "highs"})


def json_text(document: Any) -> bytes:
    """JSON that may hold NaN and Infinity, as careless clients send it."""
    return json.dumps(document, allow_nan=True).encode()
