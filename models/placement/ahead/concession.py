"""What would help when jobs cannot be planned: a later start, more likely evictions, fewer nodes."""

from dataclasses import replace

import numpy as np

from models.placement.ahead.building import AheadProblem, ahead_problem
from models.placement.ahead.moves import loosened, place_with_moves
from models.placement.ahead.parameters import LONGEST_HORIZON_DAYS
from models.placement.ahead.wanted import DAY_S, WantedJob
from models.plan import UnplacedJob
from models.wording import counted
from models.workload import Job, Snapshot


def left_out(problem: AheadProblem) -> tuple[UnplacedJob, ...]:
    """Jobs that have no start even alone, else all, which are in each other's way; each with what would help."""
    alone = {wanted.job.id: _most_nodes(problem, p) for p, wanted in enumerate(problem.wanted)}
    hopeless = [wanted for wanted in problem.wanted if _first_start(problem, wanted) is None]
    if not hopeless:
        names = ", ".join(wanted.job.id for wanted in problem.wanted)
        return tuple(
            _job(
                wanted,
                alone[wanted.job.id],
                f"beside the others ({names})",
                "let one of them start later, or end sooner",
            )
            for wanted in problem.wanted
        )
    return tuple(
        _job(wanted, alone[wanted.job.id], "between its earliest and latest start", _remedy(problem, wanted))
        for wanted in hopeless
    )


def _remedy(problem: AheadProblem, wanted: WantedJob) -> str:
    """The first of the concessions that is enough: a later start, no promise about the start, fewer nodes."""
    snapshot, parameters = problem.snapshot, problem.parameters
    longer = min(2 * max(parameters.horizon_days, wanted.latest_s / DAY_S), LONGEST_HORIZON_DAYS)
    later = replace(wanted.job, latest_start_s=longer * DAY_S)
    start_s = _first_start(_alone(problem, snapshot, later), wanted)
    if start_s is not None:
        return f"let it start by {start_s / DAY_S:.2f} days from now (latest_start_s {start_s:.0f})"
    if parameters.start_probability is not None:
        unsure = replace(problem, parameters=replace(parameters, start_probability=None))
        if _first_start(_alone(unsure, snapshot, wanted.job), wanted) is not None:
            return "leave start_probability out, so that evictions are priced instead of forbidden"
    fits = max(_most_nodes(problem, p) for p, each in enumerate(problem.wanted) if each.job.id == wanted.job.id)
    return f"lower dp or pp to at most {counted(fits, 'node')}, or free more by ending reservations and jobs"


def _alone(problem: AheadProblem, snapshot: Snapshot, job: Job) -> AheadProblem:
    """The problem with one job to be planned, and nobody else to be."""
    planned = {wanted.job.id for wanted in problem.wanted}
    jobs = tuple(
        job if known.id == job.id else known for known in snapshot.jobs if known.id == job.id or known.id not in planned
    )
    return ahead_problem(replace(snapshot, jobs=jobs), problem.parameters)


def _first_start(problem: AheadProblem, wanted: WantedJob) -> float | None:
    """The earliest start at which the job has a place when nobody else is planned."""
    instance = problem.instance
    p = next(p for p, job in enumerate(instance.jobs) if job.id == wanted.job.id)
    for o, option in enumerate(instance.jobs[p].options):
        room = instance.class_size
        if place_with_moves(instance, instance.jobs[p], o, room, room).placing is not None:
            return option.start_s
    return None


def _most_nodes(problem: AheadProblem, p: int) -> int:
    """The most nodes that the job may use at one of its starts."""
    instance = problem.instance
    jobs = loosened(instance).jobs
    return max(int(instance.class_size[np.isfinite(option.node_cost)].sum()) for option in jobs[p].options)


def _job(wanted: WantedJob, num_usable: int, where: str, remedy: str) -> UnplacedJob:
    needed = wanted.num_nodes
    return UnplacedJob(
        job_id=wanted.job.id,
        reason="no_start",
        detail=f"job {wanted.job.id!r} needs {counted(needed, 'node')} and has no start {where}; "
        f"at best {num_usable} may be used",
        counts={"needed_nodes": needed, "usable_nodes": num_usable},
        remedy=remedy,
        preempted=False,
    )
