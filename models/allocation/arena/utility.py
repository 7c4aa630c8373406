r"""What each buddy block is worth to each job (Arena section 3.5). Pure NumPy.

For J jobs and C configurations, from throughputs Thr_ij in samples/s (0: the job cannot run there):

runnable   configurations that the job's bounds, GPU types and adaptivity allow, with Thr_ij > 0; a rigid job runs on
           exactly `min_gpus`. They do not depend on what is free at the moment.
offered    the runnable configurations that this plan may choose: among the counts that are offered, fitting the free
           GPUs when alone, in time for the deadline. A reservation offers exactly what it names, whatever is free. A
           pinned job is offered nothing.

S_ij is the restart cost of a running job unless j is its present configuration, else 0. w_i is the job's weight times
ratio^(1 - lambda_i), with lambda_i the queue in which it waits or, when it runs, its own priority.

Throughput and deadlines (maximised):     w_i max(0, 1 - S_ij / H) Thr_ij / Z_i, nothing for a waiting job
  Z_i is the largest Thr_ij of the runnable row when normalised, else 1. H is the horizon: a restart takes S_ij of it.
  Deadlines: a late pair is worth nothing; one that meets the deadline of its job M a_i more, which outweighs all
  throughput, see `models.allocation.admission`.
Completion time (maximised):              u_i w_i max(0, 1 - S_ij / H) Thr_ij / Z_i, nothing for a waiting job
  u_i = (H / T_i)^q with T_i the time that the job needs yet on the best configuration of the runnable row, at least a
  hundredth of H, and q the urgency: with q = 1 and normalised, jobs that end per second, with q = 0 throughput. A job
  that waits and is older than the longest wait is worth M a_i more wherever it runs, as for deadlines.
Finish-time fairness (minimised):         w_i (S_ij + B_i N_i / Thr_ij) / Q_ij, and for a waiting job
                                          w_i max_j (H + B_i N_i / Thr_ij) / Q_ij
  B_i N_i are the samples that remain. Q_ij is the number of GPUs; when normalised, it is the finish time on the best
  configuration of the runnable row. A job left out counts as if it waited for H and then ran where it does worst.

Deadlines (Eq. 6) hold for each pair by itself, since a job has at most one: j is in time when
S_ij + B_i N_i / Thr_ij <= DDL_i. A waiting job is offered only such pairs. A launched one is too, if its present
configuration is in time; if not, it keeps all pairs, since it is not suspended, but the late ones are worth nothing.

The row behind Z_i and the best finish time is the runnable, not the offered one: a job's worth must not change with
what happens to be free.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from models.allocation.admission import rewards
from models.allocation.arena.parameters import ArenaObjective, ArenaParameters
from models.allocation.job_configurations import allowed_configurations, current_configurations, reserved_configuration
from models.allocation.work_left import samples_left
from models.configurations import ConfigurationSet
from models.placement.occupancy import Occupancy
from models.workload import Job, Snapshot
from stowplan.arrays import FloatMatrix, FloatVector, IntVector, Mask
from stowplan.errors import InputError

# Beyond this a coefficient swamps the others in double precision, and HiGHS soon reads it as infinite.
_LARGEST_VALUE = 1e12
# Of the horizon: a job that needs less time than this counts as if it needed so much.
_LEAST_LEFT = 0.01


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Utilities:
    """runnable, in_time, offered: bool (J, C); value: float64 (J, C), gain or cost by the objective, 0 where not
    runnable; waiting: float64 (J,), the same of a job that gets nothing.

    finish_s: float64 (J, C), S_ij + B_i N_i / Thr_ij, 0 where not runnable. reward: float64 (J,), the part of `value`
    that a job gets for meeting its deadline; most_throughput: what the other parts of all jobs cannot exceed together.
    current: int64 (J,), the configuration in which a running job may stay, -1 where there is none. queue: int64 (J,),
    lambda from 1.
    """

    runnable: Mask
    in_time: Mask
    offered: Mask
    value: FloatMatrix
    waiting: FloatVector
    finish_s: FloatMatrix
    reward: FloatVector
    most_throughput: float
    current: IntVector
    queue: IntVector

    @property
    def hopeful(self) -> Mask:
        """Jobs (J,) that meet their deadline in some configuration, be it free or not."""
        return np.asarray((self.runnable & self.in_time).any(axis=1))


def utilities(
    snapshot: Snapshot,
    parameters: ArenaParameters,
    configurations: ConfigurationSet,
    samples_per_s: FloatMatrix,
    taken: Occupancy,
    fits_alone: Mask,
) -> Utilities:
    """Evaluate all jobs on all configurations.

    Raises
    ------
    InputError
        When a value is too large to be told apart from others.
    """
    jobs = snapshot.jobs
    current = current_configurations(snapshot, configurations, taken)
    runnable = allowed_configurations(jobs, configurations)
    is_pinned = np.array([job.id in taken.pinned for job in jobs], dtype=np.bool_)
    staying = is_pinned & (current >= 0)
    runnable[staying, current[staying]] = True
    runnable &= samples_per_s > 0
    runs = np.array([job.id in taken.running for job in jobs], dtype=np.bool_)
    stays = np.arange(len(configurations)) == current[:, None]
    restart_s = np.where(runs[:, None] & ~stays, _floats([job.restart_cost_s for job in jobs])[:, None], 0.0)
    work_s = np.divide(samples_left(jobs)[:, None], samples_per_s, out=np.zeros_like(restart_s), where=runnable)
    queue = queues(jobs, parameters, runs)
    weight = importance = _floats([job.weight for job in jobs]) * parameters.priority_ratio ** (1.0 - queue)
    finish_s = np.where(runnable, work_s + restart_s, 0.0)
    in_time = _in_time(jobs, parameters, finish_s)
    reward, most_throughput = np.zeros(len(jobs)), 0.0
    if parameters.objective is ArenaObjective.FINISH_TIME_FAIRNESS:
        value, waiting = _finish_times(parameters, configurations, runnable, work_s, restart_s)
    else:
        speed = _speeds(parameters, runnable, samples_per_s)
        value = np.where(in_time, np.maximum(0.0, 1.0 - restart_s / parameters.horizon_s) * speed, 0.0)
        waiting = np.zeros(len(jobs))
        if parameters.objective is ArenaObjective.COMPLETION_TIME:
            weight = weight * _urgencies(parameters, runnable, work_s)
        earns = _earning(jobs, parameters, runs | is_pinned)
        if earns is not None:
            most_throughput = float(weight @ speed.max(axis=1, initial=0.0))
            reward = rewards(earns, importance, most_throughput)
    value = weight[:, None] * value + np.where(runnable & in_time, reward[:, None], 0.0)
    counted = stays | _counted(parameters, configurations)
    offered = runnable & counted & fits_alone & _in_time_enough(in_time, runnable, runs, current)
    for i, job in enumerate(jobs):
        if job.reservation is not None:
            offered[i] = runnable[i] & reserved_configuration(job.reservation, configurations)
    return Utilities(
        runnable=runnable,
        in_time=in_time,
        offered=offered & ~is_pinned[:, None],
        value=_checked(value),
        waiting=_checked(weight * waiting),
        finish_s=finish_s,
        reward=reward,
        most_throughput=most_throughput,
        current=current,
        queue=queue,
    )


def queues(jobs: Sequence[Job], parameters: ArenaParameters, runs: Mask) -> IntVector:
    """Queue (J,) of every job: its priority, for a waiting job one less for every `promotion_after_s` of its age."""
    queue = np.array([job.priority for job in jobs], dtype=np.int64)
    if parameters.promotion_after_s is not None:
        promotions = np.floor(_floats([job.age_s for job in jobs]) / parameters.promotion_after_s)
        queue = np.where(runs, queue, np.maximum(1, queue - promotions.astype(np.int64)))
    return queue


def _floats(values: Sequence[float]) -> FloatVector:
    return np.array(values, dtype=np.float64)


def _speeds(parameters: ArenaParameters, runnable: Mask, samples_per_s: FloatMatrix) -> FloatMatrix:
    """Thr_ij / Z_i (J, C), 0 where not runnable."""
    known = np.where(runnable, samples_per_s, 0.0)
    if parameters.normalise:
        best = known.max(axis=1, initial=0.0, keepdims=True)
        known = np.divide(known, best, out=np.zeros_like(known), where=runnable)
    return known


def _urgencies(parameters: ArenaParameters, runnable: Mask, work_s: FloatMatrix) -> FloatVector:
    """u_i (J,), 1 where nothing is runnable."""
    left_s = np.where(runnable, work_s, np.inf).min(axis=1, initial=np.inf)
    left_s = np.where(np.isfinite(left_s), left_s, parameters.horizon_s)
    share = np.maximum(left_s / parameters.horizon_s, _LEAST_LEFT)
    return np.asarray(share**-parameters.urgency)


def _earning(jobs: Sequence[Job], parameters: ArenaParameters, runs: Mask) -> Mask | None:
    """Jobs (J,) that may earn points; None under objectives without any."""
    if parameters.objective is ArenaObjective.DEADLINES:
        return np.array([job.deadline_s is not None for job in jobs], dtype=np.bool_)
    if parameters.objective is ArenaObjective.COMPLETION_TIME and parameters.longest_wait_s is not None:
        return np.asarray(~runs & (_floats([job.age_s for job in jobs]) >= parameters.longest_wait_s))
    return None


def _finish_times(
    parameters: ArenaParameters,
    configurations: ConfigurationSet,
    runnable: Mask,
    work_s: FloatMatrix,
    restart_s: FloatMatrix,
) -> tuple[FloatMatrix, FloatVector]:
    """Costs (J, C) and (J,) of running and of waiting, before weights."""
    unit = np.broadcast_to(configurations.num_gpus.astype(np.float64), work_s.shape)
    if parameters.normalise:
        best_s = np.where(runnable, work_s, np.inf).min(axis=1, initial=np.inf)
        # Rows without a runnable configuration, or of a pinned job without known work, are 0 everywhere.
        known = np.isfinite(best_s) & (best_s > 0)
        unit = np.broadcast_to(np.where(known, best_s, 1.0)[:, None], work_s.shape)
    running = np.where(runnable, (work_s + restart_s) / unit, 0.0)
    waiting = np.where(runnable, (work_s + parameters.horizon_s) / unit, 0.0).max(axis=1, initial=0.0)
    return running, waiting


def _in_time(jobs: Sequence[Job], parameters: ArenaParameters, finish_s: FloatMatrix) -> Mask:
    """Pairs (J, C) with which the job meets its deadline; all where it has none or deadlines do not count."""
    if parameters.objective is not ArenaObjective.DEADLINES:
        return np.ones(finish_s.shape, dtype=np.bool_)
    deadline_s = _floats([np.inf if job.deadline_s is None else job.deadline_s for job in jobs])
    return np.asarray(finish_s <= deadline_s[:, None])


def _in_time_enough(in_time: Mask, runnable: Mask, runs: Mask, current: IntVector) -> Mask:
    """Pairs (J, C) that Eq. 6 leaves: see the module on launched jobs that are late."""
    now = np.flatnonzero(current >= 0)
    is_late = runs.copy()
    is_late[now] = runs[now] & ~(in_time & runnable)[now, current[now]]
    return np.asarray(in_time | is_late[:, None])


def _counted(parameters: ArenaParameters, configurations: ConfigurationSet) -> Mask:
    """Configurations (C,) of the counts that are offered."""
    if parameters.counts is None:
        return np.ones(len(configurations), dtype=np.bool_)
    return np.isin(configurations.num_gpus, parameters.counts)


def _checked(value: FloatMatrix) -> FloatMatrix:
    largest = value.max(initial=0.0)
    if not largest <= _LARGEST_VALUE:
        raise InputError(
            f"the largest worth of a configuration is {largest:.3g}, beyond {_LARGEST_VALUE:.0g}; normalise, or check "
            "throughputs, remaining iterations and weights"
        )
    return value
