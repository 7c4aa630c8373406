"""The program's rows as arrays: shared by the declared model and by the direct way to the matrix form.

Declaring in CVXPY and compiling costs more than solving; `assemble` gives the same matrix form without names, and
tests compare the two. See `models.allocation.sia.formulation` for the mathematics.
"""

from collections.abc import Iterator

import numpy as np
from scipy import sparse

from models.allocation.constraint_group import ConstraintGroup
from models.allocation.sia.instance import SiaInstance
from solver.problem import MatrixProblem
from stowplan.arrays import IntVector


def constraint_groups(instance: SiaInstance) -> Iterator[ConstraintGroup]:
    """Every group of constraints that is not empty."""
    choosing, used = _choosing(instance), _used(instance)
    if choosing.size:
        yield _one_per_job(instance, "one_configuration", choosing, is_equality=False)
    if instance.reserved.size:
        yield _one_per_job(instance, "reserved", instance.reserved, is_equality=True)
    if used.size:
        # Few rows, many pairs: gathering columns of a transposed matrix copies whole lines.
        by_configuration = sparse.csr_array(instance.rows.coefficients[used].T.astype(np.float64))
        yield ConstraintGroup(
            label="placeable",
            matrix=sparse.csr_array(by_configuration[instance.pair_configurations].T),
            limits=instance.rows.limits[used].astype(np.float64),
            is_equality=False,
            row_names=tuple(instance.rows.names[k] for k in used),
        )


def row_names(instance: SiaInstance) -> tuple[str, ...]:
    """Names of the rows that `assemble` makes, in its order, without making them."""
    return (
        *_names(instance, "one_configuration", _choosing(instance)),
        *_names(instance, "reserved", instance.reserved),
        *capacity_names(instance),
    )


def capacity_names(instance: SiaInstance) -> tuple[str, ...]:
    """Names of the last rows that `assemble` makes, those of what is scarce."""
    return tuple(instance.rows.names[k] for k in _used(instance).tolist())


def column_names(instance: SiaInstance) -> tuple[str, ...]:
    """`x[job,(nodes,gpus,type)]` for every pair."""
    labels = [instance.configurations.label(c) for c in range(len(instance.configurations))]
    ids = [job.id for job in instance.jobs]
    pairs = zip(instance.pair_jobs.tolist(), instance.pair_configurations.tolist(), strict=True)
    return tuple(f"x[{ids[i]},{labels[c]}]" for i, c in pairs)


def assemble(instance: SiaInstance) -> MatrixProblem:
    """The program in matrix form, without names."""
    num_pairs = instance.pair_jobs.size
    choosing, reserved, used = _choosing(instance), instance.reserved, _used(instance)
    # A reserved job without any pair leaves an empty row that cannot be 1.
    of_jobs, limits = np.concatenate([choosing, reserved]), instance.rows.limits[used].astype(np.float64)
    return MatrixProblem(
        name="sia",
        sense=instance.sense,
        objective=instance.gain,
        offset=instance.constant,
        matrix=_matrix(instance, of_jobs, used),
        row_lower=np.concatenate(
            [np.full(choosing.size, -np.inf), np.ones(reserved.size), np.full(used.size, -np.inf)]
        ),
        row_upper=np.concatenate([np.ones(of_jobs.size), limits]),
        lower=np.zeros(num_pairs),
        upper=np.ones(num_pairs),
        integrality=np.ones(num_pairs, dtype=np.bool_),
    )


def _matrix(instance: SiaInstance, of_jobs: IntVector, used: IntVector) -> "sparse.csc_array":
    """The rows of the jobs `of_jobs`, one each, and below them the placeability rows `used`: a column has the one of
    its job, and those of its configuration, which are few."""
    jobs, configurations = instance.pair_jobs, instance.pair_configurations
    row_of = np.full(len(instance.jobs), -1)
    row_of[of_jobs] = np.arange(of_jobs.size)
    own, below = row_of[jobs], sparse.csc_array(instance.rows.coefficients[used])
    size = np.diff(below.indptr).astype(np.int64)
    heads = np.concatenate([[0], np.cumsum((own >= 0) + size[configurations])])
    indices, data = np.empty(heads[-1], dtype=np.int64), np.ones(heads[-1])
    first = heads[:-1]
    indices[first[own >= 0]] = own[own >= 0]
    first = first + (own >= 0)
    # The k-th coefficient of all columns at once: a configuration has no more than its blocks have sizes.
    for k in range(int(size.max(initial=0))):
        has = np.flatnonzero(size[configurations] > k)
        source = below.indptr[configurations[has]] + k
        indices[first[has] + k] = of_jobs.size + below.indices[source]
        data[first[has] + k] = below.data[source]
    return sparse.csc_array((data, indices, heads), shape=(of_jobs.size + used.size, jobs.size))


def _choosing(instance: SiaInstance) -> IntVector:
    """Jobs with several pairs, of which they get one at most."""
    is_choosing = np.bincount(instance.pair_jobs, minlength=len(instance.jobs)) > 1
    is_choosing[instance.reserved] = False
    return np.flatnonzero(is_choosing)


def _used(instance: SiaInstance) -> IntVector:
    """Placeability rows with a coefficient: a type that no pair uses has nothing to limit."""
    offered = np.bincount(instance.pair_configurations, minlength=len(instance.configurations)) > 0
    return np.flatnonzero((instance.rows.coefficients[:, offered] != 0).any(axis=1))


def _names(instance: SiaInstance, label: str, jobs: IntVector) -> tuple[str, ...]:
    return tuple(f"{label}[{instance.jobs[i].id}]" for i in jobs.tolist())


def _one_per_job(instance: SiaInstance, label: str, jobs: IntVector, *, is_equality: bool) -> ConstraintGroup:
    """One row of ones over the pairs of each job; jobs ascend, and pairs are ordered by job."""
    size = np.bincount(instance.pair_jobs, minlength=len(instance.jobs))
    is_chosen = np.zeros(len(instance.jobs), dtype=np.bool_)
    is_chosen[jobs] = True
    columns = np.flatnonzero(is_chosen[instance.pair_jobs])
    heads = np.concatenate([[0], np.cumsum(size[jobs])])
    return ConstraintGroup(
        label=label,
        matrix=sparse.csr_array((np.ones(columns.size), columns, heads), shape=(jobs.size, instance.pair_jobs.size)),
        limits=np.ones(jobs.size),
        is_equality=is_equality,
        row_names=_names(instance, label, jobs),
    )
