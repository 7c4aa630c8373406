"""Find blocks that choose and rows that couple in a matrix form, and merge blocks that are equal.

A *choice row* says that at most one (or exactly one) of some binary columns is 1. When choice rows do not overlap and
only a few other rows remain, every block could choose alone if those few rows were priced. Equal blocks (same costs,
same coupling coefficients: clones of one job, say) become one class with several copies: that removes the symmetry
on which branch and bound wastes its time.

Problems that follow one another may have the very same rows and bounds, and other costs: what does not depend on costs
is found once for them.
"""

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from solver.decomposition.blocks import Blocks, Coupling, coupling_rows, find_blocks
from solver.decomposition.compressed import ranges, rows_of
from solver.feasibility import FEASIBILITY_TOLERANCE
from solver.problem import MatrixProblem
from stowplan.arrays import FloatMatrix, FloatVector, IntVector, Mask, all_of
from stowplan.living import OfUnchanged
from stowplan.slots import copier

# Relative: what a sum of many terms may be off.
_ROUNDING = 1e-9
# Coefficients of all columns in all coupling rows that are kept beside one another.
_LITTLE = 20_000


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ChoiceProblem:
    """min offset + cost x  s.t.  sum_(j in k) x_j <= copies_k (= where required), coupling' x <= limit, x integer.

    K classes of equal blocks over n columns, sorted by class. cost (n,); start (K+1,): class k owns columns start_k
    to start_(k+1); copies, required (K,); coupling CSR (n, m), to be sifted also `Factored`: coefficients of a column
    in the m coupling rows; limit (m,); rows (m,): the original row behind each limit. offset makes values those of the
    original problem, negated when that maximises. class_of (n,): class of every column. origin: the original columns,
    class by class, block by block; those of class k are copies_k times its size from origin_start_k (K,) on.
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
    # What stands for each of `origin`, as soon as it is asked.
    _column: IntVector | None = field(init=False, default=None)
    # `usage_of` all columns, where somebody has asked for it to be kept.
    _usage: FloatMatrix | None = field(init=False, default=None)
    _nothing: FloatVector | None = field(init=False, default=None)

    @property
    def size(self) -> IntVector:
        """Columns of every class, (K,)."""
        return np.asarray(self.start[1:] - self.start[:-1])

    @property
    def nothing(self) -> FloatVector:
        """What it costs to choose nothing (K,): 0, infinite where one must be chosen."""
        if self._nothing is None:
            nothing = np.where(self.required, np.inf, 0.0)
            object.__setattr__(self, "_nothing", nothing)
            return nothing
        return self._nothing

    @property
    def has_copies(self) -> bool:
        """Whether any class may have several blocks."""
        return self.origin.size != self.cost.size

    @property
    def num_blocks(self) -> int:
        """Of all classes together."""
        return int(self.copies.sum()) if self.has_copies else self.copies.size

    def with_costs(self, cost: FloatVector, offset: float) -> "ChoiceProblem":
        """The very same blocks and rows, and what is kept of them, with costs (n,)."""
        return _with_costs(self, cost, offset)

    def keep(self) -> None:
        """Find at once what problems with these blocks and rows ask for: `with_costs` hands it on. Of `usage_of` all
        columns if that is little."""
        _ = self.nothing
        if self.cost.size * self.limit.size <= _LITTLE:
            object.__setattr__(self, "_usage", self.usage_of(np.arange(self.cost.size)))

    def expand(self, counts: IntVector, num_columns: int) -> FloatVector:
        """Point (num_columns,) of the original problem for the counts (n,): copies are served in block order."""
        used = counts.nonzero()[0]
        x = np.zeros(num_columns)
        if not self.has_copies:
            x[self.origin[used]] = 1.0
            return x
        chosen = np.repeat(used, counts[used])
        k = self.class_of[chosen]
        copy = np.arange(chosen.size) - np.searchsorted(k, k)
        x[self.origin[self.origin_start[k] + copy * self.size[k] + chosen - self.start[k]]] = 1.0
        return x

    def counts_of(self, x: FloatVector) -> IntVector:
        """Counts (n,) of the point `x` of the original problem; of columns that no point needs there are none."""
        return np.bincount(self._column_of_origin(), x[self.origin], self.cost.size).round().astype(np.int64)

    def used_by(self, counts: IntVector) -> FloatVector:
        """How much of each coupling row (m,) the counts (n,) take, of which few are not 0."""
        columns = counts.nonzero()[0]
        if self._usage is not None:
            usage = self._usage.take(columns, axis=0)
            return np.asarray((counts[columns, None] * usage if self.has_copies else usage).sum(axis=0))
        entries, count = self._entries_of(columns)
        taken = np.repeat(counts[columns], count) * self.coupling.data[entries]
        return np.asarray(np.bincount(self.coupling.indices[entries], taken, self.limit.size), dtype=np.float64)

    def usage_of(self, columns: IntVector) -> FloatMatrix:
        """Coefficients (c, m) of few columns in the coupling rows."""
        if self._usage is not None:
            return self._usage.take(columns, axis=0)
        usage = np.zeros((columns.size, self.limit.size))
        entries, count = self._entries_of(columns)
        usage[np.repeat(np.arange(columns.size), count), self.coupling.indices[entries]] = self.coupling.data[entries]
        return usage

    def _entries_of(self, columns: IntVector) -> tuple[IntVector, IntVector]:
        """Positions of the entries of columns in the coupling matrix, and how many each has. To have SciPy make a
        matrix of them takes several times as long."""
        first = self.coupling.indptr[columns].astype(np.int64)
        count = self.coupling.indptr[columns + 1] - first
        return ranges(first, count), count

    def is_of(self, problem: MatrixProblem) -> bool:
        """Whether each column of the problem costs what is said here, and takes as much of what couples, all of that
        together, weighed by chance; and what is left out gains nothing."""
        weight, taken = _weighed(problem, self.rows)
        column, cost = self._column_of_origin(), problem.sense.sign * problem.objective
        says = self.coupling @ weight
        gains = cost < 0
        gains[self.origin] = False
        return (
            self.offset == problem.sense.sign * problem.offset
            and np.array_equal(self.limit, problem.row_upper[self.rows])
            and np.array_equal(self.cost[column], cost[self.origin])
            and np.array_equal(says[column], taken[self.origin])
            and not gains.any()
        )

    def _column_of_origin(self) -> IntVector:
        """The column that stands for each of `origin`."""
        if self._column is None:
            # Of every block the columns of its class.
            first, size = self.start[:-1], self.size
            if self.has_copies:
                first, size = np.repeat(first, self.copies), np.repeat(size, self.copies)
            column = ranges(first, size)
            object.__setattr__(self, "_column", column)
            return column
        return self._column

    @property
    def highest(self) -> float:
        """No choice of all blocks costs more, be the coupling rows kept or not."""
        most = np.maximum.reduceat(self.cost, self.start[:-1])
        return self.offset + float(self.copies @ np.where(self.required, most, np.maximum(most, 0.0)))

    def refutes(self, multipliers: FloatVector, bound: float) -> bool:
        """Whether L(`multipliers`) = `bound` proves that no choice keeps the coupling rows, not even within the
        tolerance of points: all that do would cost more than the dearest choice, and more than sums may be rounded."""
        most = np.abs(self.limit)
        beyond = FEASIBILITY_TOLERANCE * np.maximum(most, 1.0)
        added = np.maximum.reduceat(np.abs(self.cost) + abs(self.coupling) @ multipliers, self.start[:-1])
        rounding = _ROUNDING * (abs(self.offset) + float(self.copies @ added + most @ multipliers))
        return bound - float(beyond @ multipliers) > self.highest + rounding

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


_with_costs = copier(ChoiceProblem, "cost", "offset")
_weights: OfUnchanged["sparse.csc_array", tuple[FloatVector, FloatVector]] = OfUnchanged()


def _weighed(problem: MatrixProblem, rows: IntVector) -> tuple[FloatVector, FloatVector]:
    """Weights of some rows (m,), by chance, and what each column (n,) takes of all these together."""
    asked = rows.tobytes()
    known = _weights.get(problem.matrix, (), asked)
    if known is None:
        weight = np.zeros(problem.num_rows)
        weight[rows] = np.random.default_rng(0).random(rows.size)
        known = weight[rows], problem.matrix.T @ weight
        _weights.put(problem.matrix, (), asked, known)
    return known


def find_structure(problem: MatrixProblem) -> ChoiceProblem | None:
    """Choice form of the problem; None when it has none, or is infeasible at sight: then it is a plain MIP."""
    if problem.choice is not None and problem.choice.is_of(problem):
        return problem.choice
    frame = _frame_of(problem)
    if frame is None:
        return None
    cost = problem.sense.sign * problem.objective
    # What gains nothing is left out where its block may choose nothing instead.
    useless = (cost >= 0) & frame.is_spare
    return _merged(cost, problem.sense.sign * problem.offset, _apart(problem, useless, frame))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Frame:
    """What the rows and bounds of a problem say. is_spare (n,): columns that free nothing, in blocks that may choose
    nothing instead. weight (3, w): by chance, for as many columns as the largest block has; use (n,): bits of what
    columns use, weighed by chance."""

    blocks: Blocks
    coupling: Coupling
    is_spare: Mask
    weight: NDArray[np.uint64]
    use: NDArray[np.uint64]


_frames: OfUnchanged["sparse.csc_array", tuple[_Frame | None]] = OfUnchanged()


def _frame_of(problem: MatrixProblem) -> _Frame | None:
    """Blocks and coupling rows; None where columns are not 0 or 1, there is nothing to choose, or too much couples."""
    same = (problem.row_lower, problem.row_upper, problem.lower, problem.upper, problem.integrality)
    known = _frames.get(problem.matrix, same)
    if known is None:
        known = (_found_frame(problem),)
        _frames.put(problem.matrix, same, None, known)
    return known[0]


def _found_frame(problem: MatrixProblem) -> _Frame | None:
    if not (problem.integrality & (problem.lower >= 0) & (problem.upper <= 1)).all():
        return None
    blocks = find_blocks(problem)
    if blocks is None or not blocks.columns.size:
        return None
    coupling = coupling_rows(problem, blocks.entries, blocks.rows)
    if coupling is None:
        return None
    is_spare = ~blocks.required[blocks.block]
    negative = np.flatnonzero(coupling.matrix.data < 0)
    is_spare[np.searchsorted(coupling.matrix.indptr, negative, side="right") - 1] = False
    random = np.random.default_rng(0)
    largest = int(np.bincount(blocks.block[blocks.columns]).max())
    return _Frame(
        blocks=blocks,
        coupling=coupling,
        is_spare=is_spare,
        weight=random.integers(2**64, size=(3, largest), dtype=np.uint64),
        use=_bits(coupling.matrix @ random.random(coupling.rows.size)),
    )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Apart:
    """The columns that may be of use, block by block, before equal blocks are merged: `choice` is theirs, but for
    costs and offset. block_size, block_start (K,): columns of each block, from which position on. weight, mark (n,):
    what costs are weighed by in signatures of blocks, and what uses add to them; block_mark (K,): what blocks do."""

    choice: ChoiceProblem
    block_start: IntVector
    weight: NDArray[np.uint64]
    mark: NDArray[np.uint64]
    block_mark: NDArray[np.uint64]


_aparts: OfUnchanged["sparse.csc_array", _Apart] = OfUnchanged()


def _apart(problem: MatrixProblem, useless: Mask, frame: _Frame) -> _Apart:
    """The columns by block, without those that are `useless` (n,), unless all are."""
    asked = useless.tobytes()
    known = _aparts.get(problem.matrix, (frame,), asked)
    if known is None:
        columns = frame.blocks.columns
        kept = columns[~useless[columns]]
        known = _found_apart(problem, kept if kept.size else columns, frame)
        _aparts.put(problem.matrix, (frame,), asked, known)
    return known


def _found_apart(problem: MatrixProblem, columns: IntVector, frame: _Frame) -> _Apart:
    coupling, blocks = frame.coupling, frame.blocks
    columns = columns[np.argsort(blocks.block[columns], kind="stable")]
    block = blocks.block[columns]
    is_all = columns.size == problem.num_columns and (np.diff(columns) == 1).all()
    first = np.flatnonzero(np.diff(block, prepend=-1))
    size = np.diff(first, append=block.size)
    required = blocks.required[block[first]]
    offset = np.arange(columns.size) - np.repeat(first, size)
    choice = ChoiceProblem(
        cost=np.zeros(columns.size),
        start=np.append(first, columns.size),
        copies=np.ones(first.size, dtype=np.int64),
        required=required,
        coupling=coupling.matrix if is_all else rows_of(coupling.matrix, columns),
        limit=coupling.limit,
        rows=coupling.rows,
        offset=0.0,
        class_of=np.repeat(np.arange(first.size), size),
        origin=columns,
        origin_start=first,
    )
    choice.keep()
    return _Apart(
        choice=choice,
        block_start=first,
        weight=frame.weight[0, offset],
        mark=frame.use[columns] * frame.weight[1, offset],
        block_mark=frame.weight[2, size - 1] + required,
    )


def _bits(values: FloatVector) -> NDArray[np.uint64]:
    """The bits of numbers, in reverse by bytes. Adding zero makes one of both zeros."""
    return np.asarray((values + 0.0).view(np.uint64).byteswap())


def _merged(cost: FloatVector, offset: float, apart: _Apart) -> ChoiceProblem:
    """Choice problem over the columns of those that cost (n,), with equal blocks as one class."""
    choice, first = apart.choice, apart.block_start
    cost = cost[choice.origin]
    # Equal blocks have equal costs.
    if not _has_twins(np.minimum.reduceat(cost, first)):
        return choice.with_costs(cost, offset)
    key = np.add.reduceat(_bits(cost) * apart.weight + apart.mark, first) + apart.block_mark
    if not _has_twins(key):
        return choice.with_costs(cost, offset)
    class_of_block, representative = _classes(cost, key, apart)
    if representative.size == first.size:
        return choice.with_costs(cost, offset)
    columns, required, matrix, size = choice.origin, choice.required, choice.coupling, choice.size
    is_kept = np.zeros(first.size, dtype=np.bool_)
    is_kept[representative] = True
    kept = np.flatnonzero(np.repeat(is_kept, size))
    copies = np.bincount(class_of_block)
    # Blocks class by class, their columns one behind the other.
    grouped = np.argsort(class_of_block, kind="stable")
    width = size[grouped]
    within = np.arange(columns.size) - np.repeat(np.cumsum(width) - width, width)
    taken = copies * size[representative]
    return ChoiceProblem(
        cost=cost[kept],
        start=np.concatenate([[0], np.cumsum(size[representative])]),
        copies=copies,
        required=required[representative],
        coupling=sparse.csr_array(matrix[kept]),
        limit=choice.limit,
        rows=choice.rows,
        offset=offset,
        class_of=np.repeat(np.arange(copies.size), size[representative]),
        origin=columns[np.repeat(first[grouped], width) + within],
        origin_start=np.cumsum(taken) - taken,
    )


def _has_twins(key: NDArray[Any]) -> bool:
    ordered = np.sort(key)
    return not all_of(ordered[1:] != ordered[:-1])


def _classes(cost: FloatVector, key: NDArray[np.uint64], apart: _Apart) -> tuple[IntVector, IntVector]:
    """Class of every block, numbered by first appearance, and the first block of every class, by signatures (K,).

    Equality is guessed by a signature and then verified. It is one of bits, as sums of floats are the same for costs
    that differ by rounding; and of bytes in reverse, as of round numbers only the high ones differ, which a sum modulo
    2^64 would all but lose.
    """
    first, size, required = apart.block_start, apart.choice.size, apart.choice.required
    _, appearance, guess = np.unique(key, return_index=True, return_inverse=True)
    order = np.argsort(appearance)
    rank = np.empty(order.size, dtype=np.int64)
    rank[order] = np.arange(order.size)
    class_of_block, representative = rank[guess], appearance[order]
    twin = representative[class_of_block]
    are_alike = (size == size[twin]).all() and (required == required[twin]).all()
    if are_alike and _are_equal(cost, apart.choice.coupling, first, size, twin):
        return class_of_block, representative
    # Two blocks share a signature by chance: nothing is merged.
    return np.arange(first.size), np.arange(first.size)


def _are_equal(
    cost: FloatVector, matrix: "sparse.csr_array", first: IntVector, size: IntVector, twin: IntVector
) -> bool:
    """Whether every block equals its twin, which has as many columns."""
    apart = np.flatnonzero(twin != np.arange(first.size))
    other = twin[apart]
    own, others = ranges(first[apart], size[apart]), ranges(first[other], size[apart])
    if not (cost[own] == cost[others]).all():
        return False
    entries = np.diff(matrix.indptr)
    if not (entries[own] == entries[others]).all():
        return False
    # The entries of a block are one behind the other, too.
    heads, count = matrix.indptr[first].astype(np.int64), np.add.reduceat(entries, first)[apart]
    own, others = ranges(heads[apart], count), ranges(heads[other], count)
    are_same = (matrix.indices[own] == matrix.indices[others]) & (matrix.data[own] == matrix.data[others])
    return bool(are_same.all())
