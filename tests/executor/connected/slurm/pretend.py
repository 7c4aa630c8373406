"""A Slurm that is pretended: it says what newer ones say, carries out what it is told, and starts nothing by itself."""

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from benchmarks.workloads.slurm_documents import NOW_S, document, job, node, running
from executor.connected.clock import Clock
from executor.connected.journal import Journal
from executor.connected.loop import decisions
from executor.connected.nearness import NearNodesFirst
from executor.connected.slurm.backend import SlurmCluster
from executor.connected.slurm.client import SlurmAwayError, SlurmClient, SlurmRefusedError, site_of
from executor.connected.slurm.terms import Terms
from executor.control.controller import Step
from executor.control.options import ControlOptions
from models.allocation.gang.parameters import GangParameters
from models.cluster_state import StateOptions
from models.planning import plan

_FIELDS = {"AdminComment": "admin_comment", "ReqNodeList": "required_nodes"}
LIMIT = 200


def ours(number: int, comment: str = "stowplan", **fields: Any) -> dict[str, Any]:
    """A job that opted in and waits for 8 GPUs."""
    return job(number, comment=comment, admin_comment="", max_nodes=0, eligible_time=NOW_S + 240, **fields)


@dataclass(frozen=True, kw_only=True)
class PretendSlurm(SlurmClient):
    """`jobs` by id, as they are; `told`: what it was told to change. is_away: it does not answer. refuses: commands for
    this job."""

    nodes: list[dict[str, Any]] = field(default_factory=lambda: [node(f"n{k}") for k in range(4)])
    jobs: dict[int, dict[str, Any]] = field(default_factory=dict)
    reservations: list[dict[str, Any]] = field(default_factory=list)
    told: list[tuple[str, ...]] = field(default_factory=list)
    moment_s: list[float] = field(default_factory=lambda: [float(NOW_S)])
    is_away: list[bool] = field(default_factory=lambda: [False])
    refuses: set[int] = field(default_factory=set)

    def run(self, words: Sequence[str]) -> str:
        if self.is_away[0]:
            raise SlurmAwayError("slurmctld does not answer: pretended")
        said: Mapping[str, Callable[[], str]] = {
            "scontrol --version": lambda: "slurm 24.05.1\n",
            "scontrol show config": lambda: "ClusterName             = pretended\n",
            "scontrol show nodes --json": lambda: document("nodes", self.nodes),
            "scontrol show partitions --json": lambda: document("partitions", []),
            "scontrol show reservations --json": lambda: document("reservations", self.reservations),
            "squeue --json": lambda: document("jobs", list(self.jobs.values())),
        }
        if " ".join(words) in said:
            return said[" ".join(words)]()
        self.told.append(tuple(words))
        if words[1] == "requeue":
            self.jobs[int(words[2])] |= {
                "job_state": ["PENDING"],
                "nodes": "",
                "gres_detail": [],
                "eligible_time": int(self.moment_s[0]) + 120,
            }
            return ""
        changes = dict(word.partition("=")[::2] for word in words[2:])
        for target in changes.pop("JobId").split(","):
            self._update(int(target), changes)
        return ""

    def _update(self, number: int, changes: Mapping[str, str]) -> None:
        if number in self.refuses:
            raise SlurmRefusedError(f"pretended for {number}")
        record = self.jobs[number]
        for name, value in changes.items():
            if name == "StartTime":
                record["eligible_time"] = int(self.moment_s[0]) + int(value.partition("+")[2] or 0)
            elif name in _FIELDS:
                record[_FIELDS[name]] = value

    def start(self, number: int, nodes: str, gpus: Sequence[str]) -> None:
        """Have a job run."""
        record = self.jobs[number]
        own = {name: record[name] for name in ("comment", "admin_comment", "required_nodes", "max_nodes")}
        self.jobs[number] = running(number, nodes, gpus, hours=0.0, **own)

    def updates(self) -> dict[str, list[str]]:
        """What was told of each job so far; forgets it."""
        found: dict[str, list[str]] = {}
        for words in self.told:
            target = words[2].removeprefix("JobId=")
            found.setdefault(target, []).append(" ".join((*words[1:2], *words[3:])))
        self.told.clear()
        return found


@dataclass
class PretendClock(Clock):
    """Time passes where it is waited for, and what happens then is told it."""

    slurm: PretendSlurm
    then: list[Callable[[], None]]
    waits: list[float] = field(default_factory=list)

    def now_s(self) -> float:
        return self.slurm.moment_s[0]

    def moment(self) -> datetime:
        return datetime.fromtimestamp(self.slurm.moment_s[0], UTC)

    def wait(self, changed: threading.Condition, limit_s: float) -> None:  # noqa: ARG002 - of the protocol
        self.waits.append(limit_s)
        assert len(self.waits) < LIMIT, "nothing happens"
        self.slurm.moment_s[0] += limit_s
        if self.then:
            self.then.pop(0)()


class Loop:
    """A connection to it: `then` happens one after the other, each while the loop waits to look again; then it ends."""

    def __init__(
        self,
        slurm: PretendSlurm,
        terms: Terms | None = None,
        *,
        is_dry: bool = False,
        near_wait_s: float = 0.0,
        topology: Path | None = None,
        **parameters: Any,
    ) -> None:
        self.slurm, self.said, self.lines = slurm, list[str](), list[str]()
        self.clock = PretendClock(slurm, [])
        self.cluster = SlurmCluster(
            slurm,
            site_of(slurm, topology),
            terms or Terms(),
            StateOptions(),
            Journal(self.lines.append, is_dry=is_dry),
            clock=self.clock,
            say=self.said.append,
        )
        self._options = ControlOptions(parameters=GangParameters(**parameters))
        self.planner = NearNodesFirst(plan, near_wait_s, lambda: self.cluster.now_s)

    def run(self, *then: Callable[[], None]) -> list[Step]:
        self.clock.then += [*then, self.cluster.close]
        return list(decisions(self.cluster, self._options, self.planner, lambda: self.planner.due_s))
