"""Everything goes wrong while many clients post: `python -m benchmarks chaos --seconds 300 --clients 50`.

Every few seconds one of these is killed with SIGKILL, at random: a worker, a service, a rank of a training (where the
executor is installed, each service looks after one), a connection to a database on PostgreSQL; or the machine is
starved by busy loops on every processor. A killed service is started again on its database; how far trainings are is
asked of any of them. Clients post small snapshots under a key of their own each, ask again under the same key until
they are answered, each time any of the services, wait for the plan, and compare its objective with the one that was
planned before. In the end nothing is disturbed any more, and it is counted:

    accepted        keys that were answered with a plan
    finished        plans that ended, verified, with the right objective
    lost            accepted plans that are not there, or do not end
    wrong           plans that end with anything else
    planned twice   keys with two plans, plans in the list that no key was answered with, and plans whose end, once a
                    client has seen it, is another one later

Several services need a database on PostgreSQL, an empty one: `--services 2 --database postgresql://...`.

Exits 1 unless the last three are 0 and every training, if there are any, has got further than before.
"""

import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.client import HTTPException
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any

import typer

from benchmarks.service.load import small_request
from benchmarks.service.process import Answer, Service, descendants_of, free_port, started_service, wait_until_ready

_VARIANTS = 20
_WAIT_S = 20
_AGAIN_S = 0.2
_SETTLE_S = 300.0
_STARVE_S = 8.0
_STOP_S = 60.0
_PAUSE_S = (2.0, 8.0)
_BUSY = "while True: pass"
_RANK = "executor.trainer"
_WORKER = "from solver."
_TOLD = ("phase", "detail", "run_state", "run_detail", "step")
# Runs of a deployment take ten in turn.
_PORTS_APART = 20
_PAGE = "/v1/plans?limit=500"
_TRAINING = {
    "job_id": "chaos",
    "job": {
        "num_layers": 2,
        "hidden_size": 64,
        "num_heads": 2,
        "vocabulary_size": 128,
        "sequence_length": 32,
        "global_batch": 4,
        "precision": "fp32",
    },
    "plan": {
        "stages": [
            {"num_layers": 1, "replicas": [{"node": "a", "gpu_type": "cpu", "gpus": [k], "local_batch": 2}]}
            for k in range(2)
        ],
        "num_micro_batches": 2,
    },
    "training": {"device": "cpu", "num_steps": 1_000_000, "checkpoint_interval": 20},
}


