"""The program's rows as arrays: shared by the declared model and by the direct way to the matrix form.

See `models.allocation.horizon.formulation` for the mathematics. Columns are the schedules, then the pairs, then those
of the tail, if it is asked for.
"""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
from scipy import sparse

from models.allocation.constraint_group import ConstraintGroup, stacked
from models.allocation.horizon.instance import HorizonInstance
from solver.problem import MatrixProblem
from stowplan.arrays import FloatVector, IntVector, Mask

# Relative: sums of times differ in their last digits.
_ROUNDING = 1.0 + 1e-9


def constraint_groups(instance: HorizonInstance) -> Iterator[ConstraintGroup]:
    """Every group of constraints that is not empty."""
    found, num_pairs, num_tail = instance.schedules, instance.pair_jobs.size, instance.num_tail
    ids = [job.id for job in instance.jobs]
    columns = np.arange(len(found))
    planned = instance.sia.planned
    if planned.size:
        row_of = np.full(len(ids), -1, dtype=np.int64)
        row_of[planned] = np.arange(planned.size)
        yield ConstraintGroup(
            label="one_schedule",
            matrix=_ones(row_of[found.job], columns, (planned.size, len(found) + num_pairs + num_tail)),
            limits=np.ones(planned.size),
            is_equality=True,
            row_names=tuple(f"one_schedule[{ids[i]}]" for i in planned.tolist()),
        )
    if num_pairs:
        begins = columns[found.pair >= 0]
        yield ConstraintGroup(
            label="now",
            matrix=_beside(
                _ones(found.pair[begins], begins, (num_pairs, len(found))),
                sparse.csr_array(-sparse.eye_array(num_pairs)),
                sparse.csr_array((num_pairs, num_tail)),
            ),
            limits=np.zeros(num_pairs),
            is_equality=True,
            row_names=tuple(f"now[{name}]" for name in pair_names(instance)),
        )
    yield from _placeable(instance)
    yield from _capacity(instance)
    yield from _tail(instance)


def row_names(instance: HorizonInstance) -> tuple[str, ...]:
    """Names of the rows that `assemble` makes, in its order."""
    return tuple(name for group in constraint_groups(instance) for name in group.row_names)


def pair_names(instance: HorizonInstance) -> tuple[str, ...]:
    """`job,(nodes,gpus,type)` of every pair."""
    labels = [instance.sia.configurations.label(c) for c in range(len(instance.sia.configurations))]
    pairs = zip(instance.pair_jobs.tolist(), instance.pair_configurations.tolist(), strict=True)
    return tuple(f"{instance.jobs[i].id},{labels[c]}" for i, c in pairs)


def column_names(instance: HorizonInstance) -> tuple[str, ...]:
    """`y[job,now,later@interval]`, `-` where there is nothing, and `x[pair]`."""
    configurations, found = instance.sia.configurations, instance.schedules
    labels = [*(configurations.label(c) for c in range(len(configurations))), "-"]
    fields = (found.job, found.now, found.later, found.at)
    names = [
        f"y[{instance.jobs[i].id},{labels[now]}{f',{labels[later]}@{at}' if at else ''}]"
        for i, now, later, at in zip(*(field.tolist() for field in fields), strict=True)
    ]
    tail = ("z", *(f"u[{job.id}]" for job in instance.jobs)) if instance.num_tail else ()
    return (*names, *(f"x[{name}]" for name in pair_names(instance)), *tail)


def assemble(instance: HorizonInstance) -> MatrixProblem:
    """The program in matrix form, without names."""
    num_pairs, num_schedules, num_tail = instance.pair_jobs.size, len(instance.schedules), instance.num_tail
    num_columns = num_schedules + num_pairs + num_tail
    matrix, row_lower, row_upper = stacked(constraint_groups(instance), num_columns)
    columns = np.arange(num_columns)
    return MatrixProblem(
        name="horizon",
        sense=instance.sense,
        objective=column_costs(instance),
        offset=instance.offset,
        matrix=matrix,
        row_lower=row_lower,
        row_upper=row_upper,
        lower=np.zeros(num_columns),
        upper=np.where(columns < num_schedules + num_pairs, 1.0, tail_most(instance)),
        integrality=(columns >= num_schedules) & (columns < num_schedules + num_pairs),
    )


def column_costs(instance: HorizonInstance) -> FloatVector:
    """What each column costs."""
    return np.concatenate([instance.cost, np.zeros(instance.pair_jobs.size), _tail_cost(instance)])


def tail_most(instance: HorizonInstance) -> float:
    """Upper bound on the columns of the tail: with rounding, so that no time is above it."""
    tail = instance.objective.tail
    return 0.0 if tail is None else max(1.0, tail.most_s * _ROUNDING)


