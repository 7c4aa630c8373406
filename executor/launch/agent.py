"""The one process per host that starts the ranks of a deployment there, and tells how they end.

    python -P -m executor.launch.agent FOLDER HOST

Reads `launch.json` of the deployment's folder, starts the ranks of HOST with the environment of a distributed run,
writes their output to `logs/rank-N.log`, and keeps `status/HOST.json` up to date. When a rank dies, the others of the
host are ended, since a collective would wait for it for ever; when one hangs, all write their stacks before. When the
agent is killed, its ranks die with it. Exits with 0 when all ranks did, 143 when it was told to stop, else 1. Needs the
standard library only, so that a host needs nothing but what trains.
"""

import ctypes
import hashlib
import json
import math
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import quote

from executor.launch.flight_recorder import FlightRecorder
from executor.launch.pulse import DUMP_STACKS, PULSE, Listener
from executor.own_steps import own_steps_path
from executor.run_files import PLAN_FILE, STOP_FILE

# Set where a scheduler has chosen the GPUs of the host: they need not have the indices of the plan.
GPUS_GIVEN = "STOWPLAN_GPUS_GIVEN"
# Set where whoever started the agent has taken the port of rank 0 and passed it on.
PORT_HELD = "STOWPLAN_PORT_HELD"

_POLL_S = 0.1
_HEARTBEAT_S = 2.0
# The last word is tried this long where it cannot be written; then the agent ends without it.
_LAST_WORD_S = 20.0
# Most file systems take names of 255 bytes; more is written around it.
_MAX_NAME = 200
# Slurm signals the agent and its ranks one after the other; a busy host takes its time.
_SAME_TIME_S = 5.0
# Ranks write their stacks at once; NCCL looks for requests every second.
_DUMP_S = 2.0
# States of /proc/PID/stat in which a process does nothing, whatever it should.
_STANDSTILLS = {
    "T": "is stopped by a signal",
    "t": "is held by a debugger, so that its stack cannot be read",
    "D": "waits in the kernel, so that its stack cannot be read",
}
# Settings of a service that may have started this agent, and of the agent: no business of what trains.
_NOT_FOR_RANKS = frozenset({"STOWPLAN_TOKEN", PORT_HELD})
_STOPPED = 128 + signal.SIGTERM
# SIGTERM, as seen by a parent and as told by a shell whose child it killed.
_TOLD_TO_END = (-signal.SIGTERM, _STOPPED)
# From linux/prctl.h.
_PR_SET_PDEATHSIG = 1


