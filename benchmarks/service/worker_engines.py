"""Plans a second of 1, 2 and 4 workers on this machine and on a Ray cluster of one node, and whose CPU they cost.

Clients post small snapshots (those of `load`) and wait for their plans. CPU is user and system time between the first
and the last answer, by process: the service (it accepts, stores, hands over and answers), workers, actors of Ray and
the rest of Ray. The hand-over alone is that of a task that does nothing, in a process with a pool and nothing else.
"""

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Annotated

import typer
from rich.table import Table

from benchmarks.service.load import small_request
from benchmarks.service.process import Service, children_of, process_cpu_s, running_service
from benchmarks.suite.table import output as terminal
from solver.engine import WorkerEngine
from solver.monitor import SolveMonitor
from solver.pool import WorkerPool
from solver.process import LocalEngine

ENGINES = ("local", "ray")
_VARIANTS = 20
_WAIT_S = 60
_CPUS = 8
_HANDOVERS = 1000
# Workers are idle when they take less than this share of a core.
_SETTLE_S, _SETTLE_LIMIT_S, _IDLE = 2.0, 90.0, 0.02
CLIENT = "client"
_NOTHING = f"{__name__}:nothing"
# What command lines of processes say; the first that is found counts.
# Workers that are forked have the command line of what they are forked from, which counts with them.
_KINDS = (("worker", "from solver."), ("actor", "ray::WorkerHost"), ("ray", "ray"), ("service", ""))


@dataclass(frozen=True, slots=True, kw_only=True)
class Throughput:
    """One run: plans a second, and CPU milliseconds a plan by kind of process, this one (`client`) included."""

    plans_per_s: float
    cpu_ms: dict[str, float]


def main(
    workers: Annotated[list[int] | None, typer.Option(help="Numbers of workers.")] = None,
    seconds: Annotated[float, typer.Option(help="How long clients post in a run.")] = 10.0,
    clients: Annotated[int, typer.Option(help="At a time.")] = 8,
    runs: Annotated[int, typer.Option(min=1, help="Of everything, in turns; medians are shown.")] = 3,
) -> None:
    """Measure plans a second of workers on this machine and on a Ray cluster, and whose CPU they cost."""
    table = Table(title=f"plans a second, and CPU milliseconds a plan; medians of {runs} runs of {seconds:g} s")
    for name in ("engine", "workers", "plans/s", *(kind for kind, _ in _KINDS)):
        table.add_column(name, justify="right")
    bodies = [json.dumps(small_request(variant)).encode() for variant in range(_VARIANTS)]
    with _ray_node() as (address, roots):
        options = {"local": (), "ray": ("--engine", "ray", "--ray-address", address)}
        cases = [(engine, count) for engine in ENGINES for count in workers or (1, 2, 4)]
        measured: dict[tuple[str, int], list[Throughput]] = {case: [] for case in cases}
        for _ in range(runs):
            for engine, count in cases:
                with running_service(*options[engine], "--workers", str(count)) as service:
                    measured[engine, count].append(throughput(service, bodies, seconds, clients, roots))
        for (engine, count), found in measured.items():
            costs = (f"{median(run.cpu_ms[kind] for run in found):.2f}" for kind, _ in _KINDS)
            table.add_row(engine, str(count), f"{median(run.plans_per_s for run in found):.0f}", *costs)
        terminal().print(table)
        for engine in ENGINES:
            wall_ms, cpu_ms = _handover(engine, address)
            print(f"hand-over alone, {engine}: {wall_ms:.2f} ms, of which CPU of the pool's process {cpu_ms:.2f} ms")


@contextmanager
def _ray_node() -> Iterator[tuple[str, list[int]]]:
    """Run a Ray cluster of one node; gives its address and its processes."""
    # An extra, which other measurements do without.
    from ray.cluster_utils import Cluster

    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": _CPUS, "include_dashboard": False})
    try:
        processes = cluster.head_node.all_processes.values()
        yield cluster.address, [info.process.pid for infos in processes for info in infos]
    finally:
        cluster.shutdown()


def throughput(service: Service, bodies: list[bytes], seconds: float, clients: int, roots: list[int]) -> Throughput:
    """Post for so long; `roots`: processes that are looked at beside the service."""
    for body in bodies:
        service.call("POST", "/v1/plans", body, _WAIT_S)
    _settle([service.pid, *roots])
    answers: list[int] = []
    own_s = time.process_time()
    before, start_s = _cpu_s([service.pid, *roots]), time.perf_counter()

    def post(first: int) -> None:
        number = first
        while time.perf_counter() < start_s + seconds:
            answer = service.call("POST", "/v1/plans", bodies[number % len(bodies)], _WAIT_S)
            if answer.status != 200 or answer.body["status"] != "succeeded":
                raise RuntimeError(f"no plan: {answer.status} {answer.body}")
            answers.append(number)
            number += 1

    threads = [threading.Thread(target=post, args=(k,)) for k in range(clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    elapsed_s, after = time.perf_counter() - start_s, _cpu_s([service.pid, *roots])
    num_plans = len(answers)
    own_s = time.process_time() - own_s
    costs = {CLIENT: 1e3 * own_s / num_plans} | {kind: 1e3 * (after[kind] - before[kind]) / num_plans for kind in after}
    return Throughput(plans_per_s=num_plans / elapsed_s, cpu_ms=costs)


def _settle(roots: list[int]) -> None:
    """Return when workers have loaded what they load while no task waits, or after a minute and a half."""
    end_s = time.monotonic() + _SETTLE_LIMIT_S
    before = _cpu_s(roots)["worker"]
    while time.monotonic() < end_s:
        time.sleep(_SETTLE_S)
        now = _cpu_s(roots)["worker"]
        if now - before < _SETTLE_S * _IDLE:
            return
        before = now


def _cpu_s(roots: list[int]) -> dict[str, float]:
    """CPU seconds of processes and of all below them, by kind; of those that live."""
    seconds = dict.fromkeys((kind for kind, _ in _KINDS), 0.0)
    waiting, seen = list(roots), set(roots)
    while waiting:
        pid = waiting.pop()
        try:
            command = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        kind = "service" if pid == roots[0] else next(kind for kind, text in _KINDS if text in command)
        seconds[kind] += process_cpu_s(pid) or 0.0
        below = [child for child in children_of(pid) if child not in seen]
        seen.update(below)
        waiting += below
    return seconds


def nothing(argument: object, monitor: SolveMonitor) -> None:
    """Do nothing, in a worker."""


@contextmanager
def _engine(name: str, address: str) -> Iterator[WorkerEngine]:
    if name == "local":
        yield LocalEngine()
        return
    # An extra, as above.
    from solver.ray_engine import RayEngine

    with RayEngine(address) as engine:
        yield engine


def _handover(name: str, address: str) -> tuple[float, float]:
    """Milliseconds of a task that does nothing, one after another: of the wall clock, and of this process."""
    request = json.dumps(small_request(0)).encode()
    with _engine(name, address) as engine, WorkerPool(1, 1, preload=(__name__,), engine=engine) as pool:
        for _ in range(50):
            pool.submit(_NOTHING, request, 60).result(60)
        wall_s, cpu_s = time.perf_counter(), time.process_time()
        for _ in range(_HANDOVERS):
            pool.submit(_NOTHING, request, 60).result(60)
        return (
            1e3 * (time.perf_counter() - wall_s) / _HANDOVERS,
            1e3 * (time.process_time() - cpu_s) / _HANDOVERS,
        )
