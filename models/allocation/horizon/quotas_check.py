"""Does any queue have more than its quota, now or on average later? Knows no solver; shares no code with `quotas`."""

from collections import Counter
from collections.abc import Iterator, Mapping, Set

from models.allocation.plan_check import pinned_jobs
from models.plan import Plan
from models.workload import Job, Snapshot
from stowplan.errors import Issue


def quota_violations(snapshot: Snapshot, calendar: Snapshot, quotas: Mapping[str, int], plan: Plan) -> Iterator[Issue]:
    """Queues that have too much now."""
    return QuotaAudit(snapshot, calendar, quotas, pinned_jobs(snapshot)).overdrawn(plan)


class QuotaAudit:
    """Quotas of the queues of `snapshot`, of whose jobs the `pinned` keep what they have; `calendar`: the snapshot
    whose calendar counts."""

    def __init__(self, snapshot: Snapshot, calendar: Snapshot, quotas: Mapping[str, int], pinned: Set[str]) -> None:
        reservations = {entry.name for entry in calendar.calendar if not entry.is_over}
        self._queue_of = {
            job.id: job.queue
            for job in snapshot.jobs
            if job.queue is not None and job.queue in quotas and job.calendar_entry not in reservations
        }
        kept, reserved = Counter[str](), Counter[str]()
        for job in snapshot.jobs:
            if (queue := self._queue_of.get(job.id)) is None:
                continue
            if job.id in pinned:
                kept[queue] += sum(len(part.gpus) for part in job.current or ())
            elif job.reservation is not None:
                reserved[queue] += job.reservation.num_gpus
        self._pinned = pinned
        self._quotas = quotas
        self._left = {queue: max(most - kept[queue], reserved[queue]) for queue, most in quotas.items()}

    def allows(self, job: Job, num_gpus: int) -> bool:
        """Whether a job may ever have so many GPUs; who keeps what it has may."""
        queue = self._queue_of.get(job.id)
        return queue is None or job.id in self._pinned or num_gpus <= self._left[queue]

    def overdrawn(self, plan: Plan) -> Iterator[Issue]:
        """Queues that have too much now."""
        given = {item.job_id: float(item.num_gpus) for item in plan.allocations if item.job_id not in self._pinned}
        return self._overdrawn(given, "quota_exceeded", "now", 0.0)

    def overdrawn_later(self, given: Mapping[str, float], when: str, tolerance: float) -> Iterator[Issue]:
        """Queues that have too much on average over an interval, in which planned jobs have GPUs, by id."""
        return self._overdrawn(given, "quota_exceeded_later", when, tolerance)

    def _overdrawn(self, given: Mapping[str, float], code: str, when: str, tolerance: float) -> Iterator[Issue]:
        taken: dict[str, float] = {}
        for name, num_gpus in given.items():
            if (queue := self._queue_of.get(name)) is not None:
                taken[queue] = taken.get(queue, 0.0) + num_gpus
        for queue, num_gpus in sorted(taken.items()):
            left = self._left[queue]
            if num_gpus > left + tolerance * max(1.0, left):
                detail = f"planned jobs of queue {queue!r} have {num_gpus:g} GPUs {when}; of its quota of "
                detail += f"{self._quotas[queue]} there are {left} for them"
                yield Issue(code=code, pointer="/allocations", detail=detail)
