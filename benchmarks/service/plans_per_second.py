"""What would it take to plan 1,000 small snapshots a second? By simulation with measured costs.

Costs are CPU milliseconds of a plan by process as `worker-engines` measures them, with one worker on this machine, and
the time of a commit to the database. The simulation (`benchmarks.service.queueing`) is held against what 1, 2 and 4
workers plan here, with the cores of this machine and the threads of others that ran beside; runs with 2 and 4 workers
have no part in the costs. Then it has a core for every process: one service alone, and as many services and
workers as keep each two thirds busy.
"""

import json
import os
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from math import ceil
from pathlib import Path
from statistics import median
from typing import Annotated

import numpy as np
import typer

from api.schemas.plan import PlanStatus
from api.store.database import Store
from api.store.records import PlanRecord
from api.store.texts import Body, PlanInput
from benchmarks.rows import Row, show, write
from benchmarks.service.load import small_request
from benchmarks.service.process import Service, children_of, running_service
from benchmarks.service.queueing import Flow, Load, Machine, Station, Visit, simulate
from benchmarks.service.worker_engines import Throughput, throughput

_VARIANTS = 20
_COMMITS_A_PLAN = 2
_BUSY = 2 / 3
_SAMPLE_S = 0.1
SERVICE, WORKER, DATABASE, CLIENT = "service", "worker", "database", "client"

