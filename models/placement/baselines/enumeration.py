"""Every placement of every cell: the enumeration of Arnold's Fig. 8. Optimal, and hopeless beyond a dozen nodes."""

import time
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice, product

import numpy as np

from models.placement.arnold.true_spread.instance import TrueSpreadInstance
from stowplan.arrays import FloatVector, IntMatrix

_CHUNK = 4_096


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Enumeration:
    """Best placement `labels` (R, C) by Eq. 2, None when none is legal; `complete`: all were looked at."""

    labels: IntMatrix | None
    num_placements: int
    complete: bool


def enumerate_placements(instance: TrueSpreadInstance, time_limit_s: float = np.inf) -> Enumeration:
    """Look at all M^(R C) placements, in chunks, for as long as the limit allows."""
    started = time.perf_counter()
    best, labels, seen = np.inf, None, 0
    for chunk in _chunks(instance.num_minipods, instance.num_cells):
        seen += len(chunk)
        values = _values(instance, chunk)
        k = int(np.argmin(values))
        if values[k] < best:
            best, labels = float(values[k]), chunk[k].reshape(instance.num_rows, instance.num_columns)
        if time.perf_counter() - started > time_limit_s:
            complete = seen == instance.num_minipods**instance.num_cells
            return Enumeration(labels=labels, num_placements=seen, complete=complete)
    return Enumeration(labels=labels, num_placements=seen, complete=True)


def _chunks(base: int, num_digits: int) -> Iterator[IntMatrix]:
    """All numbers of `num_digits` digits to the `base`, as rows of digits."""
    numbers = product(range(base), repeat=num_digits)
    while chunk := list(islice(numbers, _CHUNK)):
        yield np.array(chunk, dtype=np.int64)


def _values(instance: TrueSpreadInstance, placements: IntMatrix) -> FloatVector:
    """Eq. 2 of placements (n, R C), inf where a minipod is too full."""
    hits = placements.reshape(-1, instance.num_rows, instance.num_columns, 1) == np.arange(instance.num_minipods)
    legal = (hits.sum(axis=(1, 2)) <= instance.free_nodes).all(axis=1)
    rows = hits.any(axis=2).sum(axis=2).max(axis=1)
    columns = hits.any(axis=1).sum(axis=2).max(axis=1)
    value = (1 - instance.alpha) * np.where(rows > 1, rows, 0) + instance.alpha * np.where(columns > 1, columns, 0)
    return np.where(legal, value, np.inf)
