"""What is kept of a deployment's life: phase, runs, the last fault, and a launch that waits to be tried again."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import ClassVar

from executor.change import RunChange
from executor.launch.base import DeadRank, RunStatus
from executor.movement import Movement
from executor.stall import Stall
from stowplan.errors import InputError


class PhaseError(InputError):
    """What was asked for does not go with the phase that the deployment is in."""

    code: ClassVar[str] = "deployment_conflict"


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
        """Whether nothing will happen any more, unless it is asked for."""
        return self in (Phase.FINISHED, Phase.STOPPED, Phase.FAILED)

    @property
    def can_go_on(self) -> bool:
        """Whether nothing runs, but a run can go on from the last good checkpoint."""
        return self in (Phase.STOPPED, Phase.FAILED)


class Cause(StrEnum):
    """Why a run began. returned: to the plan before a change that failed. resumed: after a stop or a failure."""

    DEPLOYED = "deployed"
    RECONFIGURED = "reconfigured"
    RESTARTED = "restarted"
    RETURNED = "returned"
    RESUMED = "resumed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One run of a deployment; times are seconds since 1970.

    `from_step`: steps done when it began. `cost_s`: from the end of the last step before it, or from its own launch
    where that was later, to the beginning of its first step; so what was waited for before the launch does not count.
    None until it is known. `stall`: its parts; None where a user's own program trains, which does not tell them.
    `change`: what kind of change it was; None until its cost is known. `movement`: what of the state moved, where the
    ranks of the run before handed it over; None where it came from a checkpoint.
    """

    number: int
    plan: str
    cause: Cause
    started_at_s: float
    from_step: int = 0
    cost_s: float | None = None
    detail: str = ""
    stall: Stall | None = None
    change: RunChange | None = None
    movement: Movement | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """What broke run `run`; `dead`: the ranks that did, with their last lines."""

    run: int
    detail: str
    dead: tuple[DeadRank, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """A run that is to begin as soon as it can: what run `like` deployed, for the cause that `detail` explains.

    `moves`: other hosts for it, by the ones whose place they take. `failures`: times in a row that it could not be
    started; `pause_s`: until it is tried again.
    """

    like: int
    cause: Cause
    detail: str
    moves: Mapping[str, str] = field(default_factory=dict)
    failures: int = 0
    pause_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class DeploymentState:
    """What is kept on disk.

    `faults`: restarts since the last step that a run got further than the one before. `fallback`: run that a change of
    plan has replaced, until the new plan has a checkpoint of its own. `fault`: the newest one; it stays.
    """

    name: str
    phase: Phase
    runs: tuple[Run, ...]
    phase_since_s: float
    faults: int = 0
    detail: str = ""
    fallback: int | None = None
    fault: Fault | None = None
    launch: Launch | None = None

    @property
    def current(self) -> Run:
        """The newest run."""
        return self.runs[-1]

    @property
    def costs_s(self) -> Mapping[RunChange, float]:
        """The newest measured cost of every kind of change; faults and waiting are no part of it."""
        return {run.change: run.cost_s for run in self.runs if run.change is not None and run.cost_s is not None}

    @property
    def change_cost_s(self) -> float | None:
        """The newest measured cost of a change of plan; faults and waiting are no part of it. None: none measured."""
        costs = (run.cost_s for run in reversed(self.runs) if run.cause is Cause.RECONFIGURED)
        return next((cost_s for cost_s in costs if cost_s is not None), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class DeploymentStatus:
    """State, and how far the training is: `step`, `loss` and seconds of the newest step that rank 0 of a run has
    done."""

    state: DeploymentState
    run: RunStatus
    step: int
    loss: float | None
    step_s: float | None = None
