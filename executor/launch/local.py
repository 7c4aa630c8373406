"""All hosts of a deployment on this machine: one agent per host of the plan."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, ClassVar

from executor.launch.base import LaunchBackend, LaunchError, RunState, RunStatus, read_launch

_POLL_S = 0.05


class LocalBackend(LaunchBackend):
    """Processes on this machine."""

    name: ClassVar[str] = "local"

    # Agents that this process started, to be reaped: they outlive backends.
    _children: ClassVar[list["subprocess.Popen[bytes]"]] = []

    def start(self, folder: Path) -> None:
        """Start one agent per host, detached: they outlive whoever started them."""
        launch = read_launch(folder)
        if _alive(folder):
            raise LaunchError(f"the deployment in {folder} is running already; stop it first")
        self.refuse_used_port(launch)
        for report in (folder / "status").glob("*.json"):
            report.unlink()
        agents = {}
        for host in dict.fromkeys(rank["node"] for rank in launch["ranks"]):
            with (folder / f"agent-{host}.log").open("ab") as log:
                process = subprocess.Popen(  # noqa: S603 - our own module
                    self.agent_command(folder, host),
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                )
            self._children.append(process)
            agents[host] = {"pid": process.pid, "started": _start_time(process.pid)}
        (folder / "agents.json").write_text(json.dumps(agents))

    def agent_command(self, folder: Path, host: str) -> list[str]:
        """Command that becomes the agent of a host."""
        return [sys.executable, "-P", "-m", "executor.launch.agent", str(folder), host]

    def refuse_used_port(self, launch: Mapping[str, Any]) -> None:
        """Raise LaunchError when the ranks cannot meet on the port that they are to meet on."""
        refuse_used_port(launch["master_addr"], int(launch["master_port"]))

    def status(self, folder: Path) -> RunStatus:
        """State of the run; here the death of an agent is seen at once."""
        self._reap()
        found = super().status(folder)
        if found.state in (RunState.RUNNING, RunState.STARTING) and not _alive(folder):
            # They may have written their last word meanwhile.
            found = super().status(folder)
            if not found.state.final:
                return RunStatus(
                    state=RunState.FAILED,
                    detail="the agents are gone without a last word; see agent-*.log",
                    pids=found.pids,
                )
        return found

    def stop(self, folder: Path, grace_s: float = 10.0) -> None:
        """Tell the agents to stop; kill what is left after twice the grace."""
        _signal(_alive(folder), signal.SIGTERM)
        deadline = time.monotonic() + 2 * grace_s
        while _alive(folder) and time.monotonic() < deadline:
            time.sleep(_POLL_S)
        _signal(_alive(folder), signal.SIGKILL)
        for pid in super().status(folder).pids.values():
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(pid, signal.SIGKILL)
        self._reap()

    def _reap(self) -> None:
        self._children[:] = [child for child in self._children if child.poll() is None]


def refuse_used_port(address: str, port: int) -> None:
    """Raise LaunchError when somebody listens on the port already."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((address, port))
        except OSError as error:
            raise LaunchError(
                f"port {port} of {address} cannot be used: {error.strerror}; choose another one"
            ) from error


def free_port() -> int:
    """Find a port that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _alive(folder: Path) -> list[int]:
    """Process ids of the agents that still run."""
    return [pid for pid, started in _agents(folder) if _start_time(pid) == started]


def _agents(folder: Path) -> Iterator[tuple[int, str]]:
    path = folder / "agents.json"
    if path.exists():
        for agent in json.loads(path.read_text()).values():
            yield agent["pid"], agent["started"]


def _start_time(pid: int) -> str | None:
    """Start of a process in clock ticks: with it a recycled process id is told apart; None when it is over."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] == "Z" else fields[19]


def _signal(pids: list[int], number: signal.Signals) -> None:
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, number)
