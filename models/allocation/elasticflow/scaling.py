"""Elastic scaling of what the minimum satisfactory shares leave of the present slot (ElasticFlow, Algorithm 2).

One after the other the step is taken that gains most per GPU: a job gets a larger block of its GPU type, or its first
one. A job that was admitted goes to a block only from which it still ends in time. With a throughput that is concave in
the GPUs the paper proves its steps, by GPU time saved, to be best; ours go by the gain of the objective, which jobs
without a deadline have, too.
"""

import heapq

import numpy as np

from models.allocation.elasticflow.filling import ROUNDING, Filling
from models.allocation.elasticflow.instance import ElasticInstance
from stowplan.arrays import IntVector, Mask

_LEAST_GAIN = 1e-9


def scaled(instance: ElasticInstance, filling: Filling) -> IntVector:
    """Configuration (J,) of every job in the present slot, -1 for none."""
    return _Scaling(instance, filling).run()


class _Scaling:
    def __init__(self, instance: ElasticInstance, filling: Filling) -> None:
        self._instance = instance
        self._filling = filling
        self._now = filling.now.copy()
        self._left = filling.slack[:, 0].tolist()
        self._steps: list[tuple[float, int, int, int]] = []
        self._needs = [dict(instance.rows.needs(c)) for c in range(len(instance.configurations))]

    def run(self) -> IntVector:
        may = self._instance.offered.any(axis=1) & (self._filling.admitted | ~self._instance.strict)
        for i in np.flatnonzero(may).tolist():
            self._push(i)
        while self._steps:
            _, i, before, after = heapq.heappop(self._steps)
            # What does not fit now never will: no step gives anything back.
            if self._now[i] == before and self._fits(before, after):
                for row, amount in self._extra(before, after):
                    self._left[row] -= amount
                self._now[i] = after
                self._push(i)
        return self._now

    def _push(self, i: int) -> None:
        """All steps of a job from where it is."""
        it, now = self._instance, int(self._now[i])
        num_gpus, kinds = it.configurations.num_gpus, it.configurations.type_index
        larger = it.offered[i] & self._in_time(i)
        if now >= 0:
            larger = larger & (kinds == kinds[now]) & (num_gpus > num_gpus[now])
        gain = it.gain[i] - (it.gain[i, now] if now >= 0 else 0.0)
        for c in np.flatnonzero(larger & (gain > _LEAST_GAIN)).tolist():
            more = num_gpus[c] - (num_gpus[now] if now >= 0 else 0)
            heapq.heappush(self._steps, (-float(gain[c] / more), i, now, c))

    def _in_time(self, i: int) -> Mask:
        """Mask (C,) of blocks with which the job keeps its deadline, if it was admitted."""
        it, filling = self._instance, self._filling
        if not filling.admitted[i]:
            return np.ones(len(it.configurations), dtype=np.bool_)
        later = sum(float(it.progress[i, c, k]) * part for c, k, part in filling.shares[i])
        return np.asarray(it.progress[i, :, 0] + later >= 1 - 2 * ROUNDING)

    def _extra(self, before: int, after: int) -> list[tuple[int, int]]:
        held = self._needs[before] if before >= 0 else {}
        return [(row, amount - held.get(row, 0)) for row, amount in self._needs[after].items()]

    def _fits(self, before: int, after: int) -> bool:
        return all(self._left[row] >= amount - ROUNDING for row, amount in self._extra(before, after))
