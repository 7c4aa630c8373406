"""The program against trying everything: all choices for the present that can be packed, and behind each the best
shares of all schedules, which are listed and timed here one by one."""

import math
from collections.abc import Iterator, Sequence
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from scipy.optimize import linprog

from models.allocation.horizon.instance import HorizonInstance
from tests.models.allocation.horizon.scenes import instance_of, random_parameters, timed_snapshot
from tests.models.allocation.horizon.test_plans import planned
from tests.models.placement.scenes import SEEDS, can_be_packed, dice

_Held = tuple[int, float, float]
"""Configuration, from and until when."""


def _schedules(it: HorizonInstance, i: int, now: int) -> Iterator[tuple[float, float, list[_Held]]]:
    """End, what of the job is left at the horizon, and what is held, of every schedule of job i that begins with `now`
    (-1: nothing)."""
    job, bounds_s = it.jobs[i], it.intervals.bounds_s.tolist()
    runs = job.id in it.sia.taken.running
    change_s = _change_s(it, i)
    start_s = change_s if runs else job.restart_cost_s
    seconds = it.work.seconds[i]
    rates = {c: 1 / seconds[c] for c in it.later[i].nonzero()[0].tolist()}
    fastest_s = 1 / max(rates.values()) if rates else 0.0
    if now < 0:
        yield bounds_s[-1] + start_s + fastest_s, 1.0, []
        for t in bounds_s[1:-1]:
            for c, rate in rates.items():
                ends_s = t + start_s + 1 / rate
                yield ends_s, min(1.0, max(0.0, ends_s - bounds_s[-1]) * rate), [(c, t, ends_s)]
        return
    begins_s = 0.0 if it.work.current[i] == now else start_s
    whole_s = begins_s + float(seconds[now])
    yield whole_s, min(1.0, max(0.0, whole_s - bounds_s[-1]) / float(seconds[now])), [(now, 0.0, whole_s)]
    for k, t in enumerate(bounds_s[1:-1]):
        left = 1 - max(0.0, t - begins_s) / float(seconds[now])
        if left <= 0:
            continue
        # Who has not begun when the change comes saves no start.
        again_s = max(change_s, start_s) if t <= begins_s else change_s
        if k == 0:
            yield bounds_s[-1] + again_s + left * fastest_s, left, [(now, 0.0, t)]
        for c, rate in rates.items():
            if c != now:
                ends_s = t + again_s + left / rate
                behind = min(left, max(0.0, ends_s - bounds_s[-1]) * rate)
                yield ends_s, behind, [(now, 0.0, t), (c, t, ends_s)]


def _change_s(it: HorizonInstance, i: int) -> float:
    """What a change loses with those that follow: one in as long as a job held GPUs on average so far."""
    job, current = it.jobs[i], int(it.work.current[i])
    once_s = it.parameters.restart_price * job.restart_cost_s
    left_s = float(it.work.seconds[i].min(initial=np.inf) if current < 0 else it.work.seconds[i, current])
    held_s = max(job.age_s / (job.num_restarts + 1), 3 * once_s)
    return once_s * max(1.0, min(left_s, it.intervals.end_s) / held_s) if once_s else 0.0


def _counted(it: HorizonInstance) -> list[float]:
    """What a second of each job is taken for: by the time that it takes on its share, 1 on average."""
    power, jobs = it.parameters.fairness, it.jobs
    if power == 0:
        return [1.0] * len(jobs)
    nodes = it.sia.snapshot.cluster.nodes
    share = max(1.0, sum(node.num_gpus for node in nodes) / len(jobs))
    free: dict[str, int] = {}
    for node, mask in zip(nodes, it.sia.taken.free_masks, strict=True):
        free[node.gpu_type] = free.get(node.gpu_type, 0) + mask.bit_count()
    per_s = []
    for i, job in enumerate(jobs):
        known = it.sia.configurations
        left_s = [
            float(it.work.seconds[i, c]) * max(1.0, known.num_gpus[c] / share)
            for c in range(len(known))
            if i not in it.sia.pinned
            and it.sia.utility.runnable[i, c]
            and known.num_gpus[c] <= min(free[known.gpu_types[known.type_index[c]]], _most(it, i))
        ]
        if i in it.sia.pinned and it.work.current[i] >= 0:
            left_s = [float(it.work.seconds[i, it.work.current[i]])]
        whole_s = max(it.parameters.interval_s, min(left_s, default=0.0) + job.attained_gpu_s / share)
        per_s.append(1 / whole_s if left_s and math.isfinite(min(left_s)) else 0.0)
    mean = sum(weight * value for weight, value in zip(_weights(it), per_s, strict=True))
    return [value / mean if mean else 1.0 for value in per_s]


