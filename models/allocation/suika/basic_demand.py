"""Waiting jobs first: their basic demand takes precedence over every scale-out (Suika Algorithm 2, line 2).

Every waiting job is tried once, in queue order; one that cannot be served lets the next one try. For each of its GPU
types, fastest first: (1) free GPUs; then, over the types again, (2) the scale-outs of least worth are taken back, one
after another, until it fits; (3) as the last resort running jobs are moved, after all scale-outs of the type are taken
back: the smallest job that makes room alone, else as many as it takes, smallest first. Jobs are placed again by the
size of their tensor groups, largest first, which finds room whenever there is some if group sizes divide one another.
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from models.allocation.suika.parameters import Queueing
from models.allocation.suika.placing import place
from models.allocation.suika.planner import Planner, StartPlan
from models.allocation.suika.state import ClusterState, RunningJob, expansions_by_utility, gpus_in
from models.parallel_plan import ParallelPlan
from models.workload import Job


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Refused:
    """A job whose basic demand could not be served, and the plans that were tried."""

    job: Job
    plans: tuple[StartPlan, ...]


def serve_waiting(
    state: ClusterState, waiting: Sequence[Job], planner: Planner, queueing: Queueing
) -> tuple[ClusterState, tuple[Refused, ...]]:
    """Start what can be started; returns the state after it and what still waits, in queue order."""
    refused = []
    for job, plans in queue(waiting, planner, queueing):
        served = _serve(state, job, plans, planner)
        if served is None:
            refused.append(Refused(job=job, plans=plans))
        else:
            state = served
    return state, tuple(refused)


def queue(waiting: Sequence[Job], planner: Planner, queueing: Queueing) -> Iterator[tuple[Job, tuple[StartPlan, ...]]]:
    """Waiting jobs with their plans: jobs that have to leave their GPUs, then FIFO (oldest first) or SJF (least time
    left on the basic demand first, unknown last); among equals in the order given."""
    plans = {job.id: tuple(planner.start_plans(job)) for job in waiting}

    def remaining_s(job: Job) -> float:
        if job.remaining_iterations is None or not plans[job.id]:
            return float("inf")
        fastest = plans[job.id][0]
        return job.remaining_iterations * fastest.plan.global_batch / fastest.throughput

    def key(job: Job) -> tuple[bool, float]:
        return not job.current, remaining_s(job) if queueing is Queueing.SJF else -job.age_s

    for job in sorted(waiting, key=key):
        yield job, plans[job.id]


def _serve(state: ClusterState, job: Job, plans: Sequence[StartPlan], planner: Planner) -> ClusterState | None:
    """The state in which the job runs; None when it fits nowhere."""
    for attempt in (_on_free, _after_reclaiming, _after_moving):
        for start in plans:
            served = attempt(state, job, start, planner)
            if served is not None:
                return served
    return None


def _on_free(state: ClusterState, job: Job, start: StartPlan, planner: Planner) -> ClusterState | None:
    plan = place(start.plan, state.free[start.gpu_type], state.machines.paths)
    if plan is None:
        return None
    served = state.copy()
    run(served, RunningJob(job=job, gpu_type=start.gpu_type, plan=plan, throughput=0.0), plan, planner)
    return served


def _after_reclaiming(state: ClusterState, job: Job, start: StartPlan, planner: Planner) -> ClusterState | None:
    if not _would_fit(state, start):
        return None
    trial = state.copy()
    for _ in _reclaimed(trial, start.gpu_type, planner):
        served = _on_free(trial, job, start, planner)
        if served is not None:
            return served
    return None


def _would_fit(state: ClusterState, start: StartPlan) -> bool:
    """Whether the plan fits beside basic demands: asked before any plan is shrunk."""
    everything = state.copy()
    for running in _of_type(state, start.gpu_type):
        everything.give_back(start.gpu_type, gpus_in(running.expansions))
    return place(start.plan, everything.free[start.gpu_type], state.machines.paths) is not None


def _reclaimed(trial: ClusterState, gpu_type: str, planner: Planner) -> Iterator[str]:
    """Take back the scale-outs of a type, least worth first, each with what was added to its job later; yields the
    ids of the jobs that lost some."""
    for job_id, index in expansions_by_utility(_of_type(trial, gpu_type)):
        if index < len(trial.running[job_id].expansions) and trial.undo(job_id, index, planner):
            yield job_id


def _after_moving(state: ClusterState, job: Job, start: StartPlan, planner: Planner) -> ClusterState | None:
    """De-fragmentation: only where the GPUs are there, but not in one piece."""
    elastic = sum(len(gpus_in(running.expansions)) for running in _of_type(state, start.gpu_type))
    if len(state.released(start.gpu_type)) + elastic < start.plan.num_gpus:
        return None
    trial = state.copy()
    for _ in _reclaimed(trial, start.gpu_type, planner):
        pass
    newcomer = RunningJob(job=job, gpu_type=start.gpu_type, plan=start.plan, throughput=0.0)
    movable = [running for running in _of_type(trial, start.gpu_type) if not running.expansions]
    movable.sort(key=lambda running: running.plan.num_gpus)
    if not _can_be_packed(trial, newcomer, movable):
        return None
    for running in movable:
        served = _placed_again(trial, newcomer, [running], planner, stay=False)
        if served is not None:
            return served

    def fits(count: int) -> bool:
        return _placed_again(trial, newcomer, movable[:count], planner, stay=False) is not None

    fewest = 2 + bisect_left(range(2, len(movable) + 1), True, key=fits)
    for stay in (True, False):
        served = _placed_again(trial, newcomer, movable[:fewest], planner, stay=stay)
        if served is not None:
            return served
    return None


def _can_be_packed(state: ClusterState, newcomer: RunningJob, movable: Sequence[RunningJob]) -> bool:
    """Whether the tensor groups of all these jobs may fit on what is free without them: for every size, the blocks of
    that size hold all groups that are not smaller. Necessary; sufficient when every size divides the next."""
    room = {node: len(gpus) for node, gpus in state.free[newcomer.gpu_type].items()}
    for running in movable:
        for node, _ in running.plan.gpus:
            room[node] += 1
    needed = Counter[int]()
    for running in (newcomer, *movable):
        for stage in running.plan.stages:
            needed[stage.tp] += stage.num_gpus
    return all(
        sum(count for other, count in needed.items() if other >= size)
        <= sum(free // size * size for free in room.values())
        for size in needed
    )


def _placed_again(
    state: ClusterState, newcomer: RunningJob, moved: Sequence[RunningJob], planner: Planner, *, stay: bool
) -> ClusterState | None:
    """The state with these jobs on new GPUs; None when they do not fit. `stay`: jobs whose GPUs are still free when
    their turn comes keep them."""
    trial = state.copy()
    for running in moved:
        trial.give_back(running.gpu_type, running.plan.gpus)
    for running in sorted((newcomer, *moved), key=lambda item: (-_largest_group(item.plan), -item.plan.num_gpus)):
        free = trial.free[running.gpu_type]
        keeps = stay and running is not newcomer and all(gpu in free[node] for node, gpu in running.plan.gpus)
        plan = running.plan if keeps else place(running.plan, free, trial.machines.paths)
        if plan is None:
            return None
        run(trial, running, plan, planner)
    return trial


def run(state: ClusterState, running: RunningJob, plan: ParallelPlan, planner: Planner) -> None:
    """Let a job run with this plan, on GPUs that are free."""
    state.running[running.job.id] = replace(running, plan=plan, throughput=planner.throughput(running.job, plan))
    state.take(running.gpu_type, plan.gpus)


def _of_type(state: ClusterState, gpu_type: str) -> list[RunningJob]:
    return [running for running in state.running.values() if running.gpu_type == gpu_type]


def _largest_group(plan: ParallelPlan) -> int:
    return max(stage.tp for stage in plan.stages)


def reclaim_below(state: ClusterState, tau: float, planner: Planner) -> None:
    """Take back every scale-out whose benefit is below the threshold, with what was added to its job later."""
    for job_id, running in list(state.running.items()):
        weak = [k for k, grown in enumerate(running.expansions) if grown.benefit < tau]
        if weak:
            state.undo(job_id, weak[0], planner)
