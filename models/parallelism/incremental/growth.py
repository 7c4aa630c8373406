"""Expansions of all of a plan by R, the GPUs that it may use and does not: R as several stages, or over all stages.

A deep pipeline gains nothing from one more stage or one wider stage: the others still have their layers. PP-Expand
therefore also makes R as many new stages as it can of the shape that most stages have, behind the last of these, and
DP-Expand also shares R, when it is half of what the plan has or more, among all stages.
"""

from collections.abc import Iterator

import numpy as np

from models.parallelism.incremental.candidates import Skeleton
from models.parallelism.incremental.folding import Part, parts_of, skeleton_of
from stowplan.arrays import IntArray


def growths(plan: Skeleton, available: IntArray, degrees: IntArray, most_stages: int) -> Iterator[Skeleton]:
    """Plans with several more stages, and with all stages wider, on no more than the available GPUs (V,)."""
    rest = available - plan.held
    total, (degree, size) = int(rest.sum()), plan.usual_stage
    if total >= 2 * size:
        tp = int(degrees[degree])
        count = min(int((rest // tp).sum()) // (size // tp), most_stages - plan.num_stages)
        if count > 1:
            parts = parts_of(plan)
            end = max(s for s, part in enumerate(parts) if (part.degree, plan.sizes[s]) == (degree, size)) + 1
            rows = _dealt(rest, tp, np.full(count, size // tp))
            new = [Part(gpus=row, degree=degree, origin=None) for row in rows]
            yield skeleton_of([*parts[:end], *new, *parts[end:]])
    if plan.num_stages > 1 and 2 * total >= sum(plan.sizes):
        widest, share = int(degrees[plan.degree].max()), np.array(plan.sizes)
        quotas = int((rest // widest).sum()) * share // share.sum()
        if quotas.all():
            rows = _dealt(rest, widest, quotas)
            yield skeleton_of(
                [
                    Part(gpus=part.gpus + row, degree=part.degree, origin=part.origin)
                    for part, row in zip(parts_of(plan), rows, strict=True)
                ]
            )


def _dealt(gpus: IntArray, size: int, quotas: IntArray) -> IntArray:
    """GPUs (S, V) of S receivers who get `quotas` (S,) groups of `size` GPUs each, node by node."""
    through = np.cumsum(gpus // size)
    ends = np.cumsum(quotas)
    starts = ends - quotas
    upto = np.clip(through, starts[:, None], ends[:, None])
    return np.diff(upto, axis=1, prepend=starts[:, None]) * size
