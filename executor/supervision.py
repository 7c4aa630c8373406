"""The life of a deployment: runs that follow one another on the same checkpoints, whatever their layout.

Nothing is kept in memory but how long is waited already, which another process counts anew: `advance` looks at what is
there (`executor.kept_deployment`) and does the next thing, so that a supervisor may be killed and another one goes on.
A run ends by itself when its steps are done, on request by the file `stop` in its folder (it then writes a checkpoint
first), or by a fault; after a fault the next run starts from the last good checkpoint, unless a rank has found its
input wrong.

A change of plan overlaps: the processes of the next run start while the old one still trains, load their libraries,
meet and build their engines (where both have a GPU, they only load), and wait for the file `go`; only then is the old
run asked to stop, and its last checkpoint is all that is left to be loaded; or its ranks hand their state over, and the
next ones train before the old ones have gone (`executor.handover`). (Where a scheduler has no room for both, the old
run makes way.) Until the new plan has written a checkpoint of its own, the old one is kept in mind: when a run
of the new plan breaks before its first step, or its restarts are used up, the deployment returns to the old plan, and
the change has failed.

A run that waits in a scheduler's queue for hosts that are down or drained is moved to spares, where there are enough.
A run that cannot be launched (disk full, ports taken, host away) is tried again after pauses that grow. No run trains
beside one that could not be ended, unless a user asks to go on with a deployment that was stopped or has failed.
"""

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from executor.deployment import Deployment
from executor.handover import ask, call_off, handed_step
from executor.host_gpus import preparation_beside
from executor.kept_deployment import KeptDeployment, alone
from executor.launch.base import LaunchBackend, LaunchError, RunState, RunStatus
from executor.lifecycle import Cause, DeploymentState, DeploymentStatus, Fault, Launch, Phase, PhaseError, Run
from executor.outcome import WRONG_INPUT
from executor.run_files import GO_FILE, Preparation
from executor.run_launcher import RunLauncher
from executor.spares import moved, replacements
from stowplan.errors import InputError

# From being asked to stop until the last checkpoint is written; then the run is ended.
STOP_LIMIT_S = 600.0
# How long the next run of a change may wait for hosts before the old one makes room.
QUEUE_LIMIT_S = 60.0
# From the start of the next run of a change until all its ranks are ready; then the change has failed.
READY_LIMIT_S = 1800.0
_PAUSE_GROWTH = 4
# Between two looks at a deployment.
_LOOK_S = 0.5


