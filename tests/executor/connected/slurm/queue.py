"""A real Slurm with a queue, and connections to it that are processes of their own."""

import json
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import Any

from executor.connected.slurm.client import SlurmClient
from tests.executor.connected.slurm.connection import start
from tests.waiting import eventually

SOON = "--begin=now+5minutes"
_COMMAND_S = 60.0


@dataclass
class Queue:
    """What is asked and told of a Slurm."""

    environment: Mapping[str, str]
    folder: Path

    def say(self, *words: str) -> str:
        done = subprocess.run(
            words,
            env=self.environment,
            cwd=self.folder,
            capture_output=True,
            text=True,
            timeout=_COMMAND_S,
            check=False,
        )
        assert done.returncode == 0, (words, done.stderr)
        return done.stdout.strip()

    def submit(self, *options: str, run: str = "sleep 600") -> str:
        # Few memory: jobs share nodes.
        return self.say("sbatch", "--parsable", "--mem=1", "-t", "10", "-o", "/dev/null", *options, "--wrap", run)

    def jobs(self) -> dict[str, dict[str, Any]]:
        found = json.loads(self.say("squeue", "--json"))["jobs"]
        return {str(job["job_id"]): job for job in found}

    def nodes(self, job_id: str) -> str:
        """Where a job runs, folded; else its state, or `gone`."""
        job = self.jobs().get(job_id)
        return "gone" if job is None else job["nodes"] if job["job_state"] == "RUNNING" else job["job_state"]

    def runs_on(self, job_id: str, nodes: str) -> None:
        eventually(lambda: self.nodes(job_id), nodes.__eq__, limit_s=90.0)

    @property
    def client(self) -> SlurmClient:
        return SlurmClient(environment=self.environment)

    def connect(self, *options: str) -> subprocess.CompletedProcess[str]:
        """A connection that ends by itself."""
        out, err = self.folder / "connect.out", self.folder / "connect.err"
        for path in (out, err):
            path.write_text("")
        process = start(self.options(*options), self.environment, out, err)
        process.join(_COMMAND_S)
        if process.exitcode is None:
            process.kill()
        assert process.exitcode is not None, err.read_text()
        return subprocess.CompletedProcess(options, process.exitcode, out.read_text(), err.read_text())

    @contextmanager
    def connected(self, *options: str) -> Iterator[ForkServerProcess]:
        """A connection that sends, until the block ends or kills it."""
        log = self.folder / "connection.log"
        log.touch()
        process = start(self.options("--send", "--interval", "0.3", *options), self.environment, log, log)
        try:
            yield process
        finally:
            if process.is_alive():
                process.terminate()
            process.join(30)
            if process.is_alive():
                process.kill()
                process.join()

    def options(self, *options: str) -> tuple[str, ...]:
        """Those of a connection of its own."""
        return "--lock", str(self.folder / "lock"), *options

    def log(self) -> str:
        return (self.folder / "connection.log").read_text()
