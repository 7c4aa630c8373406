"""One agent per host, started through a shell on every host, by whatever command reaches it.

The folder of the deployment must lie under the same path on all hosts (checkpoints need a shared file system anyway),
and the hosts need the executor under the interpreter that `launch.json` names.
"""

import re
import shlex
import subprocess
import time
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

from executor.launch.agent import host_file
from executor.launch.base import (
    HEARTBEAT_LIMIT_S,
    LaunchBackend,
    LaunchError,
    RunState,
    RunStatus,
    last_lines,
    read_launch,
)

_COMMAND_S = 30.0
_POLL_S = 0.2
_MAX_CONNECTIONS = 32
_LAST_LINES = 5
# What the agents are found by; the brackets keep the shell that carries the pattern from matching it.
_AGENT = "[e]xecutor.launch.agent"


class RemoteShellBackend(LaunchBackend):
    """Hosts reached by a command that runs a line of shell there and gives back its output and exit code.

    program: what has to be installed here, in words. unreachable_code: exit code by which the command says that it did
    not reach the host, None where it has none of its own.
    """

    program: ClassVar[str]
    unreachable_code: ClassVar[int | None] = None

    @abstractmethod
    def line(self, address: str, command: str) -> Sequence[str]:
        """Arguments that run the shell `command` on the host at `address`."""

    def start(self, folder: Path) -> None:
        """See whether every host is there, sees the folder and has the executor, then start all agents; all or none."""
        launch = read_launch(folder)
        hosts, python = _addresses(launch), shlex.quote(launch["python"])
        install = "install it there: pip install -e '.[executor]' in a checkout"
        lacks = f"has no executor under {launch['python']}; {install}"
        refusals = {
            f"test -f {shlex.quote(str(folder / 'launch.json'))}": f"does not see {folder}",
            "command -v pgrep pkill > /dev/null": "has no pgrep and pkill; install procps",
            f"command -v {python} > /dev/null": f"has no program {launch['python']}",
            f"{python} -P -c 'import {host_file.__module__}' > /dev/null 2>&1": lacks,
        }
        seen = "; ".join(f"{test} || {{ echo {shlex.quote(said)} >&2; exit 3; }}" for test, said in refusals.items())
        self._everywhere(hosts, dict.fromkeys(hosts, seen))
        for report in (folder / "status").glob("*.json"):
            report.unlink()
        try:
            self._everywhere(hosts, {host: _start_command(folder, launch, host) for host in hosts})
        except LaunchError:
            self.stop(folder, grace_s=1.0)
            raise

    def status(self, folder: Path) -> RunStatus:
        """State of the run from what the agents wrote; where they should have written long ago, see if they live."""
        found = super().status(folder)
        waited_s = self.watch.unchanged_s((folder, "state"), found.state)
        if found.state is not RunState.STARTING or waited_s < HEARTBEAT_LIMIT_S:
            return found
        try:
            gone = self._without_agent(folder)
        except LaunchError as error:
            return replace(found, detail=f"{found.detail}; {error.detail}")
        # They may have written their last word meanwhile.
        found = super().status(folder)
        if not gone or found.state is not RunState.STARTING:
            return found
        return replace(found, state=RunState.FAILED, detail="; ".join(_death(folder, host) for host in gone))

    def _without_agent(self, folder: Path) -> list[str]:
        """Hosts whose agent has written nothing and is not there."""
        hosts = {
            host: address
            for host, address in _addresses(read_launch(folder)).items()
            if not (folder / "status" / f"{host_file(host)}.json").exists()
        }
        patterns = {host: shlex.quote(f"{_AGENT} {re.escape(str(folder))} {re.escape(host)}$") for host in hosts}
        left = self._everywhere(hosts, {host: f"pgrep -c -f -- {found} || true" for host, found in patterns.items()})
        return [host for host, count in left.items() if count == "0"]

    def stop(self, folder: Path, grace_s: float = 10.0) -> None:
        """Tell all agents to stop, wait, and kill what is left."""
        launch = read_launch(folder)
        hosts = _addresses(launch)
        pattern = shlex.quote(f"{_AGENT} {re.escape(str(folder))} ")
        self._everywhere(hosts, dict.fromkeys(hosts, f"pkill -TERM -f -- {pattern} || true"))
        deadline = time.monotonic() + 2 * grace_s
        while time.monotonic() < deadline:
            left = self._everywhere(hosts, dict.fromkeys(hosts, f"pgrep -c -f -- {pattern} || true"))
            if not any(map(int, left.values())):
                return
            time.sleep(_POLL_S)
        self._everywhere(hosts, dict.fromkeys(hosts, f"pkill -KILL -f -- {pattern} || true"))

    def _everywhere(self, hosts: Mapping[str, str], commands: Mapping[str, str]) -> dict[str, str]:
        """Run a command on every host at the same time; the output per host."""
        with ThreadPoolExecutor(max_workers=min(_MAX_CONNECTIONS, len(hosts))) as pool:
            results = dict(
                zip(hosts, pool.map(lambda host: self._run(hosts[host], commands[host]), hosts), strict=True)
            )
        failed = {host: error for host, (_, error) in results.items() if error is not None}
        if failed:
            raise LaunchError("; ".join(f"host {host}: {error}" for host, error in failed.items()))
        return {host: output for host, (output, _) in results.items()}

    def _run(self, address: str, command: str) -> tuple[str, str | None]:
        """Output, and what went wrong."""
        line = self.line(address, command)
        try:
            done = subprocess.run(line, capture_output=True, text=True, timeout=_COMMAND_S, check=False)  # noqa: S603
        except FileNotFoundError:
            return "", f"there is no {line[0]} command here; install {self.program}"
        except subprocess.TimeoutExpired:
            return "", f"{address} did not answer within {_COMMAND_S:.0f} s"
        if done.returncode == 0:
            return done.stdout.strip(), None
        said = done.stderr.strip().splitlines()
        unreached = done.returncode == self.unreachable_code
        place = f"{address} cannot be reached" if unreached else f"{address} refused"
        return "", f"{place}: {said[-1] if said else f'exit code {done.returncode}'}"


def _addresses(launch: Mapping[str, Any]) -> dict[str, str]:
    """Address of every host: what `addresses` says, else its name."""
    known = launch.get("addresses", {})
    return {rank["node"]: known.get(rank["node"], rank["node"]) for rank in launch["ranks"]}


def _death(folder: Path, host: str) -> str:
    """What is known of an agent that is gone without a word."""
    log = folder / f"agent-{host_file(host)}.log"
    said = " | ".join(last_lines(log, _LAST_LINES))
    return f"the agent of host {host} is gone without a word; {log.name} " + (f"ends: {said}" if said else "is empty")


def _start_command(folder: Path, launch: Mapping[str, Any], host: str) -> str:
    """Shell command that starts the agent and lets go of it."""
    agent = shlex.join([launch["python"], "-P", "-m", "executor.launch.agent", str(folder), host])
    log = shlex.quote(str(folder / f"agent-{host_file(host)}.log"))
    return f"setsid nohup {agent} > {log} 2>&1 < /dev/null &"