def relaxation(instance: HorizonInstance) -> MatrixProblem:
    """The linear relaxation without the pairs, which are sums of schedules: rows `one_schedule`, those that make the
    present placeable, `capacity[type]@k` and `tail[job]`, all of them. Columns of the tail are counted in their upper
    bound, so that all columns lie in [0, 1]."""
    found, planned, rows = instance.schedules, instance.sia.planned, instance.sia.rows
    row_of = np.full(len(instance.jobs), -1, dtype=np.int64)
    row_of[planned] = np.arange(planned.size)
    columns = np.arange(len(found))
    begins = columns[found.pair >= 0]
    of_pair = sparse.csr_array(rows.coefficients[:, instance.pair_configurations].astype(np.float64))
    matrix = sparse.vstack(
        [
            _ones(row_of[found.job], columns, (planned.size, len(found))),
            of_pair @ _ones(found.pair[begins], begins, (instance.pair_jobs.size, len(found))),
            found.use,
        ],
        format="csc",
    )
    limits = np.concatenate([np.ones(planned.size), rows.limits, instance.open_gpus[:, 1:].ravel()])
    most_s = tail_most(instance)
    objective, num_columns = np.concatenate([instance.cost, most_s * _tail_cost(instance)]), len(found)
    for group in _tail(instance):
        num_columns += instance.num_tail
        times, excess = group.matrix[:, : len(found)], most_s * group.matrix[:, -instance.num_tail :]
        matrix = sparse.block_array([[matrix, None], [times, excess]], format="csc")
        limits = np.concatenate([limits, group.limits])
    return MatrixProblem(
        name="horizon-relaxed",
        sense=instance.sense,
        objective=objective,
        offset=instance.offset,
        matrix=sparse.csc_array(matrix),
        row_lower=np.where(np.arange(limits.size) < planned.size, limits, -np.inf),
        row_upper=limits,
        lower=np.zeros(num_columns),
        upper=np.ones(num_columns),
        integrality=np.zeros(num_columns, dtype=np.bool_),
    )


def restricted(problem: MatrixProblem, instance: HorizonInstance, kept: Mask) -> tuple[MatrixProblem, IntVector]:
    """The program over the schedules `kept` (S,), the pairs that these begin with and the tail, and its columns among
    those of the program."""
    found = instance.schedules
    pairs = np.unique(found.pair[kept])
    tail = len(found) + instance.pair_jobs.size + np.arange(instance.num_tail)
    columns = np.concatenate([np.flatnonzero(kept), len(found) + pairs[pairs >= 0], tail])
    matrix = problem.matrix[:, columns]
    # Of a job with a reservation the row stays, even empty: nothing meets it then.
    used = (np.diff(matrix.tocsr().indptr) > 0) | (problem.row_lower > 0)
    return replace(
        problem,
        objective=problem.objective[columns],
        matrix=sparse.csc_array(matrix.tocsr()[used]),
        row_lower=problem.row_lower[used],
        row_upper=problem.row_upper[used],
        lower=problem.lower[columns],
        upper=problem.upper[columns],
        integrality=problem.integrality[columns],
    ), columns


def _placeable(instance: HorizonInstance) -> Iterator[ConstraintGroup]:
    """Sia's rows on the pairs."""
    rows = instance.sia.rows
    left = rows.coefficients[:, instance.pair_configurations].astype(np.float64)
    used = np.flatnonzero(left.any(axis=1))
    if used.size:
        nothing = sparse.csr_array((used.size, len(instance.schedules)))
        tail = sparse.csr_array((used.size, instance.num_tail))
        yield ConstraintGroup(
            label="placeable",
            matrix=_beside(nothing, sparse.csr_array(left[used]), tail),
            limits=rows.limits[used].astype(np.float64),
            is_equality=False,
            row_names=tuple(rows.names[k] for k in used.tolist()),
        )


def _capacity(instance: HorizonInstance) -> Iterator[ConstraintGroup]:
    """GPUs of each type on average over each later interval."""
    use = sparse.csr_array(instance.schedules.use)
    used = np.flatnonzero(np.diff(use.indptr))
    if used.size:
        nothing = sparse.csr_array((used.size, instance.pair_jobs.size + instance.num_tail))
        names = capacity_names(instance)
        yield ConstraintGroup(
            label="later",
            matrix=_beside(use[used], nothing),
            limits=instance.open_gpus[:, 1:].ravel()[used],
            is_equality=False,
            row_names=tuple(names[k] for k in used.tolist()),
        )


def _tail(instance: HorizonInstance) -> Iterator[ConstraintGroup]:
    """The time of every job, less z, is at most its excess."""
    tail, found = instance.objective.tail, instance.schedules
    if tail is not None:
        num_jobs = len(instance.jobs)
        schedules, jobs = np.arange(len(found)), np.arange(num_jobs)
        times = sparse.csr_array(
            (tail.counted[found.job] * found.ends_s, (found.job, schedules)), shape=(num_jobs, len(found))
        )
        excess = _beside(sparse.csr_array(np.ones((num_jobs, 1))), sparse.csr_array(sparse.eye_array(num_jobs)))
        yield ConstraintGroup(
            label="tail",
            matrix=_beside(times, sparse.csr_array((num_jobs, instance.pair_jobs.size)), -excess),
            limits=-tail.before_s,
            is_equality=False,
            row_names=tuple(f"tail[{instance.jobs[i].id}]" for i in jobs.tolist()),
        )


def _tail_cost(instance: HorizonInstance) -> FloatVector:
    """(1 + J,) of the columns of the tail; (0,) without it."""
    tail = instance.objective.tail
    return np.zeros(0) if tail is None else tail.cost


def capacity_names(instance: HorizonInstance) -> tuple[str, ...]:
    """`capacity[type]@k` of every type and later interval, in the order of `Schedules.use`."""
    later = range(1, instance.intervals.num)
    return tuple(f"capacity[{name}]@{k}" for name in instance.sia.configurations.gpu_types for k in later)


def _ones(rows: IntVector, columns: IntVector, shape: tuple[int, int]) -> "sparse.csr_array":
    return sparse.csr_array((np.ones(columns.size), (rows, columns)), shape=shape)


def _beside(*parts: "sparse.csr_array") -> "sparse.csr_array":
    return sparse.csr_array(sparse.hstack(parts, format="csr"))
