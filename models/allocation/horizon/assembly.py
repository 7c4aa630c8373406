"""The program's rows as arrays: shared by the declared model and by the direct way to the matrix form.

See `models.allocation.horizon.formulation` for the mathematics. Columns are the schedules, then the pairs, then what
units take of placement classes, where there are some, then those of the tail, if it is asked for.
"""

from collections.abc import Iterator
from typing import cast

import numpy as np
from scipy import sparse

from models.allocation.constraint_group import ConstraintGroup, stacked
from models.allocation.horizon.instance import HorizonInstance
from models.allocation.horizon.rooms import unit_rows
from solver.decomposition.factored import Factored
from solver.decomposition.structure import ChoiceProblem
from solver.problem import MatrixProblem
from stowplan.arrays import FloatVector, IntVector

# The largest number of a row of the tail. Solvers drop what is below 1e-9; from 2^15 on SCIP ends beside an optimum.
_LARGEST = 2.0**10
# So many schedules are few.
_FEW = 20_000


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
    """The program in matrix form, without names: the rows of `constraint_groups`."""
    num_pairs, num_schedules, num_packing = instance.pair_jobs.size, len(instance.schedules), instance.num_packing
    num_columns = num_schedules + num_pairs + _num_rest(instance)
    rows = stacked(constraint_groups(instance), num_columns) if instance.num_tail else _plain(instance)
    matrix, row_lower, row_upper = rows
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
                np.ones(instance.num_tail),
            ]
        ),
        integrality=(columns >= num_schedules) & (columns < num_schedules + num_pairs + num_packing),
    )


def _plain(instance: HorizonInstance) -> tuple["sparse.csc_array", FloatVector, FloatVector]:
    """What `stacked` makes of the groups without a tail, column by column, in a fraction of the time: a schedule has a
    1 for its job and for its pair, and its use; a pair -1, and what it takes of the rows of the present, of which units
    take, too."""
    found, planned = instance.schedules, instance.sia.planned
    num_pairs, num_packing = instance.pair_jobs.size, instance.num_packing
    row_of = np.zeros(len(instance.jobs), dtype=np.int64)
    row_of[planned] = np.arange(planned.size)
    groups = [*_placeable(instance), *_packed(instance)]
    present = sparse.csr_array((num_pairs + num_packing, 0))
    if groups:
        rows = sparse.vstack([group.matrix for group in groups], format="csr")
        present = sparse.csr_array(rows[:, len(found) :].T)
    use = sparse.csr_array(found.use.T)
    used = np.flatnonzero(np.bincount(use.indices, minlength=use.shape[1]))
    if used.size < use.shape[1]:
        use = sparse.csr_array(use[:, used])
    width = num_pairs + present.shape[1]
    schedules = _led(row_of[found.job], planned.size, _led(found.pair, width, use))
    own = np.concatenate([np.arange(num_pairs), np.full(num_packing, -1)])
    others = _led(own, num_pairs, present, -1.0)
    others = sparse.csr_array(
        (others.data, others.indices + planned.size, others.indptr), shape=(own.size, schedules.shape[1])
    )
    limits = np.concatenate([*(group.limits for group in groups), _later_limits(instance)[used]])
    equal = np.concatenate([np.ones(planned.size), np.zeros(num_pairs)])
    return (
        sparse.csc_array(sparse.vstack([schedules, others], format="csr").T),
        np.concatenate([equal, np.full(limits.size, -np.inf)]),
        np.concatenate([equal, limits]),
    )


def column_costs(instance: HorizonInstance) -> FloatVector:
    """What each column costs."""
    nothing = np.zeros(instance.pair_jobs.size + instance.num_packing)
    return np.concatenate([instance.cost, nothing, _tail_cost(instance)])


def value(instance: HorizonInstance, point: FloatVector) -> float:
    """Objective of a point of the program, which need not be assembled for it."""
    return float((column_costs(instance) * point).sum()) + instance.offset


