"""A real Slurm with a queue, and connections to it that are processes of their own."""

import json
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from executor.connected.slurm.client import SlurmClient
from tests.paths import ROOT
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
        return subprocess.run(
            self._command(options),
            env=self.environment,
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    @contextmanager
    def connected(self, *options: str) -> Iterator["subprocess.Popen[str]"]:
        """A connection that sends, until the block ends or kills it."""
        with (self.folder / "connection.log").open("a") as log:
            process = subprocess.Popen(
                self._command(("--send", "--interval", "0.3", *options)),
                env=self.environment,
                cwd=ROOT,
                text=True,
                stdout=log,
                stderr=log,
            )
            try:
                yield process
            finally:
                if process.poll() is None:
                    process.send_signal(signal.SIGTERM)
                try:
                    process.wait(30)
                except subprocess.TimeoutExpired:
                    process.kill()
                    process.wait()

    def log(self) -> str:
        return (self.folder / "connection.log").read_text()

    def _command(self, options: tuple[str, ...]) -> list[str]:
        lock = self.folder / "lock"
        return [sys.executable, "-m", "api.cli.main", "connect", "slurm", "--lock", str(lock), *options]
