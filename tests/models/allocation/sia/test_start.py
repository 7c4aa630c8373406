"""The first point of Sia's program: jobs that stay are given their GPUs together, which changes nothing."""

import numpy as np
from hypothesis import given, settings

from models.allocation.sia.instance import SiaInstance, sia_instance
from models.allocation.sia.start import greedy_start
from models.clock import PhaseClock
from stowplan.arrays import FloatVector
from tests.models.allocation.sia.instances import random_parameters, random_snapshot
from tests.models.placement.scenes import SEEDS, dice


def one_after_another(instance: SiaInstance) -> FloatVector | None:
    """The point as its docstring says, pair by pair."""
    reserved = [job.reservation is not None for job in instance.jobs]
    sign, num_gpus = instance.sense.sign, instance.configurations.num_gpus
    pairs = list(zip(instance.pair_jobs.tolist(), instance.pair_configurations.tolist(), strict=True))
    gain = [instance.penalty[i] - sign * instance.utility.value[i, c] for i, c in pairs]

    def smallest() -> list[int]:
        best: dict[int, int] = {}
        for p, (i, c) in enumerate(pairs):
            known = best.setdefault(i, p)
            if (num_gpus[c], -gain[p]) < (num_gpus[pairs[known][1]], -gain[known]):
                best[i] = p
        return sorted((p for p in best.values() if gain[p] > 0), key=lambda p: -gain[p] / num_gpus[pairs[p][1]])

    forced = [p for p, (i, _) in enumerate(pairs) if reserved[i]]
    stays = [p for p, (i, c) in enumerate(pairs) if not reserved[i] and instance.utility.current[i] == c]
    point, left = np.zeros(len(pairs)), instance.rows.limits.copy()
    served = set(instance.pinned.tolist())
    for p in (*forced, *stays, *smallest()):
        i, c = pairs[p]
        needed = instance.rows.coefficients[:, c]
        if i not in served and (needed <= left).all():
            left -= needed
            point[p] = 1.0
            served.add(i)
    return point if all(i in served for i in np.flatnonzero(reserved).tolist()) else None


@settings(max_examples=150, deadline=None)
@given(seed=SEEDS)
def test_it_is_the_point_of_pairs_taken_one_after_another(seed: int) -> None:
    rng = dice(seed)
    instance = sia_instance(random_snapshot(rng), random_parameters(rng), PhaseClock())
    found, expected = greedy_start(instance), one_after_another(instance)
    assert (found is None) == (expected is None)
    if found is not None and expected is not None:
        np.testing.assert_array_equal(found, expected)
