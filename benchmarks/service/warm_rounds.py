"""What a round costs in which 1 % of the jobs changed, beside one that nobody has seen: `python -m benchmarks
warm-rounds`.

A service plans a cluster under Sia, its jobs start where the plan has them, and rounds follow. A warm round is posted
as changes of the plan before (`base`), with its `prices`: 1 % of the jobs are other ones, half of them an older job,
half a new one in place of one that ended, and whoever the plan has moved runs elsewhere. A cold one is the same
snapshot, whole, under names that nobody has heard. Both take turns. The client waits by `Prefer: wait`, on a connection
that it keeps. CPU is that of all threads of a process from before the POST until 0.2 s after the answer, without what
they take in such a time while nobody asks. `http` is the event loop of the service (connections, parsing, routing,
waiting, answering), `service` its other threads, which store, hand over and hear the workers. The in-process row has no
HTTP, no store and no second process: the text of the request is read, planned and made the text of the answer. The 64
and 2,048 GPUs need the published traces beside the checkout.
"""

import gc
import json
import pickle
import random
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import typer

from api.common.settings import Settings
from api.convert.snapshot import snapshot_to_document
from api.plans.planning import planned
from api.plans.reading import ReadPlan, read_plan
from api.reading.texts import RequestText
from api.store.texts import Body
from benchmarks.paths import ROOT
from benchmarks.rows import Row, show, write
from benchmarks.service.planned_post import LIMIT_S, Posts, posts
from benchmarks.service.process import running_service, settle
from benchmarks.workloads.generators import SiaSize, sia_snapshot
from benchmarks.workloads.published.sia_traces import fitted_snapshot
from models.plan import PlanTask
from models.workload import Snapshot
from solver.monitor import SolveMonitor

_SIZES: Mapping[str, Callable[[], Snapshot]] = {
    "64": lambda: fitted_snapshot(64),
    "512": lambda: fitted_snapshot(512),
    "2048": lambda: fitted_snapshot(2048),
    # Most of its time is HiGHS's, which closes the last gap.
    "2400": lambda: sia_snapshot(SiaSize(num_gpus=2_400, num_jobs=600, num_types=3, running=0.7), 1),
    "10240": lambda: sia_snapshot(SiaSize(num_gpus=10_240, num_jobs=3_000, num_types=6, running=0.7), 1),
}
_SETTLING = 3
_SHARE = 0.01
_TARGET = 0.2
_ROUND_S = 360.0
_Json = dict[str, Any]


