"""Tiny clusters, traces and replays that the tests of control and simulation share."""

from typing import Any

from executor.control.options import ControlOptions
from executor.simulation.replay import Replay
from executor.simulation.setup import ReplaySetup
from models.allocation.gang.parameters import GangParameters
from models.plan import PlanOutcome, PlanRequest
from models.planning import plan
from tests.models.allocation.gang.scenes import cluster
from workloads.trace import Trace


def setup_of(
    trace: Trace, *sizes: int, gang: GangParameters | None = None, round_s: float | None = None, **rest: Any
) -> ReplaySetup:
    """A replay on nodes a0, a1, ... of so many GPUs."""
    control = ControlOptions(parameters=gang or GangParameters(), round_s=round_s)
    return ReplaySetup(cluster=cluster(*sizes), trace=trace, control=control, **rest)


def gantt(replay: Replay) -> dict[str, tuple[float | None, float | None]]:
    """When each job started first, and ended."""
    return {job.id: (job.started_s, job.ended_s) for job in replay.run().jobs}


class Watched:
    """Plans as everybody does, and keeps the requests."""

    def __init__(self) -> None:
        self.requests: list[PlanRequest] = []

    def __call__(self, request: PlanRequest) -> PlanOutcome:
        self.requests.append(request)
        return plan(request)
