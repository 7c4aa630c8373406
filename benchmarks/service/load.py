"""Many clients post small snapshots at once: `python -m benchmarks load --clients 50 --seconds 30`.

Every client posts a packaged example under its own perturbation of the jobs' goodput, waits for the plan, and
compares the objective with the one that the same process computed before. At the end every plan that was
answered must still be there. Prints counts by status, p50 and p99 of the latency; exits 1 on any wrong answer, lost
plan or 5xx.
"""

import json
import random
import statistics
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import Annotated, Any

import typer

from benchmarks.service.process import Service, running_service

_VARIANTS = 20
_WAIT_S = 60


@dataclass(slots=True, kw_only=True)
class Tally:
    """What the clients saw, guarded by `lock`."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    latency_s: list[float] = field(default_factory=list)
    statuses: Counter[int] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)
    plan_ids: list[str] = field(default_factory=list)


def small_request(variant: int) -> dict[str, Any]:
    """A Sia request of 6 table jobs on 4 nodes, perturbed by the seed `variant`."""
    rng = random.Random(variant)  # noqa: S311 - a reproducible perturbation, not a secret
    counts = [1, 2, 4, 8]
    jobs = [
        {
            "id": f"job-{j}",
            "max_gpus": 8,
            "performance": {
                "kind": "throughput_table",
                "entries": [
                    {"gpu_type": kind, "num_gpus": n, "value": round(speed * n ** rng.uniform(0.6, 0.95), 3)}
                    for kind, speed in (("a100", 3.0), ("t4", 1.0))
                    for n in counts
                ],
            },
        }
        for j in range(6)
    ]
    kinds = [("a100", 312e12, 80), ("t4", 65e12, 16)]
    return {
        "policy": "sia",
        "snapshot": {
            "cluster": {
                "gpu_types": [
                    {
                        "name": name,
                        "memory_bytes": gib * 2**30,
                        "peak_flops_per_s": flops,
                        "intra_node_bandwidth_bytes_per_s": 3e11,
                        "inter_node_bandwidth_bytes_per_s": 2.5e10,
                    }
                    for name, flops, gib in kinds
                ],
                "nodes": [
                    {"id": f"{name}-{k}", "gpu_type": name, "num_gpus": 4} for name, _, _ in kinds for k in (0, 1)
                ],
            },
            "jobs": jobs,
        },
        "options": {"relative_gap": 0.0, "time_limit_s": 20},
    }


def main(
    clients: Annotated[int, typer.Option(help="At a time.")] = 50,
    seconds: Annotated[float, typer.Option(help="How long they post.")] = 30.0,
) -> None:
    """Let many clients post small snapshots at once; fails on wrong answers, lost plans and 5xx."""
    bodies = [json.dumps(small_request(variant)).encode() for variant in range(_VARIANTS)]
    with running_service("--queue-size", str(2 * clients)) as service:
        expected = [service.call("POST", "/v1/plans", body, _WAIT_S).body["objective"] for body in bodies]
        tally = Tally()
        stop_s = time.perf_counter() + seconds
        threads = [
            threading.Thread(target=_client, args=(service, bodies, expected, seed, stop_s, tally))
            for seed in range(clients)
        ]
        for client in threads:
            client.start()
        for client in threads:
            client.join()
        lost = [i for i in tally.plan_ids if service.call("GET", f"/v1/plans/{i}").body.get("status") != "succeeded"]
    quantiles = statistics.quantiles(tally.latency_s, n=100)
    print(f"clients {clients}, {seconds:.0f} s, plans {len(tally.plan_ids)}")
    print(f"status codes {dict(tally.statuses)}; wrong {len(tally.wrong)}; lost {len(lost)}")
    print(f"latency p50 {1e3 * quantiles[49]:.0f} ms, p99 {1e3 * quantiles[98]:.0f} ms")
    for line in tally.wrong[:10]:
        print(line)
    if tally.wrong or lost or any(code >= 500 for code in tally.statuses):
        raise typer.Exit(1)


def _client(
    service: Service, bodies: list[bytes], expected: list[float], seed: int, stop_s: float, tally: Tally
) -> None:
    rng = random.Random(seed)  # noqa: S311 - chooses what to post, not a secret
    while time.perf_counter() < stop_s:
        variant = rng.randrange(len(bodies))
        answer = service.call("POST", "/v1/plans", bodies[variant], _WAIT_S)
        with tally.lock:
            tally.statuses[answer.status] += 1
            tally.latency_s.append(answer.elapsed_s)
            if answer.status != 200:
                tally.wrong.append(f"status {answer.status}: {answer.body}")
                continue
            tally.plan_ids.append(answer.body["id"])
            if not answer.body["verified"] or abs(answer.body["objective"] - expected[variant]) > 1e-9:
                tally.wrong.append(f"variant {variant}: {answer.body['objective']} instead of {expected[variant]}")
