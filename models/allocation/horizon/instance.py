"""One problem as arrays: everything that the declared model, the extraction and tests read."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
from scipy import sparse

from models.allocation.changes import num_gpus_of
from models.allocation.horizon.arrivals import expected_gpus
from models.allocation.horizon.backlog import Backlog, left_at_end, together_s
from models.allocation.horizon.changes import change_seconds, first_start_seconds
from models.allocation.horizon.classes import (
    Classes,
    classes_pay,
    only_offered,
    with_classes,
    with_stays,
    without_classes,
)
from models.allocation.horizon.horizon_end import horizon_end_s
from models.allocation.horizon.intervals import Intervals, growing, open_gpus
from models.allocation.horizon.objective import Objective, objective_of
from models.allocation.horizon.openings import openings
from models.allocation.horizon.parameters import HorizonObjective, HorizonParameters
from models.allocation.horizon.quotas import Quotas, quotas_of
from models.allocation.horizon.rooms import Rooms, Units, rooms_of, whole_free
from models.allocation.horizon.schedules import (
    Schedules,
    Shapes,
    Work,
    efficient,
    fastest_s,
    schedules_of,
    worth_having,
)
from models.allocation.sia.instance import SiaInstance, sia_configurations, sia_instance
from models.allocation.sia.parameters import SiaParameters
from models.allocation.work_left import remaining_samples, residual_s
from models.clock import PhaseClock
from models.windows import NodeWindows, availability
from models.workload import Job, Snapshot
from solver.sense import Sense
from stowplan.arrays import FloatMatrix, FloatVector, IntVector, Mask

_S_PER_HOUR = 3600.0


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class HorizonInstance:
    """J jobs, C configurations, K intervals, S schedules.

    calendar: the snapshot whose calendar counts. sia: jobs, configurations, goodputs, what may be chosen now, and the
    rows that make it placeable. pair_jobs, pair_configurations: (P,) of these what is worth having. open_gpus: (T, K).
    later: (J, C), what may be had later. work: what is left. weight: (J,), what a second is worth, all together 1.
    objective: of completion times, by term; without terms where it is Sia's. cost: (S,) of each schedule. late: (J,),
    of it what a job pays that has waited for as long as it may and gets nothing now. offset: what pinned jobs add.
    rooms: what placement classes ask of units; None where configurations have none. quotas: of queues; None where none
    counts.
    """

    parameters: HorizonParameters
    calendar: Snapshot
    sia: SiaInstance
    intervals: Intervals
    open_gpus: FloatMatrix
    pair_jobs: IntVector
    pair_configurations: IntVector
    later: Mask
    work: Work
    weight: FloatVector
    objective: Objective
    schedules: Schedules
    cost: FloatVector
    late: FloatVector
    offset: float
    rooms: Rooms | None = None
    quotas: Quotas | None = None

    @property
    def jobs(self) -> Sequence[Job]:
        """Jobs in the order of the rows."""
        return self.sia.jobs

    @property
    def num_tail(self) -> int:
        """Columns of the tail."""
        return 0 if self.objective.tail is None else self.objective.tail.num_columns

    @property
    def num_packing(self) -> int:
        """Columns of what each unit takes of placement classes."""
        return 0 if self.rooms is None else int(self.rooms.unit.size)

    @property
    def num_columns(self) -> int:
        """Columns of the program."""
        return len(self.schedules) + self.pair_jobs.size + self.num_packing + self.num_tail

    def within(self, kept: Mask) -> tuple["HorizonInstance", IntVector]:
        """The instance with the schedules `kept` (S,) and the pairs that these begin with alone, and its columns among
        those of the whole program."""
        pairs = np.unique(self.schedules.pair[kept])
        pairs = pairs[pairs >= 0]
        rooms = self.rooms
        if rooms is not None:
            now = sparse.csr_array(rooms.now[:, pairs])
            rooms = replace(rooms, stays=sparse.csr_array(rooms.stays[pairs]), now=now)
        num_schedules = len(self.schedules)
        rest = np.arange(num_schedules + self.pair_jobs.size, self.num_columns)
        return replace(
            self,
            schedules=self.schedules.of(kept),
            cost=self.cost[kept],
            pair_jobs=self.pair_jobs[pairs],
            pair_configurations=self.pair_configurations[pairs],
            rooms=rooms,
        ), np.concatenate([np.flatnonzero(kept), num_schedules + pairs, rest])

    def tail_columns(self, share: FloatVector) -> FloatVector:
        """The columns of the tail where schedules have shares (S,)."""
        if self.objective.tail is None:
            return np.zeros(0)
        found = self.schedules
        ends_s = np.bincount(found.job, weights=share * found.ends_s, minlength=len(self.jobs))
        return self.objective.tail.columns(ends_s.astype(np.float64))

    @property
    def sense(self) -> Sense:
        """Times are minimised; Sia's objective as Sia has it."""
        is_goodput = self.parameters.objective is HorizonObjective.GOODPUT
        return self.sia.sense if is_goodput else Sense.MINIMIZE


