"""The packaged example of gang."""

from typing import Any

from topology.gpu_catalogue import find_product, gpu_type_of

Document = dict[str, Any]


def gang_example() -> Document:
    """A Slurm-like queue: two teams, six nodes, and sizes alone."""
    kind = gpu_type_of(find_product("h100"), "bf16")
    gpus = {
        "name": kind.name,
        "memory_bytes": kind.memory_bytes,
        "peak_flops_per_s": kind.peak_flops_per_s,
        "intra_node_bandwidth_bytes_per_s": kind.intra_node_bandwidth_bytes_per_s,
        "inter_node_bandwidth_bytes_per_s": kind.inter_node_bandwidth_bytes_per_s,
    }
    nodes = [
        {"id": f"node-{k}", "gpu_type": "h100", "num_gpus": 8, "path": [f"leaf-{(k + 1) // 2}"]} for k in range(1, 7)
    ]
    return {
        "title": "Gang: a queue of jobs that say nothing but their size",
        "description": "Six nodes with eight H100 under three leaves, two teams with quotas. `pretrain` is first and "
        "needs four whole nodes: it starts in an hour at the latest, when `finetune` has ended. `sweep-1` ends before "
        "that and is backfilled, `notebook` fits what `pretrain` leaves over; `train` would be in its way, and "
        "`ablation` waits for the quota of its team. Post it as `gang-ilp` for the most valuable backfill.",
        "policy": "gang",
        "snapshot": {
            "cluster": {"gpu_types": [gpus], "tiers": [{"name": "leaf"}], "nodes": nodes},
            "jobs": [
                _job("finetune", 16, 7200, 3600, "science", {"node-1": _ALL, "node-2": _ALL}),
                _job("serving-test", 6, 90000, 86400, "product", {"node-3": list(range(6))}),
                _job("agents", 8, 600, 7200, "product", {"node-4": _ALL}),
                _job("pretrain", 32, 5400, 43200, "science"),
                _job("train", 8, 3000, 28800, "product"),
                _job("sweep-1", 8, 2400, 1800, "product"),
                _job("notebook", 2, 1200, 14400, "product"),
                _job("ablation", 16, 900, 3600, "product"),
            ],
        },
        "parameters": {"quotas": {"science": 48, "product": 26}},
        "options": {"relative_gap": 0.0},
    }


_ALL = list(range(8))


def _job(
    name: str, size: int, age_s: float, remaining_s: float, queue: str, current: Document | None = None
) -> Document:
    job: Document = {
        "id": name,
        "min_gpus": size,
        "queue": queue,
        "age_s": float(age_s),
        "remaining_s": float(remaining_s),
    }
    return job if current is None else {**job, "current": current}
