"""A service of our own to measure: started as a subprocess on a free port, stopped by its process id."""

import http.client
import json
import math
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.paths import ROOT

_START_TIMEOUT_S = 180.0
_ANSWER_TIMEOUT_S = 600.0
_ASK_AGAIN_S = 0.01
_PROC = Path("/proc")


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """Status code, decoded JSON body and wall-clock seconds from the first byte sent to the last received."""

    status: int
    body: Any
    elapsed_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    """A running service.

    start_s: wall clock from starting the process to `/readyz` answering 200. start_cpu_s: CPU of the process and its
    children until then; None where the system does not tell.
    """

    port: int
    start_s: float
    start_cpu_s: float | None = None
    pid: int = 0

    def cpu_s(self) -> tuple[float, float]:
        """CPU seconds so far of the process that serves, and of it and all its descendants; NaN where unknown."""
        own_s, tree_s = process_cpu_s(self.pid), _tree_cpu_s(self.pid)
        return (math.nan if own_s is None else own_s), (math.nan if tree_s is None else tree_s)

    def call(
        self, method: str, path: str, body: bytes | None = None, wait_s: int | None = None, key: str | None = None
    ) -> Answer:
        """One request on a connection of its own; `key` is its Idempotency-Key."""
        headers = {"Content-Type": "application/json"} if body is not None else {}
        if wait_s is not None:
            headers["Prefer"] = f"wait={wait_s}"
        if key is not None:
            headers["Idempotency-Key"] = key
        start_s = time.perf_counter()
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=_ANSWER_TIMEOUT_S)
        try:
            connection.request(method, path, body, headers)
            response = connection.getresponse()
            raw = response.read()
        finally:
            connection.close()
        elapsed_s = time.perf_counter() - start_s
        return Answer(status=response.status, body=json.loads(raw) if raw else None, elapsed_s=elapsed_s)


def console_command(checkout: Path = ROOT) -> list[str]:
    """What the console script `stowplan` of a checkout runs, without its arguments."""
    # `api.cli` was one module once.
    module = "api.cli.main" if (checkout / "api/cli/main.py").exists() else "api.cli"
    return [sys.executable, "-c", f"from {module} import main; main()"]


def checkout_environment(checkout: Path = ROOT) -> dict[str, str]:
    """Variables under which a child process imports the packages of this checkout."""
    return {**os.environ, "PYTHONPATH": str(checkout)}


@contextmanager
def running_service(*options: str, checkout: Path = ROOT) -> Iterator[Service]:
    """Start `stowplan serve` with a fresh database and the given options; stop it at the end."""
    port = free_port()
    with tempfile.TemporaryDirectory() as folder:
        start_s = time.perf_counter()
        with started_service(port, Path(folder) / "plans.sqlite", *options, checkout=checkout) as process:
            try:
                elapsed_s = wait_until_ready(port, start_s, process)
                cpu_s = _tree_cpu_s(process.pid)
                yield Service(port=port, start_s=elapsed_s, start_cpu_s=cpu_s, pid=process.pid)
            finally:
                process.terminate()
                process.wait(timeout=30)


def free_port() -> int:
    """A port of the loopback address that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def started_service(port: int, database: Path | str, *options: str, checkout: Path = ROOT) -> "subprocess.Popen[bytes]":
    """Start `stowplan serve`; returns before it is ready."""
    return subprocess.Popen(
        [*console_command(checkout), "serve", "--port", str(port), "--database", str(database), *options],
        cwd=checkout,
        env=checkout_environment(checkout),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


def wait_until_ready(port: int, start_s: float, process: "subprocess.Popen[bytes]") -> float:
    """Seconds since `start_s` (performance counter) when `/readyz` answers 200; RuntimeError when it does not."""
    probe = Service(port=port, start_s=0.0)
    while time.perf_counter() - start_s < _START_TIMEOUT_S:
        if process.poll() is not None:
            raise RuntimeError(f"the service ended with exit code {process.returncode} before it was ready")
        with suppress(OSError):
            if probe.call("GET", "/readyz").status == 200:
                return time.perf_counter() - start_s
        time.sleep(_ASK_AGAIN_S)
    raise RuntimeError(f"the service was not ready within {_START_TIMEOUT_S} s")


def _tree_cpu_s(pid: int) -> float | None:
    """User and system seconds so far of a process, its ended children and its living descendants."""
    own_s, ended_s = process_cpu_s(pid), _ticks_s(pid, 13, 15)
    if own_s is None or ended_s is None:
        return None
    return own_s + ended_s + sum(_tree_cpu_s(child) or 0.0 for child in children_of(pid))


def process_cpu_s(pid: int) -> float | None:
    """User and system seconds so far of a process alone; None where the system does not tell."""
    return _ticks_s(pid, 11, 13)


def _ticks_s(pid: int, first: int, end: int) -> float | None:
    """Seconds in fields of proc(5), counted behind the name in brackets: utime, stime, cutime, cstime from 11 on."""
    try:
        ticks = (_PROC / f"{pid}/stat").read_text().rpartition(")")[2].split()[first:end]
    except OSError:
        return None
    return sum(map(int, ticks)) / os.sysconf("SC_CLK_TCK")


def descendants_of(pid: int) -> Iterator[int]:
    """Ids of all processes below this one."""
    for child in children_of(pid):
        yield child
        yield from descendants_of(child)


def threads_cpu_s(pid: int) -> float:
    """CPU seconds so far of the threads that a process has now, finer than the ticks of `process_cpu_s`."""
    spent_ns = 0
    for stat in (_PROC / f"{pid}/task").glob("*/schedstat"):
        # It may be gone by now.
        with suppress(OSError):
            spent_ns += int(stat.read_text().split()[0])
    return spent_ns / 1e9


def loop_cpu_s(pid: int) -> float:
    """CPU seconds so far of the first thread of a process, which is the event loop of the one that serves."""
    return int((_PROC / f"{pid}/task/{pid}/schedstat").read_text().split()[0]) / 1e9


def memory_bytes(pid: int) -> int:
    """Memory that would be free without this process; of pages that several have, its share (PSS)."""
    (line,) = (line for line in (_PROC / f"{pid}/smaps_rollup").read_text().splitlines() if line.startswith("Pss:"))
    return int(line.split()[1]) * 1024


def settle(service: Service, idle_s: float = 0.1, quiet_s: int = 4) -> None:
    """Wait until no process of the service has loaded anything for a while, even where others take all cores."""
    before_s, quiet, checks = service.cpu_s()[1], 0, 0
    while quiet < quiet_s and checks < _START_TIMEOUT_S:
        time.sleep(1.0)
        now_s = service.cpu_s()[1]
        quiet = quiet + 1 if now_s - before_s <= idle_s / quiet_s else 0
        before_s, checks = now_s, checks + 1


def children_of(pid: int) -> list[int]:
    """Ids of the child processes; none of a process that is gone."""
    try:
        tasks = [(task / "children").read_text().split() for task in (_PROC / f"{pid}/task").iterdir()]
    except OSError:
        return []
    return [int(child) for children in tasks for child in children]
