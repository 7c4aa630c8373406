"""Find blocks that choose and rows that couple in a matrix form, and merge blocks that are equal.

A *choice row* says that at most one (or exactly one) of some binary columns is 1. When choice rows do not overlap and
only a few other rows remain, every block could choose alone if those few rows were priced. Equal blocks (same costs,
same coupling coefficients: clones of one job, say) become one class with several copies: that removes the symmetry
on which branch and bound wastes its time.
"""

from dataclasses import dataclass, replace

import numpy as np
from scipy import sparse

from solver.problem import MatrixProblem
from stowplan.arrays import FloatVector, IntVector, Mask

# Newton's matrix is dense in the coupling rows; beyond this many the structure is not what this is made for.
MAX_COUPLING_ROWS = 64


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ChoiceProblem:
    """min offset + cost x  s.t.  sum_(j in k) x_j <= copies_k (= where required), coupling' x <= limit, x integer.

    K classes of equal blocks over n columns, sorted by class. cost (n,); start (K+1,): class k owns columns start_k
    to start_(k+1); copies, required (K,); coupling CSR (n, m): coefficients of a column in the m coupling rows;
    limit (m,); rows (m,): the original row behind each limit. offset makes values those of the original problem,
    negated when that maximises. class_of (n,): class of every column. origin: the original columns, class by class,
    block by block; those of class k are copies_k times its size from origin_start_k (K,) on.
    """

    cost: FloatVector
    start: IntVector
    copies: IntVector
    required: Mask
    coupling: "sparse.csr_array"
    limit: FloatVector
    rows: IntVector
    offset: float
    class_of: IntVector
    origin: IntVector
    origin_start: IntVector

    @property
    def size(self) -> IntVector:
        """Columns of every class, (K,)."""
        return np.diff(self.start)

    def expand(self, counts: IntVector, num_columns: int) -> FloatVector:
        """Point (num_columns,) of the original problem for the counts (n,): copies are served in block order."""
        used = np.flatnonzero(counts)
        chosen = np.repeat(used, counts[used])
        k = self.class_of[chosen]
        copy = np.arange(chosen.size) - np.searchsorted(k, k)
        x = np.zeros(num_columns)
        x[self.origin[self.origin_start[k] + copy * self.size[k] + chosen - self.start[k]]] = 1.0
        return x

    def sampled(self, classes: IntVector) -> "ChoiceProblem":
        """The classes (increasing) alone, with their share of what all blocks together may use.

        Prices of the sample are nearly those of the whole. It has no way back to the original columns.
        """
        columns = np.flatnonzero(np.isin(self.class_of, classes))
        share = float(self.copies[classes].sum() / self.copies.sum())
        return replace(
            self,
            cost=self.cost[columns],
            start=np.concatenate([[0], np.cumsum(self.size[classes])]),
            copies=self.copies[classes],
            required=self.required[classes],
            coupling=sparse.csr_array(self.coupling[columns]),
            limit=self.limit * share,
            class_of=np.repeat(np.arange(classes.size), self.size[classes]),
            origin=np.zeros(0, dtype=np.int64),
            origin_start=np.zeros(classes.size, dtype=np.int64),
        )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Coupling:
    """Coupling rows in the form `matrix' x <= limit`: CSR (n, m), limit (m,), rows (m,)."""

    matrix: "sparse.csr_array"
    limit: FloatVector
    rows: IntVector


def find_structure(problem: MatrixProblem) -> ChoiceProblem | None:
    """Choice form of the problem; None when it has none, or is infeasible at sight: then it is a plain MIP."""
    if not (problem.integrality & (problem.lower >= 0) & (problem.upper <= 1)).all():
        return None
    rows = problem.matrix.tocsr()
    choice = _choice_rows(problem, rows)
    coupling = _coupling_rows(problem, rows, choice)
    if coupling is None:
        return None
    block, required = _blocks(problem, rows, choice)
    fixed = np.flatnonzero(problem.lower > 0)
    if np.unique(block[fixed]).size < fixed.size:
        return None
    required[block[fixed]] = True
    settled = np.isin(block, block[fixed])
    columns = np.flatnonzero((problem.upper > 0) & (~settled | (problem.lower > 0)))
    if not columns.size or not np.isin(np.flatnonzero(required), block[columns]).all():
        return None
    useless = _useless(problem, columns, required[block[columns]], coupling)
    columns = columns[~useless] if not useless.all() else columns
    columns = columns[np.argsort(block[columns], kind="stable")]
    return _merged(problem, columns, block[columns], required, coupling)