def packing_most(instance: HorizonInstance) -> FloatVector:
    """Upper bounds of what units take of placement classes."""
    return np.zeros(0) if instance.rooms is None else instance.rooms.most.astype(np.float64)


def relaxation(instance: HorizonInstance) -> ChoiceProblem:
    """The program without the pairs, which are sums of schedules, and without what units take, as a choice: each job
    has one schedule. Rows that couple are those of the present (`now_rows`), of later intervals (`capacity_names`) and
    `tail[job]`, all of them. Columns of the tail are choices of their own."""
    found, num_tail = instance.schedules, instance.num_tail
    of_pair, now_limits, _ = now_rows(instance)
    takes = _diagonal(sparse.csr_array(of_pair.T), found.takes)
    has = _led(found.pair, of_pair.shape[1], found.held)
    # Of very many schedules the product would take longer than all else here; of few it is sooner asked than both.
    is_few = len(found) <= _FEW
    coupling = sparse.csr_array(has @ takes) if is_few else cast("sparse.csr_array", Factored(has, takes))
    limit = np.concatenate([now_limits, _later_limits(instance)])
    for group in _tail(instance):
        times, excess = group.matrix[:, : len(found)], group.matrix[:, -num_tail:]
        whole = coupling[np.arange(len(found))]
        coupling = sparse.csr_array(sparse.block_array([[whole, times.T], [None, excess.T]], format="csr"))
        limit = np.concatenate([limit, group.limits])
    start = np.flatnonzero(np.diff(found.job, prepend=-1, append=len(instance.jobs)))
    start = np.concatenate([start, len(found) + 1 + np.arange(num_tail)])
    num_jobs, num_columns = start.size - 1 - num_tail, len(found) + num_tail
    return ChoiceProblem(
        cost=np.concatenate([instance.cost, _tail_cost(instance)]),
        start=start,
        copies=np.ones(num_jobs + num_tail, dtype=np.int64),
        required=np.arange(num_jobs + num_tail) < num_jobs,
        coupling=coupling,
        limit=limit,
        rows=np.arange(limit.size),
        offset=instance.offset,
        class_of=np.repeat(np.arange(num_jobs + num_tail), np.diff(start)),
        origin=np.arange(num_columns),
        origin_start=start[:-1],
    )


def _placeable(instance: HorizonInstance) -> Iterator[ConstraintGroup]:
    """Sia's rows on the pairs, those of rooms, and of quotas."""
    left, limits, names = now_rows(instance)
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


def now_rows(instance: HorizonInstance) -> tuple["sparse.csr_array", FloatVector, tuple[str, ...]]:
    """Rows of the first interval over the pairs (m, P), their limits and names, as in the relaxation."""
    rows, rooms, quotas = instance.sia.rows, instance.rooms, instance.quotas
    of_pair = sparse.csr_array(rows.coefficients[:, instance.pair_configurations].astype(np.float64))
    limits, names = rows.limits.astype(np.float64), tuple(rows.names)
    if rooms is not None:
        of_pair = sparse.csr_array(sparse.vstack([of_pair, rooms.now], format="csr"))
        limits, names = np.concatenate([limits, rooms.now_limits]), (*names, *rooms.now_names)
    if quotas is not None:
        charged = quotas.now(instance.pair_jobs, instance.sia.configurations.num_gpus[instance.pair_configurations])
        of_pair = sparse.csr_array(sparse.vstack([of_pair, charged], format="csr"))
        limits, names = np.concatenate([limits, quotas.left[quotas.rows]]), (*names, *quota_names(instance))
    return of_pair, limits, names


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
    """GPUs of each type, rooms of units, and quotas, on average over each later interval."""
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
    """The time of every job, less z, is at most its excess; each row in a unit of its own."""
    tail, found = instance.objective.tail, instance.schedules
    if tail is not None:
        num_jobs, units_s = len(instance.jobs), tail.units_s
        row_s = np.maximum(units_s[0], units_s[1:]) / _LARGEST
        schedules, jobs = np.arange(len(found)), np.arange(num_jobs)
        times = sparse.csr_array(
            ((tail.counted / row_s)[found.job] * found.ends_s, (found.job, schedules)), shape=(num_jobs, len(found))
        )
        excess = _beside(
            sparse.csr_array((units_s[0] / row_s)[:, None]), sparse.csr_array(sparse.diags_array(units_s[1:] / row_s))
        )
        yield ConstraintGroup(
            label="tail",
            matrix=_beside(
                times, sparse.csr_array((num_jobs, instance.pair_jobs.size + instance.num_packing)), -excess
            ),
            limits=-tail.before_s / row_s,
            is_equality=False,
            row_names=tuple(f"tail[{instance.jobs[i].id}]" for i in jobs.tolist()),
        )