def horizon_instance(
    snapshot: Snapshot, parameters: HorizonParameters, clock: PhaseClock, calendar: Snapshot | None = None
) -> HorizonInstance:
    """Evaluate goodputs, cut time into intervals and list the schedules.

    Parameters
    ----------
    calendar
        The snapshot whose calendar takes nodes later, where that is another one of the same nodes.
    """
    base, classes = _base(snapshot, parameters, clock)
    with clock.phase("build"):
        known = calendar or snapshot
        return instance_of(base, parameters, availability(known, parameters.epsilon), known, classes)


def _base(snapshot: Snapshot, parameters: HorizonParameters, clock: PhaseClock) -> tuple[SiaInstance, Classes | None]:
    """Sia's instance; with placement classes where they are asked for and make any job faster."""
    of_sia = SiaParameters(restart_price=parameters.restart_price)
    by_time = parameters.objective is HorizonObjective.COMPLETION_TIME
    known = None
    if by_time and parameters.placement_classes:
        known = with_classes(snapshot.cluster, sia_configurations(snapshot))
    if known is None:
        return sia_instance(snapshot, of_sia, clock), None
    base = sia_instance(snapshot, of_sia, clock, known[0])
    with clock.phase("build"):
        if not classes_pay(base, known[1]):
            return without_classes(base), None
        return with_stays(base, known[1])


def instance_of(
    base: SiaInstance,
    parameters: HorizonParameters,
    windows: NodeWindows,
    calendar: Snapshot,
    classes: Classes | None = None,
) -> HorizonInstance:
    """Build the instance from goodputs that are known, and the `windows` of `calendar`; `classes`: of the
    configurations of `base`, where these have some."""
    configurations = base.configurations
    shapes = Shapes(
        type_index=configurations.type_index,
        num_gpus=configurations.num_gpus,
        num_types=len(configurations.gpu_types),
        rank=None if classes is None else np.where(classes.stays, -1, classes.rank),
    )
    there = openings(base, windows, calendar)
    fits_later: Mask = np.ones(len(configurations), dtype=np.bool_)
    quotas = quotas_of(base, parameters, calendar)
    if quotas is not None:
        fits_later = quotas.fits(configurations.num_gpus)
        base = only_offered(base, fits_later)
    if classes is not None:
        units = Units.of(classes)
        num_free = np.array([mask.bit_count() for mask in base.taken.free_masks], dtype=np.int64)
        room, room_later = (units.room(whole_free(base, num_gpus)) for num_gpus in (num_free, there.num_gpus))
        base = only_offered(base, units.fits(base, classes, room))
        fits_later = fits_later & units.fits(base, classes, room_later)
    seconds, current = _seconds(base), base.utility.current
    is_goodput = parameters.objective is HorizonObjective.GOODPUT
    # Sia's optimum need not be one of completion times; there all that it may choose is kept.
    kept = (
        base.utility.offered
        if is_goodput
        else worth_having(shapes, np.where(base.utility.offered, seconds, np.inf), current)
    )
    pair_jobs, pair_configurations = np.nonzero(kept)
    nodes = base.snapshot.cluster.nodes
    rooms = None
    if classes is not None:
        rooms = rooms_of(base, classes, units, pair_jobs, pair_configurations, room, room_later)
        shapes = replace(shapes, rooms=rooms.later.coefficients)
    types = np.array([configurations.gpu_types.index(node.gpu_type) for node in nodes], dtype=np.int64)
    most = np.bincount(types, weights=there.num_gpus, minlength=shapes.num_types).astype(np.float64)
    fits = (shapes.num_gpus <= most[shapes.type_index]) & fits_later
    runnable = np.where(base.utility.runnable & fits, seconds, np.inf)
    later = efficient(shapes, runnable)
    if classes is not None:
        later &= worth_having(shapes, runnable, np.full(len(base.jobs), -1))
    later[base.pinned] = False
    end_s = horizon_end_s(
        parameters,
        shapes,
        np.where(later, seconds, np.inf),
        first_start_seconds(base.jobs, parameters.restart_price, seconds, current, _runs(base)),
        sum(mask.bit_count() for mask in base.taken.free_masks),
    )
    intervals = growing(parameters.interval_s, parameters.num_intervals, end_s)
    work = _work(base, parameters, seconds, intervals.end_s)
    may_wait = np.setdiff1d(base.planned, base.reserved)
    if quotas is not None:
        quotas = quotas.with_rows(kept | later, configurations.num_gpus)
    found = schedules_of(intervals, shapes, work, pair_jobs, pair_configurations, later, may_wait, quotas)
    weight = np.array([job.weight for job in base.jobs], dtype=np.float64)
    weight /= max(float(weight.sum()), np.finfo(np.float64).tiny)
    num_open = open_gpus(intervals, there.num_gpus, types, shapes.num_types, there.closed)
    if parameters.arrivals_per_h > 0:
        num_open -= expected_gpus(
            parameters.arrivals_per_h / _S_PER_HOUR * float(most.sum()) / max(1, sum(node.num_gpus for node in nodes)),
            intervals,
            shapes,
            runnable[base.planned],
            np.array([base.jobs[i].attained_gpu_s for i in base.planned.tolist()], dtype=np.float64),
            most,
            num_open,
        )
    if is_goodput:
        objective = Objective(times=np.zeros(len(found)), terms={}, fixed={}, tail=None, most=0.0)
        late = np.zeros(len(base.jobs))
        cost = _sia_costs(base, found)
        offset = sum(base.pinned_score(int(i)) for i in base.pinned)
    else:
        latest_s = _latest_s(base, work, intervals.end_s)
        objective = objective_of(
            parameters,
            base.jobs,
            weight,
            found,
            work,
            base.pinned,
            fair_s=_fair_s(base, shapes, runnable, latest_s),
            fastest_s=fastest_s(work, later),
            latest_s=latest_s,
            backlog=_backlog(base, parameters, intervals, shapes, work, found, runnable, most),
        )
        late = _late(base, parameters, objective.most)
        cost = np.sum(list(objective.terms.values()), axis=0) + np.where(found.pair < 0, late[found.job], 0.0)
        offset = sum(float(values.sum()) for values in objective.fixed.values())
    return HorizonInstance(
        parameters=parameters,
        calendar=calendar,
        sia=base,
        intervals=intervals,
        open_gpus=num_open,
        pair_jobs=pair_jobs,
        pair_configurations=pair_configurations,
        later=later,
        work=work,
        weight=weight,
        objective=objective,
        schedules=found,
        cost=cost,
        late=late,
        offset=offset,
        rooms=rooms,
        quotas=quotas,
    )


