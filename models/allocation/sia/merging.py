"""The program in choice form, made from jobs: `solver.decomposition.structure` would find it in the columns.

Of thousands of jobs most are worth the same as some others, wherever they may run. To tell such jobs apart by their
rows of J x C numbers takes a tenth of what it takes to find them among columns that have been written one by one.
"""

import numpy as np
from scipy import sparse

from models.allocation.sia.instance import SiaInstance
from solver.decomposition.blocks import MAX_COUPLING_ROWS
from solver.decomposition.structure import ChoiceProblem
from stowplan.arrays import FloatVector, IntVector, Mask, pairs_in


def merged(
    instance: SiaInstance, objective: FloatVector, order: IntVector, used: IntVector, first_row: int
) -> ChoiceProblem | None:
    """The choice form of the program with `objective` (P,); None where there is nothing to choose, too much couples, or
    what couples may itself be a choice.

    order: planned jobs that have pairs, by their rows, those without one behind all others. used: the placeability
    rows, which are those of the program from `first_row` on.
    """
    if used.size > MAX_COUPLING_ROWS or not order.size or (instance.rows.limits[used] == 1).any():
        return None
    sign, offered = instance.sense.sign, instance.utility.offered
    cost = np.full(offered.shape, np.nan)
    cost[offered] = sign * objective
    required = np.zeros(len(instance.jobs), dtype=np.bool_)
    required[instance.reserved] = True
    # Waiting costs as much, and nothing frees GPUs.
    matters = (cost < 0) | (offered & required[:, None])
    if matters.any():
        cost[~matters] = np.nan
        has_any: Mask = np.asarray(matters.any(axis=1))
        order = order[has_any[order]]
    rows = np.column_stack([cost, required])[order].view(np.uint64)
    weights = np.random.default_rng(0).integers(2**64, size=rows.shape[1], dtype=np.uint64)
    # Of round numbers only the high bits differ, which a sum modulo 2^64 would all but lose.
    _, appears, alike = np.unique(rows.byteswap() @ weights, return_index=True, return_inverse=True)
    if not np.array_equal(rows, rows[appears[alike]]):
        # Two jobs that differ have the same sum.
        return None
    class_of_job = np.argsort(np.argsort(appears))[alike]
    first = order[np.sort(appears)]
    class_of, configuration = pairs_in(~np.isnan(cost[first]))
    size, copies = np.bincount(class_of), np.bincount(class_of_job)
    by_configuration = sparse.csr_array(instance.rows.coefficients[used].T.astype(np.float64))
    column = np.cumsum(offered).reshape(offered.shape) - 1
    by_class = order[np.argsort(class_of_job, kind="stable")]
    taken = copies * size
    return ChoiceProblem(
        cost=cost[first][class_of, configuration],
        start=np.concatenate([[0], np.cumsum(size)]),
        copies=copies,
        required=required[first],
        coupling=sparse.csr_array(by_configuration[configuration]),
        limit=instance.rows.limits[used].astype(np.float64),
        rows=first_row + np.arange(used.size),
        offset=sign * instance.constant,
        class_of=class_of,
        origin=column[by_class][~np.isnan(cost[by_class])],
        origin_start=np.cumsum(taken) - taken,
    )
