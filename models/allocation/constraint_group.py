"""Rows of one kind, on their way into a matrix."""

from dataclasses import dataclass

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