def pinned_ends_s(base: SiaInstance, work: Work) -> FloatVector:
    """When the pinned jobs end where they are; 0 where their shape is no configuration or their speed is not known."""
    current = base.utility.current[base.pinned]
    ends_s = np.where(current >= 0, work.seconds[base.pinned, current], np.inf)
    return np.where(np.isfinite(ends_s), ends_s, 0.0)


def _seconds(base: SiaInstance) -> FloatMatrix:
    """(J, C) what is left of the jobs, by their goodputs; infinity where they cannot run."""
    goodput = np.where(base.utility.runnable, base.matrix.goodput, 0.0)
    slowest = np.where(goodput > 0, goodput, np.inf).min(axis=1, initial=np.inf)
    slowest[np.isinf(slowest)] = 0.0
    unit = _per_gpu(base, goodput, slowest)
    left = _left(base.jobs, unit, partial(_usual, base, goodput, slowest, unit))
    return np.divide(left[:, None], goodput, out=np.full_like(goodput, np.inf), where=goodput > 0)


def _work(base: SiaInstance, parameters: HorizonParameters, seconds: FloatMatrix, horizon_s: float) -> Work:
    """What is left where, and what starts and changes of the jobs cost."""
    cost_s = np.array([job.restart_cost_s for job in base.jobs], dtype=np.float64)
    change_s = change_seconds(base.jobs, parameters.restart_price, seconds, base.utility.current, horizon_s)
    return Work(
        seconds=seconds,
        start_s=np.where(_runs(base), change_s, cost_s),
        change_s=change_s,
        current=base.utility.current,
    )


def _runs(base: SiaInstance) -> Mask:
    """(J,) jobs that run."""
    return np.array([job.id in base.taken.running for job in base.jobs], dtype=np.bool_)


def _per_gpu(base: SiaInstance, goodput: FloatMatrix, slowest: FloatVector) -> FloatVector:
    """(J,) goodput on one of a job's slowest GPUs; 0 where it cannot run."""
    smallest = np.where(goodput > 0, base.configurations.num_gpus, np.inf).min(axis=1, initial=np.inf)
    return slowest / np.where(np.isfinite(smallest), smallest, 1.0)