def _quotas(it: HorizonInstance) -> dict[str, tuple[list[int], int]]:
    """Planned jobs of every queue with a quota, and GPUs that there are for them."""
    found = {}
    for queue, quota in it.parameters.quotas.items():
        own = [i for i, job in enumerate(it.jobs) if job.queue == queue]
        pinned = [i for i in own if i in it.sia.pinned]
        kept = sum(len(part.gpus) for i in pinned for part in it.jobs[i].current or ())
        planned = [i for i in own if i not in pinned]
        reserved = sum(given.num_gpus for i in planned if (given := it.jobs[i].reservation) is not None)
        found[queue] = planned, max(quota - kept, reserved)
    return found


def _most(it: HorizonInstance, i: int) -> float:
    """GPUs that the queue of a job has for planned jobs."""
    return min((left for own, left in _quotas(it).values() if i in own), default=math.inf)


def within_quotas(it: HorizonInstance, choice: dict[int, int]) -> bool:
    """Whether no queue has too much now."""
    num_gpus = [*it.sia.configurations.num_gpus.tolist(), 0]
    return all(sum(num_gpus[choice[i]] for i in own) <= left for own, left in _quotas(it).values())


def _weights(it: HorizonInstance) -> list[float]:
    scale = sum(job.weight for job in it.jobs) or 1.0
    return [job.weight / scale for job in it.jobs]


def _backlogs(it: HorizonInstance, counted: list[float]) -> list[float]:
    """What all jobs lose with the whole work of each: those with as much left or more, by weight, wait for it."""
    known, nodes = it.sia.configurations, it.sia.snapshot.cluster.nodes
    masks = list(zip(nodes, it.sia.taken.free_masks, strict=True))
    free = [sum(mask.bit_count() for node, mask in masks if node.gpu_type == name) for name in known.gpu_types]
    least: dict[int, dict[int, float]] = {}
    for i in range(len(it.jobs)):
        for c, t in enumerate(known.type_index.tolist()):
            if it.sia.utility.runnable[i, c] and known.num_gpus[c] <= min(free[t], _most(it, i)):
                gpu_s = float(it.work.seconds[i, c]) * int(known.num_gpus[c])
                least.setdefault(i, {})[t] = min(gpu_s, least.get(i, {}).get(t, math.inf))
    worth = [
        sum(min(of_job.values()) / of_job[t] for of_job in least.values() if t in of_job) / max(1, len(least))
        for t in range(len(free))
    ]
    all_gpus = sum(number * value for number, value in zip(free, worth, strict=True))
    together_s = [0.0] * len(it.jobs)
    for i in set(least).intersection(it.sia.planned.tolist()):
        of_job = least[i]
        together_s[i] = min(gpu_s * worth[t] for t, gpu_s in of_job.items()) / all_gpus
    value = [weight * one for weight, one in zip(_weights(it), counted, strict=True)]
    alike = [i for i, time_s in enumerate(together_s) if time_s > 0 and value[i] > 0]
    efficiency = it.parameters.backlog_efficiency or 1.0
    lost_s = [0.0] * len(it.jobs)
    for i in alike:
        own = together_s[i] / value[i]
        behind = sum(value[k] for k in alike if together_s[k] / value[k] >= own * (1 - 1e-12))
        lost_s[i] = behind * together_s[i] / efficiency
    return lost_s


def _cost(it: HorizonInstance, i: int, now: int, ends_s: float, counted: float, behind_s: float) -> float:
    """Of a schedule, but for the tail and waiting for too long; `behind_s`: what it loses behind the horizon."""
    by, job, weight = it.parameters, it.jobs[i], _weights(it)[i]
    cost = (1 - by.tail) * weight * counted * ends_s
    if by.backlog_efficiency is not None:
        cost = (1 - by.tail) * (weight * counted * min(ends_s, it.intervals.end_s) + behind_s)
    if job.deadline_s is not None:
        cost += by.lateness * weight * max(0.0, ends_s - job.deadline_s)
    rates = [1 / it.work.seconds[i, c] for c in it.later[i].nonzero()[0].tolist()]
    fastest_s = 1 / max(rates) if rates else 0.0
    does_s = 0.0
    if now >= 0:
        start_s = _change_s(it, i) if job.id in it.sia.taken.running else job.restart_cost_s
        works_s = max(0.0, by.interval_s - (0.0 if it.work.current[i] == now else start_s))
        does_s = min(1.0, works_s / float(it.work.seconds[i, now])) * fastest_s
    return cost + by.throughput * weight * max(0.0, min(fastest_s, by.interval_s) - does_s)


