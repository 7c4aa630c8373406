"""Runs without processes, under a virtual clock: a step takes a second on one GPU, half of it on two, and so on."""

import json
import math
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from executor.deployed.backend import Clock
from executor.launch.base import DeadRank, LaunchBackend, LaunchError, RunState, RunStatus
from executor.metrics import MetricsWriter, metrics_path
from executor.run_files import GO_FILE, READY_FOLDER, STOP_FILE, WAIT_VARIABLE
from executor.training_job import TrainingJob, read_training_job
from tests.executor.pretend_training import metrics, save


class VirtualClock(Clock):
    """Jumps to the next end of a run, or to the next line of the script, when somebody waits."""

    def __init__(self) -> None:
        self.time_s = 0.0
        # (when, what happens then), by time.
        self.script: list[tuple[float, Callable[[], None]]] = []

    def now_s(self) -> float:
        return self.time_s

    def wait(self, changed: threading.Condition, limit_s: float) -> None:  # noqa: ARG002 - nobody else notifies
        times_s = [self.time_s + limit_s, *ScriptedBackend.ends_s(), *(at_s for at_s, _ in self.script[:1])]
        self.time_s = min(times_s)
        assert self.time_s < math.inf, "nothing will happen any more"
        while self.script and self.script[0][0] <= self.time_s:
            self.script.pop(0)[1]()


@dataclass(slots=True)
class _Run:
    job: TrainingJob
    folder: Path
    start_s: float
    first: int
    written: int = 0
    state: RunState = RunState.RUNNING
    dead: tuple[DeadRank, ...] = ()
    waits: bool = False

    @property
    def end_s(self) -> float:
        return self.start_s + (self.job.num_steps - self.first) / self.job.num_ranks

    def go_on(self, now_s: float) -> None:
        """Do the steps until now, and write what a rank writes of them."""
        if self.state is not RunState.RUNNING or self.waits:
            return
        step = min(self.job.num_steps, self.first + int((now_s - self.start_s) * self.job.num_ranks))
        if step > self.written:
            self._write(step, now_s)
            if (good := step // self.job.checkpoint_interval * self.job.checkpoint_interval) > self.written:
                save(self.job, good)
            self.written = step
        if step == self.job.num_steps or (self.folder / STOP_FILE).exists():
            save(self.job, step)
            self.state = RunState.SUCCEEDED

    def _write(self, step: int, now_s: float) -> None:
        """The newest step of rank 0, or all of every rank."""
        assert self.job.metrics_folder is not None
        measures = ScriptedBackend.measures
        for rank in range(self.job.num_ranks if measures else 1):
            with MetricsWriter(metrics_path(Path(self.job.metrics_folder), rank)) as writer:
                for k in range(self.written + 1 if measures else step, step + 1):
                    writer.write(metrics(self.job, 1, k, now_s, rank=rank, step_s=1 / self.job.num_ranks))


class ScriptedBackend(LaunchBackend):
    """All that was started through any of its objects; `broken` names hosts that cannot be reached, which
    is found out after `timeout_s`. `measures`: all ranks write all steps, not only what says how far the run is."""

    name: ClassVar[str] = "scripted"
    clock: ClassVar[VirtualClock]
    runs: ClassVar[dict[Path, _Run]]
    broken: ClassVar[set[str]]
    timeout_s: ClassVar[float]
    num_timeouts: ClassVar[int]
    measures: ClassVar[bool]

    @classmethod
    def reset(cls, clock: VirtualClock) -> None:
        cls.clock, cls.runs, cls.broken, cls.timeout_s, cls.num_timeouts = clock, {}, set(), 0.0, 0
        cls.measures = False

    @classmethod
    def ends_s(cls) -> Iterator[float]:
        return (run.end_s for run in cls.runs.values() if run.state is RunState.RUNNING and not run.waits)

    @classmethod
    def kill(cls, name: str, exit_code: int = 1) -> None:
        """Have a rank of a job's run die."""
        for run in cls.runs.values():
            if name in run.folder.parts and run.state is RunState.RUNNING:
                run.go_on(cls.clock.time_s)
                run.state = RunState.FAILED
                dead = DeadRank(rank=0, host="a0", exit_code=exit_code, signal=None, last_lines=())
                run.dead = (dead,)

    @classmethod
    def lose(cls, name: str, host: str) -> None:
        """Have nobody know what a job's run does on a host that cannot be reached."""
        for run in cls.runs.values():
            if name in run.folder.parts and run.state is RunState.RUNNING:
                run.go_on(cls.clock.time_s)
                run.state = RunState.LOST
        cls.broken.add(host)

    def _reach(self, folder: Path) -> None:
        hosts = set((folder / "slurm_hosts").read_text().split())
        if hosts & self.broken:
            self.clock.time_s += self.timeout_s
            type(self).num_timeouts += 1
            raise LaunchError(f"{sorted(hosts & self.broken)} cannot be reached")

    def start(self, folder: Path) -> None:
        self._reach(folder)
        waits = WAIT_VARIABLE in json.loads((folder / "launch.json").read_text())["environment"]
        job = read_training_job(folder / "job.json")
        run = self.runs[folder] = _Run(job=job, folder=folder, start_s=0.0, first=0, waits=waits)
        if waits:
            (folder / READY_FOLDER).mkdir()
            for rank in range(job.num_ranks):
                (folder / READY_FOLDER / str(rank)).touch()
        else:
            self._begin(run)

    def _begin(self, run: _Run) -> None:
        """Train from the last good checkpoint on."""
        others = (other for other in self.runs.values() if other is not run and not other.waits)
        taken = {gpu for other in others if not other.state.final for gpu in _gpus(other.folder)}
        assert taken.isdisjoint(_gpus(run.folder)), "two runs have one GPU"
        assert run.job.checkpoint_folder is not None
        marker = Path(run.job.checkpoint_folder) / "last_good"
        first = int(marker.read_text().strip().removeprefix("step-")) if marker.exists() else 0
        run.waits, run.start_s, run.first, run.written = False, self.clock.time_s, first, first

    def stop(self, folder: Path, grace_s: float = 10.0) -> None:  # noqa: ARG002 - ends at once
        self._reach(folder)
        run = self.runs.get(folder)
        if run is not None and not run.state.final:
            run.state = RunState.STOPPED

    def status(self, folder: Path) -> RunStatus:
        run = self.runs[folder]
        if run.waits and (folder / GO_FILE).exists():
            self._begin(run)
        run.go_on(self.clock.time_s)
        return RunStatus(state=run.state, dead=run.dead, detail="; ".join(rank.describe() for rank in run.dead))


def _gpus(folder: Path) -> set[tuple[str, str]]:
    """(host, GPU) of a run."""
    lines = (folder / "ranks.csv").read_text().splitlines()[1:]
    return {(host, gpu) for _, host, gpu, *_ in (line.split(",") for line in lines)}
