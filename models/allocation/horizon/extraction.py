"""From a point of the program to a plan: GPUs, who waits for what, the schedules behind it, and the score."""

from collections.abc import Iterator, Mapping
from dataclasses import replace

import numpy as np

from models.allocation.horizon.homes import homes_of, moved_jobs
from models.allocation.horizon.instance import HorizonInstance
from models.allocation.horizon.objective import LATENESS, TAIL, THROUGHPUT
from models.allocation.horizon.outlook import Outlook, Planned, Shape
from models.allocation.horizon.parameters import HorizonObjective
from models.allocation.horizon.reasons import with_reasons
from models.allocation.horizon.unplaced import with_outlook, with_quotas
from models.allocation.horizon.words import shapes_of
from models.allocation.sia.extraction import extract_plan as extract_sia
from models.plan import Plan, ScoreTerm
from stowplan.arrays import FloatVector, IntVector

# A boolean variable above this is chosen; incumbents are integers up to the solver's tolerance.
_CHOSEN = 0.5
# A share below this is rounding of the solver.
_LEAST_SHARE = 1e-7


def chosen_configurations(instance: HorizonInstance, point: FloatVector) -> IntVector:
    """Configuration (J,) that a point of the program gives to each job now, -1 for none."""
    chosen = np.full(len(instance.jobs), -1, dtype=np.int64)
    selected = _pairs(instance, point) > _CHOSEN
    chosen[instance.pair_jobs[selected]] = instance.pair_configurations[selected]
    return chosen


def extract_plan(
    instance: HorizonInstance, point: FloatVector, rent: FloatVector | None = None, *, is_proven: bool
) -> tuple[Plan, Outlook]:
    """Place what a point of the program chooses, say what is planned behind it, and what it is worth. `rent`: (S,),
    what schedules take from others, where that is known; `is_proven`: the point is optimal within the gap."""
    chosen, share = chosen_configurations(instance, point), shares(instance, point)
    plan = extract_sia(instance.sia, chosen, homes_of(instance, chosen, packing_of(instance, point)))
    plan = replace(plan, unplaced=with_quotas(plan.unplaced, instance, chosen))
    outlook = outlook_of(instance, chosen, share)
    if instance.parameters.objective is HorizonObjective.GOODPUT:
        return plan, outlook
    plan = with_reasons(plan, instance, chosen, share, rent, outlook)
    return replace(
        plan,
        score=tuple(_scores(instance, chosen, share)),
        unplaced=with_outlook(plan.unplaced, outlook, _starts_now(instance, chosen, rent), is_proven=is_proven),
    ), outlook


def outlook_of(instance: HorizonInstance, chosen: IntVector, share: FloatVector) -> Outlook:
    """The schedules that have a share (S,), where jobs have configurations `chosen` (J,) now."""
    found = instance.schedules
    planned: dict[str, list[Planned]] = {instance.jobs[i].id: [] for i in instance.sia.planned.tolist()}
    shapes = [*shapes_of(instance.sia.configurations), None]
    moved = set(moved_jobs(instance, chosen))
    for s in np.flatnonzero(share).tolist():
        at = int(found.at[s])
        planned[instance.jobs[int(found.job[s])].id].append(
            Planned(
                share=float(share[s]),
                now=shapes[int(found.now[s])],
                later=shapes[int(found.later[s])],
                change_s=float(instance.intervals.bounds_s[at]) if at else None,
                moves=int(found.job[s]) in moved,
            )
        )
    return Outlook(
        bounds_s=instance.intervals.bounds_s.tolist(),
        open_gpus=dict(zip(instance.sia.configurations.gpu_types, instance.open_gpus.tolist(), strict=True)),
        planned=planned,
        tiers=_tiers(instance),
    )


def _tiers(instance: HorizonInstance) -> Mapping[tuple[str, float], str] | None:
    """See `Outlook`."""
    if instance.rooms is None:
        return None
    levels = zip(instance.sia.configurations.gpu_types, instance.rooms.classes.levels, strict=True)
    return {(name, level.fraction): level.tier for name, known in levels for level in known if level.tier}


