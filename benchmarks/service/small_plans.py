"""Small plans a second: `python -m benchmarks small-plans --checkout ../before --checkout .`.

Clients post the quickstart example, each on one connection, and post again when they have its plan. CPU of a plan is
that of each process from the first POST until the last answer, by kind: the service, its workers (those that ended
meanwhile and the process that they are forked from included) and this one, which is the clients. Checkouts take turns,
each with a service of its own that has rested before. With nothing beside, plans a second are those of this machine;
beside others, CPU of a plan is what can be compared, and `plans/s of the CPU` what all cores would do with it.
"""

import json
import math
import os
import statistics
import threading
import time
from dataclasses import dataclass
from http.client import HTTPConnection
from pathlib import Path
from typing import Annotated

import numpy as np
import typer

from api.common.examples import example
from benchmarks.paths import ROOT
from benchmarks.rows import Row, show, write
from benchmarks.service.process import Service, descendants_of, memory_bytes, running_service, settle
from benchmarks.suite.machine import revision

_WAIT_S = 60
_WARM = 40
_TARGET_PLANS_PER_S, _TARGET_P99_MS, _TARGET_MIB = 200.0, 300.0, 200.0
_HEADERS = {"Content-Type": "application/json", "Prefer": f"wait={_WAIT_S}"}

PROTOCOL = (
    "The quickstart example, clients that post again at once on a connection of their own; medians of the runs, which "
    "the checkouts take in turns; idle: PSS of all processes before the first POST."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Throughput:
    """One run: plans a second, quantiles of the latency, CPU milliseconds a plan by kind of process, idle MiB."""

    plans_per_s: float
    p50_ms: float
    p99_ms: float
    service_ms: float
    workers_ms: float
    client_ms: float
    idle_mib: float


def main(
    clients: Annotated[int, typer.Option(min=1, help="At a time.")] = 32,
    seconds: Annotated[float, typer.Option(help="How long they post in a run.")] = 10.0,
    runs: Annotated[int, typer.Option(min=1, help="Of each checkout, in turns.")] = 3,
    workers: Annotated[int, typer.Option(min=1, help="Of each service.")] = 2,
    checkout: Annotated[
        list[Path] | None, typer.Option(help="Measure this checkout instead; several take turns.")
    ] = None,
    result: Annotated[str, typer.Option(help="Name of the result; none is written without.")] = "",
) -> None:
    """Measure how many small plans a second a service makes, and whose CPU they take."""
    checkouts = [path.resolve() for path in checkout or [ROOT]]
    body = json.dumps(example("quickstart").request).encode()
    found: dict[Path, list[Throughput]] = {path: [] for path in checkouts}
    for _ in range(runs):
        for path in checkouts:
            with running_service("--workers", str(workers), checkout=path) as service:
                settle(service)
                found[path].append(_run(service, body, clients, seconds))
    rows = [_row(path, found[path]) for path in checkouts]
    show(f"small plans, {clients} clients, {workers} workers, {os.cpu_count()} cores, {runs} runs", rows)
    if result:
        print(write(result, PROTOCOL, rows))


def _run(service: Service, body: bytes, clients: int, seconds: float) -> Throughput:
    idle_bytes = sum(map(memory_bytes, (service.pid, *descendants_of(service.pid))))
    for _ in range(_WARM):
        _post(HTTPConnection("127.0.0.1", service.port), body)
    latencies_s: list[float] = []
    before, own_s, start_s = service.cpu_s(), time.process_time(), time.perf_counter()

    def post_again() -> None:
        connection = HTTPConnection("127.0.0.1", service.port, timeout=_WAIT_S)
        while time.perf_counter() < start_s + seconds:
            latencies_s.append(_post(connection, body))
        connection.close()

    threads = [threading.Thread(target=post_again) for _ in range(clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    elapsed_s, own_s = time.perf_counter() - start_s, time.process_time() - own_s
    after, num_plans = service.cpu_s(), len(latencies_s)
    service_s, all_s = after[0] - before[0], after[1] - before[1]
    p50_s, p99_s = np.quantile(latencies_s, [0.5, 0.99])
    return Throughput(
        plans_per_s=num_plans / elapsed_s,
        p50_ms=1e3 * float(p50_s),
        p99_ms=1e3 * float(p99_s),
        service_ms=1e3 * service_s / num_plans,
        workers_ms=1e3 * (all_s - service_s) / num_plans,
        client_ms=1e3 * own_s / num_plans,
        idle_mib=idle_bytes / 2**20,
    )


def _post(connection: HTTPConnection, body: bytes) -> float:
    """Seconds until the plan is there."""
    start_s = time.perf_counter()
    connection.request("POST", "/v1/plans", body, _HEADERS)
    answer = connection.getresponse()
    content = answer.read()
    elapsed_s = time.perf_counter() - start_s
    if answer.status != 200 or not json.loads(content)["verified"]:
        raise RuntimeError(f"answer {answer.status} instead of a verified plan: {content[:500]!r}")
    return elapsed_s


def _row(checkout: Path, runs: list[Throughput]) -> Row:
    def middle(name: str) -> float:
        return float(statistics.median(getattr(run, name) for run in runs))

    commit, dirty = revision(checkout)
    plans_per_s, p99_ms, idle_mib = middle("plans_per_s"), middle("p99_ms"), middle("idle_mib")
    cpu_ms = middle("service_ms") + middle("workers_ms") + middle("client_ms")
    return {
        "commit": commit[:8] + ("+" if dirty else ""),
        "plans/s": plans_per_s,
        "plans/s of the CPU": (os.cpu_count() or 1) * 1e3 / cpu_ms if cpu_ms else math.nan,
        "p50 ms": middle("p50_ms"),
        "p99 ms": p99_ms,
        "service CPU ms": middle("service_ms"),
        "workers CPU ms": middle("workers_ms"),
        "client CPU ms": middle("client_ms"),
        "idle MiB": idle_mib,
        "targets": ", ".join(
            (
                f"{_TARGET_PLANS_PER_S:g}/s {_met(plans_per_s >= _TARGET_PLANS_PER_S)}",
                f"p99 {_TARGET_P99_MS:g} ms {_met(p99_ms <= _TARGET_P99_MS)}",
                f"{_TARGET_MIB:g} MiB {_met(idle_mib <= _TARGET_MIB)}",
            )
        ),
    }


def _met(is_met: bool) -> str:
    return "met" if is_met else "missed"
