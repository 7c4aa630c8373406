"""Tasks for workers that stand in for replays: by their seed they replay, wait, die, or do not listen."""

import os
import time

from api.replays.replay_task import replay_task
from api.replays.task import Replayed, ReplayProgress, ReplayTask
from solver.monitor import SolveMonitor

_LONG_S = 60.0


def patient_task(task: ReplayTask, monitor: SolveMonitor) -> Replayed:
    """With seed 1 say how far it is, and go on only when it is canceled."""
    if task.seed == 1:
        monitor.on_progress(ReplayProgress(elapsed_s=1.0, num_ended=2, now_s=160.0))
        monitor.canceled.wait(_LONG_S)
    return replay_task(task, monitor)


def broken_task(task: ReplayTask, monitor: SolveMonitor) -> Replayed:
    """With seed 1 die, with seed 2 neither return nor listen."""
    if task.seed == 1:
        os._exit(3)
    if task.seed == 2:
        monitor.on_progress(ReplayProgress(elapsed_s=1.0, num_ended=2, now_s=160.0))
        time.sleep(_LONG_S)
    return replay_task(task, monitor)
