"""The program against trying everything: all choices for the present that can be packed, and behind each the best
shares of all schedules, which are listed and timed here one by one."""

import math
from collections.abc import Iterator
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


def _schedules(it: HorizonInstance, i: int, now: int) -> Iterator[tuple[float, list[_Held]]]:
    """End and what is held, of every schedule of job i that begins with `now` (-1: nothing)."""
    job, bounds_s = it.jobs[i], it.intervals.bounds_s.tolist()
    runs = job.id in it.sia.taken.running
    price = it.parameters.restart_price
    change_s = price * job.restart_cost_s
    start_s = change_s if runs else job.restart_cost_s
    seconds = it.work.seconds[i]
    rates = {c: 1 / seconds[c] for c in it.later[i].nonzero()[0].tolist()}
    fastest_s = 1 / max(rates.values()) if rates else 0.0
    if now < 0:
        yield bounds_s[-1] + start_s + fastest_s, []
        for t in bounds_s[1:-1]:
            for c, rate in rates.items():
                ends_s = t + start_s + 1 / rate
                yield ends_s, [(c, t, ends_s)]
        return
    begins_s = 0.0 if it.work.current[i] == now else start_s
    whole_s = begins_s + float(seconds[now])
    yield whole_s, [(now, 0.0, whole_s)]
    for k, t in enumerate(bounds_s[1:-1]):
        left = 1 - max(0.0, t - begins_s) / float(seconds[now])
        if left <= 0:
            continue
        if k == 0:
            yield bounds_s[-1] + change_s + left * fastest_s, [(now, 0.0, t)]
        for c, rate in rates.items():
            if c != now:
                ends_s = t + change_s + left / rate
                yield ends_s, [(now, 0.0, t), (c, t, ends_s)]


def _best_shares(it: HorizonInstance, choice: dict[int, int]) -> float:
    """The least objective with this choice (configuration of every planned job, -1 for none)."""
    bounds_s, weights = it.intervals.bounds_s, [job.weight for job in it.jobs]
    scale = sum(weights) or 1.0
    costs, owners, uses = [], [], []
    for i, now in choice.items():
        for ends_s, held in _schedules(it, i, now):
            costs.append(weights[i] / scale * ends_s)
            owners.append(i)
            use = np.zeros((len(it.sia.configurations.gpu_types), it.intervals.num))
            for c, begin_s, end_s in held:
                within = np.minimum(end_s, bounds_s[1:]) - np.maximum(begin_s, bounds_s[:-1])
                t = it.sia.configurations.type_index[c]
                use[t] += it.sia.configurations.num_gpus[c] * np.maximum(within, 0) / np.diff(bounds_s)
            uses.append(use[:, 1:].ravel())
    late = sum(float(it.late[i]) for i, now in choice.items() if now < 0)
    if not choice:
        return late
    one = np.array([[float(owner == i) for owner in owners] for i in choice])
    found = linprog(
        costs,
        A_ub=np.array(uses).T if it.intervals.num > 1 else None,
        b_ub=it.open_gpus[:, 1:].ravel() if it.intervals.num > 1 else None,
        A_eq=one,
        b_eq=np.ones(len(choice)),
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
            _best_shares(it, dict(zip(it.sia.planned.tolist(), choice, strict=True)))
            for choice in product(*options)
            if can_be_packed(it.sia.snapshot, it.sia.configurations, it.sia.taken, [c for c in choice if c >= 0])
        ),
        default=math.inf,
    )
    result, _ = planned(snapshot, parameters)
    if math.isinf(best):
        assert result.objective is None
        return
    assert result.objective == pytest.approx(it.offset + best, rel=1e-6, abs=1e-6)
