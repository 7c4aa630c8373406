"""Core problems: what reduced costs leave open, as a small MIP.

With the dual bound L and a threshold d, keep the options (columns, or choosing nothing) whose reduced cost is at most
d. Every solution that uses another option costs more than L + d, so min(bound of the core, L + d) bounds the whole
problem, and an optimal core solution that costs at most L + d is optimal. Classes left with one option are fixed and
leave the MIP.
"""

from dataclasses import dataclass

import numpy as np
from scipy import sparse

from solver.decomposition.dual import ReducedCosts
from solver.decomposition.structure import ChoiceProblem
from solver.problem import MatrixProblem
from solver.sense import Sense
from stowplan.arrays import FloatVector, IntVector, Mask, all_of


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Core:
    """The open columns of the choice problem `of`, the MIP over them, and how to lift its points.

    columns (c,): open columns; fixed (n,): counts of the classes that are decided; nothing (K,): the classes that may
    choose no column. floor: every solution outside the core costs more than this (inf: the core is the whole problem).
    """

    of: ChoiceProblem
    columns: IntVector
    fixed: IntVector
    nothing: Mask
    floor: float

    def mip(self) -> MatrixProblem:
        """Made when it is asked for: what is enumerated has no need of it."""
        return _mip(self.of, self.columns, self.fixed, self.nothing)

    def lift(self, x: FloatVector) -> IntVector:
        """Counts (n,) of the choice problem for the core's point (c,)."""
        counts = self.fixed.copy()
        counts[self.columns] += x.round().astype(np.int64)
        return counts

    def lower(self, counts: IntVector) -> FloatVector | None:
        """The core's point for the counts (n,); None where they choose what the core leaves out."""
        point = (counts[self.columns] - self.fixed[self.columns]).astype(np.float64)
        return point if (self.lift(point) == counts).all() else None


def build_core(problem: ChoiceProblem, reduced: ReducedCosts, threshold: float) -> Core:
    """Keep the options with reduced cost at most `threshold`."""
    near = (reduced.columns <= threshold).nonzero()[0]
    nothing: Mask = (reduced.nothing <= threshold) & ~problem.required
    class_of = problem.class_of[near]
    options = np.bincount(class_of, minlength=problem.copies.size) + nothing
    is_decided = (options == 1)[class_of]
    fixed = np.zeros(problem.cost.size, dtype=np.int64)
    fixed[near[is_decided]] = problem.copies[class_of[is_decided]]
    is_whole = near.size == problem.cost.size and all_of(nothing | problem.required)
    return Core(
        of=problem,
        columns=near[~is_decided],
        fixed=fixed,
        nothing=nothing,
        floor=np.inf if is_whole else reduced.bound + threshold,
    )


def whole_core(problem: ChoiceProblem) -> Core:
    """The core that leaves nothing out."""
    columns = np.zeros(problem.cost.size)
    return build_core(problem, ReducedCosts(columns=columns, nothing=np.zeros(problem.copies.size), bound=-np.inf), 0.0)


def _mip(problem: ChoiceProblem, columns: IntVector, fixed: IntVector, nothing: Mask) -> MatrixProblem:
    classes, row = np.unique(problem.class_of[columns], return_inverse=True)
    copies = problem.copies[classes].astype(float)
    matrix = _with_choice_rows(
        problem.coupling if columns.size == problem.cost.size else problem.coupling[columns], row
    )
    return MatrixProblem(
        name="core",
        sense=Sense.MINIMIZE,
        objective=problem.cost[columns],
        offset=problem.offset + float(problem.cost @ fixed),
        matrix=matrix,
        row_lower=np.concatenate([np.where(nothing[classes], 0.0, copies), np.full(problem.limit.size, -np.inf)]),
        row_upper=np.concatenate([copies, problem.limit - problem.used_by(fixed)]),
        lower=np.zeros(columns.size),
        upper=copies[row],
        integrality=np.ones(columns.size, dtype=np.bool_),
    )


def _with_choice_rows(coupling: "sparse.csr_array", row: IntVector) -> "sparse.csc_array":
    """Columns with a 1 in their choice `row` (c,), from 0 on, and below the choice rows what CSR (c, m) has of them."""
    num_classes = int(row.max(initial=-1)) + 1
    heads = coupling.indptr + np.arange(row.size + 1)
    is_choice = np.zeros(heads[-1], dtype=np.bool_)
    is_choice[heads[:-1]] = True
    indices, data = np.empty(heads[-1], dtype=np.int64), np.ones(heads[-1])
    indices[is_choice], indices[~is_choice] = row, coupling.indices + num_classes
    data[~is_choice] = coupling.data
    return sparse.csc_array((data, indices, heads), shape=(num_classes + coupling.shape[1], row.size))


def threshold_for(reduced: ReducedCosts, num_classes: int, num_extra: int) -> float:
    """Smallest threshold that leaves about `num_extra` options beside the best one of every class."""
    every = np.concatenate([reduced.columns, reduced.nothing[np.isfinite(reduced.nothing)]])
    position = min(every.size - 1, num_classes + num_extra)
    return max(0.0, float(np.partition(every, position)[position]))