@dataclass(slots=True, kw_only=True)
class Ledger:
    """What clients were told, guarded by `lock`: ids by key, and what was posted under it."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    ids: dict[str, set[str]] = field(default_factory=dict)
    variants: dict[str, int] = field(default_factory=dict)
    statuses: Counter[str] = field(default_factory=Counter)
    ends: dict[str, set[str]] = field(default_factory=dict)

    def accept(self, key: str, variant: int, plan: Any) -> None:
        """Note that a key was answered with a plan, and how that has ended, if it has."""
        with self.lock:
            self.ids.setdefault(key, set()).add(plan["id"])
            self.variants[key] = variant
        self.see(plan)

    def see(self, plan: Any) -> None:
        """Note how a plan has ended, if it has."""
        if plan["times"]["finished"] is not None:
            with self.lock:
                self.ends.setdefault(plan["id"], set()).add(json.dumps(plan, sort_keys=True))

    def note(self, what: str) -> None:
        """Count an answer, or that there was none."""
        with self.lock:
            self.statuses[what] += 1


class Victim:
    """Services, which are started again whenever they were killed, and what else can be hurt.

    `database`: URL of one on PostgreSQL, which several services use; None for a file of the one.
    """

    def __init__(self, folder: Path, clients: int, num_services: int, database: str | None) -> None:
        self._folder = folder
        self._database = database
        self._queue = ("--queue-size", str(2 * clients))
        self._rng = random.Random(0)  # noqa: S311 - chooses what breaks, not a secret
        self._killed_at: dict[str, int] = {}
        self.hurt: Counter[str] = Counter()
        self.services = [Service(port=free_port(), start_s=0.0) for _ in range(num_services)]
        self._processes = [self._started(number) for number in range(num_services)]
        for service, process in zip(self.services, self._processes, strict=True):
            wait_until_ready(service.port, time.perf_counter(), process)

    def kill_service(self) -> bool:
        """Kill a service and start it again on its database."""
        number = self._rng.randrange(len(self._processes))
        self._processes[number].kill()
        self._processes[number].wait()
        self._processes[number] = self._started(number)
        return True

    def cut_connection(self) -> bool:
        """End sessions of the database, one or all."""
        if self._database is None:
            return False
        # Of the extra `postgresql`.
        import psycopg

        mine = "datname = current_database() AND pid <> pg_backend_pid() AND application_name LIKE 'stowplan %'"
        most = self._rng.choice((1, 100))
        ended = f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE {mine} ORDER BY random() LIMIT {most}"  # noqa: S608
        with psycopg.connect(self._database, autocommit=True) as connection:
            return bool(connection.execute(ended.encode()).fetchall())

    def kill_worker(self) -> bool:
        """Kill one of the processes that plan or read, or the one that they are forked from, and all with it."""
        # The agent of a training is a child of the service that started it.
        children = {child for process in self._processes for child in descendants_of(process.pid)}
        return self._kill_one(sorted(children & set(_running(_WORKER))))

    def kill_rank(self) -> bool:
        """Kill a rank of a training that has got further than when that was done last."""
        further = [one for one in self.trainings() if one["step"] > self._killed_at.get(one["id"], 0)]
        if not further:
            return False
        chosen = self._rng.choice(further)
        self._killed_at[chosen["id"]] = chosen["step"]
        return self._kill_one(_running(_RANK, chosen["id"]))

    def starve(self) -> bool:
        """Keep every processor busy for some seconds."""
        loops = [subprocess.Popen([sys.executable, "-c", _BUSY]) for _ in range(2 * (os.cpu_count() or 1))]
        time.sleep(_STARVE_S)
        for loop in loops:
            loop.kill()
            loop.wait()
        return True

    def train(self) -> None:
        """Start a training at each service."""
        for number, service in enumerate(self.services):
            port = free_port() + _PORTS_APART * number
            asked = {**_TRAINING, "job_id": f"chaos-{number}", "launch": {"master_port": port}}
            _posted(service, "/v1/deployments", json.dumps(asked).encode())

    def trainings(self) -> list[dict[str, Any]]:
        """What one of the services says of all trainings; nothing when it does not answer now."""
        answer = ask(self._rng.choice(self.services), "GET", "/v1/deployments")
        return list(answer.body["deployments"]) if answer is not None and answer.status == 200 else []

    def harm(self) -> None:
        """Do one of these, at random."""
        kinds: dict[str, Callable[[], bool]] = {
            "service": self.kill_service,
            "worker": self.kill_worker,
            "rank": self.kill_rank,
            "starved": self.starve,
            "connections": self.cut_connection,
        }
        (name,) = self._rng.choices(list(kinds), weights=(2, 4, 2, 1, 2 if self._database else 0))
        self.hurt[name] += kinds[name]()

    def close(self) -> None:
        """End trainings and services."""
        for deployment in self.trainings():
            ask(self._rng.choice(self.services), "POST", f"{deployment['links']['self']}:stop")
        end_s = time.monotonic() + _STOP_S
        while _running(_RANK, str(self._folder)) and time.monotonic() < end_s:
            time.sleep(_AGAIN_S)
        for process in self._processes:
            process.terminate()
        for process in self._processes:
            process.wait(timeout=60)

    def _started(self, number: int) -> "subprocess.Popen[bytes]":
        options = [*self._queue, "--deployments", str(self._folder / f"deployments-{number}")]
        return started_service(self.services[number].port, self._database or self._folder / "plans.sqlite", *options)

    def _kill_one(self, pids: list[int]) -> bool:
        if not pids:
            return False
        with suppress(ProcessLookupError):
            os.kill(self._rng.choice(pids), signal.SIGKILL)
        return True


def main(
    seconds: Annotated[float, typer.Option(help="How long things go wrong.")] = 300.0,
    clients: Annotated[int, typer.Option(help="At a time.")] = 50,
    train: Annotated[
        bool, typer.Option(help="Each service looks after a training, too, whose ranks are killed; needs the executor.")
    ] = find_spec("deepspeed") is not None,
    services: Annotated[int, typer.Option(min=1, help="On one database; more than one need --database.")] = 1,
    database: Annotated[str | None, typer.Option(help="URL of an empty database on PostgreSQL.")] = None,
) -> None:
    """Kill workers, services and ranks at random while many clients post; fails on lost or wrong plans."""
    if services > 1 and database is None:
        raise typer.BadParameter("several services need --database postgresql://...", param_hint="--services")
    bodies = [json.dumps(small_request(variant)).encode() for variant in range(_VARIANTS)]
    with tempfile.TemporaryDirectory() as folder:
        victim = Victim(Path(folder), clients, services, database)
        try:
            before = _planned(victim.services[0], bodies)
            if train:
                victim.train()
            ledger = Ledger()
            with _posting(victim.services, bodies, clients, ledger):
                end_s = time.monotonic() + seconds
                while time.monotonic() < end_s:
                    victim.harm()
                    time.sleep(random.uniform(*_PAUSE_S))  # noqa: S311 - not a secret
            verdict, wrong = _judged(victim, ledger, before)
            went_on = not train or _go_on(victim)
            trainings = victim.trainings()
        finally:
            victim.close()
    print(f"{services} services, {clients} clients, {seconds:.0f} s; hurt: {dict(victim.hurt)}")
    print(f"answers: {dict(ledger.statuses)}")
    print(", ".join(f"{name} {count}" for name, count in verdict.items()))
    for what, count in wrong.items():
        print(f"wrong: {what}, {count} times")
    for training in trainings if train else ():
        runs = Counter(run["cause"] for run in training["runs"])
        said = {name: training[name] for name in _TOLD}
        print(f"training {training['job_id']}: runs by cause {dict(runs)}, {said}")
    if train:
        print(f"the trainings {'went on' if went_on else 'did not go on'}")
    if verdict["lost"] or verdict["wrong"] or verdict["planned twice"] or not went_on:
        raise typer.Exit(1)


def ask(service: Service, method: str, path: str, body: bytes | None = None, key: str | None = None) -> Answer | None:
    """One request; None where no whole answer came back."""
    with suppress(OSError, HTTPException, ValueError):
        return service.call(method, path, body, _WAIT_S if key is not None else None, key)
    return None


@contextmanager
def _posting(services: list[Service], bodies: list[bytes], clients: int, ledger: Ledger) -> Iterator[None]:
    """Have clients post until the end of the block, and then finish what they have begun."""
    over = threading.Event()
    threads = [
        threading.Thread(target=_client, args=(services, bodies, seed, over, ledger), daemon=True)
        for seed in range(clients)
    ]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        over.set()
        end_s = time.monotonic() + _SETTLE_S
        for thread in threads:
            thread.join(max(0.0, end_s - time.monotonic()))


def _client(services: list[Service], bodies: list[bytes], seed: int, over: threading.Event, ledger: Ledger) -> None:
    rng = random.Random(seed)  # noqa: S311 - chooses what to post, not a secret
    while not over.is_set():
        variant, key = rng.randrange(len(bodies)), f"chaos-{uuid.uuid4().hex}"
        while not _answered(rng.choice(services), bodies[variant], variant, key, ledger):
            time.sleep(_AGAIN_S)


def _answered(service: Service, body: bytes, variant: int, key: str, ledger: Ledger) -> bool:
    answer = ask(service, "POST", "/v1/plans", body, key)
    ledger.note("none" if answer is None else str(answer.status))
    if answer is None or answer.status not in (200, 202):
        return False
    ledger.accept(key, variant, answer.body)
    return True


def _planned(service: Service, bodies: list[bytes]) -> list[Any]:
    """The plans for these, while nothing is wrong."""
    ids = [_posted(service, "/v1/plans", body)["id"] for body in bodies]
    plans = [_ended(service, plan_id, time.monotonic() + _SETTLE_S) for plan_id in ids]
    if not all(plan is not None and plan["verified"] for plan in plans):
        raise RuntimeError("plans do not end even while nothing is wrong")
    return plans


def _posted(service: Service, path: str, body: bytes) -> Any:
    """What a POST is answered while nothing is wrong."""
    answer = service.call("POST", path, body, _WAIT_S)
    if answer.status not in (200, 201, 202):
        raise RuntimeError(f"POST {path}: {answer.status} {answer.body}")
    return answer.body


def _ended(service: Service, plan_id: str, end_s: float) -> Any:
    """A plan that has ended; None when it is not there, or does not end until `end_s` (monotonic clock)."""
    while time.monotonic() < end_s:
        answer = ask(service, "GET", f"/v1/plans/{plan_id}")
        if answer is not None and answer.status == 404:
            return None
        if answer is not None and answer.status == 200 and answer.body["times"]["finished"] is not None:
            return answer.body
        time.sleep(_AGAIN_S)
    return None


def _judged(victim: Victim, ledger: Ledger, before: list[Any]) -> tuple[dict[str, int], Counter[str]]:
    """Look at every plan when nothing is wrong any more; also counts how the wrong ones ended."""
    wrong: Counter[str] = Counter()
    end_s = time.monotonic() + _SETTLE_S
    verdict = dict.fromkeys(("accepted", "finished", "lost", "wrong", "planned twice"), 0)
    verdict["accepted"] = len(ledger.ids)
    for key, ids in ledger.ids.items():
        verdict["planned twice"] += len(ids) - 1
        plan = _ended(victim.services[0], min(ids), end_s)
        if plan is not None:
            ledger.see(plan)
        fate = _fate(plan, before[ledger.variants[key]]["objective"])
        verdict[fate] += 1
        if fate == "wrong":
            wrong[f"{plan['status']} {plan['objective']} {plan['failure']}"] += 1
    verdict["planned twice"] += sum(len(ends) - 1 for ends in ledger.ends.values())
    known = {plan["id"] for plan in before}.union(*ledger.ids.values())
    verdict["planned twice"] += len(_listed(victim.services[0]) - known)
    return verdict, wrong


def _fate(plan: Any, objective: float) -> str:
    """What became of an accepted plan: `finished`, `wrong` or `lost`."""
    if plan is None:
        return "lost"
    return "finished" if plan["verified"] and abs(plan["objective"] - objective) <= 1e-9 else "wrong"


def _listed(service: Service) -> set[str]:
    """Ids of all plans that the service knows."""
    found: set[str] = set()
    path: str | None = _PAGE
    while path is not None:
        page = service.call("GET", path).body
        found.update(plan["id"] for plan in page["plans"])
        path = page["next"]
    return found


def _go_on(victim: Victim) -> bool:
    """Whether every training gets further, now that it can."""
    before: dict[str, int] = {}
    end_s = time.monotonic() + _SETTLE_S
    while time.monotonic() < end_s:
        for one in victim.trainings():
            before.setdefault(one["id"], one["step"])
        further = [one for one in victim.trainings() if one["step"] > before.get(one["id"], one["step"])]
        if len(further) == len(victim.services):
            return True
        time.sleep(1.0)
    return False


def _running(*words: str) -> list[int]:
    """Ids of processes whose command line has all these words."""
    found = []
    for entry in Path("/proc").iterdir():
        with suppress(OSError):
            if entry.name.isdigit() and all(word in (entry / "cmdline").read_text() for word in words):
                found.append(int(entry.name))
    return found
