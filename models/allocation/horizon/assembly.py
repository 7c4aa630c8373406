"""The program's rows as arrays: shared by the declared model and by the direct way to the matrix form.

See `models.allocation.horizon.formulation` for the mathematics. Columns are the schedules, then the pairs, then what
units take of placement classes, where there are some, then those of the tail, if it is asked for.
"""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
from scipy import sparse

from models.allocation.constraint_group import ConstraintGroup, stacked
from models.allocation.horizon.instance import HorizonInstance
from models.allocation.horizon.rooms import unit_rows
from solver.problem import MatrixProblem
from stowplan.arrays import FloatVector, IntVector, Mask

# Relative: sums of times differ in their last digits.
_ROUNDING = 1.0 + 1e-9


def constraint_groups(instance: HorizonInstance) -> Iterator[ConstraintGroup]:
    """Every group of constraints that is not empty."""
    found, num_pairs, num_rest = instance.schedules, instance.pair_jobs.size, _num_rest(instance)
    ids = [job.id for job in instance.jobs]
    columns = np.arange(len(found))
    planned = instance.sia.planned
    if planned.size:
        row_of = np.full(len(ids), -1, dtype=np.int64)
        row_of[planned] = np.arange(planned.size)
        yield ConstraintGroup(
            label="one_schedule",
            matrix=_ones(row_of[found.job], columns, (planned.size, len(found) + num_pairs + num_rest)),
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
                sparse.csr_array((num_pairs, num_rest)),
            ),
            limits=np.zeros(num_pairs),
            is_equality=True,
            row_names=tuple(f"now[{name}]" for name in pair_names(instance)),
        )
    yield from _placeable(instance)
    yield from _packed(instance)
    yield from _capacity(instance)
    yield from _tail(instance)


def row_names(instance: HorizonInstance) -> tuple[str, ...]:
    """Names of the rows that `assemble` makes, in its order."""
    return tuple(name for group in constraint_groups(instance) for name in group.row_names)


def pair_names(instance: HorizonInstance) -> tuple[str, ...]:
    """`job,(nodes,gpus,type)` of every pair."""
    labels = configuration_names(instance)
    pairs = zip(instance.pair_jobs.tolist(), instance.pair_configurations.tolist(), strict=True)
    return tuple(f"{instance.jobs[i].id},{labels[c]}" for i, c in pairs)


def column_names(instance: HorizonInstance) -> tuple[str, ...]:
    """`y[job,now,later@interval]`, `-` where there is nothing, and `x[pair]`."""
    found = instance.schedules
    labels = [*configuration_names(instance), "-"]
    fields = (found.job, found.now, found.later, found.at)
    names = [
        f"y[{instance.jobs[i].id},{labels[now]}{f',{labels[later]}@{at}' if at else ''}]"
        for i, now, later, at in zip(*(field.tolist() for field in fields), strict=True)
    ]
    tail = ("z", *(f"u[{job.id}]" for job in instance.jobs)) if instance.num_tail else ()
    return (*names, *(f"x[{name}]" for name in pair_names(instance)), *_packing_names(instance), *tail)


def assemble(instance: HorizonInstance) -> MatrixProblem:
    """The program in matrix form, without names."""
    num_pairs, num_schedules, num_packing = instance.pair_jobs.size, len(instance.schedules), instance.num_packing
    num_columns = num_schedules + num_pairs + _num_rest(instance)
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
        upper=np.concatenate(
            [
                np.ones(num_schedules + num_pairs),
                packing_most(instance),
                np.full(instance.num_tail, tail_most(instance)),
            ]
        ),
        integrality=(columns >= num_schedules) & (columns < num_schedules + num_pairs + num_packing),
    )


def column_costs(instance: HorizonInstance) -> FloatVector:
    """What each column costs."""
    nothing = np.zeros(instance.pair_jobs.size + instance.num_packing)
    return np.concatenate([instance.cost, nothing, _tail_cost(instance)])


def packing_most(instance: HorizonInstance) -> FloatVector:
    """Upper bounds of what units take of placement classes."""
    return np.zeros(0) if instance.rooms is None else instance.rooms.most.astype(np.float64)


