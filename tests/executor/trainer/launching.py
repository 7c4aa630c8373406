"""Starts the ranks of a job on this machine, as a launcher does."""

import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

from executor.metrics import StepMetrics, metrics_path, read_metrics
from executor.training_job import TrainingJob, write_training_job

_ROOT = Path(__file__).parents[3]
_LIMIT_S = 300.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """Exit codes and output by rank."""

    codes: list[int]
    output: list[str]


class Ranks:
    """The processes of a job; leaving the block ends those that are left.

    Parameters
    ----------
    ranks
        Rank of every process in the order of local ranks; None: local rank k is rank k.
    prepare
        Called in the process of a rank, with the rank, before the program starts.
    """

    def __init__(
        self,
        job: TrainingJob,
        folder: Path,
        *,
        ranks: Sequence[int] | None = None,
        environment: Mapping[str, str] | None = None,
        prepare: Callable[[int], None] | None = None,
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        write_training_job(job, folder / "job.json")
        self._folder = folder
        self.processes: dict[int, subprocess.Popen[bytes]] = {}
        port = str(_free_port())
        for local_rank, rank in enumerate(ranks or range(job.num_ranks)):
            variables = os.environ | dict(environment or {})
            variables |= {"RANK": str(rank), "LOCAL_RANK": str(local_rank), "WORLD_SIZE": str(job.num_ranks)}
            variables |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "OMP_NUM_THREADS": "1"}
            variables |= {"CUDA_VISIBLE_DEVICES": "", "PYTHONPATH": str(_ROOT)}
            with ExitStack() as files:
                log = files.enter_context(self._log(rank).open("wb"))
                self.processes[rank] = subprocess.Popen(
                    [sys.executable, "-P", "-m", "executor.trainer", str(folder / "job.json")],
                    env=variables,
                    stdout=log,
                    stderr=log,
                    preexec_fn=None if prepare is None else lambda rank=rank: prepare(rank),
                )

    def __enter__(self) -> "Ranks":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for process in self.processes.values():
            process.kill()
            process.wait()

    def wait(self) -> Ended:
        """Wait for all ranks; a rank that does not end in time fails the test."""
        end_s = time.monotonic() + _LIMIT_S
        codes = [self.processes[rank].wait(max(0.0, end_s - time.monotonic())) for rank in sorted(self.processes)]
        return Ended(codes=codes, output=[self._log(rank).read_text() for rank in sorted(self.processes)])

    def _log(self, rank: int) -> Path:
        return self._folder / f"rank{rank}.log"


def run_job(job: TrainingJob, folder: Path, *, ranks: Sequence[int] | None = None) -> None:
    """Run a job to its end, which must be a good one."""
    with Ranks(job, folder, ranks=ranks) as running:
        ended = running.wait()
    assert ended.codes == [0] * job.num_ranks, "\n".join(ended.output)


def steps_of(folder: Path, rank: int = 0) -> list[StepMetrics]:
    """What a rank has measured so far."""
    path = metrics_path(folder, rank)
    return list(read_metrics(path)) if path.exists() else []


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])