def _choice_rows(problem: MatrixProblem, rows: "sparse.csr_array") -> IntVector:
    """Indices of disjoint choice rows. Where rows that look like one overlap the earlier ones choose."""
    size = np.diff(rows.indptr)
    num_other = np.bincount(np.repeat(np.arange(size.size), size), weights=rows.data != 1, minlength=size.size)
    trivial_below = (problem.row_lower <= 0) | (problem.row_lower == 1)
    chosen = np.flatnonzero((size > 0) & (num_other == 0) & (problem.row_upper == 1) & trivial_below)
    if (np.bincount(rows[chosen].indices, minlength=problem.num_columns) <= 1).all():
        return chosen
    taken = np.zeros(problem.num_columns, dtype=np.bool_)
    disjoint = []
    for row in chosen.tolist():
        columns = rows.indices[rows.indptr[row] : rows.indptr[row + 1]]
        if not taken[columns].any():
            taken[columns] = True
            disjoint.append(row)
    return np.array(disjoint, dtype=np.int64)


def _coupling_rows(problem: MatrixProblem, rows: "sparse.csr_array", choice: IntVector) -> _Coupling | None:
    """All other rows; None when they are too many."""
    rest = np.setdiff1d(np.arange(problem.num_rows), choice)
    above = rest[np.isfinite(problem.row_upper[rest])]
    below = rest[np.isfinite(problem.row_lower[rest])]
    if above.size + below.size > MAX_COUPLING_ROWS:
        return None
    matrix = sparse.vstack([rows[above], -rows[below]], format="csc")
    return _Coupling(
        matrix=sparse.csr_array(matrix.T),
        limit=np.concatenate([problem.row_upper[above], -problem.row_lower[below]]),
        rows=np.concatenate([above, below]),
    )


def _useless(problem: MatrixProblem, columns: IntVector, required: Mask, coupling: _Coupling) -> Mask:
    """Columns that gain nothing and free nothing, in blocks that may choose nothing instead."""
    matrix = coupling.matrix[columns]
    frees = np.bincount(np.repeat(np.arange(columns.size), np.diff(matrix.indptr)), matrix.data < 0, columns.size)
    gains_nothing = problem.sense.sign * problem.objective[columns] >= 0
    return np.asarray(gains_nothing & ~required & (frees == 0))


def _blocks(problem: MatrixProblem, rows: "sparse.csr_array", choice: IntVector) -> tuple[IntVector, Mask]:
    """Block of every column, and whether a block must choose. A column without choice row is a block of its own."""
    block = np.full(problem.num_columns, -1, dtype=np.int64)
    entries = rows[choice].tocoo()
    block[entries.col] = entries.row
    alone = np.flatnonzero(block < 0)
    block[alone] = choice.size + np.arange(alone.size)
    return block, np.concatenate([problem.row_lower[choice] > 0, np.zeros(alone.size, dtype=np.bool_)])


def _merged(
    problem: MatrixProblem, columns: IntVector, block: IntVector, required: Mask, coupling: _Coupling
) -> ChoiceProblem:
    """Choice problem over `columns`, sorted by `block`, with equal blocks as one class."""
    cost = problem.sense.sign * problem.objective[columns]
    matrix = coupling.matrix[columns]
    blocks, first, size = np.unique(block, return_index=True, return_counts=True)
    class_of_block = _classes(cost, matrix, first, size, required[blocks])
    representative = np.unique(class_of_block, return_index=True)[1]
    kept = np.flatnonzero(np.isin(np.repeat(np.arange(first.size), size), representative))
    copies = np.bincount(class_of_block)
    # Blocks class by class, their columns one behind the other.
    grouped = np.argsort(class_of_block, kind="stable")
    width = size[grouped]
    within = np.arange(columns.size) - np.repeat(np.cumsum(width) - width, width)
    taken = copies * size[representative]
    return ChoiceProblem(
        cost=cost[kept],
        start=np.concatenate([[0], np.cumsum(size[representative])]),
        copies=copies.astype(np.int64),
        required=required[blocks[representative]],
        coupling=sparse.csr_array(matrix[kept]),
        limit=coupling.limit,
        rows=coupling.rows,
        offset=problem.sense.sign * problem.offset,
        class_of=np.repeat(np.arange(copies.size), size[representative]),
        origin=columns[np.repeat(first[grouped], width) + within],
        origin_start=np.cumsum(taken) - taken,
    )


def _classes(
    cost: FloatVector, matrix: "sparse.csr_array", first: IntVector, size: IntVector, required: Mask
) -> IntVector:
    """Class of every block, numbered by first appearance. Equality is guessed by a signature and then verified."""
    random = np.random.default_rng(0)
    offset = np.arange(cost.size) - np.repeat(first, size)
    weight = 1 + random.random(int(size.max()))
    key = np.add.reduceat((cost + matrix @ random.random(matrix.shape[1])) * weight[offset], first)
    signature = np.stack([required.astype(np.float64), size.astype(np.float64), key], axis=1)
    _, appearance, guess = np.unique(signature, axis=0, return_index=True, return_inverse=True)
    rank = np.argsort(np.argsort(appearance))
    class_of_block: IntVector = rank[guess.ravel()]
    twin = np.sort(appearance)[class_of_block]
    partner = np.repeat(first[twin], size) + offset
    if (cost == cost[partner]).all() and abs(matrix - matrix[partner]).sum() == 0:
        return class_of_block
    # Two blocks share a signature by chance: nothing is merged.
    return np.arange(first.size, dtype=np.int64)
