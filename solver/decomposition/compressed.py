"""Parts of compressed matrices, by index arrays: SciPy takes several times as long for few."""

import numpy as np
from scipy import sparse

from stowplan.arrays import IntVector


def rows_of(matrix: "sparse.csr_array", rows: IntVector) -> "sparse.csr_array":
    """Some rows (k,) of a matrix, in this order: CSR."""
    first = matrix.indptr[rows].astype(np.int64)
    count = matrix.indptr[rows + 1] - first
    entries = ranges(first, count)
    heads = np.concatenate([[0], np.cumsum(count)])
    return sparse.csr_array(
        (matrix.data[entries], matrix.indices[entries], heads.astype(matrix.indptr.dtype)),
        shape=(rows.size, matrix.shape[1]),
    )


def ranges(start: IntVector, size: IntVector) -> IntVector:
    """The numbers from each start on, so many."""
    return np.asarray(np.arange(int(size.sum())) + np.repeat(start - (np.cumsum(size) - size), size))
