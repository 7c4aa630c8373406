"""What would it take to plan 1,000 small snapshots a second? By simulation with measured costs.

Costs are CPU milliseconds of a plan by process as `worker-engines` measures them, with one worker on this machine, and
the time of a commit to the database. The simulation (`benchmarks.service.queueing`) is held against what 1, 2 and 4
workers plan here, with the cores of this machine and the processes that ran beside before each run; runs with 2 and 4
workers have no part in the costs. Then it has a core for every process: one service alone, and as many services and
workers as keep each two thirds busy.
"""

import json
import os
import tempfile
import time
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from math import ceil
from pathlib import Path
from statistics import median
from typing import Annotated

import typer

from api.schemas.plan import PlanStatus
from api.store.bodies import Body, PlanInput
from api.store.database import PlanRecord, Store
from benchmarks.rows import Row, show, write
from benchmarks.service.load import small_request
from benchmarks.service.process import running_service
from benchmarks.service.queueing import Flow, Load, Machine, Station, Visit, simulate
from benchmarks.service.worker_engines import Throughput, throughput

_VARIANTS = 20
_COMMITS_A_PLAN = 2
_BUSY = 2 / 3
_SAMPLES, _SAMPLE_S = 20, 0.1
SERVICE, WORKER, DATABASE, CLIENT = "service", "worker", "database", "client"

PROTOCOL = (
    "Validation: clients that post again at once; costs of the run with one worker, cores of this machine shared with "
    "the processes that ran before each run. Beyond: a core for each process, plans that come by chance (Poisson), "
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
    """Seconds that the store takes to insert a plan, or to write its end; the median of both."""
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
            start_s = time.perf_counter()
            store.add_plan(plan, asked)
            store.finish_plan(plan, "[]")
            took_s.append((time.perf_counter() - start_s) / _COMMITS_A_PLAN)
            store.delete_plan(plan.id)
    return median(took_s)


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
    """Runs, and how many processes ran before each."""
    bodies = [json.dumps(small_request(variant)).encode() for variant in range(_VARIANTS)]
    measured: dict[int, list[Throughput]] = {count: [] for count in counts}
    beside: dict[int, list[float]] = {count: [] for count in counts}
    for _ in range(runs):
        for count in counts:
            beside[count].append(_running_beside())
            with running_service("--workers", str(count)) as service:
                measured[count].append(throughput(service, bodies, seconds, clients, []))
    return measured, beside


def _running_beside() -> float:
    """Processes that run or wait for a core, but for this one, on average of two seconds."""
    seen = []
    for _ in range(_SAMPLES):
        (line,) = (line for line in Path("/proc/stat").read_text().splitlines() if line.startswith("procs_running"))
        seen.append(int(line.split()[1]) - 1)
        time.sleep(_SAMPLE_S)
    return sum(seen) / len(seen)


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