def _tail_cost(instance: HorizonInstance) -> FloatVector:
    """(1 + J,) of the columns of the tail; (0,) without it."""
    tail = instance.objective.tail
    return np.zeros(0) if tail is None else tail.cost


def capacity_names(instance: HorizonInstance) -> tuple[str, ...]:
    """`capacity[type]@k` of every type and later interval, then `rooms[type,tier,nodes]@k` and `quota[queue]@k`, in the
    order of `Schedules.use`."""
    later = range(1, instance.intervals.num)
    rows = [f"capacity[{name}]" for name in instance.sia.configurations.gpu_types]
    if instance.rooms is not None:
        rows += instance.rooms.later.names
    return tuple(f"{row}@{k}" for row in (*rows, *quota_names(instance)) for k in later)


def quota_names(instance: HorizonInstance) -> tuple[str, ...]:
    """`quota[queue]` of every queue that has a row."""
    quotas = instance.quotas
    return () if quotas is None else tuple(f"quota[{quotas.names[q]}]" for q in quotas.rows.tolist())


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
    alike = [known.astype(np.float64) for known in _alike_later(instance)]
    return np.concatenate(
        [instance.open_gpus[:, 1:].ravel(), *(np.repeat(known, instance.intervals.num - 1) for known in alike)]
    )


def _alike_later(instance: HorizonInstance) -> Iterator[IntVector]:
    """Limits that are the same in every later interval."""
    if instance.rooms is not None:
        yield instance.rooms.later.limits
    if instance.quotas is not None:
        yield instance.quotas.left[instance.quotas.rows]


def _led(columns: IntVector, num_columns: int, others: "sparse.csr_array", value: float = 1.0) -> "sparse.csr_array":
    """Rows with `value` in one of the `columns` each, or nothing, which is -1, and beside them those of the others."""
    some = columns >= 0
    heads = others.indptr + np.concatenate([[0], np.cumsum(some)])
    at = heads[:-1][some]
    is_other = np.ones(heads[-1], dtype=np.bool_)
    is_other[at] = False
    indices, values = np.empty(heads[-1], dtype=np.int32), np.full(heads[-1], value)
    indices[at], indices[is_other] = columns[some], others.indices + num_columns
    values[is_other] = others.data
    return sparse.csr_array((values, indices, heads), shape=(columns.size, num_columns + others.shape[1]))


def _diagonal(first: "sparse.csr_array", second: "sparse.csr_array") -> "sparse.csr_array":
    """Both beside and below one another: `block_diag`, which takes ten times as long."""
    return sparse.csr_array(
        (
            np.concatenate([first.data, second.data]),
            np.concatenate([first.indices, second.indices + first.shape[1]]),
            np.concatenate([first.indptr, second.indptr[1:] + first.nnz]),
        ),
        shape=(first.shape[0] + second.shape[0], first.shape[1] + second.shape[1]),
    )


def _ones(rows: IntVector, columns: IntVector, shape: tuple[int, int]) -> "sparse.csr_array":
    return sparse.csr_array((np.ones(columns.size), (rows, columns)), shape=shape)


def _beside(*parts: "sparse.csr_array") -> "sparse.csr_array":
    return sparse.csr_array(sparse.hstack(parts, format="csr"))
