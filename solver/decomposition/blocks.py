"""Blocks that choose, and the rows that couple them, as the rows and bounds of a problem have them."""

from dataclasses import dataclass

import numpy as np
from scipy import sparse

from solver.problem import MatrixProblem
from stowplan.arrays import FloatVector, IntVector, Mask

# Newton's matrix is dense in the coupling rows; beyond this many the structure is not what this is made for.
MAX_COUPLING_ROWS = 64


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Coupling:
    """Coupling rows in the form `matrix' x <= limit`: CSR (n, m), limit (m,), rows (m,)."""

    matrix: "sparse.csr_array"
    limit: FloatVector
    rows: IntVector


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Entries:
    """Nonzeros of the problem's matrix, column by column, rows ascending: row, column, value (nnz,)."""

    row: IntVector
    column: IntVector
    value: FloatVector


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Blocks:
    """rows: those that choose. block (n,): of every column, of one without such a row a block of its own; required: the
    blocks that must choose. columns: those that bounds let be chosen, ascending. entries: what was looked at."""

    rows: IntVector
    block: IntVector
    required: Mask
    columns: IntVector
    entries: Entries


def find_blocks(problem: MatrixProblem) -> Blocks | None:
    """Blocks of a problem whose columns are 0 or 1; None where bounds leave one nothing, or want two of its columns."""
    entries = _entries(problem)
    rows = _choice_rows(problem, entries)
    block = np.full(problem.num_columns, -1)
    number, kept = _numbered(rows, 0, entries, problem.num_rows)
    block[entries.column[kept]] = number
    alone = np.flatnonzero(block < 0)
    block[alone] = rows.size + np.arange(alone.size)
    fixed = np.flatnonzero(problem.lower > 0)
    is_settled = np.zeros(rows.size + alone.size, dtype=np.bool_)
    is_settled[block[fixed]] = True
    if np.count_nonzero(is_settled) < fixed.size:
        return None
    required = is_settled.copy()
    required[: rows.size] |= problem.row_lower[rows] > 0
    columns = np.flatnonzero((problem.upper > 0) & (~is_settled[block] | (problem.lower > 0)))
    can_choose = np.bincount(block[columns], minlength=required.size) > 0
    if not can_choose[required].all():
        return None
    return Blocks(rows=rows, block=block, required=required, columns=columns, entries=entries)


def _entries(problem: MatrixProblem) -> Entries:
    matrix = problem.matrix if problem.matrix.has_sorted_indices else problem.matrix.sorted_indices()
    column = np.repeat(np.arange(problem.num_columns), np.diff(matrix.indptr))
    return Entries(row=matrix.indices.astype(np.int64), column=column, value=matrix.data)


def _choice_rows(problem: MatrixProblem, entries: Entries) -> IntVector:
    """Indices of disjoint choice rows. Where rows that look like one overlap the earlier ones choose."""
    size = np.bincount(entries.row, minlength=problem.num_rows)
    num_ones = np.bincount(entries.row[entries.value == 1], minlength=problem.num_rows)
    trivial_below = (problem.row_lower <= 0) | (problem.row_lower == 1)
    is_chosen = (size > 0) & (num_ones == size) & (problem.row_upper == 1) & trivial_below
    chosen = np.flatnonzero(is_chosen)
    if (np.bincount(entries.column[is_chosen[entries.row]], minlength=problem.num_columns) <= 1).all():
        return chosen
    rows = problem.matrix.tocsr()
    taken = np.zeros(problem.num_columns, dtype=np.bool_)
    disjoint = []
    for row in chosen.tolist():
        columns = rows.indices[rows.indptr[row] : rows.indptr[row + 1]]
        if not taken[columns].any():
            taken[columns] = True
            disjoint.append(row)
    return np.array(disjoint, dtype=np.int64)


def coupling_rows(problem: MatrixProblem, entries: Entries, choice: IntVector) -> Coupling | None:
    """All other rows; None when they are too many."""
    is_other = np.ones(problem.num_rows, dtype=np.bool_)
    is_other[choice] = False
    above = np.flatnonzero(is_other & np.isfinite(problem.row_upper))
    below = np.flatnonzero(is_other & np.isfinite(problem.row_lower))
    rows = np.concatenate([above, below])
    if rows.size > MAX_COUPLING_ROWS:
        return None
    number, kept = _numbered(above, 0, entries, problem.num_rows)
    column, value = entries.column[kept], entries.value[kept]
    if below.size:
        mirrored, kept = _numbered(below, above.size, entries, problem.num_rows)
        number, value = np.concatenate([number, mirrored]), np.concatenate([value, -entries.value[kept]])
        column = np.concatenate([column, entries.column[kept]])
        order = np.argsort(column, kind="stable")
        number, column, value = number[order], column[order], value[order]
    heads = np.concatenate([[0], np.cumsum(np.bincount(column, minlength=problem.num_columns))])
    return Coupling(
        matrix=sparse.csr_array((value, number, heads), shape=(problem.num_columns, rows.size)),
        limit=np.concatenate([problem.row_upper[above], -problem.row_lower[below]]),
        rows=rows,
    )


def _numbered(rows: IntVector, first: int, entries: Entries, num_rows: int) -> tuple[IntVector, IntVector]:
    """Numbers `first`, `first` + 1, ... of the rows of those entries that are in one of `rows`, and these entries."""
    number = np.full(num_rows, -1)
    number[rows] = first + np.arange(rows.size)
    every = number[entries.row]
    kept = np.flatnonzero(every >= 0)
    return every[kept], kept
