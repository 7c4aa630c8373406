r"""What each configuration is worth to each job (Sia section 3.4). Pure NumPy.

For J jobs and C configurations, from goodputs G_ij (0: the job cannot run there):

runnable   configurations that the job's bounds, GPU types and adaptivity allow, with G_ij > 0. A rigid job runs on
           exactly `min_gpus`. They do not depend on what is free at the moment.
offered    the runnable configurations that this plan may choose: those that fit the free GPUs when alone, after the
           doubling rule of section 3.1 (`double_at_most`: a running job gets at most twice its GPUs, a waiting one its
           smallest runnable count of the type). A reservation offers exactly the reserved configuration, whatever is
           free, so that too much forced demand shows up as an infeasible problem. A pinned job is offered nothing.

Utility of a runnable configuration (Eqs. 2-4):
  G_ij <- N_i G_ij / min_j G_ij      row normalisation; min over the runnable row, N_i its smallest GPU count
  G_ij <- r_i G_ij                   unless the job can stay as it is in configuration j; waiting jobs: no factor
  u_ij = w_i G_ij^p                  job weight w_i, fairness power p
  r_i = (T_i - N_i S_i) / (T_i + S_i)   Eq. 3: age, restarts so far, restart cost times `restart_price`; kept within
                                     [0.01, 1]
  lambda_i = w_i lambda              what job i costs when it gets nothing; with `price_suspension` w_i lambda r_i^-|p|
                                     for a job that runs, since it will have to restart: for p < 0 and lambda >= 1 it is
                                     then never left out while some configuration of it is free

Eq. 3 turns negative when past restarts ate the whole age, which no power can take; the floor says "a hundredth as
good", and keeps r^p within what solvers resolve. A job that must leave its GPUs (drained node, shape that breaks the
placement rules) pays the factor everywhere. The normalisation uses the runnable, not the offered row: the paper takes
the minimum over all of C, and a job's utilities must not change with what happens to be free.

Differences to the released code, where the paper rules: values are neither rounded to 0.01 nor capped at 3000, and a
job's first placement is not flattened to 1.

With `completion_time` values and penalties are those of `models.allocation.sia.completion`.

With `given_costs` the goodput tables hold costs: u_ij = w_i G_ij, no normalisation, factor or power.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from models.allocation.job_configurations import allowed_in, current_configurations, reserved_configuration
from models.allocation.sia.completion import completion_values
from models.allocation.sia.parameters import SiaObjective, SiaParameters
from models.configurations import ConfigurationSet
from models.placement.occupancy import Occupancy
from models.roll import reserves, roll_of
from models.workload import Job, Snapshot
from stowplan.arrays import FloatMatrix, FloatVector, IntVector, Mask
from stowplan.errors import InputError
from stowplan.living import OfUnchanged

_RESTART_FLOOR = 0.01
# Beyond this a coefficient swamps the others in double precision, and HiGHS soon reads it as infinite.
_LARGEST_UTILITY = 1e12
# So many utilities are computed sooner than it is found which of them are as they were.
_FEW = 2_000
# What goodputs of few pairs are multiplied by, as long as these and where jobs may run are as they were.
_scaled: OfUnchanged[ConfigurationSet, FloatMatrix] = OfUnchanged()


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Utilities:
    """runnable, offered: bool (J, C); value: u, float64 (J, C), 0 where not runnable. penalty: lambda_i, float64 (J,).

    current: int64 (J,), the configuration in which a running job may stay, -1 where there is none.
    """

    runnable: Mask
    offered: Mask
    value: FloatMatrix
    penalty: FloatVector
    current: IntVector


def utilities(
    snapshot: Snapshot,
    parameters: SiaParameters,
    configurations: ConfigurationSet,
    goodput: FloatMatrix,
    taken: Occupancy,
    fits_alone: Mask,
) -> Utilities:
    """Evaluate all jobs on all configurations.

    Raises
    ------
    InputError
        When the fairness power makes utilities too large to be told apart.
    """
    jobs = snapshot.jobs
    current = current_configurations(snapshot, configurations, taken)
    allowed = allowed_in(snapshot, configurations)
    if taken.pinned:
        staying = taken.is_pinned(jobs) & (current >= 0)
        allowed = allowed.copy()
        allowed[staying, current[staying]] = True
    runnable = allowed & (goodput > 0)
    runs = taken.held.astype(np.bool_)
    price = parameters.restart_price
    weight, factor = (
        roll_of(snapshot)
        .each(
            "weight and factor",
            np.float64,
            lambda rows: np.array([(jobs[k].weight, _factor_of(jobs[k], price)) for k in rows]).reshape(-1, 2),
            equal=price,
        )
        .T
    )
    factor = np.where(runs, factor, 1.0)
    value = _value(snapshot, weight, parameters, configurations, goodput, runnable, current, factor, runs)
    return Utilities(
        runnable=runnable,
        offered=_offered(snapshot, parameters, configurations, runnable, taken, fits_alone),
        value=value,
        penalty=_penalty(jobs, weight, parameters, factor, value),
        current=current,
    )


def _factor_of(job: Job, price: float) -> float:
    return restart_factor(job.age_s, job.num_restarts, price * job.restart_cost_s)


def restart_factor(age_s: float, num_restarts: int, restart_cost_s: float) -> float:
    """Eq. 3, kept within [0.01, 1]; 1 where neither age nor cost is known."""
    later_s = age_s + restart_cost_s
    if later_s <= 0:
        return 1.0
    return min(max((age_s - num_restarts * restart_cost_s) / later_s, _RESTART_FLOOR), 1.0)


def is_too_old(job: Job, parameters: SiaParameters) -> bool:
    """Whether the job has been there for so long that it may wait no more."""
    longest_s = parameters.longest_wait_s
    return parameters.objective is SiaObjective.COMPLETION_TIME and longest_s is not None and job.age_s >= longest_s


def _penalty(
    jobs: Sequence[Job], weight: FloatVector, parameters: SiaParameters, factor: FloatVector, value: FloatMatrix
) -> FloatVector:
    """lambda_i (J,)."""
    if parameters.objective is SiaObjective.COMPLETION_TIME:
        too_old = np.array([is_too_old(job, parameters) for job in jobs], dtype=np.float64)
        return too_old * (1.0 + float(value.max(axis=1, initial=0.0).sum()))
    penalty = parameters.queue_penalty * weight
    if parameters.price_suspension and parameters.objective is SiaObjective.GOODPUT:
        penalty *= factor ** -abs(parameters.fairness_power)
    return np.asarray(penalty)


def _offered(
    snapshot: Snapshot,
    parameters: SiaParameters,
    configurations: ConfigurationSet,
    runnable: Mask,
    taken: Occupancy,
    fits_alone: Mask,
) -> Mask:
    """Runnable configurations that fit alone, after doubling and reservations; none for pinned jobs."""
    offered, jobs = runnable & fits_alone, snapshot.jobs
    if parameters.double_at_most:
        offered &= configurations.num_gpus <= _growth_limits(jobs, configurations, runnable, taken)
    # What is reserved is asked for even where it does not fit the free GPUs.
    for i in reserves(snapshot).nonzero()[0].tolist():
        if reservation := jobs[i].reservation:
            offered[i] = runnable[i] & reserved_configuration(reservation, configurations)
    if taken.pinned:
        offered[taken.is_pinned(jobs)] = False
    return offered


def _growth_limits(
    jobs: Sequence[Job], configurations: ConfigurationSet, runnable: Mask, taken: Occupancy
) -> FloatMatrix:
    """Most GPUs (J, C) under the doubling rule: the smallest runnable count of the type, twice the current count."""
    smallest = np.full(runnable.shape, np.inf)
    for t in range(len(configurations.gpu_types)):
        of_type = configurations.type_index == t
        counts = np.where(runnable[:, of_type], configurations.num_gpus[of_type], np.inf)
        smallest[:, of_type] = counts.min(axis=1, initial=np.inf)[:, None]
    running = [sum(mask.bit_count() for _, mask in taken.running.get(job.id, ())) for job in jobs]
    return np.asarray(np.maximum(smallest, 2.0 * np.array(running, dtype=np.float64)[:, None]))


def _value(
    snapshot: Snapshot,
    weight: FloatVector,
    parameters: SiaParameters,
    configurations: ConfigurationSet,
    goodput: FloatMatrix,
    runnable: Mask,
    current: IntVector,
    factor: FloatVector,
    runs: Mask,
) -> FloatMatrix:
    """Weighted utility u_ij, 0 where not runnable."""
    if parameters.objective is SiaObjective.GOODPUT:
        power = parameters.fairness_power

        def powers(rows: list[int]) -> FloatMatrix:
            of_job = weight[rows], goodput[rows], runnable[rows], current[rows], factor[rows]
            return _powers(power, configurations, *of_job)

        beside = (weight, goodput, runnable, current, factor)
        if goodput.size <= _FEW:
            return _checked(_powers(power, configurations, *beside))
        return _checked(
            roll_of(snapshot).each("utility", np.float64, powers, same=(configurations,), equal=power, beside=beside)
        )
    if parameters.objective is SiaObjective.GIVEN_COSTS:
        return _checked(np.where(runnable, weight[:, None] * goodput, 0.0))
    scale, smallest_goodput, smallest_count = _scales(configurations, goodput, runnable)
    stays = np.arange(len(configurations)) == current[:, None]
    speed = np.where(runnable, scale * goodput, 0.0)
    nothing = np.full_like(smallest_goodput, np.inf)
    per_gpu = np.divide(smallest_goodput, smallest_count, out=nothing, where=np.isfinite(smallest_goodput))[:, 0]
    return _checked(completion_values(snapshot.jobs, speed, per_gpu, stays, runs, parameters.restart_price))


def _powers(
    power: float,
    configurations: ConfigurationSet,
    weight: FloatVector,
    goodput: FloatMatrix,
    runnable: Mask,
    current: IntVector,
    factor: FloatVector,
) -> FloatMatrix:
    """Eq. 2 of jobs alone: w_i (r_i G_ij)^p."""
    scale = _scale(configurations, goodput, runnable)
    normalised = factor[:, None] * scale * goodput
    stays = (current >= 0).nonzero()[0]
    normalised[stays, current[stays]] = scale[stays, 0] * goodput[stays, current[stays]]
    with np.errstate(over="ignore"):
        powers = np.power(np.where(runnable, normalised, 1.0), power)
        return np.where(runnable, weight[:, None] * powers, 0.0)


def _scale(configurations: ConfigurationSet, goodput: FloatMatrix, runnable: Mask) -> FloatMatrix:
    """What goodputs are multiplied by (J, 1)."""
    if goodput.size > _FEW:
        return _scales(configurations, goodput, runnable)[0]
    may_run = runnable.tobytes()
    known = _scaled.get(configurations, (goodput,), may_run)
    if known is None:
        known = _scales(configurations, goodput, runnable)[0]
        _scaled.put(configurations, (goodput,), may_run, known)
    return known


def _scales(
    configurations: ConfigurationSet, goodput: FloatMatrix, runnable: Mask
) -> tuple[FloatMatrix, FloatMatrix, FloatMatrix]:
    """What goodputs are multiplied by, the smallest one and the fewest GPUs of each row, each (J, 1)."""
    smallest_goodput = np.where(runnable, goodput, np.inf).min(axis=1, initial=np.inf)[:, None]
    smallest_count = np.where(runnable, configurations.num_gpus, np.inf).min(axis=1, initial=np.inf)[:, None]
    # Rows without a runnable configuration have no minimum; 1 stands in and is masked out below.
    scale = np.divide(
        smallest_count, smallest_goodput, out=np.ones(smallest_count.shape), where=np.isfinite(smallest_goodput)
    )
    return scale, smallest_goodput, smallest_count


def _checked(value: FloatMatrix) -> FloatMatrix:
    largest = value.max(initial=0.0)
    if not largest <= _LARGEST_UTILITY:
        raise InputError(
            f"the largest utility of a job is {largest:.3g}, beyond {_LARGEST_UTILITY:.0g}; "
            "choose a fairness_power nearer to 0, or smaller weights"
        )
    return value
