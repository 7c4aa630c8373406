"""The program's rows as arrays: shared by the declared model and by the direct way to the matrix form.

Declaring in CVXPY and compiling costs more than solving; `assemble` gives the same matrix form without names, and
tests compare the two. See `models.allocation.sia.formulation` for the mathematics.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from scipy import sparse

from models.allocation.constraint_group import ConstraintGroup
from models.allocation.sia.instance import SiaInstance
from models.allocation.sia.merging import Offer, merged, offer_of
from models.placement.placeability import PlaceabilityRows
from solver.problem import MatrixProblem
from stowplan.arrays import FloatMatrix, IntMatrix, IntVector, Mask
from stowplan.living import OfLiving, OfUnchanged
from stowplan.recent import Recent


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


def row_names(instance: SiaInstance, problem: MatrixProblem) -> tuple[str, ...]:
    """Names of the rows of what `assemble` gave, in its order."""
    return (
        *_names(instance, "one_configuration", _choosing(instance)),
        *_names(instance, "reserved", instance.reserved),
        *capacity_names(instance, problem),
    )


def capacity_names(instance: SiaInstance, problem: MatrixProblem) -> tuple[str, ...]:
    """Names of the last rows of what `assemble` gave, those of what is scarce."""
    used = _used_in.get(problem.matrix)
    return tuple(instance.rows.names[k] for k in (_used(instance).tolist() if used is None else used))


def column_names(instance: SiaInstance) -> tuple[str, ...]:
    """`x[job,(nodes,gpus,type)]` for every pair."""
    labels = [instance.configurations.label(c) for c in range(len(instance.configurations))]
    ids = [job.id for job in instance.jobs]
    pairs = zip(instance.pair_jobs.tolist(), instance.pair_configurations.tolist(), strict=True)
    return tuple(f"x[{ids[i]},{labels[c]}]" for i, c in pairs)


# Pairs from which on telling jobs apart saves time: in programs of fewer, its fixed cost is more than it saves.
MERGING_PAYS = 1000
# Of clusters that are planned in turns; in pairs, of each of which some 80 bytes are kept.
_MOST_PROBLEMS, _MOST_PAIRS = 4, 300_000
# By matrix, which placeability rows its last ones are, and what jobs are merged by.
_used_in: OfLiving["sparse.csc_array", list[int]] = OfLiving()
_offers: OfLiving["sparse.csc_array", Offer] = OfLiving()
_problems: Recent[MatrixProblem] = Recent(most=_MOST_PAIRS, most_of_one=_MOST_PAIRS, most_entries=_MOST_PROBLEMS)


def assemble(instance: SiaInstance) -> MatrixProblem:
    """The program in matrix form, without names; its rows are those of `constraint_groups`, one below the other. Of
    pairs that are those of an earlier instance, under the same limits, rows and bounds are the very same."""
    rows, offered = instance.rows, instance.utility.offered
    # Pairs are those that are offered.
    arrays = (offered, instance.reserved, rows.coefficients, rows.limits)
    key = (offered.shape, *(array.tobytes() for array in arrays))
    known = _problems.get(key)
    if known is None:
        known = _made(instance)
        _problems.put(key, known, instance.pair_jobs.size)
        return known
    return known.with_costs(instance.sense, instance.gain, instance.constant)


def _made(instance: SiaInstance) -> MatrixProblem:
    """Column by column, as it is stored: a pair stands in the row of its job, if that has one, and then where its
    configuration does. To stack groups of rows takes several times as long, most of it whatever their size."""
    num_pairs = instance.pair_jobs.size
    choosing, reserved, used = _choosing(instance), instance.reserved, _used(instance)
    num_choosing, num_of_jobs = choosing.size, choosing.size + reserved.size
    limits = np.concatenate([np.ones(num_of_jobs), instance.rows.limits[used]])
    row_lower = np.full(limits.size, -np.inf)
    # A reserved job without any pair leaves an empty row that cannot be 1.
    row_lower[num_choosing:num_of_jobs] = 1.0
    row_of_job = np.full(len(instance.jobs), -1, dtype=np.int64)
    row_of_job[choosing] = np.arange(num_choosing)
    row_of_job[reserved] = np.arange(num_choosing, num_of_jobs)
    matrix = _columns(instance, row_of_job[instance.pair_jobs], num_of_jobs)
    _used_in.put(matrix, used.tolist())
    return MatrixProblem(
        name="sia",
        sense=instance.sense,
        objective=instance.gain,
        offset=instance.constant,
        matrix=matrix,
        row_lower=row_lower,
        row_upper=limits,
        lower=np.zeros(num_pairs),
        upper=np.ones(num_pairs),
        integrality=np.ones(num_pairs, dtype=np.bool_),
    )


def tell_choice(instance: SiaInstance, problem: MatrixProblem) -> None:
    """Say what the choice form is of the program that `assemble` gave, be its objective another; not of a small one."""
    if problem.num_columns < MERGING_PAYS:
        return
    offer = _offers.get(problem.matrix)
    if offer is None:
        choosing, reserved = _choosing(instance), instance.reserved
        is_alone = np.bincount(instance.pair_jobs, minlength=len(instance.jobs)) > 0
        is_alone[choosing] = is_alone[reserved] = False
        order = np.concatenate([choosing, reserved, np.flatnonzero(is_alone)])
        offer = offer_of(instance, order, _used(instance), choosing.size + reserved.size)
        _offers.put(problem.matrix, offer)
    problem.tell(merged(problem, offer))


def _columns(instance: SiaInstance, job_rows: IntVector, num_of_jobs: int) -> "sparse.csc_array":
    """The matrix (m, P): each pair in its row of `job_rows` (P,), -1 for none, and where its configuration stands in
    the placeability rows that are used, which come behind the `num_of_jobs` rows of jobs."""
    entries, configurations = _entries(instance), instance.pair_configurations
    num_pairs, num_rows = job_rows.size, num_of_jobs + entries.used.size
    width = entries.rows.shape[1]
    # As SciPy stores them.
    is_small = max(width * num_pairs, num_rows) <= np.iinfo(np.int32).max
    of_each: IntMatrix = np.where(entries.rows >= 0, num_of_jobs + entries.rows, -1)
    if is_small:
        of_each = of_each.astype(np.int32)
    # All are in range; without a look at that it takes a fifth of the time.
    rows = of_each.take(configurations, axis=0, mode="clip")
    values = entries.values.take(configurations, axis=0, mode="clip")
    rows[:, 0] = job_rows
    if job_rows.min(initial=0) >= 0 and entries.are_alike:
        heads = np.arange(0, rows.size + 1, width)
    else:
        heads = np.concatenate([[0], np.cumsum(entries.count.take(configurations) + (job_rows >= 0))])
        has_entry = rows >= 0
        rows, values = rows[has_entry], values[has_entry]
    return sparse.csc_array((values.ravel(), rows.ravel(), heads.astype(rows.dtype)), shape=(num_rows, num_pairs))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Entries:
    """Where C configurations stand in the placeability rows `used`, those with a coefficient of any that is offered.

    rows, values (C, 1 + n): behind a first one, of the row of the job and value 1, those of each configuration, as
    positions in `used`; -1 behind them where others stand in more. count: int64 (C,), in how many it stands;
    are_alike: all stand in n.
    """

    used: IntVector
    rows: IntMatrix
    values: FloatMatrix
    count: IntVector
    are_alike: bool


# By which configurations are offered: as long as as much is free, and nearly always all are.
_stands: OfUnchanged[PlaceabilityRows, _Entries] = OfUnchanged()


def _entries(instance: SiaInstance) -> _Entries:
    is_offered = np.bincount(instance.pair_configurations, minlength=len(instance.configurations)) > 0
    asked = is_offered.tobytes()
    known = _stands.get(instance.rows, (), asked)
    if known is None:
        known = _entries_of(instance.rows.coefficients, is_offered)
        _stands.put(instance.rows, (), asked, known)
    return known


def _entries_of(coefficients: IntMatrix, is_offered: Mask) -> _Entries:
    used = (coefficients[:, is_offered] != 0).any(axis=1).nonzero()[0]
    of_configurations = coefficients[used].T
    stands = of_configurations != 0
    count = np.count_nonzero(stands, axis=1)
    most = int(count.max(initial=0))
    order = np.argsort(~stands, axis=1, kind="stable")[:, :most]
    rows = np.full((count.size, 1 + most), -1, dtype=np.int64)
    rows[:, 1:] = np.where(np.take_along_axis(stands, order, axis=1), order, -1)
    values = np.ones(rows.shape)
    values[:, 1:] = np.take_along_axis(of_configurations, order, axis=1)
    return _Entries(used=used, rows=rows, values=values, count=count, are_alike=bool((count == most).all()))


def _choosing(instance: SiaInstance) -> IntVector:
    """Jobs with several pairs, of which they get one at most."""
    has_several = np.bincount(instance.pair_jobs, minlength=len(instance.jobs)) > 1
    has_several[instance.reserved] = False
    return np.flatnonzero(has_several)


def _used(instance: SiaInstance) -> IntVector:
    """Placeability rows with a coefficient: a type that no pair uses has nothing to limit."""
    return _entries(instance).used


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
