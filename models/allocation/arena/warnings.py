"""What a plan cannot help, told with the answer."""

from collections.abc import Iterator

import numpy as np

from models.allocation.arena.instance import ArenaInstance
from models.allocation.arena.parameters import ArenaObjective
from models.allocation.long_waits import wait_warnings
from models.allocation.spread import placement_warnings
from models.plan import Plan
from stowplan.arrays import IntVector
from stowplan.errors import Issue, Severity


def plan_warnings(instance: ArenaInstance) -> tuple[Issue, ...]:
    """Running plans that their model says cannot run, running jobs that could only be left as they are, and jobs that
    cannot meet their deadline."""
    return (*instance.throughputs.warnings, *_kept(instance), *_hopeless(instance))


def missed_deadlines(instance: ArenaInstance, settled: IntVector) -> Iterator[Issue]:
    """Jobs that could meet their deadline, and do not by the plan that gives configuration `settled[i]` (J,) to job i,
    -1 for none or none that is known."""
    if instance.parameters.objective is not ArenaObjective.DEADLINES:
        return
    utility = instance.utility
    for i in np.flatnonzero(utility.hopeful & ~(instance.pinned & (settled < 0))).tolist():
        job, c = instance.jobs[i], int(settled[i])
        if job.deadline_s is None or (c >= 0 and utility.in_time[i, c]):
            continue
        meets = np.flatnonzero(utility.runnable[i] & utility.in_time[i])
        best = int(meets[utility.finish_s[i, meets].argmin()])
        best_s, label = float(utility.finish_s[i, best]), instance.configurations.label(best)
        if c < 0:
            detail = f"waits by this plan; it needs {best_s:.0f} s on {label}, so it must start within "
            detail += f"{job.deadline_s - best_s:.0f} s to finish within {job.deadline_s:g} s"
        else:
            detail = f"needs {utility.finish_s[i, c]:.0f} s on {instance.configurations.label(c)} and has "
            detail += f"{job.deadline_s:g} s; on {label} it would need {best_s:.0f} s"
        yield Issue(
            code="deadline_will_be_missed",
            pointer=f"/jobs/{i}/deadline_s",
            detail=f"job {job.id!r} {detail}",
            severity=Severity.WARNING,
        )


def long_waits(instance: ArenaInstance, settled: IntVector) -> Iterator[Issue]:
    """Jobs that have waited for longer than they should, and wait on by the plan that gives configuration `settled[i]`
    (J,) to job i, -1 for none."""
    longest_s = instance.parameters.longest_wait_s
    if instance.parameters.objective is not ArenaObjective.COMPLETION_TIME or longest_s is None:
        return
    left_out = np.flatnonzero((instance.utility.reward > 0) & (settled < 0)).tolist()
    yield from wait_warnings(instance.jobs, left_out, longest_s)


def slower_jobs(instance: ArenaInstance, settled: IntVector, plan: Plan) -> Iterator[Issue]:
    """Jobs that the plan has placed so that they are slower than their configurations `settled` (J,) promise."""
    samples_per_s = instance.throughputs.samples_per_s
    promised = {
        instance.jobs[i].id: (int(settled[i]), float(samples_per_s[i, settled[i]]))
        for i in np.flatnonzero(settled >= 0).tolist()
    }
    return placement_warnings(instance.snapshot, instance.configurations, plan.allocations, promised)


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
    hopeless = instance.utility.runnable.any(axis=1) & ~instance.utility.hopeful
    for i in np.flatnonzero(hopeless).tolist():
        job = instance.jobs[i]
        fate = "it runs on" if instance.launched[i] or instance.pinned[i] else "it is left out"
        yield Issue(
            code="deadline_cannot_be_met",
            pointer=f"/jobs/{i}/deadline_s",
            detail=f"job {job.id!r} cannot finish within {job.deadline_s:g} s on any block that it may have; {fate}",
            severity=Severity.WARNING,
        )
