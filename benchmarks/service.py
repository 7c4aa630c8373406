"""A service of our own to measure: started as a subprocess on a free port, stopped by its process id."""

import http.client
import json
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_START_TIMEOUT_S = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """Status code, decoded JSON body and wall-clock seconds from the first byte sent to the last received."""

    status: int
    body: Any
    elapsed_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    """A running service; `start_s` is the time from starting the process to `/readyz` answering 200."""

    port: int
    start_s: float

    def call(self, method: str, path: str, body: bytes | None = None, wait_s: int | None = None) -> Answer:
        """One request on a connection of its own."""
        headers = {"Content-Type": "application/json"} if body is not None else {}
        if wait_s is not None:
            headers["Prefer"] = f"wait={wait_s}"
        start_s = time.perf_counter()
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=120)
        try:
            connection.request(method, path, body, headers)
            response = connection.getresponse()
            raw = response.read()
        finally:
            connection.close()
        elapsed_s = time.perf_counter() - start_s
        return Answer(status=response.status, body=json.loads(raw) if raw else None, elapsed_s=elapsed_s)


@contextmanager
def running_service(*options: str) -> Iterator[Service]:
    """Start `stowplan serve` with a fresh database and the given options; stop it at the end."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = int(probe.getsockname()[1])
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "api.cli.main", "serve", "--port", str(port)]
        command += ["--database", str(Path(folder) / "plans.sqlite"), *options]
        start_s = time.perf_counter()
        with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
            try:
                yield Service(port=port, start_s=_wait_until_ready(port, start_s, process))
            finally:
                process.terminate()
                process.wait(timeout=30)


def _wait_until_ready(port: int, start_s: float, process: "subprocess.Popen[bytes]") -> float:
    probe = Service(port=port, start_s=0.0)
    while time.perf_counter() - start_s < _START_TIMEOUT_S:
        if process.poll() is not None:
            raise RuntimeError(f"the service ended with exit code {process.returncode} before it was ready")
        try:
            if probe.call("GET", "/readyz").status == 200:
                return time.perf_counter() - start_s
        except OSError:
            time.sleep(0.01)
    raise RuntimeError(f"the service was not ready within {_START_TIMEOUT_S} s")
