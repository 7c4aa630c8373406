"""Replays carried out: one here, whose state may be kept, or several in processes of their own."""

import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from api.cli import console
from api.cli.json_files import read_json
from api.cli.local_worker import SLACK_S
from api.cli.paths import write
from api.figures.picture_format import PictureFormat
from api.figures.request import ReplayFigure
from executor.control.controller import Step
from executor.simulation.figures import ReplayResult
from executor.simulation.processes import replay_all
from executor.simulation.replay import OnStep, Replay, ReplayState
from executor.simulation.setup import ReplaySetup
from solver.pool import WorkerPool
from stowplan.records import from_document, to_json
from topology.cluster import Cluster

_S_PER_HOUR = 3600.0
_DRAWN_EVERY_S = 0.2
_SAVED_EVERY_S = 30.0
_FIGURE_TASK = "api.figures.replay:figure_task"


def results_of(setups: Sequence[ReplaySetup], kept: Path | None, num_processes: int | None) -> list[ReplayResult]:
    """Carry out replays; the state of the only one is kept in a file, and goes on from there.

    Parameters
    ----------
    num_processes
        Replays at a time; None for as many as there are processors.
    """
    num_processes = min(num_processes or os.cpu_count() or 1, len(setups))
    if num_processes == 1:
        return [_replayed(setup, kept) for setup in setups]
    with _counting(len(setups)) as count:
        results = []
        for result in replay_all(setups, num_processes):
            results.append(result)
            count(len(results))
        return results


def drawn(results: Sequence[ReplayResult], cluster: Cluster, picture: PictureFormat) -> bytes:
    """A picture of the replays, with the first seed of every policy."""
    replays: dict[str, ReplayResult] = {}
    for result in results:
        replays.setdefault(result.name, result)
    with WorkerPool(num_workers=1, max_queue=1) as pool:
        request = ReplayFigure(cluster=cluster, replays=replays, format=picture)
        drawing: bytes = pool.submit(_FIGURE_TASK, request, SLACK_S).result()
    return drawing


def _replayed(setup: ReplaySetup, kept: Path | None) -> ReplayResult:
    """Replay, from the state that was kept where there is one."""
    there = kept is not None and kept.exists()
    replay = Replay(
        setup, state=from_document(ReplayState, read_json(kept), f"state {kept}") if kept and there else None
    )
    with _following(setup.policy) as follow:
        saved_s = time.monotonic()

        def on_step(replay: Replay, step: Step) -> None:
            nonlocal saved_s
            follow(replay, step)
            if kept is not None and time.monotonic() - saved_s > _SAVED_EVERY_S:
                _save(kept, replay)
                saved_s = time.monotonic()

        try:
            return replay.run(on_step)
        finally:
            if kept is not None:
                _save(kept, replay)


def _save(kept: Path, replay: Replay) -> None:
    """Write the state so that the file is whole at every moment."""
    part = kept.with_name(kept.name + ".part")
    write(part, to_json(replay.state()).encode())
    part.replace(kept)


@contextmanager
def _counting(num_replays: int) -> Iterator[Callable[[int], None]]:
    """A line that says how many replays are done, where somebody looks on."""
    screen = console.errors()
    if not screen.is_terminal:
        yield lambda _: None
        return
    with screen.status(f"0 of {num_replays} replays done") as status:
        yield lambda num_done: status.update(f"{num_done} of {num_replays} replays done")


@contextmanager
def _following(policy: str) -> Iterator[OnStep]:
    """A line that follows a replay, where somebody looks on."""
    screen = console.errors()
    if not screen.is_terminal:
        yield lambda *_: None
        return
    drawn_s = 0.0
    with screen.status(f"{policy}  starting") as status:

        def draw(replay: Replay, step: Step) -> None:
            nonlocal drawn_s
            if time.monotonic() - drawn_s > _DRAWN_EVERY_S:
                drawn_s = time.monotonic()
                ended = replay.num_jobs - replay.num_left
                status.update(
                    f"{policy}  {ended:,} of {replay.num_jobs:,} jobs ended  hour {step.at_s / _S_PER_HOUR:,.1f}"
                )

        yield draw
