"""What a plan cannot help, told with the answer."""

from collections.abc import Iterator

import numpy as np

from models.allocation.arena.instance import ArenaInstance
from models.allocation.arena.parameters import ArenaObjective
from stowplan.errors import Issue, Severity


def plan_warnings(instance: ArenaInstance) -> tuple[Issue, ...]:
    """Running jobs that could only be left as they are, and jobs that cannot meet their deadline."""
    return (*_kept(instance), *_hopeless(instance))


def _kept(instance: ArenaInstance) -> Iterator[Issue]:
    for i in np.flatnonzero(instance.kept).tolist():
        yield Issue(
            code="kept_as_it_is",
            pointer=f"/jobs/{i}/current",
            detail=f"job {instance.jobs[i].id!r} runs, and no buddy block within its bounds has a known throughput and "
            "fits what is free; it keeps its GPUs",
            severity=Severity.WARNING,
        )


def _hopeless(instance: ArenaInstance) -> Iterator[Issue]:
    """Jobs that miss their deadline on any block: waiting ones are dropped, launched ones run on."""
    if instance.parameters.objective is not ArenaObjective.DEADLINES:
        return
    worth = instance.worth
    runnable = worth.runnable.any(axis=1)
    hopeless = runnable & ~(worth.runnable & worth.in_time).any(axis=1)
    for i in np.flatnonzero(hopeless).tolist():
        job = instance.jobs[i]
        fate = "it runs on" if instance.launched[i] or instance.pinned[i] else "it is left out"
        yield Issue(
            code="deadline_cannot_be_met",
            pointer=f"/jobs/{i}/deadline_s",
            detail=f"job {job.id!r} cannot finish within {job.deadline_s:g} s on any block that it may have; {fate}",
            severity=Severity.WARNING,
        )
