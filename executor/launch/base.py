"""What every launch backend offers, and how the state of a run follows from what its agents wrote."""

import json
import signal
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any, ClassVar

from executor.launch.agent import host_file, log_file
from executor.outcome import PEER_LOST
from executor.watch import Watch
from stowplan.errors import StowplanError

_LAST_LINES = 20
_LAST_BYTES = 16_384
# An agent writes every two seconds; when nobody has seen a new word for this long, it or its host is gone.
HEARTBEAT_LIMIT_S = 30.0


class LaunchError(StowplanError):
    """A run could not be started or reached: host, port, scheduler."""

    code: ClassVar[str] = "launch_failed"


class PortError(LaunchError):
    """The port on which the ranks are to meet is in use."""


class RunState(StrEnum):
    """starting: no agent has written yet. lost: an agent fell silent, what its ranks do is not known."""

    STARTING = "starting"
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    STOPPED = "stopped"
    LOST = "lost"

    @property
    def final(self) -> bool:
        """Whether the run is over."""
        return self in (RunState.SUCCEEDED, RunState.FAILED, RunState.STOPPED)


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadRank:
    """A rank that did not end well by itself: its exit code or the signal that killed it, and its last lines."""

    rank: int
    host: str
    exit_code: int | None
    signal: str | None
    last_lines: tuple[str, ...]

    def describe(self) -> str:
        """One sentence."""
        how = f"was killed by {self.signal}" if self.signal else f"ended with exit code {self.exit_code}"
        return f"rank {self.rank} on host {self.host} {how}"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunStatus:
    """State of a run. `dead`: the ranks that broke it, causes first; those that were ended because of them are not
    listed. `is_queued`: a scheduler has no room for it yet. `is_unknown`: the scheduler does not answer, and what the
    agents said suffices for no judgement. `unavailable`: hosts that it waits for although they take no job.
    """

    state: RunState
    num_running: int = 0
    dead: tuple[DeadRank, ...] = ()
    detail: str = ""
    pids: Mapping[int, int] = field(default_factory=dict)
    is_queued: bool = False
    is_unknown: bool = False
    unavailable: tuple[str, ...] = ()


class LaunchBackend(ABC):
    """Starts the agents of a deployment that lies in a folder (see `executor.bundle`).

    Everything that `status` and `stop` need is in the folder, so that they work after a restart of whoever
    started the run.
    """

    name: ClassVar[str]
    # Whether a run begins when it is told to; else a user starts it by hand, and nobody knows when.
    starts_runs: ClassVar[bool] = True
    # How often it may be asked for a run that many wait for: no scheduler is asked then.
    hurried_pause_s: ClassVar[float] = 0.05
    # All backends of a process: whoever looks at a run goes on from what others have seen.
    watch = Watch()

    @abstractmethod
    def start(self, folder: Path) -> None:
        """Start the run and return at once.

        Raises
        ------
        LaunchError
            When a host cannot be reached, a port is in use, or the scheduler refuses; nothing runs then.
        """

    @abstractmethod
    def stop(self, folder: Path, grace_s: float = 10.0) -> None:
        """End the run and wait until no process of it is left; no error when it is over."""

    def status(self, folder: Path) -> RunStatus:
        """State of the run from what the agents wrote."""
        return status_of(folder, read_launch(folder), self.watch)


def read_launch(folder: Path) -> dict[str, Any]:
    """Launch description of a deployment.

    Raises
    ------
    LaunchError
        When the folder has none.
    """
    try:
        launch = json.loads((folder / "launch.json").read_text())
    except (OSError, ValueError) as error:
        raise LaunchError(f"{folder} is no deployment: launch.json cannot be read ({error})") from error
    if not isinstance(launch, dict):
        raise LaunchError(f"{folder} is no deployment: launch.json is no object")
    return launch


def status_of(folder: Path, launch: Mapping[str, Any], watch: Watch) -> RunStatus:
    """Combine the words of all agents; a run has succeeded only when every rank of every host ended with 0."""
    hosts = sorted({rank["node"] for rank in launch["ranks"]})
    reports = [
        report for host in hosts if (report := _report(folder / "status" / f"{host_file(host)}.json")) is not None
    ]
    dead = tuple(sorted((rank for report in reports for rank in _dead(folder, report)), key=_follows_others))
    running = sum(rank["running"] for report in reports for rank in report["ranks"].values())
    pids = {int(r): rank["pid"] for report in reports for r, rank in report["ranks"].items() if rank["running"]}
    faults = [report["error"] for report in reports if report["error"]] + [rank.describe() for rank in dead]
    if faults:
        return RunStatus(state=RunState.FAILED, num_running=running, dead=dead, detail="; ".join(faults), pids=pids)
    if len(reports) < len(hosts):
        silent = sorted(set(hosts) - {report["host"] for report in reports})
        detail = f"no word yet from {', '.join(silent)}"
        return RunStatus(state=RunState.STARTING, num_running=running, detail=detail, pids=pids)
    if all(report["final"] for report in reports):
        state = RunState.STOPPED if any(report["stopped"] for report in reports) else RunState.SUCCEEDED
        return RunStatus(state=state)
    silent_s = {r["host"]: watch.unchanged_s((folder, "beat", r["host"]), r["beat"]) for r in reports if not r["final"]}
    lost = [host for host, seconds in silent_s.items() if seconds > HEARTBEAT_LIMIT_S]
    if lost:
        detail = f"no word from {', '.join(lost)} for more than {HEARTBEAT_LIMIT_S:.0f} s"
        return RunStatus(state=RunState.LOST, num_running=running, detail=detail, pids=pids)
    return RunStatus(state=RunState.RUNNING, num_running=running, pids=pids)


def _follows_others(rank: DeadRank) -> bool:
    """Whether a rank has ended as those do that lose another one: NCCL aborts the process."""
    return rank.exit_code == PEER_LOST or rank.signal == signal.SIGABRT.name


def last_lines(path: Path, count: int = _LAST_LINES) -> tuple[str, ...]:
    """Give the last lines of a log; empty where there is none."""
    try:
        with path.open("rb") as log:
            log.seek(0, 2)
            log.seek(max(0, log.tell() - _LAST_BYTES))
            text = log.read().decode(errors="replace")
    except OSError:
        return ()
    return tuple(text.splitlines()[-count:])


def _report(path: Path) -> dict[str, Any] | None:
    """What an agent wrote, with what changes at its every sign of life; None where it has not written yet."""
    try:
        report: dict[str, Any] = json.loads(path.read_text())
        # On a full disk the report is only touched, and so did agents of older versions tell that they live.
        return report | {"beat": (report.get("num_beats"), path.stat().st_mtime_ns)}
    except FileNotFoundError:
        return None


def _dead(folder: Path, report: Mapping[str, Any]) -> list[DeadRank]:
    """Ranks of a host that ended badly and not because the agent ended them."""
    return [
        DeadRank(
            rank=int(number),
            host=report["host"],
            exit_code=rank["exit_code"],
            signal=signal.Signals(rank["signal"]).name if rank["signal"] else None,
            last_lines=last_lines(log_file(folder, int(number))),
        )
        for number, rank in report["ranks"].items()
        if not rank["running"] and not rank["ended_by_agent"] and (rank["signal"] or rank["exit_code"])
    ]