def best_shares(it: HorizonInstance, choice: dict[int, int], rooms: Sequence[tuple[Sequence[int], int]] = ()) -> float:
    """The least objective with this choice (configuration of every planned job, -1 for none); `rooms`: what else each
    configuration takes of something in later intervals, and what there is of that."""
    bounds_s, counted = it.intervals.bounds_s, _counted(it)
    costs, owners, uses, ends = [], [], [], []
    quotas = _quotas(it)
    lost_s = _backlogs(it, counted)
    for i, now in choice.items():
        for ends_s, left, held in _schedules(it, i, now):
            costs.append(_cost(it, i, now, ends_s, counted[i], left * lost_s[i]))
            owners.append(i)
            ends.append(ends_s)
            num_types = len(it.sia.configurations.gpu_types)
            use = np.zeros((num_types + len(rooms) + len(quotas), it.intervals.num))
            for c, begin_s, end_s in held:
                within = np.minimum(end_s, bounds_s[1:]) - np.maximum(begin_s, bounds_s[:-1])
                t = it.sia.configurations.type_index[c]
                part = np.maximum(within, 0) / np.diff(bounds_s)
                use[t] += it.sia.configurations.num_gpus[c] * part
                for q, (takes, _) in enumerate(rooms):
                    use[num_types + q] += takes[c] * part
                for q, (own, _) in enumerate(quotas.values(), num_types + len(rooms)):
                    use[q] += (i in own) * it.sia.configurations.num_gpus[c] * part
            uses.append(use[:, 1:].ravel())
    late = sum(float(it.late[i]) for i, now in choice.items() if now < 0)
    # The shares; then, for the tail, its shortest time, and the excess of every job.
    num_jobs, num = len(it.jobs), len(owners)
    tail, weights = it.parameters.tail, _weights(it)
    costs += [tail, *(tail * weight / (1 - it.parameters.tail_level) for weight in weights)]
    rows, limits = [], []
    if it.intervals.num > 1 and num:
        rows += [np.concatenate([row, np.zeros(1 + num_jobs)]) for row in np.array(uses).T]
        limits += it.open_gpus[:, 1:].ravel().tolist()
        limits += [limit for _, limit in (*rooms, *quotas.values()) for _ in range(it.intervals.num - 1)]
    for i, job in enumerate(it.jobs):
        times = [counted[i] * ends_s * (owner == i) for ends_s, owner in zip(ends, owners, strict=True)]
        rows.append(np.array([*times, -1.0, *(-float(k == i) for k in range(num_jobs))]))
        current = int(it.work.current[i])
        stays_s = float(it.work.seconds[i, current]) if i in it.sia.pinned and current >= 0 else 0.0
        limits.append(-counted[i] * (job.age_s + (stays_s if math.isfinite(stays_s) else 0.0)))
    one = np.array([[*(float(owner == i) for owner in owners), *([0.0] * (1 + num_jobs))] for i in choice])
    found = linprog(
        costs,
        A_ub=np.array(rows),
        b_ub=limits,
        A_eq=one if choice else None,
        b_eq=np.ones(len(choice)) if choice else None,
    )
    return float(found.fun or 0.0) + late if found.status == 0 else math.inf


@settings(max_examples=12, deadline=None)
@given(seed=SEEDS)
def test_the_optimum_equals_trying_everything(seed: int) -> None:
    rng = dice(seed)
    snapshot, parameters = timed_snapshot(rng, num_nodes=2, num_jobs=3), random_parameters(rng)
    it = instance_of(snapshot, parameters)
    options = [
        [
            *it.sia.utility.offered[i].nonzero()[0].tolist(),
            *([] if it.jobs[i].reservation is not None else [-1]),
        ]
        for i in it.sia.planned.tolist()
    ]
    best = min(
        (
            best_shares(it, choice)
            for each in product(*options)
            if can_be_packed(it.sia.snapshot, it.sia.configurations, it.sia.taken, [c for c in each if c >= 0])
            and within_quotas(it, choice := dict(zip(it.sia.planned.tolist(), each, strict=True)))
        ),
        default=math.inf,
    )
    result, _ = planned(snapshot, parameters)
    if math.isinf(best):
        assert result.objective is None
        return
    assert result.objective == pytest.approx(it.offset + best, rel=1e-6, abs=1e-6)