class Agent:
    """Ranks of one host; `scratch` is a folder on it."""

    def __init__(self, folder: Path, host: str, scratch: Path) -> None:
        self._folder = folder
        self._host = host
        launch = json.loads((folder / "launch.json").read_text())
        self._ranks = [rank for rank in launch["ranks"] if rank["node"] == host]
        if not self._ranks:
            known = sorted({rank["node"] for rank in launch["ranks"]})
            raise SystemExit(f"the deployment has no ranks on host {host!r}; its hosts are {', '.join(known)}")
        self._launch = launch
        self._processes: dict[int, subprocess.Popen[bytes]] = {}
        # Programs of others need not have a pulse.
        first_limit_s = launch.get("start_limit_s") or math.inf
        self._listeners = {
            rank["rank"]: Listener(scratch / f"pulse-{rank['rank']}", first_limit_s) for rank in self._ranks
        }
        self._recorder = FlightRecorder(folder / "logs", scratch) if launch["device"] == "cuda" else None
        self._stopping = False
        self._num_beats = 0
        self._port: socket.socket | None = None
        self._secrets: dict[str, str] = {}

    def run(self) -> int:
        """Start the ranks and wait for all of them; returns the exit status."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: self._stop())
        (self._folder / "logs").mkdir(exist_ok=True)
        (self._folder / "status").mkdir(exist_ok=True)
        (self._folder / "metrics").mkdir(exist_ok=True)
        error = self._obstacle() or self._start_all()
        if error is not None:
            self._end_all()
            self._last_word(dict.fromkeys(self._processes), error)
            return 1
        self._report()
        written = time.monotonic()
        known: dict[int, int | None] = {}
        hang: str | None = None
        while any(process.poll() is None for process in self._processes.values()) and not self._stopping:
            codes = {rank: process.returncode for rank, process in self._processes.items()}
            if any(code not in (None, 0) for code in codes.values()):
                break
            if hang := self._hang():
                self._dump_stacks()
                break
            if codes != known or time.monotonic() - written > _HEARTBEAT_S:
                self._report()
                known, written = codes, time.monotonic()
            time.sleep(_POLL_S)
        own = self._own_ends()
        self._end_all()
        self._last_word(own, hang)
        if self._stopping:
            return _STOPPED
        return 0 if hang is None and all(code == 0 for code in own.values()) else 1

    def _start_all(self) -> str | None:
        """Start the ranks; gives what keeps one from starting."""
        for rank in self._ranks:
            try:
                self._processes[rank["rank"]] = self._start(rank)
            except OSError as problem:
                program = self._launch["command"][0]
                return f"rank {rank['rank']} cannot be started on host {self._host}: {program}: {problem.strerror}"
        return None

    def _hang(self) -> str | None:
        """What stands still; None when every rank gets on in the time that it gave itself."""
        silent = [rank for rank, listener in self._listeners.items() if listener.is_late(_POLL_S)]
        late = [rank for rank in silent if self._processes[rank].poll() is None]
        if not late:
            return None
        still = [
            f"rank {rank} {_STANDSTILLS[state]}"
            for rank, process in self._processes.items()
            if (state := _state(process.pid)) in _STANDSTILLS
        ]
        what = "; ".join([*still, f"rank {late[0]} {self._listeners[late[0]].describe()}"])
        return f"host {self._host} hangs: {what}; {self._where_stacks_are()}"

    def _where_stacks_are(self) -> str:
        unheard = [str(rank) for rank, listener in self._listeners.items() if not listener.is_watched]
        if len(unheard) == len(self._listeners):
            return "no rank has got so far that it writes its stack"
        but = f", too early for that of rank {', '.join(unheard)}" if unheard else ""
        return f"the stacks are in logs/rank-*.log{but}"

    def _dump_stacks(self) -> None:
        """Let the ranks write where they are; a debugger or the kernel may keep one from doing so."""
        watched = [rank for rank, listener in self._listeners.items() if listener.is_watched]
        for rank in watched:
            self._processes[rank].send_signal(DUMP_STACKS)
            # One that was stopped writes only when it goes on.
            self._processes[rank].send_signal(signal.SIGCONT)
        if self._recorder is not None:
            self._recorder.dump(watched)
        time.sleep(_DUMP_S)

    def _start(self, rank: Mapping[str, Any]) -> "subprocess.Popen[bytes]":
        environment = {
            **{name: value for name, value in os.environ.items() if name not in _NOT_FOR_RANKS},
            **(self._recorder.environment if self._recorder else {}),
            **self._launch["environment"],
            **self._secrets,
            "RANK": str(rank["rank"]),
            "LOCAL_RANK": str(rank["local_rank"]),
            "WORLD_SIZE": str(len(self._launch["ranks"])),
            "LOCAL_WORLD_SIZE": str(len(self._ranks)),
            "MASTER_ADDR": self._launch["master_addr"],
            "MASTER_PORT": str(self._launch["master_port"]),
            "CUDA_VISIBLE_DEVICES": self._visible_gpus(),
            PULSE: str(self._listeners[rank["rank"]].path),
            **self._told(rank["rank"]),
        }
        with log_file(self._folder, rank["rank"]).open("ab") as log:
            return subprocess.Popen(  # noqa: S603 - the command is that of the deployment
                self._launch["command"],
                cwd=self._folder,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                preexec_fn=_die_with_agent,
            )

    def _told(self, rank: int) -> dict[str, str]:
        """Variables for programs of users: `stowplan_metrics` reads them."""
        return {
            "STOWPLAN_PLAN": str(self._folder / PLAN_FILE),
            "STOWPLAN_METRICS": str(own_steps_path(self._folder, rank)),
            "STOWPLAN_STOP": str(self._folder / STOP_FILE),
            "STOWPLAN_REPORT_LIMIT_S": str(self._launch.get("report_limit_s", math.inf)),
        }

    def _obstacle(self) -> str | None:
        """What keeps the ranks from starting here; None when nothing does."""
        if self._launch["device"] == "cuda" and (short := self._lack_of_gpus()):
            return short
        try:
            self._secrets = {name: _secret(path) for name, path in self._launch.get("secrets", {}).items()}
        except (OSError, ValueError) as problem:
            return f"a secret of the ranks cannot be read on host {self._host}: {problem}"
        if any(rank["rank"] == 0 for rank in self._ranks) and PORT_HELD not in os.environ:
            port = int(self._launch["master_port"])
            try:
                self._port = hold_port("", port)
            except OSError as problem:
                return f"port {port} of host {self._host} cannot be used: {problem.strerror}; choose another one"
        return None

    def _visible_gpus(self) -> str:
        """GPUs of the ranks by local rank: those of the plan, or those that the scheduler gave."""
        if GPUS_GIVEN in os.environ:
            return os.environ.get("CUDA_VISIBLE_DEVICES") or ",".join(map(str, range(len(self._ranks))))
        return ",".join(str(rank["gpu"]) for rank in sorted(self._ranks, key=lambda rank: rank["local_rank"]))

    def _lack_of_gpus(self) -> str | None:
        found = len([path for path in Path("/dev").glob("nvidia*") if path.name[6:].isdigit()])
        if GPUS_GIVEN in os.environ:
            named = os.environ.get("CUDA_VISIBLE_DEVICES")
            given, needed = len(named.split(",")) if named else found, len(self._ranks)
            return f"host {self._host} was given {given} GPUs for {needed} ranks" if given < needed else None
        last = max(rank["gpu"] for rank in self._ranks)
        return f"host {self._host} has {found} GPUs; its ranks use GPU indices up to {last}" if found <= last else None

    def _stop(self) -> None:
        self._stopping = True

    def _own_ends(self) -> dict[int, int | None]:
        """Exit codes of the ranks that died by themselves; None for those that we are to end.

        Slurm tells the ranks to end at the same time as us, and they may be quicker.
        """
        codes = {rank: process.poll() for rank, process in self._processes.items()}
        deadline = time.monotonic() + _SAME_TIME_S
        while not self._stopping and time.monotonic() < deadline and set(_TOLD_TO_END) & set(codes.values()):
            time.sleep(_POLL_S)
        return {rank: None if self._stopping and code in _TOLD_TO_END else code for rank, code in codes.items()}

    def _end_all(self) -> None:
        """SIGTERM to all that live, SIGKILL after the grace."""
        self._signal(signal.SIGTERM)
        deadline = time.monotonic() + float(self._launch["grace_s"])
        while time.monotonic() < deadline and any(process.poll() is None for process in self._processes.values()):
            time.sleep(_POLL_S)
        self._signal(signal.SIGKILL)
        for process in self._processes.values():
            process.wait()

    def _signal(self, number: signal.Signals) -> None:
        for process in self._processes.values():
            if process.poll() is None:
                # The whole session: data loaders and checkpoint converters of the rank, too.
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, number)

    def _last_word(self, own: Mapping[int, int | None], error: str | None = None) -> None:
        """Write the final status, as soon as the disk takes it."""
        deadline = time.monotonic() + _LAST_WORD_S
        while not self._report(own, error) and time.monotonic() < deadline:
            time.sleep(_HEARTBEAT_S)

    def _report(self, own: Mapping[int, int | None] | None = None, error: str | None = None) -> bool:
        """Write the status; whether the disk took it. A full one ends no run: the next report may be written.

        `own`: exit codes that ranks ended with before others were ended. `error`: what kept them from starting.
        """
        final = own is not None
        # A count, no time: hosts need not agree on that, and it may be set.
        self._num_beats += 1
        ranks = {}
        for rank, process in self._processes.items():
            code = process.poll()
            ended_by_us = final and own is not None and own[rank] is None
            ranks[str(rank)] = {
                "pid": process.pid,
                "running": code is None,
                "exit_code": code if code is not None and code >= 0 else None,
                "signal": -code if code is not None and code < 0 else None,
                "ended_by_agent": ended_by_us,
            }
        status = {
            "host": self._host,
            "agent_pid": os.getpid(),
            "num_beats": self._num_beats,
            "final": final,
            "stopped": self._stopping,
            "error": error,
            "ranks": ranks,
        }
        path = self._folder / "status" / f"{host_file(self._host)}.json"
        temporary = path.with_name(f"{path.name}.part")
        try:
            temporary.write_text(json.dumps(status))
            temporary.replace(path)
        except OSError as problem:
            sys.stderr.write(f"{path} cannot be written: {problem.strerror}\n")
            with suppress(OSError):
                temporary.unlink(missing_ok=True)
            with suppress(OSError):
                # A full disk takes no new report, but the time of the old one: the ranks live.
                os.utime(path)
            return False
        return True


def host_file(host: str) -> str:
    """Name of a host as a part of a file name: no host leads to another folder, and no two share a file."""
    name = quote(host, safe="")
    return name if len(name) <= _MAX_NAME else f"{name[:_MAX_NAME]}-{hashlib.sha256(host.encode()).hexdigest()[:16]}"


def _secret(path: str) -> str:
    """Value of a variable that stands in a file of its own: editors end the line."""
    value = Path(path).read_text(encoding="utf-8").removesuffix("\n")
    if "\0" in value:
        raise ValueError(f"{path} holds a null byte, which no variable can")
    return value


def log_file(folder: Path, rank: int) -> Path:
    """File in the folder of a run that the output of a rank is written to."""
    return folder / "logs" / f"rank-{rank}.log"


def hold_port(address: str, port: int) -> socket.socket:
    """See that nobody listens on a port, and keep our other runs off it until the answer is closed.

    Ranks listen only seconds later, when another run would have found the port free, too. Elsewhere than on Linux the
    others are not kept off.

    Raises
    ------
    OSError
        When somebody listens, or another run has taken the port.
    """
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind((address, port))
    held = socket.socket(socket.AF_UNIX)
    if sys.platform == "linux":
        try:
            # A name without a file; it is gone with the last process that has the socket.
            held.bind(f"\0stowplan-port-{port}")
        except OSError:
            held.close()
            raise
    return held


def _state(pid: int) -> str:
    """State letter of a process in Linux; empty where that is not known."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return ""


def _die_with_agent() -> None:
    """Ask the kernel to kill this process when its parent ends; elsewhere than on Linux it lives on."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def main(arguments: list[str]) -> int:
    """Entry point; returns the exit status."""
    if len(arguments) != 2:
        sys.stderr.write(f"usage: python -m {__package__}.agent FOLDER HOST\n")
        return 2
    with tempfile.TemporaryDirectory(prefix="stowplan-agent-") as scratch:
        return Agent(Path(arguments[0]).resolve(), arguments[1], Path(scratch)).run()


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