class Supervisor(KeptDeployment):
    """Looks after one deployment in `root`, whose runs `backend` starts.

    Any number of supervisors may do so at the same time, in one process or several. `max_faults`: restarts without
    progress, and failed launches in a row, before the deployment is given up. `pause_s`: after the first failed launch,
    four times as long after each further one. `restarts`: whether a run that broke is started again, on its GPUs or
    those of the plan before; False where somebody else decides who gets them: then the deployment stops, as soon as the
    run is known to be over. `measured` is told of a run whose cost has become known, by the one who notes it.
    """

    def __init__(
        self,
        root: Path,
        backend: LaunchBackend,
        max_faults: int = 3,
        pause_s: float = 15.0,
        *,
        restarts: bool = True,
        measured: Callable[[Run], None] = lambda _: None,
    ) -> None:
        super().__init__(root)
        self._backend = backend
        self._max_faults = max_faults
        self._pause_s = pause_s
        self._restarts = restarts
        self._told = measured
        self._launcher = RunLauncher(self._runs, backend)

    def status(self) -> DeploymentStatus:
        """State, and how far the training is."""
        state = self.state()
        newest = self._runs.newest_step(state.runs)
        run = self._backend.status(self.folder(state.current.number))
        if newest is None:
            return DeploymentStatus(state=state, run=run, step=0, loss=None)
        return DeploymentStatus(state=state, run=run, step=newest.step, loss=newest.loss, step_s=newest.step_s)

    @alone
    def deploy(self, deployment: Deployment) -> None:
        """Start the first run.

        Raises
        ------
        InputError
            When the folder holds a deployment already.
        LaunchError
            When the run cannot be started; nothing is left of it then.
        """
        if self.exists:
            if self.state().phase is Phase.FINISHED:
                raise InputError(f"{self.root} holds a deployment that is finished; choose another folder")
            going_on = f"`stowplan redeploy {self.root}` goes on with it"
            raise InputError(f"{self.root} holds a deployment already; {going_on}, or choose another folder")
        with self._launcher.started(deployment, Cause.DEPLOYED) as run:
            self._save(
                DeploymentState(name=deployment.name, phase=Phase.STARTING, runs=(run,), phase_since_s=run.started_at_s)
            )

    @alone
    def reconfigure(self, deployment: Deployment) -> None:
        """Begin to move to the plan of `deployment`, which trains the same model.

        A deployment that was stopped or has failed goes on with it from the last good checkpoint; the plan may be the
        same then.

        Raises
        ------
        PhaseError
            When the deployment is finished or is changing already.
        LaunchError
            When the next run cannot be started; the old one goes on. When a run that broke cannot be ended yet.
        """
        state = self._measured(self.state())
        if state.phase.can_go_on or state.launch is not None:
            self._resume(state, deployment)
        elif state.phase in (Phase.STARTING, Phase.RUNNING):
            present = self._runs.deployment(state.current.number)
            if present.engine is None:
                why = "its program cannot wait for the run before to end: stop it first"
                raise PhaseError(f"deployment {state.name} is {state.phase}; {why}")
            preparation = preparation_beside(deployment, present)
            # Where it has no engine before the old run is gone, there is nothing to be filled.
            beside = state.current.number if preparation is Preparation.ENGINE else None
            with self._launcher.started(deployment, Cause.RECONFIGURED, preparation=preparation, beside=beside) as run:
                self._move(replace(state, runs=(*state.runs, run)), Phase.RECONFIGURING)
        else:
            possible = "one that runs, was stopped or has failed can be reconfigured"
            raise PhaseError(f"deployment {state.name} is {state.phase}; {possible}")

    @alone
    def stop(self) -> None:
        """Ask the run to write a checkpoint and end.

        Raises
        ------
        OSError
            When the state cannot be written; nothing is asked for then.
        """
        state = self.state()
        if state.phase.final:
            return
        left = ""
        if state.phase is Phase.RECONFIGURING and not call_off(self.folder(state.current.number)):
            # The old run has nothing any more.
            left, state = self._taken_over(state)
            (self.folder(state.current.number) / GO_FILE).touch()
        elif state.phase is Phase.RECONFIGURING:
            left = self._called_off(state.current)
            state = replace(state, runs=state.runs[:-1])
        # Noted first: a run that ends by an unnoted file would be started again.
        self._move(replace(state, launch=None), Phase.STOPPING, left)
        with suppress(OSError):
            self._asked(state.current).touch()

    @alone
    def abandon(self, why: str) -> DeploymentState:
        """End the run without a checkpoint: it cannot go on, for what `why` says; returns the state afterwards."""
        state = self.state()
        if state.phase.final:
            return state
        live = state.runs[-2:] if state.phase is Phase.RECONFIGURING else state.runs[-1:]
        left = [self._launcher.end(run) for run in live]
        return self._move(replace(state, launch=None), Phase.STOPPED, _joined(why, *left))

    @alone
    def advance(self) -> DeploymentState:
        """Do what is due; returns the state afterwards.

        Raises
        ------
        OSError
            When the state cannot be written; the same is due the next time.
        """
        state = self.state()
        if state.phase.final:
            return state
        state = self._measured(state)
        if state.phase is Phase.RECONFIGURING:
            return self._hand_over(state)
        if state.launch is not None:
            return self._tried_again(state, state.launch)
        run = self._backend.status(self.folder(state.current.number))
        if state.phase is Phase.STOPPING:
            return self._stopped(state, run)
        run = self._heard(state.current, run)
        if run.unavailable and (moves := replacements(self.deployment(), run.unavailable)):
            return self._moved(state, moves, run)
        if run.state is RunState.SUCCEEDED and self._runs.is_done(state.current.number):
            return self._move(state, Phase.FINISHED)
        if run.state is RunState.STOPPED:
            return self._move(state, Phase.STOPPED, "the run was ended from outside")
        if run.state in (RunState.FAILED, RunState.LOST, RunState.SUCCEEDED):
            return self._broken(state, run)
        if state.phase is Phase.STARTING and self._runs.first_step(state.current.number) is not None:
            return self._move(state, Phase.RUNNING, state.detail if state.current.cause is Cause.RETURNED else "")
        return state

    def rest_s(self, state: DeploymentState) -> float:
        """How long whoever advances the deployment may rest: not long while nothing trains."""
        hands_over = state.phase is Phase.RECONFIGURING and self._asked(state.runs[-2]).exists()
        return min(_LOOK_S, self._backend.hurried_pause_s) if hands_over else _LOOK_S

    def _hand_over(self, state: DeploymentState) -> DeploymentState:
        """Wait for the next run to be ready, ask the old one to stop, and let the next one go."""
        old, following = state.runs[-2], state.current
        ready, is_ready = self._backend.status(self.folder(following.number)), self._runs.all_ready(following.number)
        waited_s = self._waited_s("ready", following.number)
        is_late = not is_ready and waited_s > READY_LIMIT_S
        is_broken = ready.state.final or ready.state is RunState.LOST or ready.unavailable or is_late
        if is_broken and call_off(self.folder(following.number)):
            limit = f"not ready after {READY_LIMIT_S / 60:.0f} min: " if is_late and not ready.state.final else ""
            return self._taken_back(state, ready, f"{limit}{ready.detail or ready.state}")
        status, asked = self._backend.status(self.folder(old.number)), self._asked(old)
        is_overdue = asked.exists() and self._waited_s("stop", old.number) > STOP_LIMIT_S
        # What waits in a queue has nothing to write.
        if status.state.final or status.is_queued or is_overdue:
            return self._let_go(state)
        # A scheduler gives the next run the hosts of the old one only when that has ended.
        is_stuck = ready.is_queued and waited_s > QUEUE_LIMIT_S
        if not asked.exists() and (is_ready or is_stuck):
            ask(self.folder(old.number), self.folder(following.number))
            asked.touch()
        return state

    def _taken_back(self, state: DeploymentState, ready: RunStatus, why: str) -> DeploymentState:
        """Go on with the old run, which is started again where it has been asked to stop already."""
        following = state.current
        detail = _joined(f"the new plan {following.plan} did not start: {why}", self._called_off(following))
        fault = Fault(run=following.number, detail=detail, dead=ready.dead)
        return self._move(replace(state, runs=state.runs[:-1], fault=fault), Phase.RUNNING, detail)

    def _called_off(self, following: Run) -> str:
        """End a run that waits for `go`; on a host that cannot be reached it ends itself when it finds `stop`."""
        with suppress(OSError):
            self._asked(following).touch()
        left = self._launcher.end(following)
        return f"{left}; it ends by itself" if left else ""

    def _let_go(self, state: DeploymentState) -> DeploymentState:
        old = state.runs[-2]
        left, changed = self._taken_over(state)
        if left and not self._launcher.is_over(old):
            return self._noted(state, left)
        (self.folder(changed.current.number) / GO_FILE).touch()
        return self._move(changed, Phase.RUNNING)

    def _taken_over(self, state: DeploymentState) -> tuple[str, DeploymentState]:
        """End what is left of the old run, where the next one takes its place; what went wrong, and the state then."""
        old, following = state.runs[-2:]
        left = self._launcher.end(old)
        # Behind its end nobody hands anything over any more.
        handed = handed_step(self.folder(following.number))
        begun = replace(following, from_step=self._runs.good_step() if handed is None else handed)
        may_return = self._restarts and self._runs.first_step(old.number) is not None
        fallback = old.number if may_return else state.fallback
        return left, replace(state, runs=(*state.runs[:-1], begun), faults=0, fallback=fallback)

    def _resume(self, state: DeploymentState, deployment: Deployment) -> None:
        """Go on from the last good checkpoint where nothing runs; what a stop could not end is ended first."""
        old = state.current.number
        changes = self._runs.deployment(old).plan != deployment.plan
        may_return = self._restarts and state.phase is Phase.STOPPED and changes
        broke = state.fault is not None and state.fault.run == old
        left = self._launcher.end(state.current)
        if left and state.launch is not None and not self._launcher.is_over(state.current):
            raise LaunchError(left)
        with self._launcher.started(deployment, Cause.RESUMED) as run:
            resumed = replace(
                state,
                runs=(*state.runs, run),
                faults=state.faults if broke and not self._restarts else 0,
                launch=None,
                fallback=old if may_return and self._runs.first_step(old) is not None else None,
            )
            self._move(resumed, Phase.STARTING, left)

    def _stopped(self, state: DeploymentState, run: RunStatus) -> DeploymentState:
        """Wait for the run to end; one that never spoke, as far as is known, or does not end in time, is ended."""
        is_late = self._waited_s("stop", state.phase_since_s) > self._stop_limit_s(state.current)
        if run.state is RunState.SUCCEEDED and self._runs.is_done(state.current.number):
            return self._move(state, Phase.FINISHED)
        if run.state in (RunState.SUCCEEDED, RunState.STOPPED):
            return self._move(state, Phase.STOPPED)
        never_spoke = run.state is RunState.STARTING and not run.is_unknown
        if not (run.state.final or never_spoke or is_late):
            if not self._asked(state.current).exists():
                self._asked(state.current).touch()
            return state
        left = self._launcher.end(state.current)
        if self._may_train(state.current, left):
            return self._noted(state, left)
        if run.state.final:
            return self._move(state, Phase.STOPPED, _joined(f"the run broke while it stopped: {run.detail}", left))
        after = self._backend.status(self.folder(state.current.number))
        unknown = "" if after.state.final else f"what became of the run is not known: {after.detail or after.state}"
        return self._move(state, Phase.STOPPED, _joined(unknown, left))

    def _broken(self, state: DeploymentState, run: RunStatus) -> DeploymentState:
        """Go on from the last good checkpoint, unless the input is wrong or runs keep breaking without getting further.

        What a change of plan has begun returns to the plan before it when it breaks before its first step, or keeps
        breaking.
        """
        current = state.current
        # Nobody but a scheduler asks a run to stop that is to go on.
        ended = "ended as asked" if self._asked(current).exists() else "ended"
        detail = run.detail or f"{ended} before its last step"
        left = self._launcher.end(current)
        if self._may_train(current, left):
            return self._noted(state, left)
        got_further = self._runs.good_step() > current.from_step
        faults = 1 if got_further else state.faults + 1
        fallback = None if got_further else state.fallback
        state = replace(
            state,
            faults=faults,
            fallback=fallback,
            fault=Fault(run=current.number, detail=_joined(detail, left), dead=run.dead),
        )
        is_wrong = any(rank.exit_code == WRONG_INPUT for rank in run.dead)
        keeps_breaking = is_wrong or faults > self._max_faults
        if fallback is not None and (keeps_breaking or self._runs.first_step(current.number) is None):
            before = next(earlier.plan for earlier in state.runs if earlier.number == fallback)
            why = f"the change to {current.plan} failed ({detail}): back to {before}"
            returning = replace(state, faults=0, fallback=None)
            return self._launched(returning, Launch(like=fallback, cause=Cause.RETURNED, detail=why), left)
        if keeps_breaking:
            often = f"given up after {self._max_faults} restarts without a new checkpoint"
            why = "not started again, since its input is wrong" if is_wrong else often
            return self._move(state, Phase.FAILED, _joined(f"{why}: {detail}", left))
        if not self._restarts:
            return self._move(state, Phase.STOPPED, _joined(detail, left))
        return self._launched(state, Launch(like=current.number, cause=Cause.RESTARTED, detail=detail), left)

    def _heard(self, current: Run, run: RunStatus) -> RunStatus:
        """What is known of a run; one of whose hosts some never say anything is lost."""
        if run.is_unknown:
            # Ending it would fail, and what waits in a queue starts when the scheduler is back.
            return replace(run, state=RunState.RUNNING)
        is_due = run.state is RunState.STARTING and not run.is_queued and self._backend.starts_runs
        waited_s = self._waited_s(f"word of run {current.number}", is_due)
        if not is_due or waited_s <= (limit_s := self.deployment().training.start_limit_s):
            return run
        return replace(run, state=RunState.LOST, detail=f"{run.detail} for more than {limit_s:.0f} s")

    def _stop_limit_s(self, run: Run) -> float:
        """How long a run may take to end; a program of the user's own need not look whether it is to."""
        launch = self._runs.deployment(run.number).launch
        return STOP_LIMIT_S if launch.program is None else launch.grace_s

    def _may_train(self, run: Run, left: str) -> bool:
        """Whether a run that could not be ended, for what is `left` of it, keeps others from its GPUs."""
        return bool(left) and not self._restarts and not self._launcher.is_over(run)

    def _tried_again(self, state: DeploymentState, launch: Launch) -> DeploymentState:
        """Start the run that waits, when it is due."""
        if self._waited_s("launch", launch) < launch.pause_s:
            return state
        return self._launched(state, launch, self._launcher.end(state.current))

    def _moved(self, state: DeploymentState, moves: Mapping[str, str], run: RunStatus) -> DeploymentState:
        """Start anew on spares instead of waiting for hosts that take no job."""
        named = ", ".join(f"{spare} takes the place of {host}" for host, spare in moves.items())
        launch = Launch(like=state.current.number, cause=Cause.RESTARTED, detail=f"{named}: {run.detail}", moves=moves)
        return self._launched(state, launch, self._launcher.end(state.current))

    def _launched(self, state: DeploymentState, launch: Launch, left: str) -> DeploymentState:
        """Start the run that is due; where that is impossible, note when to try again.

        `left`: what kept the run before from being ended; where that may still train, nothing is started beside it.
        """
        try:
            if left and not self._launcher.is_over(state.current):
                raise LaunchError(left)
            deployment = moved(self._runs.deployment(launch.like), launch.moves)
            with self._launcher.started(deployment, launch.cause, launch.detail) as run:
                return self._move(replace(state, runs=(*state.runs, run), launch=None), Phase.STARTING, launch.detail)
        except LaunchError as error:
            failures = launch.failures + 1
            why = f"{launch.detail}; the next run could not be started: {error.detail}"
        if failures > self._max_faults:
            return self._move(replace(state, launch=None), Phase.FAILED, f"given up after {failures} attempts: {why}")
        pause_s = self._pause_s * _PAUSE_GROWTH ** (failures - 1)
        later = replace(launch, failures=failures, pause_s=pause_s)
        return self._move(replace(state, launch=later), Phase.STARTING, f"{why}; tried again after {pause_s:.0f} s")

    def _waited_s(self, what: str, which: object) -> float:
        """How long this process has seen that `which` is waited for; a step of the clock cuts no wait short."""
        return self._backend.watch.unchanged_s((self.root, what), which)

    def _measured(self, state: DeploymentState) -> DeploymentState:
        """Note what the newest run's start has cost, as soon as its first step is known."""
        if state.phase is Phase.RECONFIGURING or (known := self._runs.measured(state.runs)) is None:
            return state
        state = self._move(replace(state, runs=(*state.runs[:-1], known)), state.phase, state.detail)
        self._told(known)
        return state


def _joined(*parts: str) -> str:
    return "; ".join(part for part in parts if part)