def _starts_now(
    instance: HorizonInstance, chosen: IntVector, rent: FloatVector | None
) -> Mapping[str, tuple[Shape, float]]:
    """Of jobs that get nothing the best that they could have now, and seconds of others, by weight, that this takes."""
    if rent is None:
        return {}
    found, shapes = instance.schedules, shapes_of(instance.sia.configurations)
    begins = np.flatnonzero((found.pair >= 0) & (chosen < 0)[found.job])
    if not begins.size:
        return {}
    takes = (instance.cost + rent)[begins]
    jobs, heads, row = np.unique(found.job[begins], return_index=True, return_inverse=True)
    equal = np.flatnonzero(takes <= np.minimum.reduceat(takes, heads)[row])
    best = begins[equal[np.searchsorted(row[equal], np.arange(jobs.size))]]
    all_weight = sum(job.weight for job in instance.jobs)
    return {
        instance.jobs[int(found.job[s])].id: (shapes[int(found.now[s])], float(rent[s]) * all_weight)
        for s in best.tolist()
    }


def shares(instance: HorizonInstance, point: FloatVector) -> FloatVector:
    """(S,) share of each schedule at a point of the program, 1 in all for a job: 0 of those that begin otherwise than
    is chosen, which a solver leaves as much as its tolerance of integers."""
    found = instance.schedules
    chosen = chosen_configurations(instance, point)
    kept = (point[: len(found)] > _LEAST_SHARE) & (found.now == chosen[found.job])
    share = np.where(kept, point[: len(found)], 0.0)
    total = np.bincount(found.job, weights=share, minlength=len(instance.jobs))[found.job]
    return np.asarray(np.divide(share, total, out=np.zeros_like(share), where=total > 0))


def settled(instance: HorizonInstance, point: FloatVector) -> FloatVector:
    """A point without what a solver's tolerance of integers leaves: choices are 0 or 1, shares are those of schedules
    that begin with what is chosen, and the tail is that of their ends."""
    chosen, share = _pairs(instance, point) > _CHOSEN, shares(instance, point)
    packing = packing_of(instance, point).astype(np.float64)
    return np.concatenate([share, chosen.astype(np.float64), packing, instance.tail_columns(share)])


def _pairs(instance: HorizonInstance, point: FloatVector) -> FloatVector:
    """(P,) of a point."""
    num_schedules = len(instance.schedules)
    return point[num_schedules : num_schedules + instance.pair_jobs.size]


def packing_of(instance: HorizonInstance, point: FloatVector) -> IntVector:
    """(Z,) what units take of placement classes at a point."""
    first = len(instance.schedules) + instance.pair_jobs.size
    return np.rint(point[first : first + instance.num_packing]).astype(np.int64)


def _scores(instance: HorizonInstance, chosen: IntVector, share: FloatVector) -> Iterator[ScoreTerm]:
    """Every job's summands of the objective, in seconds: of the mean time until jobs end, and of what else is asked
    for; what it adds that has waited for too long and gets nothing; and the tail of all."""
    found, jobs, objective = instance.schedules, instance.jobs, instance.objective
    planned = instance.sia.planned.tolist()
    for name, cost in objective.terms.items():
        of_jobs = np.bincount(found.job, weights=share * cost, minlength=len(jobs))
        value = of_jobs + objective.fixed.get(name, 0.0)
        for i in planned if name == THROUGHPUT else range(len(jobs)):
            if name != LATENESS or jobs[i].deadline_s is not None:
                yield ScoreTerm(term=name, job_id=jobs[i].id, value=float(value[i]))
    for i in planned:
        if instance.late[i] > 0 and chosen[i] < 0:
            yield ScoreTerm(term="long_wait", job_id=jobs[i].id, value=float(instance.late[i]))
    if objective.tail is not None:
        value_s = float(objective.tail.cost @ instance.tail_columns(share))
        yield ScoreTerm(term=TAIL, job_id=None, value=value_s)