@dataclass(slots=True, kw_only=True)
class _Cluster:
    """What happens on a cluster: its snapshot as JSON, and what changed since the last plan."""

    snapshot: _Json
    rng: random.Random
    base: str = ""
    prices: Mapping[str, float] = field(default_factory=dict)
    num_names: int = 0
    changed: dict[str, _Json] = field(default_factory=dict)
    removed: list[str] = field(default_factory=list)
    added: list[_Json] = field(default_factory=list)

    def adopt(self, plan: Mapping[str, Any], base: str) -> None:
        """Jobs run where the plan has them, which is what the next changes are of."""
        self.base, self.prices = base, plan["prices"]
        self.changed, self.removed, self.added = {}, [], []
        given = {each["job_id"]: each["gpus"] for each in plan["allocations"]}
        for job in self.snapshot["jobs"]:
            now = given.get(job["id"])
            if now != job.get("current"):
                job["current"] = now
                self.changed[job["id"]] = {"current": now}

    def go_on(self) -> None:
        """A round later: 1 % of the jobs are others."""
        jobs = self.snapshot["jobs"]
        places = self.rng.sample(range(len(jobs)), max(1, round(_SHARE * len(jobs))))
        for number, k in enumerate(places):
            if number % 2:
                ended = jobs[k]
                name = f"new-{self._mark()}"
                new = {**ended, "id": name, "current": None, "age_s": 0.0, "num_restarts": 0}
                self.changed.pop(ended["id"], None)
                self.removed.append(ended["id"])
                self.added.append(new)
            else:
                older = {"age_s": jobs[k].get("age_s", 0.0) + _ROUND_S}
                jobs[k] |= older
                self.changed[jobs[k]["id"]] = self.changed.get(jobs[k]["id"], {}) | older
        gone = set(self.removed)
        self.snapshot["jobs"] = [job for job in jobs if job["id"] not in gone] + self.added[-len(places) // 2 :]

    def warm(self) -> bytes:
        """The request that says what changed."""
        said = {"base": self.base, "jobs": self.changed, "remove_jobs": self.removed, "add_jobs": self.added}
        return _request(said, self.prices)

    def cold(self) -> bytes:
        """The request that says everything, of jobs that nobody has heard of."""
        mark = self._mark()
        jobs = [{**job, "id": f"{job['id']}-{mark}"} for job in self.snapshot["jobs"]]
        return _request({**self.snapshot, "jobs": jobs}, {})

    def _mark(self) -> int:
        self.num_names += 1
        return self.num_names

    @property
    def num_changed(self) -> int:
        """Jobs that are other than they were."""
        return len(self.changed) + len(self.added)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Cost:
    """CPU milliseconds of one round: of HTTP, of the rest of the service, of its workers without planning, of planning
    (its parts by name); of all. gap: of the plan."""

    http_ms: float
    service_ms: float
    reading_ms: float
    planning_ms: float
    gap: float
    phases_ms: Mapping[str, float]

    @property
    def all_ms(self) -> float:
        """All of it."""
        return self.http_ms + self.service_ms + self.reading_ms + self.planning_ms


def main(
    gpus: Annotated[list[str] | None, typer.Option(help=f"Which clusters: {', '.join(_SIZES)}.")] = None,
    rounds: Annotated[int, typer.Option(min=1, help="Of each kind.")] = 9,
    checkout: Annotated[Path, typer.Option(help="Run the service of this checkout.")] = ROOT,
    save: Annotated[bool, typer.Option("--save", help="Write results/warm_rounds.json.")] = False,
) -> None:
    """Measure a round in which 1 % of the jobs changed beside a cold one: CPU of all processes, by part."""
    if unknown := sorted(set(gpus or ()) - set(_SIZES)):
        raise typer.BadParameter(f"{', '.join(unknown)}; there is {', '.join(_SIZES)}", param_hint="--gpus")
    rows: list[Row] = []
    for name in gpus or list(_SIZES):
        snapshot = _SIZES[name]()
        rows += _rows(name, "in one process", *_in_process(snapshot, rounds))
        with running_service(checkout=checkout.resolve()) as service:
            settle(service)
            with posts(service) as posting:
                rows += _rows(name, "service", *_served(posting, snapshot, rounds))
    show(f"A round with {_SHARE:.0%} changed beside a cold one, sia, medians of {rounds}, CPU ms", rows)
    if save:
        write("warm_rounds", (__doc__ or "").strip(), rows)


def _request(snapshot: _Json, prices: Mapping[str, float]) -> bytes:
    body = {
        "policy": "sia",
        "snapshot": snapshot,
        "parameters": {"prices": dict(prices)},
        "options": {"time_limit_s": LIMIT_S},
    }
    return json.dumps(body).encode()


def _cluster(snapshot: Snapshot) -> _Cluster:
    said = json.loads(snapshot_to_document(snapshot).model_dump_json(exclude_defaults=True))
    return _Cluster(snapshot=said, rng=random.Random(1))  # noqa: S311 - no secret


def _rounds(
    cluster: _Cluster, rounds: int, post: Callable[[bytes], tuple[_Cost, Mapping[str, Any], str]]
) -> tuple[list[_Cost], list[_Cost], int]:
    """Costs of cold and of warm rounds, and how many jobs changed in the last."""
    cold: list[_Cost] = []
    warm: list[_Cost] = []
    _, plan, base = post(cluster.cold())
    # Under the names that they keep from here on.
    _, plan, base = post(_request(cluster.snapshot, {}))
    cluster.adopt(plan, base)
    num_changed = 0
    for number in range(_SETTLING + rounds):
        cluster.go_on()
        num_changed = cluster.num_changed
        cost, plan, base = post(cluster.warm())
        other, _, _ = post(cluster.cold())
        cluster.adopt(plan, base)
        if number >= _SETTLING:
            warm.append(cost)
            cold.append(other)
    return cold, warm, num_changed


def _served(posting: Posts, snapshot: Snapshot, rounds: int) -> tuple[list[_Cost], list[_Cost], int]:
    def post(body: bytes) -> tuple[_Cost, Mapping[str, Any], str]:
        posted = posting.plan(body)
        answer, timings = posted.answer, posted.answer["timings"]
        cost = _Cost(
            http_ms=posted.http_ms,
            service_ms=posted.service_ms - posted.http_ms,
            reading_ms=posted.others_ms - timings["cpu_ms"],
            planning_ms=timings["cpu_ms"],
            gap=answer["relative_gap"],
            phases_ms=timings["phases_ms"],
        )
        return cost, answer, answer["id"]

    return _rounds(_cluster(snapshot), rounds, post)


def _in_process(snapshot: Snapshot, rounds: int) -> tuple[list[_Cost], list[_Cost], int]:
    settings, monitor = Settings(), SolveMonitor()
    stored: dict[str, Body | None] = {}

    def post(body: bytes) -> tuple[_Cost, Mapping[str, Any], str]:
        # What the benchmark has, no worker has: who looks for cycles shall not walk through it.
        gc.collect()
        gc.freeze()
        start_s = time.process_time()
        asked = read_plan(RequestText(body=body, settings=settings, snapshots=stored), monitor)
        assert isinstance(asked, ReadPlan)  # noqa: S101 - all that it refers to is there
        task = PlanTask(request=asked.request.for_worker(), validated=True)
        # As it gets to a worker.
        answer = planned(pickle.loads(pickle.dumps(task)), monitor)  # noqa: S301 - our own
        text = answer.document()
        cpu_ms = 1e3 * (time.process_time() - start_s)
        stored[asked.input_hash] = asked.input.snapshot
        plan_ms = 1e3 * answer.times.cpu_s
        cost = _Cost(
            http_ms=0.0,
            service_ms=0.0,
            reading_ms=cpu_ms - plan_ms,
            planning_ms=plan_ms,
            gap=answer.relative_gap or 0.0,
            phases_ms={name: 1e3 * seconds for name, seconds in answer.times.phase_cpu_s.items()},
        )
        return cost, json.loads(text), asked.input_hash

    return _rounds(_cluster(snapshot), rounds, post)


def _rows(gpus: str, where: str, cold: Sequence[_Cost], warm: Sequence[_Cost], num_changed: int) -> list[Row]:
    ratio = statistics.median(w.all_ms / c.all_ms for w, c in zip(warm, cold, strict=True))
    rows: list[Row] = []
    for kind, costs in (("cold", cold), ("warm", warm)):
        row: dict[str, object] = {"GPUs": gpus, "where": where, "round": kind}
        for name in ("all_ms", "http_ms", "service_ms", "reading_ms", "planning_ms"):
            row[name.removesuffix("_ms")] = statistics.median(getattr(cost, name) for cost in costs)
        for name in ("performance", "build", "solve", "place", "verify"):
            row[name] = statistics.median(cost.phases_ms.get(name, 0.0) for cost in costs)
        row["gap"] = max(cost.gap for cost in costs)
        row["changed"] = num_changed if kind == "warm" else ""
        row["warm/cold"] = ratio if kind == "warm" else ""
        met = "met" if ratio <= _TARGET else "missed"
        row["target"] = f"{_TARGET:g}: {met}" if kind == "warm" else ""
        rows.append(row)
    return rows
