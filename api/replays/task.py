"""What a worker that replays gets, says and gives. Light: the serving process loads nothing that replays."""

import pickle
from dataclasses import dataclass
from typing import cast

from executor.simulation.figures import ReplayResult
from executor.simulation.setup import ReplaySetup
from models.policy import Parameters
from solver.monitor import Progress
from solver.ticket import Pickled

REPLAY_TASK = "api.replays.replay_task:replay_task"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayTask:
    """A replay: a setup with other parameters and another seed. After `limit_s` it comes back with what it has."""

    setup: ReplaySetup
    parameters: Parameters
    seed: int
    limit_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Replayed:
    """A replay that has ended, or was stopped at `now_s` of its virtual clock: its figures without jobs, and as JSON
    text with all of them."""

    figures: ReplayResult
    text: str
    now_s: float
    elapsed_s: float


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ReplayProgress(Progress):
    """How far a replay is: jobs that have ended, and its virtual clock."""

    num_ended: int
    now_s: float

    def after(self, earlier: Progress) -> Progress:  # noqa: ARG002 - as of all progress
        """It says everything anew."""
        return self


@dataclass(frozen=True, slots=True, kw_only=True)
class PackedReplays:
    """Replays that differ in their parameters and seeds only. `setup`: of the first, pickled."""

    setup: bytes
    replays: tuple[tuple[Parameters, int], ...]

    @classmethod
    def of(cls, setups: tuple[ReplaySetup, ...]) -> "PackedReplays":
        """Pack setups."""
        return cls(
            setup=pickle.dumps(setups[0], pickle.HIGHEST_PROTOCOL),
            replays=tuple((setup.control.parameters, setup.seed) for setup in setups),
        )

    def task(self, number: int, limit_s: float) -> ReplayTask:
        """The argument of a task; its setup can be read by the worker only."""
        parameters, seed = self.replays[number]
        setup = cast("ReplaySetup", Pickled(self.setup))
        return ReplayTask(setup=setup, parameters=parameters, seed=seed, limit_s=limit_s)
