"""The folders of a deployment's runs: writing them, and what can be read from them."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from executor.bundle import write_bundle
from executor.change import change_between
from executor.checkpoints import last_good
from executor.deployment import Deployment
from executor.learning_rate import is_finished
from executor.lifecycle import Run
from executor.metrics import StepMetrics, first_metrics, last_metrics, metrics_path
from executor.movement import Movement
from executor.outcome import OUTCOME_FILE, Outcome
from executor.own_steps import OwnStep, first_own_step, last_own_step, own_steps_path
from executor.records import read_record, write_record
from executor.run_files import READY_FOLDER, STOP_FILE, Preparation
from executor.stall import Stall, stall_between
from executor.timeline import START_FILE, Start
from executor.training_job import read_training_job

_DEPLOYMENT = "deployment.json"
# Runs take ports in turn, from the deployment's own on.
NUM_PORTS = 10


class RunFolders:
    """Runs under `root`, by number."""

    def __init__(self, root: Path) -> None:
        self._runs = root / "runs"
        self.checkpoints = root / "checkpoints"

    def folder(self, number: int) -> Path:
        """Folder of a run."""
        return self._runs / f"{number:04d}"

    def next_number(self) -> int:
        """Number that no run has had."""
        taken = [int(path.name) for path in self._runs.iterdir()] if self._runs.exists() else []
        return max(taken, default=0) + 1

    def write(
        self, deployment: Deployment, number: int, attempt: int, preparation: Preparation | None, beside: int | None
    ) -> None:
        """Write the folder of a run, with what it deploys.

        Parameters
        ----------
        attempt
            From 0 to NUM_PORTS - 1: each takes another port. The first is not that of the run before, which may still
            hold its own.
        preparation
            How far its ranks come before they wait; None: they do not.
        beside
            Number of the run that may hand its state over to them then; None: they read a checkpoint.

        Raises
        ------
        InputError, OSError
            When it cannot be written.
        """
        port = deployment.launch.master_port + (number - 1 + attempt) % NUM_PORTS
        launch = replace(deployment.launch, master_port=port)
        folder = self.folder(number)
        write_bundle(
            replace(deployment, launch=launch),
            folder,
            self.checkpoints,
            preparation=preparation,
            beside=None if beside is None else self.folder(beside),
        )
        write_record(deployment, folder / _DEPLOYMENT)

    def deployment(self, number: int) -> Deployment:
        """What a run deploys; InputError when there is no such run."""
        return read_record(Deployment, self.folder(number) / _DEPLOYMENT, "deployment")

    def good_step(self) -> int:
        """Steps in the last good checkpoint, 0 without any; of a program of the user's own, whose checkpoints are its
        own business, the steps that it has told of last."""
        checkpoint = last_good(self.checkpoints)
        paths = sorted(self._runs.glob("*/metrics/own-rank0.jsonl"), reverse=True)
        told = next((step.step for path in paths if (step := last_own_step(path)) is not None), 0)
        return checkpoint.step if checkpoint else told

    def is_done(self, number: int) -> bool:
        """Whether a training that ended well has all its steps; a program of the user's own that nobody has asked to
        stop has."""
        if self.deployment(number).launch.program is not None:
            return not (self.folder(number) / STOP_FILE).exists()
        checkpoint = last_good(self.checkpoints)
        return checkpoint is not None and is_finished(
            read_training_job(self.folder(number) / "job.json"), checkpoint.done
        )

    def all_ready(self, number: int) -> bool:
        """Whether every rank of a run that waits is prepared."""
        folder = self.folder(number)
        num_ranks = len((folder / "ranks.csv").read_text().splitlines()) - 1
        return sum(1 for _ in (folder / READY_FOLDER).glob("*")) == num_ranks

    def first_step(self, number: int) -> StepMetrics | OwnStep | None:
        """First step of a run, as rank 0 measured it; None before."""
        return first_metrics(self._metrics(number)) or first_own_step(own_steps_path(self.folder(number), 0))

    def last_step(self, number: int) -> StepMetrics | OwnStep | None:
        """Newest step of a run, as rank 0 measured it; None before the first."""
        return last_metrics(self._metrics(number)) or last_own_step(own_steps_path(self.folder(number), 0))

    def newest_step(self, runs: Iterable[Run]) -> StepMetrics | OwnStep | None:
        """Last step of the last run that has done one."""
        known = (self.last_step(run.number) for run in reversed(tuple(runs)))
        return next((step for step in known if step is not None), None)

    def measured(self, runs: Sequence[Run]) -> Run | None:
        """The last of some runs with what its start has cost; None where that is known already, or not yet."""
        run = runs[-1]
        if run.cost_s is not None or (first := self.first_step(run.number)) is None:
            return None
        before = self.newest_step(runs[:-1])
        old = runs[-2].number if len(runs) > 1 else None
        from_s = run.started_at_s if before is None else max(before.started_at_s + before.step_s, run.started_at_s)
        plan = None if old is None else self.deployment(old).plan
        return replace(
            run,
            cost_s=max(0.0, first.started_at_s - from_s),
            stall=self.stall(old, run.number, from_s, first.started_at_s),
            change=change_between(plan, self.deployment(run.number).plan),
            movement=self.movement(run.number),
        )

    def stall(self, before: int | None, number: int, from_s: float, to_s: float) -> Stall | None:
        """Parts of the stall between run `before`, if any, and the first step of a run; None where they are not told.

        It lasts from `from_s` to `to_s`, since 1970.
        """
        start, outcome = self._start(number), None
        if start is None:
            return None
        if before is not None and (ended := self._folder_of_metrics(before) / OUTCOME_FILE).exists():
            outcome = read_record(Outcome, ended, "outcome")
        saving, handing = (None, None) if outcome is None else (outcome.saving, outcome.handing)
        return stall_between(from_s, to_s, saving, start, handing)

    def movement(self, number: int) -> Movement | None:
        """What of the state moved when a run began; None where it did not begin with that of another run's ranks."""
        start = self._start(number)
        return None if start is None else start.movement

    def _start(self, number: int) -> Start | None:
        path = self._folder_of_metrics(number) / START_FILE
        return read_record(Start, path, "start of a run") if path.exists() else None

    def _folder_of_metrics(self, number: int) -> Path:
        return self.folder(number) / "metrics"

    def _metrics(self, number: int) -> Path:
        return metrics_path(self._folder_of_metrics(number), 0)
