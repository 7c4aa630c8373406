"""A job of a controlled cluster: what was decided on it, and the deployment that follows.

    <folder>/submission.json    as it was submitted (`executor.deployed.submission`)
    <folder>/given.json         what the controller decided last
    <folder>/...                what `executor.kept_deployment` says, once the job has been started

What is decided is written first, and then comes about. A run that is to go on elsewhere trains until the next one is
prepared, where no other job's run has its GPUs; one that only gets more waits for these so long. Jobs that stand still
wait so long for what it gives back, unless that is more than it keeps: then, as any other run that is to give its GPUs
back, it writes a checkpoint and ends, and the next one starts from there when its GPUs are free.
"""

import math
import time
from collections.abc import Callable, Iterable, Mapping, Set
from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import Path
from typing import IO

from executor.change import restart_price_s
from executor.checkpoints import last_good
from executor.control.backend import JobFacts, Measured
from executor.deployed.learning import Learning
from executor.deployed.measured_runs import MeasuredRuns
from executor.deployed.submission import Submission, deployment_of, read_submission, write_submission
from executor.deployment import Deployment
from executor.launch.backends import launch_backend
from executor.learning_rate import worth_of_step
from executor.lifecycle import DeploymentState, Phase
from executor.progress import Progress, ScalingRule
from executor.records import read_record, write_record
from executor.supervision import Supervisor
from models.parallel_plan import Gpu
from models.performance.iteration.coefficients import Calibration
from models.plan import JobAllocation
from stowplan.errors import InputError, StowplanError
from topology.cluster import Cluster

_SUBMISSION, _GIVEN = "submission.json", "given.json"
_PAUSE_GROWTH = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """max_faults: runs that break in a row without a new checkpoint, and failed launches in a row, before a job is
    given up. pause_s: after the first failed launch, four times as long after each further one."""

    max_faults: int = 3
    pause_s: float = 15.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Given:
    """What was decided on a job, for another process that takes over.

    `number`: of its submission. `submitted_at_s`, `since_at_s`: seconds since 1970; `since_at_s`: of what follows.
    `attained_gpu_s`: GPUs x seconds until then, `attained_s`: seconds by GPU type, `num_starts`: how often it got GPUs,
    `allocation`: what it has (None: it waits, or has ended), decided on by the measured `calibration`. `fault`: why it
    was given up.
    """

    number: int
    submitted_at_s: float
    since_at_s: float
    num_starts: int = 0
    attained_gpu_s: float = 0.0
    attained_s: Mapping[str, float] = field(default_factory=dict)
    allocation: JobAllocation | None = None
    calibration: Calibration | None = None
    has_ended: bool = False
    fault: str | None = None


class Happening(StrEnum):
    """What has become of a run that nobody asked to end. done: the job has all its steps. broke: it may go on from
    its last checkpoint. hopeless: it will not be started again."""

    DONE = "done"
    BROKE = "broke"
    HOPELESS = "hopeless"