PROTOCOL = (
    "Validation: clients that post again at once; costs of the run with one worker, cores of this machine shared with "
    "what ran beside meanwhile. Beyond: a core for each process, plans that come by chance (Poisson), "
    "busy shares of each kind. A plan is accepted and answered by a service (half of its CPU each), stored twice and "
    "planned once; every service has a connection of its own to the database, whose disk is no limit."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Costs:
    """Seconds of a plan: CPU of each process, and a commit."""

    service_s: float
    worker_s: float
    client_s: float
    commit_s: float

    def way(self) -> list[Visit]:
        """What every plan goes through."""
        half, commit = Visit(station=SERVICE, mean_s=self.service_s / 2), Visit(station=DATABASE, mean_s=self.commit_s)
        return [half, commit, Visit(station=WORKER, mean_s=self.worker_s), half, commit]


def main(
    plans: Annotated[float, typer.Option(help="Plans a second that are wanted.")] = 1000.0,
    workers: Annotated[list[int] | None, typer.Option(help="Numbers of workers to measure; the first: costs.")] = None,
    seconds: Annotated[float, typer.Option(help="How long clients post in a run.")] = 10.0,
    clients: Annotated[int, typer.Option(help="At a time.")] = 8,
    runs: Annotated[int, typer.Option(min=1, help="Of each, in turns; medians are shown.")] = 3,
    database: Annotated[
        str, typer.Option(help="Database of which commits are timed; a file of its own by default.")
    ] = "",
) -> None:
    """Say by simulation what saturates first at 1,000 plans a second, and what it would take."""
    counts = workers or [1, 2, 4]
    measured, beside = _measured(counts, seconds, clients, runs)
    costs = _costs(measured[counts[0]], commit_s(database))
    rows = [_compared(count, measured[count], beside[count], costs, clients) for count in counts]
    show("plans a second, measured and simulated", rows)
    beyond = [_row(services, workers_, plans, costs) for services, workers_ in sizes(costs, plans)]
    show(f"{plans:g} plans a second", beyond)
    print(write("plans_per_second", PROTOCOL, [*rows, *beyond]))


def sizes(costs: Costs, plans_per_s: float) -> list[tuple[int, int]]:
    """Services and workers: one service with workers enough, one without, and as many as are two thirds busy."""
    services = ceil(plans_per_s * costs.service_s / _BUSY)
    workers = ceil(plans_per_s * costs.worker_s / _BUSY)
    enough = ceil(costs.worker_s / costs.service_s / _BUSY)
    return [(1, enough), (services // 2, workers), (services, workers // 2), (services, workers)]


def commit_s(database: str) -> float:
    """Seconds without CPU that the store takes to insert a plan, or to write its end, when it is not kept waiting.

    The CPU is the service's. The fastest tenth: others that want the cores, too, make all others slower.
    """
    body = json.dumps(small_request(0))
    asked = PlanInput(rest='{"policy":"sia"}', snapshot=Body.of(body))
    record = PlanRecord(
        id="",
        policy="sia",
        status=PlanStatus.QUEUED,
        queued_at_s=0.0,
        version="",
        input_hash="",
        options="{}",
        timings="{}",
    )
    took_s = []
    with tempfile.TemporaryDirectory() as folder, closing(Store(database or Path(folder) / "plans.sqlite")) as store:
        for number in range(200):
            plan = replace(record, id=f"plan-commit-{number}")
            start_s = time.perf_counter() - time.process_time()
            store.add_plan(plan, asked)
            store.finish_plan(plan, "[]")
            took_s.append((time.perf_counter() - time.process_time() - start_s) / _COMMITS_A_PLAN)
            store.delete_plan(plan.id)
    return max(1e-6, float(np.quantile(took_s, 0.1)))


def simulated(services: int, workers: int, load: Load, machine: Machine, way: Sequence[Visit]) -> Flow:
    """Simulate so many services and workers."""
    stations = [
        Station(name=SERVICE, num_servers=services),
        Station(name=WORKER, num_servers=workers),
        Station(name=DATABASE, num_servers=services, uses_cpu=False),
        Station(name=CLIENT, num_servers=1),
    ]
    return simulate(stations, way, load, machine=machine, seconds=60.0 if load.num_clients else 20.0)


def _measured(
    counts: Sequence[int], seconds: float, clients: int, runs: int
) -> tuple[dict[int, list[Throughput]], dict[int, list[float]]]:
    """Runs, and how many threads of others ran beside each."""
    bodies = [json.dumps(small_request(variant)).encode() for variant in range(_VARIANTS)]
    measured: dict[int, list[Throughput]] = {count: [] for count in counts}
    beside: dict[int, list[float]] = {count: [] for count in counts}
    for _ in range(runs):
        for count in counts:
            with running_service("--workers", str(count)) as service:
                looking = _Beside(service)
                looking.start()
                measured[count].append(throughput(service, bodies, seconds, clients, []))
                beside[count].append(looking.mean(seconds))
    return measured, beside


class _Beside(threading.Thread):
    """Counts, all the time, threads that run or wait for a core and are none of a service, its workers and this one."""

    def __init__(self, service: Service) -> None:
        super().__init__(daemon=True)
        self._roots = [service.pid, os.getpid()]
        self._over = threading.Event()
        self._seen: list[tuple[float, int]] = []

    def run(self) -> None:
        """Look until it is over."""
        while not self._over.wait(_SAMPLE_S):
            self._seen.append((time.monotonic(), _num_running() - sum(map(_num_running_of, self._ours()))))

    def _ours(self) -> Iterator[int]:
        waiting = list(self._roots)
        while waiting:
            pid = waiting.pop()
            yield pid
            waiting += [child for child in children_of(pid) if child not in self._roots]

    def mean(self, seconds: float) -> float:
        """How many there were on average in the last seconds; ends it."""
        self._over.set()
        since_s = time.monotonic() - seconds
        counts = [max(0, count) for at_s, count in self._seen if at_s > since_s]
        return sum(counts) / max(1, len(counts))


def _num_running() -> int:
    (line,) = (line for line in Path("/proc/stat").read_text().splitlines() if line.startswith("procs_running"))
    return int(line.split()[1])


def _num_running_of(pid: int) -> int:
    """Threads of a process that run or wait for a core."""
    count = 0
    for stat in Path(f"/proc/{pid}/task").glob("*/stat"):
        # It may be gone by now.
        with suppress(OSError):
            count += stat.read_text().rsplit(")", 1)[1].split()[0] == "R"
    return count


def _costs(found: Sequence[Throughput], commit: float) -> Costs:
    def cost(kind: str) -> float:
        return median(run.cpu_ms[kind] for run in found) / 1e3

    return Costs(service_s=cost(SERVICE), worker_s=cost(WORKER), client_s=cost(CLIENT), commit_s=commit)


def _compared(workers: int, found: Sequence[Throughput], beside: Sequence[float], costs: Costs, clients: int) -> Row:
    measured = median(run.plans_per_s for run in found)
    way = [Visit(station=CLIENT, mean_s=costs.client_s), *costs.way()]
    machine = Machine(cores=os.cpu_count() or 1, num_beside=median(beside))
    flow = simulated(1, workers, Load(num_clients=clients), machine, way)
    return {
        "workers": workers,
        "measured plans/s": measured,
        "simulated plans/s": flow.plans_per_s,
        "error %": 100 * (flow.plans_per_s / measured - 1),
        "beside": median(beside),
        "service CPU ms": median(run.cpu_ms[SERVICE] for run in found),
        "worker CPU ms": median(run.cpu_ms[WORKER] for run in found),
        "client CPU ms": median(run.cpu_ms[CLIENT] for run in found),
        "commit ms": 1e3 * costs.commit_s,
    }


def _row(services: int, workers: int, plans_per_s: float, costs: Costs) -> Row:
    flow = simulated(services, workers, Load(plans_per_s=plans_per_s), Machine(), costs.way())
    first = max((SERVICE, WORKER, DATABASE), key=lambda name: flow.busy[name])
    return {
        "services": services,
        "workers": workers,
        "plans/s": flow.plans_per_s,
        "commits/s": _COMMITS_A_PLAN * flow.plans_per_s,
        "p50 s": flow.median_s,
        "p95 s": flow.p95_s,
        **{f"{name} busy %": 100 * flow.busy[name] for name in (SERVICE, WORKER, DATABASE)},
        "fullest": first,
        "left": flow.num_left,
    }
