"""The packaged example of planning ahead."""

import random
from typing import Any

from topology.gpu_catalogue import find_product, gpu_type_of

Document = dict[str, Any]

_DAY_S = 86_400.0
_SIZES = [93] * 7 + [92] * 4
_ALL = list(range(8))
# Of how long a running job lasts: over its median.
_QUANTILES = {0.1: 0.3, 0.5: 1.0, 0.9: 2.5, 0.99: 5.0}


def ahead_example() -> Document:
    """The lead's question: 2,944 GPUs in two weeks, for 30 days."""
    kind = gpu_type_of(find_product("h100"), "bf16")
    random_ = random.Random(14)  # noqa: S311 - seeded, not secret
    nodes = [
        {"id": f"m{k:02}n{n:02}", "gpu_type": "h100", "num_gpus": 8, "path": [f"minipod-{k}"]}
        for k, size in enumerate(_SIZES, start=1)
        for n in range(1, size + 1)
    ]
    # The last minipod has not arrived yet.
    running = [job for k, size in enumerate(_SIZES[:-1], start=1) for job in _running(random_, k, size)]
    return {
        "title": "Two weeks ahead: 2,944 GPUs of 8,148 for 30 days, and a second job",
        "description": "Cluster of setting (iii) in Table 1 of the Arnold paper, 11 minipods with 1,019 nodes, most of "
        "them in use by jobs of which it is known with which probability they are over when. The last minipod arrives "
        "in nine days, minipod-4 is maintained in three weeks, and 20 nodes are reserved for a demonstration. "
        "`pretrain-175b` wants 368 nodes in two weeks or up to a week later, `pretrain-13b` any plan on 48 nodes, for "
        "two trillion tokens, within a month. "
        "The jobs that run, forecasts and dates are made up.",
        "policy": "ahead",
        "snapshot": {
            "cluster": {
                "gpu_types": [
                    {
                        "name": "h100",
                        "memory_bytes": kind.memory_bytes,
                        "peak_flops_per_s": kind.peak_flops_per_s,
                        "intra_node_bandwidth_bytes_per_s": kind.intra_node_bandwidth_bytes_per_s,
                        "inter_node_bandwidth_bytes_per_s": kind.inter_node_bandwidth_bytes_per_s,
                    }
                ],
                "tiers": [{"name": "minipod"}],
                "minipod_tier": "minipod",
                "nodes": nodes,
            },
            "jobs": [
                {
                    "id": "pretrain-175b",
                    "parallelism": {"tp": 8, "pp": 8, "dp": 46},
                    "earliest_start_s": 14 * _DAY_S,
                    "latest_start_s": 21 * _DAY_S,
                    "lasting": {"probabilities": [0.1, 0.5, 0.9], "seconds": [28 * _DAY_S, 30 * _DAY_S, 33 * _DAY_S]},
                    "weight": 2.0,
                },
                {
                    "id": "pretrain-13b",
                    "min_gpus": 384,
                    "transformer": {"model": "llama2-13b", "global_batch": 1536, "checkpointing": "full"},
                    # 2 x 10^12 tokens.
                    "remaining_iterations": 318_000.0,
                    "earliest_start_s": 3 * _DAY_S,
                    "latest_start_s": 30 * _DAY_S,
                },
                *running,
            ],
            "taken_at": "2026-12-01T09:00:00Z",
            "calendar": [
                {
                    "name": "minipod-11 arrives",
                    "kind": "arrival",
                    "from_time": "2026-12-10T09:00:00Z",
                    "nodes": [node["id"] for node in nodes if node["path"] == ["minipod-11"]],
                },
                {
                    "name": "switches of minipod-4",
                    "kind": "maintenance",
                    "from_time": "2026-12-22T06:00:00Z",
                    "until_time": "2026-12-22T18:00:00Z",
                    "nodes": [node["id"] for node in nodes if node["path"] == ["minipod-4"]],
                },
                {
                    "name": "demonstration",
                    "kind": "reservation",
                    "from_time": "2026-12-14T00:00:00Z",
                    "until_time": "2026-12-16T00:00:00Z",
                    "shape": {"num_nodes": 20, "minipod": "minipod-2"},
                    "owner": "sales",
                },
            ],
        },
        "parameters": {"alpha": 0.3, "node_mtbf_hours": 26_280.0},
        "options": {"relative_gap": 0.01},
    }


def _running(random_: random.Random, k: int, size: int) -> list[Document]:
    """Jobs on nine of ten nodes of a minipod, one after the other, on whole nodes."""
    jobs: list[Document] = []
    first, last = 1, round(0.9 * size)
    while first <= last:
        num_nodes = min(random_.choice([1, 2, 4, 8, 12, 16, 24]), last - first + 1)
        median_s = round(random_.lognormvariate(0.9, 1.1) * _DAY_S, -2)
        jobs.append(
            {
                "id": f"m{k:02}-{len(jobs) + 1}",
                "restart_cost_s": 900.0,
                "current": {f"m{k:02}n{n:02}": _ALL for n in range(first, first + num_nodes)},
                "lasting": {
                    "probabilities": list(_QUANTILES),
                    "seconds": [round(share * median_s, 1) for share in _QUANTILES.values()],
                },
                **({"preemptible": False} if random_.random() < 0.1 else {}),
            }
        )
        first += num_nodes
    return jobs