def tail_most(instance: HorizonInstance) -> float:
    """Upper bound on the columns of the tail: with rounding, so that no time is above it."""
    tail = instance.objective.tail
    return 0.0 if tail is None else max(1.0, tail.most_s * _ROUNDING)


def relaxation(instance: HorizonInstance) -> MatrixProblem:
    """The linear relaxation without the pairs, which are sums of schedules, and without what units take: rows
    `one_schedule`, those that make the present placeable, `capacity[type]@k`, `rooms[type,tier,k]@k` and `tail[job]`,
    all of them. Columns of the tail are counted in their upper bound, so that all columns lie in [0, 1]."""
    found, planned = instance.schedules, instance.sia.planned
    row_of = np.full(len(instance.jobs), -1, dtype=np.int64)
    row_of[planned] = np.arange(planned.size)
    columns = np.arange(len(found))
    begins = columns[found.pair >= 0]
    of_pair, now_limits, _ = _now_rows(instance)
    matrix = sparse.vstack(
        [
            _ones(row_of[found.job], columns, (planned.size, len(found))),
            of_pair @ _ones(found.pair[begins], begins, (instance.pair_jobs.size, len(found))),
            found.use,
        ],
        format="csc",
    )
    limits = np.concatenate([np.ones(planned.size), now_limits, _later_limits(instance)])
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
    """The program over the schedules `kept` (S,), the pairs that these begin with, what units take and the tail, and
    its columns among those of the program."""
    found = instance.schedules
    pairs = np.unique(found.pair[kept])
    rest = len(found) + instance.pair_jobs.size + np.arange(_num_rest(instance))
    columns = np.concatenate([np.flatnonzero(kept), len(found) + pairs[pairs >= 0], rest])
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
    """Sia's rows on the pairs, and those of rooms."""
    left, limits, names = _now_rows(instance)
    used = np.flatnonzero(np.diff(left.indptr))
    if used.size:
        nothing = sparse.csr_array((used.size, len(instance.schedules)))
        rest = sparse.csr_array((used.size, _num_rest(instance)))
        yield ConstraintGroup(
            label="placeable",
            matrix=_beside(nothing, left[used], rest),
            limits=limits[used],
            is_equality=False,
            row_names=tuple(names[k] for k in used.tolist()),
        )


def _now_rows(instance: HorizonInstance) -> tuple["sparse.csr_array", FloatVector, tuple[str, ...]]:
    """Rows of the first interval over the pairs (m, P), their limits and names."""
    rows, rooms = instance.sia.rows, instance.rooms
    of_pair = sparse.csr_array(rows.coefficients[:, instance.pair_configurations].astype(np.float64))
    limits = rows.limits.astype(np.float64)
    if rooms is None:
        return of_pair, limits, tuple(rows.names)
    of_pair = sparse.csr_array(sparse.vstack([of_pair, rooms.now], format="csr"))
    return of_pair, np.concatenate([limits, rooms.now_limits]), (*rows.names, *rooms.now_names)


def now_names(instance: HorizonInstance) -> tuple[str, ...]:
    """Names of the rows of the first interval, in the order that they have in the relaxation."""
    return _now_rows(instance)[2]


def _packed(instance: HorizonInstance) -> Iterator[ConstraintGroup]:
    """What units take: all that is chosen of a placement class, and no more than there is room for."""
    rooms, schedules, tail = instance.rooms, len(instance.schedules), instance.num_tail
    if rooms is None or not rooms.unit.size:
        return
    names = configuration_names(instance)
    kinds, kind = np.unique(rooms.configuration, return_inverse=True)
    row_of = np.full(len(names), -1, dtype=np.int64)
    row_of[kinds] = np.arange(kinds.size)
    pairs = np.flatnonzero(row_of[instance.pair_configurations] >= 0)
    chosen = _ones(row_of[instance.pair_configurations[pairs]], pairs, (kinds.size, instance.pair_jobs.size))
    taken = _ones(kind, np.arange(rooms.unit.size), (kinds.size, rooms.unit.size))
    stays, items, units = unit_rows(rooms, instance.sia.configurations.num_nodes)
    for label, matrix, limits, row_names in (
        ("class", _beside(chosen, -taken), np.zeros(kinds.size), [f"class[{names[c]}]" for c in kinds.tolist()]),
        (
            "unit",
            _beside(stays, items),
            rooms.room[units].astype(np.float64),
            [f"unit[{rooms.units.names[u]}]" for u in units.tolist()],
        ),
    ):
        empty = [sparse.csr_array((limits.size, num)) for num in (schedules, tail)]
        yield ConstraintGroup(
            label=label,
            matrix=_beside(empty[0], matrix, empty[1]),
            limits=limits,
            is_equality=False,
            row_names=tuple(row_names),
        )


