"""The program in choice form, made from jobs: `solver.decomposition.structure` would find it in the columns.

Of thousands of jobs most are worth the same as some others, wherever they may run. To tell such jobs apart by their
rows of J x C numbers takes a tenth of what it takes to find them among columns that have been written one by one.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from models.allocation.sia.instance import SiaInstance
from solver.decomposition.blocks import MAX_COUPLING_ROWS
from solver.decomposition.compressed import rows_of
from solver.decomposition.structure import ChoiceProblem
from solver.problem import MatrixProblem
from stowplan.arrays import FloatVector, IntMatrix, IntVector, Mask, all_of, pairs_in


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Offer:
    """What is offered to J jobs, whatever it costs: P pairs, each with its place among J x C.

    order: planned jobs that have pairs, by their rows, those without one behind all others. pair (J, C): columns of the
    program, where there are any; is_pair, must (J, C): where there are, and those of jobs that must get one; required
    (J,): these jobs. by_configuration: CSR (C, m), what each takes of the rows (m,) of the program that couple; limit
    (m,). weight (C + 1,): by chance. couples: whether that is what the solver takes for coupling.
    """

    order: IntVector
    pair: IntMatrix
    is_pair: Mask
    must: Mask
    required: Mask
    by_configuration: "sparse.csr_array"
    rows: IntVector
    limit: FloatVector
    weight: NDArray[np.uint64]
    couples: bool


def offer_of(instance: SiaInstance, order: IntVector, used: IntVector, first_row: int) -> Offer:
    """What is offered. used: the placeability rows, which are those of the program from `first_row` on."""
    offered = instance.utility.offered
    required = np.zeros(len(instance.jobs), dtype=np.bool_)
    required[instance.reserved] = True
    return Offer(
        order=order,
        pair=np.cumsum(offered).reshape(offered.shape) - 1,
        is_pair=offered,
        must=offered & required[:, None],
        required=required,
        by_configuration=sparse.csr_array(instance.rows.coefficients[used].T.astype(np.float64)),
        rows=first_row + np.arange(used.size),
        limit=instance.rows.limits[used].astype(np.float64),
        weight=np.random.default_rng(0).integers(2**64, size=offered.shape[1] + 1, dtype=np.uint64),
        # What limits to one may itself be a choice.
        couples=used.size <= MAX_COUPLING_ROWS and not (instance.rows.limits[used] == 1).any(),
    )


def merged(problem: MatrixProblem, offer: Offer) -> ChoiceProblem | None:
    """The choice form of the program over the P pairs; None where there is nothing to choose, too much couples, or what
    couples may itself be a choice."""
    order = offer.order
    if not offer.couples or not order.size:
        return None
    sign, shape = problem.sense.sign, offer.pair.shape
    if problem.num_columns == offer.pair.size:
        cost = (sign * problem.objective).reshape(shape)
    else:
        cost = np.full(shape, np.nan)
        cost[offer.is_pair] = sign * problem.objective
    # Waiting costs as much, and nothing frees GPUs.
    matters = (cost < 0) | offer.must
    if matters.any() and not all_of(matters):
        cost[~matters] = np.nan
        has_any: Mask = np.asarray(matters.any(axis=1))
        order = order[has_any[order]]
    rows = np.empty((order.size, shape[1] + 1))
    rows[:, :-1], rows[:, -1] = cost.take(order, axis=0), offer.required[order]
    bits = rows.view(np.uint64)
    # Of round numbers only the high bits differ, which a sum modulo 2^64 would all but lose.
    _, appears, alike = np.unique(bits.byteswap() @ offer.weight, return_index=True, return_inverse=True)
    if not all_of(bits == bits.take(appears[alike], axis=0)):
        # Two jobs that differ have the same sum.
        return None
    class_of_job = appears.argsort().argsort()[alike]
    appears.sort()
    cost_of_class = rows[appears, :-1]
    has_cost = ~np.isnan(cost_of_class)
    class_of, configuration = pairs_in(has_cost)
    size, copies = np.bincount(class_of), np.bincount(class_of_job)
    by_class = class_of_job.argsort(kind="stable")
    taken = copies * size
    return ChoiceProblem(
        cost=cost_of_class[has_cost],
        start=np.concatenate([[0], np.cumsum(size)]),
        copies=copies,
        required=offer.required[order[appears]],
        coupling=rows_of(offer.by_configuration, configuration),
        limit=offer.limit,
        rows=offer.rows,
        offset=sign * problem.offset,
        class_of=class_of,
        origin=offer.pair.take(order[by_class], axis=0)[has_cost.take(class_of_job[by_class], axis=0)],
        origin_start=np.cumsum(taken) - taken,
    )
