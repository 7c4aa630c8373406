"""Admission by minimum satisfactory shares (ElasticFlow, Algorithm 1). Pure NumPy.

In order of their deadlines, jobs that have begun first, each gets the least level at which it ends in time: at a level
it has in every slot its fastest block of at most so many GPUs that those before it leave. A job has one GPU type; of
types that do, that on which it takes the least GPU time. Later slots are shared in time: where only a part of a block
is left over, the job has it for a part of the slot; the present slot is placed, and knows no parts.

Jobs that have begun (they run, or have had GPUs) come first because they were admitted: nobody who comes later takes
what they need. One that has not begun has a reservation in later slots and no promise; a job with an earlier deadline
may take it until then. It is admitted only if it can end a slot before its deadline: plans are made anew in the middle
of slots, too, and what is reserved from the end of the present slot on then begins later, up to a slot.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from models.allocation.elasticflow.instance import ElasticInstance
from models.allocation.elasticflow.slots import slot_lengths
from stowplan.arrays import FloatMatrix, IntVector, Mask

_Share = tuple[int, int, float]
"""Configuration, slot, and for which part of the slot."""

# Of a job's work, that may be missing by rounding.
ROUNDING = 1e-9
# Most jobs that come before the others.
_MOST_RETRIES = 8


@dataclass(slots=True, kw_only=True, eq=False)
class Filling:
    """admitted: bool (J,). shares: what admitted jobs have in later slots. now: int64 (J,), configuration in the
    present slot, -1 for none. slack: float64 (m, K), what is left of every placeability row and slot."""

    admitted: Mask
    shares: dict[int, list[_Share]]
    now: IntVector
    slack: FloatMatrix


def minimum_satisfactory_shares(instance: ElasticInstance) -> Filling:
    """Admit whoever can be. A job that has begun and would lose its promise comes before the others, once each."""
    deadline_s = np.array([job.deadline_s or 0.0 for job in instance.jobs])
    order = np.lexsort([deadline_s, ~instance.begun])
    order = order[instance.wants[order]]
    begun = order[instance.begun[order]].tolist()
    filling = best = _filled(instance, begun)
    raised: list[int] = []
    while missing := [i for i in begun if not filling.admitted[i] and i not in raised][: _MOST_RETRIES - len(raised)]:
        raised = [*raised, *missing]
        filling = _filled(instance, [*raised, *(i for i in begun if i not in raised)])
        best = max(best, filling, key=lambda one: int(one.admitted.sum()))
    _fill(instance, best, order[len(begun) :].tolist())
    return best


def _filled(instance: ElasticInstance, order: Iterable[int]) -> Filling:
    """Admit jobs in this order to a cluster without any."""
    num_jobs, num_slots = len(instance.jobs), instance.ends.size
    filling = Filling(
        admitted=np.zeros(num_jobs, dtype=np.bool_),
        shares={},
        now=np.full(num_jobs, -1, dtype=np.int64),
        slack=np.repeat(instance.rows.limits.astype(np.float64)[:, None], num_slots, axis=1),
    )
    _fill(instance, filling, order)
    return filling


def _fill(instance: ElasticInstance, filling: Filling, order: Iterable[int]) -> None:
    for i in order:
        found = min(_candidates(instance, filling.slack, i), default=None)
        if found is not None:
            _take(instance, filling, i, found[-1])


def _take(instance: ElasticInstance, filling: Filling, i: int, shares: list[_Share]) -> None:
    filling.admitted[i] = True
    filling.shares[i] = [share for share in shares if share[1] > 0]
    for c, k, part in shares:
        filling.slack[:, k] = np.maximum(0.0, filling.slack[:, k] - part * instance.rows.coefficients[:, c])
        if k == 0:
            filling.now[i] = c


def _candidates(
    instance: ElasticInstance, slack: FloatMatrix, i: int
) -> Iterator[tuple[float, bool, int, list[_Share]]]:
    """GPU time, whether the GPU type changes, and the type, of the least share of job `i` on every type that does."""
    configurations, lengths = instance.configurations, slot_lengths(instance.ends)
    offered = np.flatnonzero(instance.offered[i])
    kinds = configurations.type_index[offered]
    present = configurations.type_index[instance.current[i]] if instance.current[i] >= 0 else -1
    for t in np.unique(kinds).tolist():
        # By ascending GPUs.
        mine = offered[kinds == t]
        shares = _least(instance.progress[i, mine], _parts(instance, slack, mine))
        if shares is not None:
            named = [(int(mine[c]), k, part) for c, k, part in shares]
            gpu_s = sum(float(configurations.num_gpus[c] * part * lengths[k]) for c, k, part in named)
            yield gpu_s, t != present, t, named


def _parts(instance: ElasticInstance, slack: FloatMatrix, mine: IntVector) -> FloatMatrix:
    """For which part (c, K) of each slot every block of `mine` (c,) may be had."""
    needs = instance.rows.coefficients[:, mine].astype(np.float64)
    rows, blocks = np.nonzero(needs)
    ratio = slack[rows] / needs[rows, blocks][:, None]
    parts = np.ones((mine.size, slack.shape[1]))
    np.minimum.at(parts, blocks, ratio)
    parts[:, 0] = parts[:, 0] >= 1 - ROUNDING
    return parts


def _least(progress: FloatMatrix, parts: FloatMatrix) -> list[_Share] | None:
    """The least level that does all work, slot by slot until it is done; None where none does.

    Parameters
    ----------
    progress
        Share of the work (c, K) that a block does in a slot.
    parts
        For which part (c, K) of the slot it may be had.
    """
    done = np.maximum(0.0, progress * parts)
    level = np.flatnonzero(np.maximum.accumulate(done, axis=0).sum(axis=1) >= 1 - ROUNDING)
    if not level.size:
        return None
    best = done[: level[0] + 1].argmax(axis=0)
    left, shares = 1.0, []
    for k, c in enumerate(best.tolist()):
        if left > ROUNDING and done[c, k] > 0:
            part = float(parts[c, k]) if k == 0 else min(float(parts[c, k]), left / float(progress[c, k]))
            shares.append((c, k, part))
            left -= float(progress[c, k]) * part
    return shares