class DeployedJob:
    """A job that is there already in `folder`; times are those of the backend's clock. Nothing is done before `resume`.

    `gpus` are those of its run, which it may have longer than they are given to it, and of one that is prepared beside
    it. `rests_until_s`: when it is to be looked at again; `pause_s`: after that at the latest, as far as it knows.
    `learns`: whether what the steps of its ranks took is told.

    Raises
    ------
    InputError
        When what lies in the folder is no such job.
    """

    def __init__(self, folder: Path, patience: Patience, now_s: float, *, learns: bool = True) -> None:
        self.submission = read_submission(folder / _SUBMISSION)
        self.given = read_record(Given, folder / _GIVEN, "record of what was given to a job")
        self.gpus: frozenset[Gpu] = frozenset()
        self._folder = folder
        self._patience = patience
        self._supervisor = Supervisor(
            folder, launch_backend(self.submission.launch.backend), patience.max_faults, restarts=False
        )
        whole_s, num_steps = self.submission.job.remaining_s, self.submission.training.num_steps
        self._learning = Learning(self.submission.job, None if whole_s is None else whole_s / num_steps)
        self._runs, self._learns = MeasuredRuns(self._supervisor), learns
        passed_s = max(0.0, time.time() - self.given.submitted_at_s)
        self.submitted_s = now_s - passed_s
        # Until now is accounted with the first thing that is asked or decided.
        self._since_s = now_s - min(passed_s, max(0.0, time.time() - self.given.since_at_s))
        self._deployment: Deployment | None = None
        self._is_unwanted = self._is_asked = self._is_lost = self._works = False
        # Whether a change of plan may overlap, and whether one does.
        self._may_overlap, self._overlaps = True, False
        self.rests_until_s, self.pause_s = now_s, math.inf
        self._failures, self._retry_s = 0, now_s
        self._lease: IO[str] | None = None

    @property
    def id(self) -> str:
        """Id of the job."""
        return self.submission.job.id

    @property
    def is_over(self) -> bool:
        """Whether it has ended, and nothing of it is left."""
        return self.given.has_ended and not self.gpus

    @property
    def awaits(self) -> frozenset[Gpu]:
        """GPUs that it is to have while it stands still."""
        return frozenset() if self._deployment is None or self.gpus else frozenset(self._deployment.plan.gpus)

    def resume(self, cluster: Cluster) -> None:
        """Find out what runs, to lead it to what was decided, unless the job is over.

        Raises
        ------
        InputError
            When what it was given does not go with the cluster, or another process looks after it.
        """
        if self._supervisor.exists:
            state = self._supervisor.state()
            self._is_asked, self._overlaps = state.phase is Phase.STOPPING, state.phase is Phase.RECONFIGURING
            # What has ended by itself is found by the first look.
            if not (state.phase is Phase.STOPPED or (state.phase.final and self.given.has_ended)):
                live = state.runs[-2:] if self._overlaps else state.runs[-1:]
                plans = (self._supervisor.deployment(run.number).plan for run in live)
                self.gpus = frozenset(gpu for plan in plans for gpu in plan.gpus)
        if self.is_over:
            return
        for run in self._runs.so_far(cluster) if self._learns and self._supervisor.exists else ():
            self._learning.take(run)
        self._deployment = self._deployment_of(self.given, cluster)
        if self.gpus and not self._is_asked:
            runs = self._supervisor.deployment().plan
            self._is_unwanted = self._deployment is None or self._deployment.plan != runs
        self._lease = self._supervisor.lease()
        if self._lease is None:
            raise InputError(f"another process looks after the job in {self._folder}; end that one first")

    def give(self, allocation: JobAllocation | None, cluster: Cluster, now_s: float) -> None:
        """Decide on the job, whose run is to end.

        Raises
        ------
        InputError
            When what it gets cannot be deployed.
        OSError
            When that cannot be written.
        """
        starts = self.given.num_starts + (allocation is not None)
        calibration = self._learning.learned.calibration
        given = replace(self.given, allocation=allocation, num_starts=starts, calibration=calibration)
        deployment = self._deployment_of(given, cluster)
        self._decide(given, now_s)
        self._deployment, self._failures, self._retry_s = deployment, 0, now_s
        self._may_overlap = True

    def end(self, now_s: float, fault: str | None) -> None:
        """Note that the job has ended; so is its run to, where it has one."""
        self._decide(replace(self.given, allocation=None, has_ended=True, fault=fault), now_s)
        self._deployment = None

    def lose(self) -> None:
        """Have its run ended at once, without a checkpoint."""
        self._is_lost = bool(self.gpus)

    def look(self, others: Callable[[], Iterable["DeployedJob"]]) -> tuple[Happening, str] | None:
        """Do what is due for its run; says what has become of it, and why, where nobody has asked for that."""
        if not self.gpus:
            return None
        if self._is_lost:
            state = self._supervisor.abandon("a node of the run is down")
        else:
            if self._is_unwanted and not self._is_asked and not self._can_overlap(others()):
                self._supervisor.stop()
                self._is_asked = True
            state = self._supervisor.advance()
            self._settle(state)
        self.pause_s = self._supervisor.rest_s(state) if self._overlaps else math.inf
        self._works = state.phase is Phase.RUNNING and not self._is_unwanted
        if not state.phase.final:
            return None
        was_to_end = self._is_unwanted or self._is_asked or self._is_lost
        self.gpus = frozenset()
        self._is_unwanted = self._is_asked = self._is_lost = self._overlaps = False
        if state.phase is Phase.STOPPED:
            return None if was_to_end else (Happening.BROKE, state.detail)
        return (Happening.DONE, "") if state.phase is Phase.FINISHED else (Happening.HOPELESS, state.detail)

    def wants_start(self, now_s: float) -> bool:
        """Whether it has GPUs, and a run is to be started on them now."""
        waits = self._is_unwanted and not (self._is_asked or self._is_lost or self._overlaps)
        return self._deployment is not None and (waits or not self.gpus) and now_s >= self._retry_s

    def start(self, taken: Set[Gpu], now_s: float, others: Callable[[], Iterable["DeployedJob"]]) -> str | None:
        """Start it, unless runs have `taken` its GPUs yet; gives the fault of a job that is given up.

        Where it still runs, the next run is prepared beside that, if it may; else it will be asked to stop.
        """
        deployment = self._deployment
        if deployment is None or not (taken - self.gpus).isdisjoint(deployment.plan.gpus):
            return None
        if self.gpus:
            if self._can_overlap(others()):
                self._overlap(deployment)
            return None
        try:
            if self._supervisor.exists:
                self._supervisor.reconfigure(deployment)
            else:
                self._supervisor.deploy(deployment)
        except (StowplanError, OSError) as error:
            self._failures += 1
            self._retry_s = now_s + self._patience.pause_s * _PAUSE_GROWTH ** (self._failures - 1)
            often = self._failures > self._patience.max_faults
            return f"given up after {self._failures} attempts: the run cannot be started: {error}" if often else None
        self.gpus, self._failures = frozenset(deployment.plan.gpus), 0
        return None

    def _can_overlap(self, others: Iterable["DeployedJob"]) -> bool:
        """Whether its run may train until the next one is prepared: that is free to begin now, or only gets more; and
        jobs that stand still wait for no more of what this one gives back than it keeps, which would stand still."""
        if not self._may_overlap or self._deployment is None or self._supervisor.state().phase is not Phase.RUNNING:
            return False
        wanted, num_awaited = frozenset(self._deployment.plan.gpus), 0
        given_back = self.gpus - wanted
        for other in others:
            if given_back and not wanted.isdisjoint(other.gpus):
                return False
            num_awaited += len(given_back & other.awaits)
        return num_awaited <= len(self.gpus & wanted)

    def _overlap(self, deployment: Deployment) -> None:
        """Prepare the next run beside the one that trains; where that is impossible, this one is stopped instead."""
        try:
            self._supervisor.reconfigure(deployment)
        except (StowplanError, OSError):
            self._may_overlap = False
            return
        self._overlaps, self._is_unwanted = True, False
        self.gpus |= frozenset(deployment.plan.gpus)
        # Ready, asked to stop, let go: as far as that needs no waiting.
        for _ in range(3):
            self._settle(self._supervisor.advance())

    def _settle(self, state: DeploymentState) -> None:
        """Note how a change of plan that overlapped has ended: on the new GPUs, or back on the old ones."""
        if not self._overlaps or state.phase is Phase.RECONFIGURING or state.phase.final:
            return
        runs = self._supervisor.deployment().plan
        self._overlaps, self.gpus = False, frozenset(runs.gpus)
        self._is_unwanted = self._is_unwanted or self._deployment is None or self._deployment.plan != runs
        # What did not start beside the old run starts behind it.
        self._may_overlap = not self._is_unwanted

    def facts(self, now_s: float) -> JobFacts:
        """What a controller has to know of it."""
        return JobFacts(
            job=self.submission.job,
            submitted_s=self.submitted_s,
            since_s=now_s,
            remaining_s=self.left_s(),
            num_starts=self.given.num_starts,
            attained_gpu_s=self._attained(now_s),
            attained_s=self._attained_by_type(now_s),
            allocation=self.given.allocation,
        )

    def measured(self) -> Measured:
        """Steps at the initial batch that are left, as rank 0 measured them: at least the last one, until the job has
        ended; how fast its runs were, and what its changes have cost."""
        learned = self._learning.learned
        costs_s = self._supervisor.state().costs_s if self._supervisor.exists else {}
        return Measured(
            iterations_left=max(1, math.ceil(self._iterations_left(self._steps_done())[0])),
            performance=learned.performance,
            calibration=learned.calibration,
            restart_cost_s=restart_price_s(costs_s),
            is_starting=self.given.allocation is not None and not self._works,
        )

    def measure(self, cluster: Cluster) -> bool:
        """Read what its run has measured, where that is due; says whether `measured` or `left_s` say something else.

        Raises
        ------
        InputError, OSError
            When that cannot be read.
        """
        if not self._learns or self.given.allocation is None or self._is_unwanted or not self._works:
            return False
        run = self._runs.newest(cluster)
        return run is not None and self._learning.take(run)

    def left_s(self) -> float | None:
        """How long it is expected to run from now on where it runs; None where nobody knows."""
        return self._remaining_s(self._steps_done())

    def kept_s(self) -> float | None:
        """How long it is expected to run from its last good checkpoint on; None where nobody knows."""
        checkpoint = last_good(self._supervisor.checkpoints)
        return self._remaining_s(checkpoint.step if checkpoint else 0)

    def close(self) -> None:
        """Look after it no more; what runs goes on."""
        if self._lease is not None:
            self._lease.close()

    def _deployment_of(self, given: Given, cluster: Cluster) -> Deployment | None:
        """What it is to run; None where it is given nothing."""
        if given.allocation is None:
            return None
        job = self.submission.job
        told = replace(job, calibration=given.calibration or job.calibration)
        return deployment_of(replace(self.submission, job=told), given.allocation, cluster)

    def _decide(self, given: Given, now_s: float) -> None:
        """Write what is decided now."""
        given = replace(
            given,
            since_at_s=time.time(),
            attained_gpu_s=self._attained(now_s),
            attained_s=self._attained_by_type(now_s),
        )
        write_record(given, self._folder / _GIVEN)
        self.given, self._since_s = given, now_s
        self._works, self._is_unwanted = False, bool(self.gpus)

    def _attained(self, now_s: float) -> float:
        allocation = self.given.allocation
        return self.given.attained_gpu_s + (0 if allocation is None else allocation.num_gpus * (now_s - self._since_s))

    def _attained_by_type(self, now_s: float) -> Mapping[str, float]:
        allocation, known = self.given.allocation, self.given.attained_s
        if allocation is None:
            return known
        return {**known, allocation.gpu_type: known.get(allocation.gpu_type, 0.0) + now_s - self._since_s}

    def _steps_done(self) -> int:
        return self._supervisor.steps_done() if self._supervisor.exists else 0

    def _remaining_s(self, steps_done: int) -> float | None:
        """The steps that are left, as long as they took last; else their share of the time that the job was said to
        take."""
        whole_s, num_steps = self.submission.job.remaining_s, self.submission.training.num_steps
        (left, steps), step_s = self._iterations_left(steps_done), self._learning.learned.step_s
        if step_s is not None:
            return step_s * steps
        return None if whole_s is None else whole_s * left / num_steps

    def _iterations_left(self, steps_done: int) -> tuple[float, float]:
        """What is left behind a step, in steps at the initial batch, and in those of the run: others where the batch
        adapts."""
        if self.submission.training.schedule.scaling is ScalingRule.NONE or not self._supervisor.exists:
            left = max(0, self.submission.training.num_steps - steps_done)
            return left, left
        checkpoint = last_good(self._supervisor.checkpoints)
        behind, done = (checkpoint.step, checkpoint.done) if checkpoint else (0, Progress())
        training = self._supervisor.deployment().training_job(Path(), Path())
        worth = worth_of_step(training, done)
        missing = max(0.0, training.num_samples - done.work - max(0, steps_done - behind) * worth)
        return missing / training.initial_batch, missing / worth


def is_there(folder: Path) -> bool:
    """Whether a job lies in the folder; without what was decided on it, it was never taken."""
    return (folder / _GIVEN).exists()


def write_job(submission: Submission, number: int, folder: Path) -> None:
    """Write a job that is submitted now, the one after `number` others.

    Raises
    ------
    InputError
        When it cannot be written, or there is one.
    """
    if is_there(folder):
        raise InputError(
            f"{folder} holds a job of the id {submission.job.id!r} already; every job has an id of its own"
        )
    now_s = time.time()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        write_submission(submission, folder / _SUBMISSION)
        write_record(Given(number=number, submitted_at_s=now_s, since_at_s=now_s), folder / _GIVEN)
    except OSError as error:
        raise InputError(f"{folder} cannot be written: {error.strerror}") from error
