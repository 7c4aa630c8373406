"""A sparse matrix as a product that is never made: of many rows whose entries repeat one another."""

from dataclasses import dataclass

import numpy as np
from scipy import sparse

from stowplan.arrays import FloatVector, IntVector, Mask


@dataclass(frozen=True, slots=True, eq=False)
class Factored:
    """`first` (n, q) times `second` (q, m), without negative numbers: what `sift` asks of a coupling."""

    first: "sparse.csr_array | sparse.csc_array"
    second: "sparse.csr_array | sparse.csc_array"

    def __matmul__(self, right: FloatVector) -> FloatVector:
        return np.asarray(self.first @ (self.second @ right))

    def __getitem__(self, rows: IntVector | Mask) -> "sparse.csr_array":
        return sparse.csr_array(self.first[rows] @ self.second)

    def __abs__(self) -> "Factored":
        return self

    @property
    def T(self) -> "Factored":  # noqa: N802 - as arrays have it
        """Transposed (m, n)."""
        return Factored(self.second.T, self.first.T)
