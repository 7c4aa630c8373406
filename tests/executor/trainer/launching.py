"""Starts the ranks of a job on this machine, as a launcher does.

Ranks are forked from a process that has loaded torch and deepspeed once: that takes longer than a tiny training. What
a rank says and does from its command line on is in test_start.
"""

import importlib
import multiprocessing
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from multiprocessing import forkserver
from multiprocessing.process import BaseProcess
from pathlib import Path
from types import TracebackType

import pytest

from executor.metrics import StepMetrics, metrics_path, read_metrics
from executor.trainer.__main__ import main
from executor.training_job import TrainingJob, write_training_job
from tests.paths import ROOT
from tests.ports import free_port

# Variable with a `module:function` that is called like `prepare`, for ranks that agents start.
PREPARED_BY = "STOWPLAN_TEST_PREPARED_BY"
_LIMIT_S = 600.0
# What the libraries read when they are loaded.
_LOADED_WITH = {
    "CUDA_VISIBLE_DEVICES": "",
    "DS_ACCELERATOR": "cpu",
    "OMP_NUM_THREADS": "1",
    "PYTHONPATH": str(ROOT),
}
_CONTEXT = multiprocessing.get_context("forkserver")


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
        Called in the process of a rank, with the rank, before the program starts; can be pickled.
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
        self.processes: dict[int, BaseProcess] = {}
        meeting = {"WORLD_SIZE": str(job.num_ranks), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
        for local_rank, rank in enumerate(ranks or range(job.num_ranks)):
            variables = {**os.environ, **_LOADED_WITH, **(environment or {}), **meeting}
            variables |= {"RANK": str(rank), "LOCAL_RANK": str(local_rank)}
            self.processes[rank] = forked_rank(rank, folder / "job.json", self._log(rank), variables, prepare)

    def __enter__(self) -> "Ranks":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for process in self.processes.values():
            process.kill()
            process.join()
            process.close()

    @property
    def complete(self) -> bool:
        """Whether no rank has ended."""
        return all(process.is_alive() for process in self.processes.values())

    def wait(self) -> Ended:
        """Wait for all ranks; a rank that does not end in time fails the test."""
        end_s = time.monotonic() + _LIMIT_S
        codes = []
        for rank, process in sorted(self.processes.items()):
            process.join(max(0.0, end_s - time.monotonic()))
            assert process.exitcode is not None, f"rank {rank} has not ended: {self._log(rank).read_text()}"
            codes.append(process.exitcode)
        return Ended(codes=codes, output=[self._log(rank).read_text() for rank in sorted(self.processes)])

    def _log(self, rank: int) -> Path:
        return self._folder / f"rank{rank}.log"


def run_job(job: TrainingJob, folder: Path, *, ranks: Sequence[int] | None = None) -> None:
    """Run a job to its end, which must be a good one."""
    with Ranks(job, folder, ranks=ranks) as running:
        ended = running.wait()
    assert ended.codes == [0] * job.num_ranks, "\n".join(ended.output)


def forked_rank(
    rank: int, job: Path, log: Path, variables: Mapping[str, str], prepare: Callable[[int], None] | None = None
) -> BaseProcess:
    """Start a rank of the job that lies in a file."""
    load_libraries()
    process = _CONTEXT.Process(target=_become_rank, args=(rank, job, log, variables, prepare))
    process.start()
    return process


def steps_of(folder: Path, rank: int = 0) -> list[StepMetrics]:
    """What a rank has measured so far."""
    path = metrics_path(folder, rank)
    return list(read_metrics(path)) if path.exists() else []


def load_libraries() -> None:
    """Start the process that ranks are forked from, unless it is there; does not wait until it has loaded all."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in _LOADED_WITH.items():
            patch.setenv(name, value)
        _CONTEXT.set_forkserver_preload(["tests.executor.trainer.loaded", __name__])
        forkserver.ensure_running()


def _become_rank(
    rank: int, job: Path, log: Path, variables: Mapping[str, str], prepare: Callable[[int], None] | None
) -> None:
    """In the new process: what a shell would do, then the program."""
    with log.open("wb") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    os.environ.clear()
    os.environ.update(variables)
    if prepare is not None:
        prepare(rank)
    if named := variables.get(PREPARED_BY):
        module, name = named.split(":")
        getattr(importlib.import_module(module), name)(rank)
    main([str(job)])
