"""Expansions of all of a plan by R, the GPUs that it may use and does not: R as several stages, or over all stages.

A deep pipeline gains nothing from one more stage or one wider stage: the others still have their layers. PP-Expand
therefore also makes R as many new stages as it can of the shape of one that the plan has, and DP-Expand also shares R
among all stages.
"""

from collections.abc import Iterator

import numpy as np

from models.parallelism.incremental.candidates import Skeleton
from models.parallelism.incremental.folding import Part, parts_of, skeleton_of
from models.parallelism.incremental.landscape import Integers


def growths(plan: Skeleton, available: Integers, degrees: Integers, most_stages: int) -> Iterator[Skeleton]:
    """Plans with several more stages, and with all stages wider, on no more than the available GPUs (V,)."""
    rest = available - plan.held
    # Two stages of some shape, or a GPU for every stage.
    total = int(rest.sum())
    if total < 2 * min(plan.sizes):
        return
    parts, tp = parts_of(plan), degrees[plan.degree].tolist()
    shapes = [(part.degree, size // t) for part, size, t in zip(parts, plan.sizes, tp, strict=True)]
    for degree, dp in (max(shapes, key=shapes.count),):
        count = min(int((rest // degrees[degree]).sum()) // dp, most_stages - len(parts))
        if count > 1:
            end = len(shapes) - shapes[::-1].index((degree, dp))
            rows = _dealt(rest, int(degrees[degree]), np.full(count, dp))
            new = [Part(gpus=row, degree=degree, origin=None) for row in rows]
            yield skeleton_of([*parts[:end], *new, *parts[end:]])
    if len(parts) > 1 and 2 * total >= sum(plan.sizes):
        widest, share = max(tp), np.array(plan.sizes)
        quotas = int((rest // widest).sum()) * share // share.sum()
        if quotas.all():
            rows = _dealt(rest, widest, quotas)
            yield skeleton_of(
                [
                    Part(gpus=part.gpus + row, degree=part.degree, origin=part.origin)
                    for part, row in zip(parts, rows, strict=True)
                ]
            )


def _dealt(gpus: Integers, size: int, quotas: Integers) -> Integers:
    """GPUs (S, V) of S receivers who get `quotas` (S,) groups of `size` GPUs each, node by node."""
    through = np.cumsum(gpus // size)
    ends = np.cumsum(quotas)
    starts = ends - quotas
    upto = np.clip(through, starts[:, None], ends[:, None])
    return np.diff(upto, axis=1, prepend=starts[:, None]) * size
