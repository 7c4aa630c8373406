"""Task of workers: one replay, which says how far it is, and comes back in time with what it has."""

import threading
import time
from dataclasses import replace

from api.replays.task import Replayed, ReplayProgress, ReplayTask
from executor.control.controller import Step
from executor.simulation.replay import Replay
from models.plan import PlanOutcome, PlanRequest
from models.planning import plan
from solver.monitor import SolveMonitor
from stowplan.records import to_json

_SAID_EVERY_S = 0.5
# Beyond the limit a decision may take so long, then its solve is cut short.
_DECISION_S = 10.0


def replay_task(task: ReplayTask, monitor: SolveMonitor) -> Replayed:
    """Replay until the end, the limit, or until it is canceled; a decision that takes long is cut short then, too.

    Raises
    ------
    InputError
        When the policy refuses the jobs.
    UnverifiedPlanError
        When a plan fails the check.
    """
    begun_s = time.monotonic()
    said_s = -_SAID_EVERY_S

    def planned(request: PlanRequest) -> PlanOutcome:
        return plan(request, SolveMonitor(canceled=monitor.canceled))

    def say(replay: Replay, step: Step) -> None:
        nonlocal said_s
        elapsed_s = time.monotonic() - begun_s
        if elapsed_s - said_s >= _SAID_EVERY_S:
            said_s, num_ended = elapsed_s, replay.num_jobs - replay.num_left
            monitor.on_progress(ReplayProgress(elapsed_s=elapsed_s, num_ended=num_ended, now_s=step.at_s))

    def is_over() -> bool:
        return monitor.canceled.is_set() or time.monotonic() - begun_s >= task.limit_s

    control = replace(task.setup.control, parameters=task.parameters)
    setup = replace(task.setup, control=control, seed=task.seed)
    cut_short = threading.Timer(task.limit_s + _DECISION_S, monitor.canceled.set)
    cut_short.daemon = True
    cut_short.start()
    try:
        replay = Replay(setup, planner=planned)
        result = replay.run(say, is_over)
    finally:
        cut_short.cancel()
    return Replayed(
        figures=replace(result, jobs=()),
        text=to_json(result),
        now_s=replay.now_s,
        elapsed_s=time.monotonic() - begun_s,
    )
