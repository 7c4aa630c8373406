"""The life of a deployment: runs that follow one another on the same checkpoints, whatever their layout.

    <root>/lock               held by whoever changes something
    <root>/state.json         phase, runs, and what every change of plan cost
    <root>/runs/0001/         a run as `executor.bundle` writes it, with deployment.json; a new plan or a restart makes
                              the next one
    <root>/checkpoints/       shared by all runs

Nothing is kept in memory: `advance` looks at what is there and does the next thing, so that a supervisor may be killed
and another one goes on. A run ends by itself when its steps are done, on request by the file `stop` in its folder (it
then writes a checkpoint first), or by a fault; after a fault the next run starts from the last good checkpoint.

A change of plan overlaps: the processes of the next run start while the old one still trains, load their libraries, and
wait for the file `go`; only then is the old run asked to stop.
"""

import fcntl
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import wraps
from pathlib import Path
from typing import Any, TypeVar, cast

from executor.bundle import GO_FILE, READY_FOLDER, STOP_FILE, write_bundle
from executor.checkpoints import last_good
from executor.deployment import Deployment
from executor.launch.base import LaunchBackend, LaunchError, RunState, RunStatus
from executor.metrics import StepMetrics, first_metrics, last_metrics, metrics_path
from executor.records import read_record, write_record
from executor.training_job import LAST, read_training_job
from stowplan.errors import InputError

Method = TypeVar("Method", bound=Callable[..., Any])

_STATE = "state.json"
_LOCK = "lock"
_DEPLOYMENT = "deployment.json"
# From being asked to stop until the last checkpoint is written; then the run is ended.
STOP_LIMIT_S = 600.0
# Runs take ports in turn, from the deployment's own on.
_NUM_PORTS = 10


class Phase(StrEnum):
    """starting: the newest run has done no step yet. reconfiguring: the old run is to end, the next one to begin."""

    STARTING = "starting"
    RUNNING = "running"
    RECONFIGURING = "reconfiguring"
    STOPPING = "stopping"
    FINISHED = "finished"
    STOPPED = "stopped"
    FAILED = "failed"

    @property
    def final(self) -> bool:
        """Whether nothing will happen any more."""
        return self in (Phase.FINISHED, Phase.STOPPED, Phase.FAILED)


