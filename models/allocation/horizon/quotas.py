"""What the jobs of a queue may have together, now and on average later. Pure NumPy.

A quota is for all jobs of a queue but those with a reservation in the calendar, wherever these run: a reservation is
granted beside it. What its pinned jobs hold is taken from it, even when these jobs have ended; what its other jobs
reserve they have, whatever the quota.
"""

from dataclasses import dataclass, replace

import numpy as np
from scipy import sparse

from models.allocation.horizon.parameters import HorizonParameters
from models.allocation.sia.instance import SiaInstance
from models.workload import Snapshot
from stowplan.arrays import IntVector, Mask


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Quotas:
    """Q queues that have a quota, and jobs that are planned.

    names, most: (Q,), the quotas as they were given. kept, left: int64 (Q,), GPUs of pinned jobs, and those for planned
    ones. queue: int64 (J,), which one counts for a planned job, -1 for none. rows: int64 (R,), the queues whose jobs
    could have more than that together.
    """

    names: tuple[str, ...]
    most: tuple[int, ...]
    kept: IntVector
    left: IntVector
    queue: IntVector
    rows: IntVector

    def with_rows(self, may_have: Mask, num_gpus: IntVector) -> "Quotas":
        """The same where jobs may have configurations `may_have` (J, C) of so many GPUs (C,): a queue whose jobs have
        no more than it has left however many each has, as one of a single job, takes no row, which all jobs share."""
        most = np.where(may_have, num_gpus, 0).max(axis=1, initial=0)
        counts = self.queue >= 0
        together = np.bincount(self.queue[counts], most[counts], minlength=self.left.size)
        return replace(self, rows=np.flatnonzero(together > self.left))

    @property
    def _row(self) -> IntVector:
        """(J,) the row of each job, -1 for none."""
        row = np.full(self.left.size + 1, -1, dtype=np.int64)
        row[self.rows] = np.arange(self.rows.size)
        return row[self.queue]

    def fits(self, num_gpus: IntVector) -> Mask:
        """(J, C) whether a job may ever have so many GPUs (C,)."""
        return (self.queue < 0)[:, None] | (num_gpus <= self.left[self.queue][:, None])

    def allows(self, job: int, num_gpus: int) -> bool:
        """The same of one job."""
        q = self.queue[job]
        return bool(q < 0 or num_gpus <= self.left[q])

    def now(self, jobs: IntVector, num_gpus: IntVector) -> "sparse.csr_array":
        """CSR (R, P), GPUs that pairs of these jobs (P,) take of each quota."""
        row = self._row[jobs]
        pairs = np.flatnonzero(row >= 0)
        return sparse.csr_array(
            (num_gpus[pairs].astype(np.float64), (row[pairs], pairs)), shape=(self.rows.size, jobs.size)
        )

    def later(
        self, jobs: IntVector, held: "sparse.csr_array", num_gpus: IntVector, num_later: int
    ) -> "sparse.csr_array":
        """CSR (S, R (K - 1)), GPUs that schedules of these jobs (S,) take of each quota in each later interval, on
        average; `held` as in `Schedules`, `num_gpus` (C,)."""
        row = np.repeat(self._row[jobs], np.diff(held.indptr))
        counts = row >= 0
        configuration, interval = np.divmod(held.indices[counts], max(1, num_later))
        heads = np.concatenate([[0], np.cumsum(counts)])[held.indptr]
        return sparse.csr_array(
            (held.data[counts] * num_gpus[configuration], row[counts] * num_later + interval, heads),
            shape=(jobs.size, self.rows.size * num_later),
        )


def quotas_of(base: SiaInstance, parameters: HorizonParameters, calendar: Snapshot) -> Quotas | None:
    """Quotas of the queues of planned jobs, beside the `calendar`; None where none counts."""
    if not parameters.quotas:
        return None
    entries = {entry.name for entry in calendar.calendar if not entry.is_over}
    names = [None if job.calendar_entry in entries else job.queue for job in base.jobs]
    of_planned = {names[i] for i in base.planned.tolist()}
    known = sorted(name for name in parameters.quotas if name in of_planned)
    if not known:
        return None
    number: dict[str | None, int] = {name: q for q, name in enumerate(known)}
    most = tuple(parameters.quotas[name] for name in known)
    kept, reserved = np.zeros((2, len(known)), dtype=np.int64)
    queue = np.array([number.get(name, -1) for name in names], dtype=np.int64)
    for i in base.pinned[queue[base.pinned] >= 0].tolist():
        kept[queue[i]] += sum(mask.bit_count() for _, mask in base.taken.running[base.jobs[i].id])
    for i in base.reserved[queue[base.reserved] >= 0].tolist():
        reservation = base.jobs[i].reservation
        reserved[queue[i]] += 0 if reservation is None else reservation.num_gpus
    queue[base.pinned] = -1
    left = np.maximum(most - kept, reserved)
    return Quotas(names=tuple(known), most=most, kept=kept, left=left, queue=queue, rows=np.arange(left.size))
