"""Clusters behind the test server, and connections to them, that the tests of this folder share."""

import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import kubernetes.client

from executor.connected.clock import Clock
from executor.connected.journal import Journal
from executor.connected.kubernetes.api import ConnectedApi
from executor.connected.kubernetes.backend import KubernetesCluster
from executor.connected.kubernetes.cluster import ClusterCopy
from executor.connected.kubernetes.terms import NUM_PODS, Terms
from executor.connected.kubernetes.told import Patience
from executor.connected.loop import decisions
from executor.control.controller import Planner, Step
from executor.control.options import ControlOptions
from models.allocation.gang.parameters import GangParameters
from models.cluster_state import StateOptions
from models.cluster_state.kubernetes.pods import PLACEMENT_GATE
from models.planning import plan
from tests.executor.connected.kubernetes.api_server import ApiServer, Json
from tests.models.cluster_state.kubernetes_documents import node, pod

LIMIT_S = 10.0
LEAF = "backend.coreweave.cloud/leafgroup"
NOW = datetime(2026, 11, 20, 12, tzinfo=UTC)
PATIENCE = Patience(settle_s=0.0, tries=3, pause_s=0.01, unread_s=30.0)


class TestClock(Clock):
    """The moment stands still; waits end when they last long without anything happening."""

    __test__ = False

    def __init__(self) -> None:
        self._since_s: float | None = None

    def begin(self) -> None:
        self._since_s = time.monotonic()

    def moment(self) -> datetime:
        return NOW

    def wait(self, changed: threading.Condition, limit_s: float) -> None:
        assert self._since_s is None or time.monotonic() - self._since_s < LIMIT_S, "nothing happens"
        changed.wait(min(limit_s, 0.2))


def nodes(num: int = 4, per_leaf: int = 2) -> list[Json]:
    return [node(f"n{k}", {LEAF: f"leaf{k // per_leaf}"}) for k in range(num)]


def gang(name: str, num: int, *, gated: bool = True, notes: dict[str, str] | None = None, **spec: Any) -> list[Json]:
    """Pods of an indexed Job in a JobSet, which wait behind our gate."""
    made = []
    for k in range(num):
        one = pod(f"{name}-workers-0-{k}-x{k}", name, **spec)
        one["metadata"]["labels"] |= {
            "batch.kubernetes.io/job-completion-index": str(k),
            "jobset.sigs.k8s.io/job-index": "0",
            "jobset.sigs.k8s.io/replicatedjob-name": "workers",
        }
        one["metadata"]["ownerReferences"] = [{"kind": "Job", "name": f"{name}-workers-0", "controller": True}]
        if gated:
            one["metadata"]["annotations"] = {NUM_PODS: str(num), **(notes or {})}
            one["spec"]["schedulingGates"] = [{"name": PLACEMENT_GATE}]
        made.append(one)
    return made


@contextmanager
def served(*items: tuple[str, Sequence[Json]], kueue: str | None = None) -> Iterator[ApiServer]:
    """A server with these objects."""
    server = ApiServer(served=kueue)
    try:
        for plural, found in items:
            for item in found:
                server.put(plural, item)
        yield server
    finally:
        server.close()


def api_of(server: ApiServer, timeout_s: float = 5.0) -> ConnectedApi:
    configuration = kubernetes.client.Configuration()
    configuration.host = server.host
    return ConnectedApi(configuration, timeout_s)


@dataclass
class Connection:
    """A connector: its backend, what it said, its steps."""

    copy: ClusterCopy
    backend: KubernetesCluster
    steps_to_come: Iterator[Step]
    journal: Journal
    clock: TestClock
    said: list[str] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)

    def step(self) -> Step | None:
        self.clock.begin()
        found = next(self.steps_to_come, None)
        if found is not None:
            self.steps.append(found)
        return found


@contextmanager
def connected(
    server: ApiServer,
    *,
    terms: Terms | None = None,
    parameters: GangParameters | None = None,
    dry: bool = False,
    file: Path | None = None,
    patience: Patience = PATIENCE,
    timeout_s: float = 5.0,
    planner: Planner = plan,
    **more: Any,
) -> Iterator[Connection]:
    said: list[str] = []
    terms = terms or Terms()
    copy = ClusterCopy(api_of(server, timeout_s), first_pause_s=0.01)
    copy.begin()
    try:
        journal = Journal(said.append, file, is_dry=dry)
        clock = TestClock()
        backend = KubernetesCluster(
            copy, terms, StateOptions(), journal, patience=patience, clock=clock, say=said.append, **more
        )
        options = ControlOptions(parameters=parameters or GangParameters())
        yield Connection(
            copy=copy,
            backend=backend,
            steps_to_come=decisions(backend, options, planner),
            journal=journal,
            clock=clock,
            said=said,
        )
    finally:
        copy.close()
        server.drop_watches()


def where(server: ApiServer, job: str) -> list[str | None]:
    """Nodes on which the pods of a job run, in rank order."""
    found = sorted(
        (int(item["metadata"]["labels"]["batch.kubernetes.io/job-completion-index"]), item["spec"].get("nodeName"))
        for item in list(server.objects["pods"].values())
        if item["metadata"]["labels"]["jobset.sigs.k8s.io/jobset-name"] == job
    )
    return [name for _, name in found]


def until(connection: Connection, kind: type, limit: int = 20) -> list[Any]:
    """Go on until something of a kind happens, at most so many steps; what of it did."""
    for _ in range(limit):
        step = connection.step()
        assert step is not None
        found = [event for event in step.events if isinstance(event, kind)]
        if found:
            return found
    raise AssertionError(f"no {kind.__name__} within {limit} steps: {connection.steps}")


def patches(server: ApiServer) -> list[str]:
    """Names of what was to be patched, in order."""
    return [request.path.rpartition("/")[2] for request in server.writes() if request.method == "PATCH"]
