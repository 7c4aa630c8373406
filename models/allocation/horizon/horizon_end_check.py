"""When the last interval ends, for the check: recomputed from the jobs, by the rules in `horizon_end`."""

import math
from collections.abc import Iterable, Mapping

from models.allocation.horizon.outlook import Shape
from models.allocation.horizon.parameters import NEAR_S, STARTS, HorizonParameters

_MOST = 0.9


def expected_end_s(
    parameters: HorizonParameters, jobs: Iterable[tuple[float, Mapping[Shape, float]]], num_gpus: int
) -> float:
    """Of planned `jobs`, what each pays before it works at all and the seconds that are left by shape, where `num_gpus`
    are free."""
    it = parameters
    runnable = [(cost_s, able) for cost_s, able in jobs if able]
    return max(it.num_intervals * it.interval_s, _asked_s(it, runnable, num_gpus))


def _asked_s(it: HorizonParameters, jobs: list[tuple[float, Mapping[Shape, float]]], num_gpus: int) -> float:
    if it.horizon_s is not None:
        return it.horizon_s
    if it.backlog_efficiency is not None:
        near_s = NEAR_S if it.num_intervals > 1 else it.interval_s
        return max([near_s, *(STARTS * cost_s for cost_s, _ in jobs)])
    if not jobs or it.num_intervals == 1:
        return it.interval_s
    gpu_s = math.fsum(min(shape[2] * time_s for shape, time_s in able.items()) for _, able in jobs)
    least_s = sorted(min(able.values()) for _, able in jobs)
    # Linear between the two next to it.
    below = int(_MOST * (len(least_s) - 1))
    above = min(below + 1, len(least_s) - 1)
    part = _MOST * (len(least_s) - 1) - below
    return gpu_s / max(1, num_gpus) + (1.0 - part) * least_s[below] + part * least_s[above]
