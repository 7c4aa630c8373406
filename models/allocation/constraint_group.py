"""Rows of one kind, and all of them as the rows of a matrix."""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from scipy import sparse

from stowplan.arrays import FloatVector


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ConstraintGroup:
    """Rows `matrix x <= limits` (or `== limits`) of one kind: CSR (m, P), limits (m,), m names."""

    label: str
    matrix: "sparse.csr_array"
    limits: FloatVector
    is_equality: bool
    row_names: tuple[str, ...]


def stacked(groups: Iterable[ConstraintGroup], num_columns: int) -> tuple["sparse.csc_array", FloatVector, FloatVector]:
    """All rows (m, n) one below the other, their lower and their upper limits (m,)."""
    known = list(groups)
    # Rows one below the other are an append; sorting all entries by column at once takes three times as long.
    matrix = sparse.vstack([sparse.csr_array((0, num_columns)), *(group.matrix for group in known)], format="csr")
    lower = [group.limits if group.is_equality else np.full(group.limits.size, -np.inf) for group in known]
    upper = [group.limits for group in known]
    return (
        sparse.csc_array(matrix.tocsc()),
        np.concatenate([np.zeros(0), *lower]),
        np.concatenate([np.zeros(0), *upper]),
    )