def _usual(base: SiaInstance, goodput: FloatMatrix, slowest: FloatVector, unit: FloatVector, i: int) -> float:
    """Goodput of job i as it runs, in no configuration by `unit`; while it waits on what it reserves, or else where it
    is slowest."""
    running, current = base.taken.running.get(base.jobs[i].id), base.utility.current[i]
    if running is None:
        reservation, known = base.jobs[i].reservation, base.configurations
        if reservation is None or reservation.gpu_type not in known.gpu_types:
            return float(slowest[i])
        is_type = known.type_index == known.gpu_types.index(reservation.gpu_type)
        reserved = goodput[i, is_type & (known.num_gpus == reservation.num_gpus) & (goodput[i] > 0)]
        return float(reserved.min() if reserved.size else slowest[i])
    as_it_runs = float(goodput[i, current]) if current >= 0 else 0.0
    return as_it_runs or float(unit[i]) * num_gpus_of(running)


def _left(jobs: Sequence[Job], unit: FloatVector, usual: Callable[[int], float]) -> FloatVector:
    """(J,) what is left, in the unit of the goodput.

    Of a job that does not say, as much as it does in its mean residual life, where that is known, with its `usual`
    goodput. A job of which neither is known is taken to have as much left, in seconds on one of its slowest GPUs and by
    weight, as the median of those of which it is; or as much as it has had, if that is more: the mean residual life
    where lives are of Pareto's distribution with exponent 2.
    """
    samples = np.array([np.nan if (left := remaining_samples(job)) is None else left for job in jobs], dtype=np.float64)
    for i in np.flatnonzero(np.isnan(samples)).tolist():
        if (life_s := residual_s(jobs[i])) is not None:
            samples[i] = life_s * usual(i)
    weight = np.array([job.weight for job in jobs], dtype=np.float64)
    able = unit > 0
    known = able & np.isfinite(samples) & (weight > 0)
    typical = float(np.median(samples[known] / unit[known] / weight[known])) if known.any() else 1.0
    attained = np.array([job.attained_gpu_s for job in jobs], dtype=np.float64)
    guess = unit * np.maximum(typical * weight, attained)
    return np.where(np.isfinite(samples), samples, guess)


def _latest_s(base: SiaInstance, work: Work, end_s: float) -> FloatVector:
    """(J,) no schedule of a job ends later; of pinned jobs when they end."""
    slowest_s = np.where(np.isfinite(work.seconds), work.seconds, 0.0).max(axis=1, initial=0.0)
    found: FloatVector = end_s + work.start_s + work.change_s + slowest_s
    found[base.pinned] = pinned_ends_s(base, work)
    return found


def _fair_s(base: SiaInstance, shapes: Shapes, seconds: FloatMatrix, latest_s: FloatVector) -> FloatVector:
    """(J,) how long a job takes, with what it has done, on its share of the cluster, where `seconds` (J, C) are left; 0
    where nobody knows. On more GPUs than its share it is taken to be slower in proportion, as in replays."""
    nodes = base.snapshot.cluster.nodes
    share = max(1.0, sum(node.num_gpus for node in nodes) / max(1, len(base.jobs)))
    left_s = (seconds * np.maximum(1.0, shapes.num_gpus / share)).min(axis=1, initial=np.inf)
    left_s[base.pinned] = latest_s[base.pinned]
    attained = np.array([job.attained_gpu_s for job in base.jobs], dtype=np.float64)
    return np.where(np.isfinite(left_s) & (left_s > 0), left_s + attained / share, 0.0)


def _backlog(
    base: SiaInstance,
    parameters: HorizonParameters,
    intervals: Intervals,
    shapes: Shapes,
    work: Work,
    found: Schedules,
    runnable: FloatMatrix,
    most: FloatVector,
) -> Backlog | None:
    """What of the planned jobs is left behind the horizon, on GPUs of which there are `most` (T,); None where these go
    on as planned."""
    if parameters.backlog_efficiency is None:
        return None
    whole_s = together_s(runnable, shapes, most, parameters.backlog_efficiency)
    whole_s[base.pinned] = 0.0
    return Backlog(begins_s=intervals.end_s, left=left_at_end(intervals, work, found), together_s=whole_s)


def _late(base: SiaInstance, parameters: HorizonParameters, most: float) -> FloatVector:
    """(J,) more than all else is worth for a job that may wait no more, 0 for others; all else is at most `most`."""
    longest_s = parameters.longest_wait_s
    late = np.zeros(len(base.jobs))
    if longest_s is not None:
        late[[int(i) for i in base.planned if base.jobs[i].age_s >= longest_s]] = 1.0 + most
    return late


def _sia_costs(base: SiaInstance, found: Schedules) -> FloatVector:
    """(S,) Sia's utilities and penalties."""
    runs = found.now >= 0
    cost = base.sense.sign * base.penalty[found.job]
    cost[runs] = base.utility.value[found.job[runs], found.now[runs]]
    return np.asarray(cost)
