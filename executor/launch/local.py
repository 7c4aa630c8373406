"""All hosts of a deployment on this machine: one agent per host of the plan."""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, ClassVar

from executor.extra import missing_extra
from executor.launch.agent import PORT_HELD, hold_port, host_file
from executor.launch.base import LaunchBackend, LaunchError, PortError, RunState, RunStatus, last_lines, read_launch
from executor.records import write_text
from stowplan.child_environment import child_environment

_POLL_S = 0.05
_CHECK_S = 60.0
# Run by the interpreter of the ranks: prints what is missing.
_CHECK = f"from {missing_extra.__module__} import missing_extra; print(missing_extra() or '')"


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
        # Before the interpreter, which takes its time: other ports may have to be tried.
        port = self.hold_port(launch)
        agents: dict[str, dict[str, Any]] = {}
        try:
            refuse_interpreter(launch)
            for report in (folder / "status").glob("*.json"):
                report.unlink()
            for host in dict.fromkeys(rank["node"] for rank in launch["ranks"]):
                process = self._start_agent(folder, host, port)
                agents[host] = {"pid": process.pid, "started": _start_time(process.pid)}
            write_text(folder / "agents.json", json.dumps(agents))
        except OSError as error:
            # Without agents.json nobody would find them again.
            _signal([agent["pid"] for agent in agents.values()], signal.SIGKILL)
            raise LaunchError(f"the agents cannot be started in {folder}: {error.strerror}") from error
        finally:
            if port is not None:
                port.close()

    def _start_agent(self, folder: Path, host: str, port: socket.socket | None) -> "subprocess.Popen[bytes]":
        """Start the agent of a host; it keeps the port as long as it lives."""
        environment = child_environment() | ({} if port is None else {PORT_HELD: "1"})
        with (folder / f"agent-{host_file(host)}.log").open("ab") as log:
            process = subprocess.Popen(  # noqa: S603 - our own module
                self.agent_command(folder, host),
                env=environment,
                pass_fds=() if port is None else (port.fileno(),),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self._children.append(process)
        return process

    def agent_command(self, folder: Path, host: str) -> list[str]:
        """Command that becomes the agent of a host."""
        return [sys.executable, "-P", "-m", "executor.launch.agent", str(folder), host]

    def hold_port(self, launch: Mapping[str, Any]) -> socket.socket | None:
        """Take the port on which the ranks are to meet, or leave that to the agent of rank 0: None.

        Raises
        ------
        PortError
            When it is in use.
        """
        address, port = launch["master_addr"], int(launch["master_port"])
        try:
            return hold_port(address, port)
        except OSError as error:
            raise PortError(f"port {port} of {address} cannot be used: {error.strerror}; choose another one") from error

    def status(self, folder: Path) -> RunStatus:
        """State of the run; here the death of an agent is seen at once."""
        self._reap()
        found = super().status(folder)
        if not found.state.final and not _alive(folder):
            # They may have written their last word meanwhile.
            found = super().status(folder)
            if not found.state.final:
                said = "".join(f"; {path.name}: {line}" for path, line in _last_words(folder))
                detail = f"the agents are gone without a last word{said}"
                return RunStatus(state=RunState.FAILED, detail=detail, pids=found.pids)
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


def refuse_interpreter(launch: Mapping[str, Any]) -> None:
    """Raise LaunchError where our trainer is to run and its interpreter is not there, or lacks what training needs."""
    if not launch.get("trainer"):
        return
    python = launch["python"]
    if shutil.which(python) is None:
        raise LaunchError(f"python is {python!r}: there is no such program here")
    line, environment = [python, "-P", "-c", _CHECK], child_environment() | launch["environment"]
    try:
        done = subprocess.run(  # noqa: S603 - what the user would have trained with
            line, env=environment, capture_output=True, text=True, timeout=_CHECK_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise LaunchError(f"python is {python!r}: it cannot be run: {error}") from error
    said = (done.stdout if done.returncode == 0 else done.stderr or f"exit code {done.returncode}").strip()
    if said:
        raise LaunchError(f"{python}: {said.splitlines()[-1]}")


def _last_words(folder: Path) -> Iterator[tuple[Path, str]]:
    """Last line of what every agent wrote, where it wrote anything."""
    for path in sorted(folder.glob("agent-*.log")):
        for line in last_lines(path, 1):
            yield path, line


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
