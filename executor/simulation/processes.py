"""Replays side by side, each in a worker process."""

from collections.abc import Iterator, Sequence

from executor.simulation.figures import ReplayResult
from executor.simulation.replay import Replay
from executor.simulation.setup import ReplaySetup
from solver.monitor import SolveMonitor
from solver.pool import WorkerPool

_TASK = "executor.simulation.processes:replay_task"
# A replay that takes longer has hung.
_LIMIT_S = 7 * 86_400.0
# A worker that dies may have been killed for want of memory; whoever dies again will do so once more.
_ATTEMPTS = 2


def replay_all(setups: Sequence[ReplaySetup], num_processes: int) -> Iterator[ReplayResult]:
    """Carry out replays, so many at a time; gives their results in order, each as soon as it and all before are done.

    Raises
    ------
    StowplanError
        What a replay raises; WorkerError when its worker dies twice. The others end with it.
    """
    with WorkerPool(num_workers=num_processes, max_queue=len(setups), attempts=_ATTEMPTS) as pool:
        tickets = [pool.submit(_TASK, setup, _LIMIT_S) for setup in setups]
        for ticket in tickets:
            yield ticket.result()


def replay_task(setup: ReplaySetup, monitor: SolveMonitor) -> ReplayResult:  # noqa: ARG001 - the pool's convention
    """Entry point of workers, which are killed to stop them."""
    return Replay(setup).run()
