"""Columns and rows of the program as arrays; see `models.allocation.elasticflow.formulation` for the mathematics."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from scipy import sparse

from models.allocation.constraint_group import ConstraintGroup, stacked
from models.allocation.elasticflow.filling import Filling
from models.allocation.elasticflow.instance import ElasticInstance
from solver.problem import MatrixProblem
from solver.sense import Sense
from stowplan.arrays import FloatVector, IntVector, Mask


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Program:
    """Columns: a of the A jobs `admissible`, x of P pairs, y of Q shares, in this order.

    job, configuration, slot: int64 (P + Q,), of the pairs slot 0. promised: bool (A,), whose a is 1.
    """

    instance: ElasticInstance
    admissible: IntVector
    promised: Mask
    job: IntVector
    configuration: IntVector
    slot: IntVector

    @property
    def num_columns(self) -> int:
        """n."""
        return self.admissible.size + self.job.size

    @property
    def gain(self) -> FloatVector:
        """Coefficients (n,) of the objective."""
        it = self.instance
        return np.concatenate(
            [it.reward[self.admissible], np.where(self.slot == 0, it.gain[self.job, self.configuration], 0.0)]
        )

    @property
    def lower(self) -> FloatVector:
        """Lower bounds (n,)."""
        return np.concatenate([self.promised.astype(np.float64), np.zeros(self.job.size)])

    @property
    def integrality(self) -> Mask:
        """Binary columns (n,)."""
        return np.concatenate([np.ones(self.admissible.size, dtype=np.bool_), self.slot == 0])

    def groups(self) -> Iterator[ConstraintGroup]:
        """Every group of constraints that is not empty."""
        it, num_slots = self.instance, self.instance.ends.size
        column, first = np.arange(self.job.size) + self.admissible.size, self.admissible
        each = self.job * num_slots + self.slot
        several = np.flatnonzero(np.bincount(each, minlength=len(it.jobs) * num_slots) > 1)
        chosen = np.isin(each, several)
        names = [f"one[{it.jobs[key // num_slots].id},{key % num_slots}]" for key in several.tolist()]
        rows, ones = np.searchsorted(several, each[chosen]), np.ones(int(chosen.sum()))
        yield from self._group("one", rows, column[chosen], ones, np.ones(several.size), names)
        needs = it.rows.coefficients[:, self.configuration]
        row, k = np.nonzero(needs)
        used, rows = np.unique(row * num_slots + self.slot[k], return_inverse=True)
        limits = it.rows.limits[used // num_slots].astype(np.float64)
        names = [f"{it.rows.names[key // num_slots]}@{key % num_slots}" for key in used.tolist()]
        yield from self._group("placeable", rows, column[k], needs[row, k].astype(np.float64), limits, names)
        waits = np.flatnonzero(it.strict[first])
        held = np.flatnonzero((self.slot == 0) & it.strict[self.job])
        rows = np.concatenate([np.arange(waits.size), np.searchsorted(first[waits], self.job[held])])
        columns = np.concatenate([waits, column[held]])
        values = np.concatenate([-np.ones(waits.size), np.ones(held.size)])
        names = [f"admitted[{it.jobs[i].id}]" for i in first[waits].tolist()]
        yield from self._group("admitted", rows, columns, values, np.zeros(waits.size), names)
        helps = np.flatnonzero(it.wants[self.job])
        rows = np.concatenate([np.arange(first.size), np.searchsorted(first, self.job[helps])])
        brought = it.progress[self.job[helps], self.configuration[helps], self.slot[helps]]
        columns = np.concatenate([np.arange(first.size), column[helps]])
        names = [f"deadline[{it.jobs[i].id}]" for i in first.tolist()]
        values = np.concatenate([np.ones(first.size), -brought])
        yield from self._group("deadline", rows, columns, values, np.zeros(first.size), names)

    def assemble(self) -> MatrixProblem:
        """The matrix form, without names: what CVXPY would compile of `declaration`, in a fraction of the time."""
        matrix, row_lower, row_upper = stacked(self.groups(), self.num_columns)
        return MatrixProblem(
            name="elasticflow",
            sense=Sense.MAXIMIZE,
            objective=self.gain,
            offset=0.0,
            matrix=matrix,
            row_lower=row_lower,
            row_upper=row_upper,
            lower=self.lower,
            upper=np.ones(self.num_columns),
            integrality=self.integrality,
        )

    def point(self, filling: Filling, now: IntVector) -> FloatVector:
        """The point (n,) of what the algorithms found; `now` (J,): configurations in the present slot."""
        parts = {(i, c, k): part for i, shares in filling.shares.items() for c, k, part in shares}
        named = zip(self.job.tolist(), self.configuration.tolist(), self.slot.tolist(), strict=True)
        later = np.array([parts.get(key, 0.0) for key in named])
        placed = (self.slot == 0) & (now[self.job] == self.configuration)
        return np.concatenate([filling.admitted[self.admissible].astype(np.float64), np.where(placed, 1.0, later)])

    def column_names(self) -> tuple[str, ...]:
        """`a[job]`, `x[job,(nodes,gpus,type)]`, `y[job,(nodes,gpus,type),slot]`."""
        it = self.instance
        ids = [job.id for job in it.jobs]
        named = zip(self.job.tolist(), self.configuration.tolist(), self.slot.tolist(), strict=True)
        blocks = [
            f"y[{ids[i]},{it.configurations.label(c)},{k}]" if k else f"x[{ids[i]},{it.configurations.label(c)}]"
            for i, c, k in named
        ]
        return (*(f"a[{ids[i]}]" for i in self.admissible.tolist()), *blocks)

    def _group(
        self,
        label: str,
        rows: IntVector,
        columns: IntVector,
        values: FloatVector,
        limits: FloatVector,
        names: list[str],
    ) -> Iterator[ConstraintGroup]:
        if limits.size:
            shape = (limits.size, self.num_columns)
            matrix = sparse.csr_array((values, (rows, columns)), shape=shape)
            yield ConstraintGroup(label=label, matrix=matrix, limits=limits, is_equality=False, row_names=tuple(names))


def program_of(instance: ElasticInstance, filling: Filling) -> Program:
    """The program of an instance; jobs that have begun and that the algorithm admits are promised their deadlines."""
    admissible = np.flatnonzero(instance.wants)
    pair_job, pair_configuration = np.nonzero(instance.offered)
    later = instance.offered[:, :, None] & instance.wants[:, None, None] & (instance.progress > 0)
    later[:, :, 0] = False
    job, configuration, slot = np.nonzero(later)
    return Program(
        instance=instance,
        admissible=admissible,
        promised=(filling.admitted & instance.begun)[admissible],
        job=np.concatenate([pair_job, job]),
        configuration=np.concatenate([pair_configuration, configuration]),
        slot=np.concatenate([np.zeros(pair_job.size, dtype=np.int64), slot]),
    )
