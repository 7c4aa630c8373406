"""Replays side by side, of which the proofs of single decisions are noted, too."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from executor.control.controller import Step
from executor.simulation.figures import Distribution, ReplayResult, distribution
from executor.simulation.replay import Replay
from executor.simulation.setup import ReplaySetup
from solver.monitor import SolveMonitor
from solver.pool import WorkerPool

_TASK = "benchmarks.horizon.observed:observe"
# A replay that takes longer has hung.
_LIMIT_S = 7 * 86_400.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Observed:
    """gap: relative, of the decisions that have one; num_limited: decisions that a limit ended."""

    result: ReplayResult
    gap: Distribution
    num_limited: int


def observe_all(setups: Sequence[ReplaySetup], num_processes: int) -> Iterator[Observed]:
    """Carry out replays, so many at a time; in order, each as soon as it and all before are done.

    Raises
    ------
    StowplanError
        What a replay raises.
    """
    with WorkerPool(num_workers=num_processes, max_queue=len(setups), attempts=1) as pool:
        tickets = [pool.submit(_TASK, setup, _LIMIT_S) for setup in setups]
        for ticket in tickets:
            yield ticket.result()


def observe(setup: ReplaySetup, monitor: SolveMonitor) -> Observed:  # noqa: ARG001 - the pool's convention
    """Entry point of workers."""
    gaps: list[float] = []
    num_limited = 0

    def note(_: Replay, step: Step) -> None:
        nonlocal num_limited
        if step.decision is not None:
            outcome = step.decision.outcome
            num_limited += outcome.limit is not None
            if outcome.relative_gap is not None:
                gaps.append(outcome.relative_gap)

    result = Replay(setup).run(on_step=note)
    return Observed(result=result, gap=distribution(gaps), num_limited=num_limited)
