"""What a large POST costs, from POST to answer: `python -m benchmarks large-posts --checkout ../before --checkout .`.

Posts Sia's synthetic clusters, 70 % of the GPUs busy, and waits for the plan, while another client asks `/healthz` five
times a second. CPU is user and system time of the process that serves, and of it and its workers together, from the
POST to the plan. Checkouts take turns; every run has a service of its own, which has made a smaller plan before and has
loaded all that it loads when idle.
"""

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Annotated, Any

import typer
from rich.table import Table

from api.convert.snapshot import snapshot_to_document
from benchmarks.paths import ROOT
from benchmarks.service.process import Service, running_service, settle
from benchmarks.suite.machine import revision
from benchmarks.suite.table import output as terminal
from benchmarks.workloads.generators import SiaSize, sia_snapshot

_TYPES, _RUNNING, _SEED = 6, 0.7, 1
_GPUS_PER_JOB = 10
_WAIT_S = 60
_LIMIT_S = 900.0
_ASKER = """
import http.client, select, sys, time
connection, longest_s = http.client.HTTPConnection("127.0.0.1", int(sys.argv[1])), 0.0
while not select.select([sys.stdin], [], [], 0.2)[0]:
    start_s = time.perf_counter()
    connection.request("GET", "/healthz")
    connection.getresponse().read()
    longest_s = max(longest_s, time.perf_counter() - start_s)
print(longest_s)
"""
# Where the issue gives a target: 10,000 jobs on 100,000 GPUs.
_TARGETS = {10_000: ("10 s", "2 s", "0.2 s")}


@dataclass(frozen=True, slots=True, kw_only=True)
class LargePost:
    """Seconds of one POST. total: to the plan; accept: to the stored request; health: the longest answer meanwhile."""

    total_s: float
    accept_s: float
    service_cpu_s: float
    all_cpu_s: float
    health_s: float


def main(
    jobs: Annotated[list[int] | None, typer.Option(help="Jobs of a cluster with ten times as many GPUs.")] = None,
    runs: Annotated[int, typer.Option(min=1, help="Of every size.")] = 3,
    checkout: Annotated[
        list[Path] | None, typer.Option(help="Measure this checkout instead; several take turns.")
    ] = None,
) -> None:
    """Post clusters of up to 100,000 GPUs: CPU of the service and of all, and whether it still answers."""
    checkouts = [path.resolve() for path in checkout or [ROOT]]
    table = Table(title=f"POST to plan, sia, gap 1e-4, medians of {runs} runs (health: the longest of all)")
    for name in ("jobs", "MB", "commit", "total", "accept", "all CPU", "service CPU", "health", "targets"):
        table.add_column(name, justify="right")
    for num_jobs in jobs or (1_000, 2_000, 5_000, 10_000):
        body = generated_request(num_jobs)
        rounds = [[_posted(body, path) for path in checkouts] for _ in range(runs)]
        for number, path in enumerate(checkouts):
            found = [measured[number] for measured in rounds]
            cells = [
                median(getattr(post, name) for post in found)
                for name in ("total_s", "accept_s", "all_cpu_s", "service_cpu_s")
            ]
            cells.append(max(post.health_s for post in found))
            commit, dirty = revision(path)
            target = ", ".join(_TARGETS.get(num_jobs, ()))
            size = f"{len(body) / 1e6:.1f}"
            seconds = [f"{cell:.2f} s" for cell in cells]
            table.add_row(str(num_jobs), size, commit[:12] + ("+" if dirty else ""), *seconds, target)
    terminal().print(table)


def generated_request(num_jobs: int) -> bytes:
    """A request for a plan of so many jobs on ten times as many GPUs."""
    size = SiaSize(num_gpus=_GPUS_PER_JOB * num_jobs, num_jobs=num_jobs, num_types=_TYPES, running=_RUNNING)
    # Fields that a checkout does not know yet would be refused.
    snapshot = snapshot_to_document(sia_snapshot(size, _SEED)).model_dump_json(exclude_defaults=True)
    return f'{{"policy": "sia", "snapshot": {snapshot}, "options": {{"time_limit_s": 60}}}}'.encode()


def _posted(body: bytes, checkout: Path) -> LargePost:
    with running_service(checkout=checkout) as service:
        # Large enough for a reader of its own.
        _plan(service, generated_request(300))
        settle(service)
        with _asking(service) as longest_s:
            own_s, all_s = service.cpu_s()
            start_s = time.perf_counter()
            plan = _plan(service, body)
            total_s = time.perf_counter() - start_s
            own_end_s, all_end_s = service.cpu_s()
    return LargePost(
        total_s=total_s,
        accept_s=plan["timings"]["accept_ms"] / 1e3,
        service_cpu_s=own_end_s - own_s,
        all_cpu_s=all_end_s - all_s,
        health_s=longest_s[0],
    )


def _plan(service: Service, body: bytes) -> Any:
    """Post, and wait until the plan is final and verified."""
    answer = service.call("POST", "/v1/plans", body, wait_s=_WAIT_S)
    end_s = time.perf_counter() + _LIMIT_S
    while answer.status in (200, 202) and answer.body["times"]["finished"] is None and time.perf_counter() < end_s:
        answer = service.call("GET", answer.body["links"]["self"], wait_s=_WAIT_S)
    if answer.status != 200 or not answer.body["verified"]:
        raise RuntimeError(f"answer {answer.status} instead of a verified plan: {str(answer.body)[:500]}")
    return answer.body


@contextmanager
def _asking(service: Service) -> Iterator[list[float]]:
    """Ask `/healthz` all the time, from a process of its own; at the end the list holds the longest of the answers."""
    longest_s: list[float] = []
    command = [sys.executable, "-c", _ASKER, str(service.port)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as asker:
        yield longest_s
        longest_s.append(float(asker.communicate("over\n")[0]))