def _capacity(instance: HorizonInstance) -> Iterator[ConstraintGroup]:
    """GPUs of each type, and rooms of units, on average over each later interval."""
    use = sparse.csr_array(instance.schedules.use)
    used = np.flatnonzero(np.diff(use.indptr))
    if used.size:
        nothing = sparse.csr_array((used.size, instance.pair_jobs.size + _num_rest(instance)))
        names = capacity_names(instance)
        yield ConstraintGroup(
            label="later",
            matrix=_beside(use[used], nothing),
            limits=_later_limits(instance)[used],
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
            matrix=_beside(
                times, sparse.csr_array((num_jobs, instance.pair_jobs.size + instance.num_packing)), -excess
            ),
            limits=-tail.before_s,
            is_equality=False,
            row_names=tuple(f"tail[{instance.jobs[i].id}]" for i in jobs.tolist()),
        )


def _tail_cost(instance: HorizonInstance) -> FloatVector:
    """(1 + J,) of the columns of the tail; (0,) without it."""
    tail = instance.objective.tail
    return np.zeros(0) if tail is None else tail.cost


def capacity_names(instance: HorizonInstance) -> tuple[str, ...]:
    """`capacity[type]@k` of every type and later interval, then `rooms[type,tier,nodes]@k`, in the order of
    `Schedules.use`."""
    later = range(1, instance.intervals.num)
    rows = [f"capacity[{name}]" for name in instance.sia.configurations.gpu_types]
    if instance.rooms is not None:
        rows += instance.rooms.later.names
    return tuple(f"{row}@{k}" for row in rows for k in later)


def configuration_names(instance: HorizonInstance) -> list[str]:
    """`(nodes,gpus,type)` of every configuration; `(nodes,gpus,type,tier)` where it lies within one unit, with
    `,stays` where jobs of whole nodes stay in it."""
    known, rooms = instance.sia.configurations, instance.rooms
    labels = [known.label(c) for c in range(len(known))]
    if rooms is None:
        return labels
    found = []
    told = zip(labels, known.type_index.tolist(), rooms.classes.rank.tolist(), rooms.classes.stays, strict=True)
    for label, t, rank, stays in told:
        parts = [rooms.classes.levels[t][rank].tier] if rank else []
        parts += ["stays"] if stays else []
        found.append(f"{','.join([label[:-1], *parts])})")
    return found


def _packing_names(instance: HorizonInstance) -> list[str]:
    """`g[configuration,unit]`."""
    rooms, names = instance.rooms, configuration_names(instance)
    if rooms is None:
        return []
    columns = zip(rooms.configuration.tolist(), rooms.unit.tolist(), strict=True)
    return [f"g[{names[c]},{rooms.units.names[u]}]" for c, u in columns]


def _num_rest(instance: HorizonInstance) -> int:
    """Columns behind the schedules and the pairs."""
    return instance.num_packing + instance.num_tail


def _later_limits(instance: HorizonInstance) -> FloatVector:
    """Of the rows of `Schedules.use`."""
    gpus = instance.open_gpus[:, 1:].ravel()
    if instance.rooms is None:
        return gpus
    rooms = np.repeat(instance.rooms.later.limits.astype(np.float64), instance.intervals.num - 1)
    return np.concatenate([gpus, rooms])


def _ones(rows: IntVector, columns: IntVector, shape: tuple[int, int]) -> "sparse.csr_array":
    return sparse.csr_array((np.ones(columns.size), (rows, columns)), shape=shape)


def _beside(*parts: "sparse.csr_array") -> "sparse.csr_array":
    return sparse.csr_array(sparse.hstack(parts, format="csr"))
