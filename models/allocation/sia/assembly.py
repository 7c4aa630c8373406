"""The program's rows as arrays: shared by the declared model and by the direct way to the matrix form.

Declaring in CVXPY and compiling costs more than solving; `assemble` gives the same matrix form without names, and
tests compare the two. See `models.allocation.sia.formulation` for the mathematics.
"""

from collections.abc import Iterator

import numpy as np
from scipy import sparse

from models.allocation.constraint_group import ConstraintGroup, stacked
from models.allocation.sia.instance import SiaInstance
from solver.problem import MatrixProblem
from stowplan.arrays import IntVector


def constraint_groups(instance: SiaInstance) -> Iterator[ConstraintGroup]:
    """Every group of constraints that is not empty."""
    num_pairs = np.bincount(instance.pair_jobs, minlength=len(instance.jobs))
    choosing = np.setdiff1d(np.flatnonzero(num_pairs > 1), instance.reserved)
    if choosing.size:
        yield _one_per_job(instance, "one_configuration", choosing, is_equality=False)
    if instance.reserved.size:
        yield _one_per_job(instance, "reserved", instance.reserved, is_equality=True)
    # Few rows, many pairs: gathering columns of a transposed matrix copies whole lines.
    by_configuration = sparse.csr_array(instance.rows.coefficients.T.astype(np.float64))
    matrix = sparse.csr_array(by_configuration[instance.pair_configurations].T)
    # A type that no pair uses has nothing to limit.
    used = np.flatnonzero(np.diff(matrix.indptr))
    if used.size:
        yield ConstraintGroup(
            label="placeable",
            matrix=matrix[used],
            limits=instance.rows.limits[used].astype(np.float64),
            is_equality=False,
            row_names=tuple(instance.rows.names[k] for k in used),
        )


def row_names(instance: SiaInstance) -> tuple[str, ...]:
    """Names of the rows that `assemble` makes, in its order."""
    return tuple(name for group in constraint_groups(instance) for name in group.row_names)


def column_names(instance: SiaInstance) -> tuple[str, ...]:
    """`x[job,(nodes,gpus,type)]` for every pair."""
    labels = [instance.configurations.label(c) for c in range(len(instance.configurations))]
    ids = [job.id for job in instance.jobs]
    pairs = zip(instance.pair_jobs.tolist(), instance.pair_configurations.tolist(), strict=True)
    return tuple(f"x[{ids[i]},{labels[c]}]" for i, c in pairs)


def assemble(instance: SiaInstance) -> MatrixProblem:
    """The program in matrix form, without names."""
    num_pairs = instance.pair_jobs.size
    # A reserved job without any pair leaves an empty row that cannot be 1.
    matrix, row_lower, row_upper = stacked(constraint_groups(instance), num_pairs)
    return MatrixProblem(
        name="sia",
        sense=instance.sense,
        objective=instance.gain,
        offset=instance.constant,
        matrix=matrix,
        row_lower=row_lower,
        row_upper=row_upper,
        lower=np.zeros(num_pairs),
        upper=np.ones(num_pairs),
        integrality=np.ones(num_pairs, dtype=np.bool_),
    )


def _one_per_job(instance: SiaInstance, label: str, jobs: IntVector, *, is_equality: bool) -> ConstraintGroup:
    """One row of ones over the pairs of each job."""
    row_of = np.full(len(instance.jobs), -1, dtype=np.int64)
    row_of[jobs] = np.arange(jobs.size)
    rows = row_of[instance.pair_jobs]
    columns = np.flatnonzero(rows >= 0)
    shape = (jobs.size, rows.size)
    return ConstraintGroup(
        label=label,
        matrix=sparse.csr_array((np.ones(columns.size), (rows[columns], columns)), shape=shape),
        limits=np.ones(jobs.size),
        is_equality=is_equality,
        row_names=tuple(f"{label}[{instance.jobs[i].id}]" for i in jobs),
    )
