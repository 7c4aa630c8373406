"""The program's rows as arrays: shared by the declared model and by the direct way to the matrix form.

`assemble` gives the matrix form that CVXPY would compile, without names and in a fraction of the time; tests compare
the two. See `models.allocation.arena.formulation` for the mathematics.
"""

from collections.abc import Iterator

import numpy as np
from scipy import sparse

from models.allocation.arena.instance import ArenaInstance
from models.allocation.constraint_group import ConstraintGroup, stacked
from solver.problem import MatrixProblem
from stowplan.arrays import FloatVector, IntVector, Mask

Matrix = sparse.csr_array


def constraint_groups(instance: ArenaInstance) -> Iterator[ConstraintGroup]:
    """Every group of constraints that is not empty. The last column is theta where there is one."""
    yield from _one_per_job(instance, "one_configuration", choosing(instance), is_equality=False)
    yield from _one_per_job(instance, "launched", instance.launched & ~instance.reserved, is_equality=True)
    yield from _one_per_job(instance, "reserved", instance.reserved, is_equality=True)
    yield from _placeable(instance)
    if has_theta(instance):
        yield _finish_times(instance)


def choosing(instance: ArenaInstance) -> Mask:
    """Jobs (J,) with a row `one_configuration`, which come first."""
    num_pairs = np.bincount(instance.pair_jobs, minlength=len(instance.jobs))
    return np.asarray((num_pairs > 1) & ~instance.required)


def row_names(instance: ArenaInstance) -> tuple[str, ...]:
    """Names of the rows that `assemble` makes, in its order."""
    return tuple(name for group in constraint_groups(instance) for name in group.row_names)


def column_names(instance: ArenaInstance) -> tuple[str, ...]:
    """`x[job,(nodes,gpus,type)]` for every pair, then `theta` where there is one."""
    labels = [instance.configurations.label(c) for c in range(len(instance.configurations))]
    ids = [job.id for job in instance.jobs]
    pairs = zip(instance.pair_jobs.tolist(), instance.pair_configurations.tolist(), strict=True)
    names = [f"x[{ids[i]},{labels[c]}]" for i, c in pairs]
    return (*names, "theta") if has_theta(instance) else tuple(names)


def has_theta(instance: ArenaInstance) -> bool:
    """Whether the problem has the column theta of Eq. 7, behind those of the pairs."""
    return instance.is_min_max and instance.pair_jobs.size > 0


def baseline(instance: ArenaInstance) -> FloatVector:
    """Worth (J,) of a job whose x are all 0: 0 where that cannot be, or the plan does not decide."""
    return np.where(instance.counted & ~instance.required, instance.utility.waiting, 0.0)


def objective(instance: ArenaInstance) -> tuple[FloatVector, float]:
    """Coefficients (n,) of the columns, and the constant."""
    change = instance.pair_values - baseline(instance)[instance.pair_jobs]
    if not instance.is_min_max:
        return change, sum(instance.pinned_score(int(i)) for i in np.flatnonzero(instance.pinned))
    theta = np.ones(int(has_theta(instance)))
    share = instance.mean_share
    return np.concatenate([share * change, theta]), share * float(baseline(instance).sum())


def assemble(instance: ArenaInstance) -> MatrixProblem:
    """The program in matrix form, without names."""
    gain, constant = objective(instance)
    num_pairs = instance.pair_jobs.size
    is_pair = np.arange(gain.size) < num_pairs
    matrix, row_lower, row_upper = stacked(constraint_groups(instance), gain.size)
    return MatrixProblem(
        name="arena",
        sense=instance.sense,
        objective=gain,
        offset=constant,
        matrix=matrix,
        row_lower=row_lower,
        row_upper=row_upper,
        lower=np.zeros(gain.size),
        upper=np.where(is_pair, 1.0, np.inf),
        integrality=is_pair,
    )


def _one_per_job(instance: ArenaInstance, label: str, chosen: Mask, *, is_equality: bool) -> Iterator[ConstraintGroup]:
    """One row of ones over the pairs of each chosen job; nothing when there are none."""
    jobs = np.flatnonzero(chosen)
    if not jobs.size:
        return
    rows = np.searchsorted(jobs, instance.pair_jobs)
    columns = np.flatnonzero(chosen[instance.pair_jobs])
    yield ConstraintGroup(
        label=label,
        matrix=_rows(instance, np.ones(columns.size), rows[columns], columns, jobs.size),
        limits=np.ones(jobs.size),
        is_equality=is_equality,
        row_names=tuple(f"{label}[{instance.jobs[i].id}]" for i in jobs.tolist()),
    )


def _placeable(instance: ArenaInstance) -> Iterator[ConstraintGroup]:
    """Rows of `models.placement.placeability` that some pair uses."""
    coefficients = instance.rows.coefficients[:, instance.pair_configurations]
    used = np.flatnonzero(coefficients.any(axis=1))
    if not used.size:
        return
    rows, columns = np.nonzero(coefficients[used])
    yield ConstraintGroup(
        label="placeable",
        matrix=_rows(instance, coefficients[used][rows, columns].astype(np.float64), rows, columns, used.size),
        limits=instance.rows.limits[used].astype(np.float64),
        is_equality=False,
        row_names=tuple(instance.rows.names[k] for k in used),
    )


def _finish_times(instance: ArenaInstance) -> ConstraintGroup:
    """Rows of Eq. 7: the cost of every counted job is at most theta."""
    jobs = np.flatnonzero(instance.counted)
    base = baseline(instance)
    values = instance.pair_values - base[instance.pair_jobs]
    nonzero = np.flatnonzero(values)
    rows = np.searchsorted(jobs, instance.pair_jobs)[nonzero]
    theta = np.full(jobs.size, instance.pair_jobs.size)
    matrix = _rows(
        instance,
        np.concatenate([values[nonzero], -np.ones(jobs.size)]),
        np.concatenate([rows, np.arange(jobs.size)]),
        np.concatenate([nonzero, theta]),
        jobs.size,
    )
    return ConstraintGroup(
        label="finish_time",
        matrix=matrix,
        limits=-base[jobs],
        is_equality=False,
        row_names=tuple(f"finish_time[{instance.jobs[i].id}]" for i in jobs.tolist()),
    )


def _rows(instance: ArenaInstance, values: FloatVector, rows: IntVector, columns: IntVector, num_rows: int) -> Matrix:
    shape = (num_rows, instance.pair_jobs.size + int(has_theta(instance)))
    return Matrix((values, (rows, columns)), shape=shape)