class Cause(StrEnum):
    """Why a run began."""

    DEPLOYED = "deployed"
    RECONFIGURED = "reconfigured"
    RESTARTED = "restarted"


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One run of a deployment; times are seconds since 1970.

    `from_step`: steps done when it began. `cost_s`: from the end of the last step before it to the end of its first
    step, less that step: what the change or the fault cost; None until it is known.
    """

    number: int
    plan: str
    cause: Cause
    started_at_s: float
    from_step: int = 0
    cost_s: float | None = None
    detail: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeploymentState:
    """What is kept on disk. `faults`: restarts since the last step that a run got further than the one before."""

    name: str
    phase: Phase
    runs: tuple[Run, ...]
    phase_since_s: float
    faults: int = 0
    detail: str = ""

    @property
    def current(self) -> Run:
        """The newest run."""
        return self.runs[-1]


@dataclass(frozen=True, slots=True, kw_only=True)
class DeploymentStatus:
    """State, and how far the training is: `step` and `loss` of the newest step that rank 0 of any run has done."""

    state: DeploymentState
    run: RunStatus
    step: int
    loss: float | None


def _alone(method: Method) -> Method:
    """Let one process or thread at a time change a deployment."""

    @wraps(method)
    def locked(self: "Supervisor", *args: Any, **kwargs: Any) -> Any:
        self.root.mkdir(parents=True, exist_ok=True)
        with (self.root / _LOCK).open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            return method(self, *args, **kwargs)

    return cast("Method", locked)


class Supervisor:
    """Looks after one deployment in `root`, whose runs `backend` starts.

    Any number of supervisors may do so at the same time, in one process or several. `max_faults`: restarts without
    progress before the deployment is given up.
    """

    def __init__(
        self, root: Path, backend: LaunchBackend, max_faults: int = 3, clock: Callable[[], float] = time.time
    ) -> None:
        self.root = root
        self._backend = backend
        self._max_faults = max_faults
        self._clock = clock

    @property
    def checkpoints(self) -> Path:
        """Folder of the checkpoints."""
        return self.root / "checkpoints"

    def folder(self, number: int) -> Path:
        """Folder of a run."""
        return self.root / "runs" / f"{number:04d}"

    def state(self) -> DeploymentState:
        """What is known on disk.

        Raises
        ------
        InputError
            When nothing was deployed in the folder.
        """
        return read_record(DeploymentState, self.root / _STATE, "deployment")

    def status(self) -> DeploymentStatus:
        """State, and how far the training is."""
        state = self.state()
        newest = self._newest_step(state)
        run = self._backend.status(self.folder(state.current.number))
        return DeploymentStatus(
            state=state, run=run, step=newest.step if newest else 0, loss=newest.loss if newest else None
        )

    @_alone
    def deploy(self, deployment: Deployment) -> None:
        """Start the first run.

        Raises
        ------
        InputError
            When the folder holds a deployment already.
        LaunchError
            When the run cannot be started; nothing is left of it then.
        """
        if (self.root / _STATE).exists():
            raise InputError(f"{self.root} holds a deployment already; redeploy it, or choose another folder")
        run = Run(number=1, plan=deployment.plan.notation(), cause=Cause.DEPLOYED, started_at_s=self._clock())
        self._write(deployment, run)
        self._backend.start(self.folder(1))
        self._save(
            DeploymentState(name=deployment.name, phase=Phase.STARTING, runs=(run,), phase_since_s=run.started_at_s)
        )

    @_alone
    def reconfigure(self, deployment: Deployment) -> None:
        """Begin to move to the plan of `deployment`, which trains the same model with the same global batch.

        Raises
        ------
        InputError
            When the deployment is over or is changing already, or model or batch differ.
        LaunchError
            When the next run cannot be started; the old one goes on.
        """
        state = self.state()
        if state.phase not in (Phase.STARTING, Phase.RUNNING):
            raise InputError(f"deployment {state.name} is {state.phase}; only one that runs can be reconfigured")
        following = self._next(deployment.plan.notation(), Cause.RECONFIGURED)
        self._write(deployment, following, waits=True)
        self._backend.start(self.folder(following.number))
        self._move(replace(state, runs=(*state.runs, following)), Phase.RECONFIGURING)

    @_alone
    def stop(self) -> None:
        """Ask the run to write a checkpoint and end."""
        state = self.state()
        if state.phase.final:
            return
        if state.phase is Phase.RECONFIGURING:
            self._backend.stop(self.folder(state.current.number))
            state = replace(state, runs=state.runs[:-1])
        (self.folder(state.current.number) / STOP_FILE).touch()
        self._move(state, Phase.STOPPING)

    def deployment(self) -> Deployment:
        """What the newest run deploys."""
        return read_record(Deployment, self.folder(self.state().current.number) / _DEPLOYMENT, "deployment")

    @_alone
    def advance(self) -> DeploymentState:
        """Do what is due; returns the state afterwards."""
        state = self.state()
        if state.phase.final:
            return state
        state = self._measured(state)
        if state.phase is Phase.RECONFIGURING:
            return self._hand_over(state)
        run = self._backend.status(self.folder(state.current.number))
        if state.phase is Phase.STOPPING:
            return self._stopped(state, run)
        if run.state is RunState.SUCCEEDED and self._is_done(state.current):
            return self._move(state, Phase.FINISHED)
        if run.state is RunState.STOPPED:
            return self._move(state, Phase.STOPPED, "the run was ended from outside")
        if run.state in (RunState.FAILED, RunState.LOST, RunState.SUCCEEDED):
            return self._restart(state, run)
        if state.phase is Phase.STARTING and first_metrics(self._metrics(state.current.number)) is not None:
            return self._move(state, Phase.RUNNING)
        return state

    def _hand_over(self, state: DeploymentState) -> DeploymentState:
        """Wait for the next run to be ready, ask the old one to stop, and let the next one go."""
        old, following = self.folder(state.runs[-2].number), self.folder(state.current.number)
        ready = self._backend.status(following)
        if ready.state.final:
            # The old run goes on; where it has been asked to stop already, it is started again.
            detail = f"the new plan {state.current.plan} did not start: {ready.detail or ready.state}"
            return self._move(replace(state, runs=state.runs[:-1]), Phase.RUNNING, detail)
        status = self._backend.status(old)
        if status.state in (RunState.SUCCEEDED, RunState.STOPPED, RunState.FAILED):
            return self._let_go(state, following)
        if not (old / STOP_FILE).exists():
            if self._all_ready(following):
                (old / STOP_FILE).touch()
        elif self._clock() - (old / STOP_FILE).stat().st_mtime > STOP_LIMIT_S:
            self._backend.stop(old)
        return state

    def _let_go(self, state: DeploymentState, following: Path) -> DeploymentState:
        self._backend.stop(self.folder(state.runs[-2].number))
        checkpoint = last_good(self.checkpoints)
        begun = replace(state.current, from_step=checkpoint.step if checkpoint else 0)
        (following / GO_FILE).touch()
        return self._move(replace(state, runs=(*state.runs[:-1], begun), faults=0), Phase.RUNNING)

    def _stopped(self, state: DeploymentState, run: RunStatus) -> DeploymentState:
        folder = self.folder(state.current.number)
        if not run.state.final and self._clock() - state.phase_since_s > STOP_LIMIT_S:
            self._backend.stop(folder)
        elif run.state is RunState.FAILED:
            self._backend.stop(folder)
            return self._move(state, Phase.STOPPED, f"the run broke while it stopped: {run.detail}")
        elif run.state.final:
            return self._move(state, Phase.STOPPED)
        return state

    def _restart(self, state: DeploymentState, run: RunStatus) -> DeploymentState:
        """Start again from the last good checkpoint, unless runs keep breaking without getting further."""
        self._backend.stop(self.folder(state.current.number))
        following = self._next(state.current.plan, Cause.RESTARTED, run.detail or "ended before its last step")
        faults = state.faults + 1 if following.from_step == state.current.from_step else 1
        if faults > self._max_faults:
            detail = f"given up after {self._max_faults} restarts without a new checkpoint: {run.detail}"
            return self._move(state, Phase.FAILED, detail)
        deployment = read_record(Deployment, self.folder(state.current.number) / _DEPLOYMENT, "deployment")
        self._write(deployment, following)
        try:
            self._backend.start(self.folder(following.number))
        except LaunchError as error:
            return self._move(state, Phase.FAILED, f"after {run.detail}: {error.detail}")
        return self._move(replace(state, runs=(*state.runs, following), faults=faults), Phase.STARTING, run.detail)

    def _write(self, deployment: Deployment, run: Run, *, waits: bool = False) -> None:
        """Write the folder of a run, with what it deploys."""
        # Another port than that of the run before, which may still hold its own.
        port = deployment.launch.master_port + (run.number - 1) % _NUM_PORTS
        launch = replace(deployment.launch, master_port=port)
        write_bundle(replace(deployment, launch=launch), self.folder(run.number), self.checkpoints, LAST, waits=waits)
        write_record(deployment, self.folder(run.number) / _DEPLOYMENT)

    def _next(self, plan: str, cause: Cause, detail: str = "") -> Run:
        checkpoint = last_good(self.checkpoints)
        taken = [int(path.name) for path in (self.root / "runs").iterdir()]
        return Run(
            number=max(taken) + 1,
            plan=plan,
            cause=cause,
            started_at_s=self._clock(),
            from_step=checkpoint.step if checkpoint else 0,
            detail=detail,
        )

    def _measured(self, state: DeploymentState) -> DeploymentState:
        """Note what the newest run's start has cost, as soon as its first step is known."""
        run = state.current
        if run.cost_s is not None or len(state.runs) < 2 or state.phase is Phase.RECONFIGURING:
            return state
        first = first_metrics(self._metrics(run.number))
        before = [step for earlier in state.runs[:-1] if (step := last_metrics(self._metrics(earlier.number)))]
        if first is None or not before:
            return state
        cost_s = first.started_at_s - max(step.started_at_s + step.step_s for step in before)
        known = replace(run, cost_s=max(0.0, cost_s))
        return self._move(replace(state, runs=(*state.runs[:-1], known)), state.phase, state.detail)

    def _newest_step(self, state: DeploymentState) -> StepMetrics | None:
        newest = (last_metrics(self._metrics(run.number)) for run in reversed(state.runs))
        return next((step for step in newest if step is not None), None)

    def _metrics(self, number: int) -> Path:
        """What rank 0 of a run measured."""
        return metrics_path(self.folder(number) / "metrics", 0)

    def _all_ready(self, folder: Path) -> bool:
        """Whether every rank of a run that waits has loaded its libraries."""
        num_ranks = len((folder / "ranks.csv").read_text().splitlines()) - 1
        return sum(1 for _ in (folder / READY_FOLDER).glob("*")) == num_ranks

    def _is_done(self, run: Run) -> bool:
        """Whether the training has all its steps."""
        checkpoint = last_good(self.checkpoints)
        job = read_training_job(self.folder(run.number) / "job.json")
        return checkpoint is not None and checkpoint.step >= job.num_steps

    def _move(self, state: DeploymentState, phase: Phase, detail: str = "") -> DeploymentState:
        since = state.phase_since_s if phase is state.phase else self._clock()
        moved = replace(state, phase=phase, detail=detail, phase_since_s=since)
        self._save(moved)
        return moved

    def _save(self, state: DeploymentState) -> None:
        write_record(state, self.root / _STATE)
