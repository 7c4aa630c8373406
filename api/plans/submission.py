"""Plans that are asked for: each is stored, then queued, so that one that is answered for is never lost."""

import threading
import time
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from api.common.asking import caller_now
from api.common.batches import Batches, Later, Prepared
from api.common.errors import StoreUnavailableError
from api.plans.ending import Ending, Endings
from api.plans.reading import ReadPlan
from api.plans.run import RunningPlan
from api.schemas.plan import PlanStatus, TimingsDoc
from api.store.database import Store
from api.store.leases import Others
from api.store.records import NewPlan, PlanRecord
from solver.ticket import Ticket
from stowplan import __version__
from stowplan.records import to_json

_MS_PER_S = 1e3


@dataclass(frozen=True, slots=True, kw_only=True)
class Submission:
    """A plan that was read, and what is to be stored of it. `ticket`: the task that has read it and goes on with it;
    `ending`: what it has come to already, which is stored with it."""

    asked: ReadPlan
    new: NewPlan
    ticket: Ticket | None = None
    ending: Ending | None = None

    def cancel(self) -> None:
        """It is not to be."""
        if self.ticket is not None:
            self.ticket.cancel()


@dataclass(frozen=True, slots=True, kw_only=True)
class Submitted:
    """A plan that is stored; its `record`, where it has ended already."""

    id: str
    record: PlanRecord | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Accepted:
    """When a request was: `at_s` since 1970, `after_ms` it had come."""

    at_s: float
    after_ms: float

    @classmethod
    def now(cls, received_s: float) -> "Accepted":
        """One that came at `received_s` (monotonic clock)."""
        return cls(at_s=time.time(), after_ms=(time.perf_counter() - received_s) * _MS_PER_S)

    def later(self, seconds: float) -> "Accepted":
        """The same so much later."""
        return Accepted(at_s=self.at_s + seconds, after_ms=self.after_ms + seconds * _MS_PER_S)


def new_record(asked: ReadPlan, idempotency_key: str | None, accepted: Accepted) -> PlanRecord:
    """The first row of a plan."""
    timings = TimingsDoc(
        accept_ms=accepted.after_ms, queue_ms=None, phases_ms={}, cpu_ms=None, first_incumbent_ms=None, total_ms=None
    )
    return PlanRecord(
        id=f"plan-{uuid.uuid4().hex}",
        policy=asked.policy,
        status=PlanStatus.QUEUED,
        queued_at_s=accepted.at_s,
        version=__version__,
        input_hash=asked.input_hash,
        options=asked.options.model_dump_json(),
        timings=timings.model_dump_json(),
        idempotency_key=idempotency_key,
    )


def new_plan(plan: ReadPlan, record: PlanRecord) -> NewPlan:
    """What is stored of a plan that the client asks for who is known here."""
    return NewPlan(
        record=record,
        asked=plan.input,
        posted_hash=plan.posted_hash,
        # What is stored has nothing to fill in: who goes on with it could not say these again.
        notes=to_json(plan.filled_in) if plan.filled_in else None,
        client=caller_now().client,
        due_s=record.queued_at_s + plan.request.options.time_limit_s,
    )


class Submissions:
    """Stores and queues plans. One thread does so with those that clients ask for one by one, and writes the ends of
    others: to wait for the disk takes as long for one as for many.

    Parameters
    ----------
    admission
        Held until plans are queued that are being stored.
    refuse
        Is told how many are new, and what else there is to do; may refuse, by raising.
    begin
        Queues a plan that is stored, or goes on with a task that has read it; where it raises, the plan is stored no
        more.
    running
        Makes what is known of a plan while it runs.
    """

    def __init__(
        self,
        store: Store,
        endings: Endings,
        admission: threading.Lock,
        refuse: Callable[[int, Others], None],
        begin: Callable[[PlanRecord, ReadPlan, Ticket | None], None],
        running: Callable[[PlanRecord, ReadPlan], RunningPlan],
    ) -> None:
        self._store, self._endings = store, endings
        self._admission, self._refuse, self._begin, self._running = admission, refuse, begin, running
        # Plans that are being stored.
        self.coming: set[str] = set()
        self._batches: Batches[Submission, Submitted] = Batches("write", self._write)

    def submit_all(self, asked: Sequence[tuple[ReadPlan, str | None]], received_s: float) -> list[str]:
        """What `Plans.submit_all` does."""
        new = [new_plan(plan, new_record(plan, key, Accepted.now(received_s))) for plan, key in asked]
        with self._admission:
            self.coming |= (coming := {plan.record.id for plan in new})
            try:
                ids = self._store.add_plans(new, self._refuse)
                for plan, (read, _), id_ in zip(new, asked, ids, strict=True):
                    if id_ == plan.record.id:
                        self._begin(plan.record, read, None)
            finally:
                self.coming -= coming
        return ids

    async def submit_read(self, read: Callable[[], ReadPlan], idempotency_key: str | None, received_s: float) -> str:
        """What `Plans.submit_read` does."""

        def prepare() -> Submission:
            asked = read()
            record = new_record(asked, idempotency_key, Accepted.now(received_s))
            return Submission(asked=asked, new=new_plan(asked, record))

        return (await self._batches.do(prepare)).id

    def of_task(self, ticket: Ticket, asked: ReadPlan, record: PlanRecord) -> Submission:
        """A plan that a task has read, and goes on with; with its end, where it has come to that."""
        new, ending = new_plan(asked, record), None
        if ticket.done() and ticket.future.exception() is None:
            plan = self._running(record, asked)
            ending = self._endings.ending(plan, plan.ended_by(ticket))
        if ending is not None:
            new = replace(new, record=ending.record, events=ending.events)
        return Submission(asked=asked, new=new, ticket=ticket, ending=ending)

    def later(self) -> Later[Submission, Submitted]:
        """A plan that is asked for here, to be stored once it is read."""
        return self._batches.later()

    def end_soon(self) -> None:
        """Write the ends of plans that have come."""
        self._batches.wake()

    def close(self) -> None:
        """Store what has been asked for, and nothing more."""
        self._batches.close()

    def _write(self, submissions: Sequence[Prepared[Submission]]) -> list[Submitted | Exception]:
        """Store plans that have nothing to do with one another, with the ends that have come; an exception of one is
        its own."""
        endings = self._endings.take()
        if not submissions:
            self._endings.finish(endings)
            return []
        coming = {each.value.new.record.id for each in submissions}
        failed: dict[str, Exception] = {}
        with self._admission:
            self.coming |= coming
            try:
                found, stored = self._stored(submissions, endings)
                submitted = [self._begun(each, of, failed) for each, of in zip(submissions, found, strict=True)]
            finally:
                self.coming -= coming
        self._endings.finish(endings, stored)
        return submitted

    def _stored(
        self, submissions: Sequence[Prepared[Submission]], endings: Sequence[Ending]
    ) -> tuple[Sequence[Sequence[str] | Exception], Sequence[bool] | StoreUnavailableError | None]:
        """What became of plans, and of ends, if these were written with them."""
        groups = [([each.value.new], each.context) for each in submissions]
        if not endings:
            return self._store.add_each(groups, self._refuse), None
        try:
            stored, found = self._store.write_together([ending.stored for ending in endings], groups, self._refuse)
        except StoreUnavailableError as error:
            return [error] * len(groups), error
        except Exception:  # noqa: BLE001 - apart they are tried, and told of
            return self._store.add_each(groups, self._refuse), None
        return found, stored

    def _begun(
        self, submission: Prepared[Submission], found: Sequence[str] | Exception, failed: dict[str, Exception]
    ) -> Submitted | Exception:
        """Queue a plan that is stored, unless it was known or has ended.

        `failed`: plans of this batch that could not be queued, and so are stored no more. Others may have asked for
        the same one with its key.
        """
        if isinstance(found, Exception):
            submission.value.cancel()
            return found
        (id_,), new = found, submission.value
        if id_ != new.new.record.id:
            new.cancel()
        elif new.ending is not None:
            self._endings.tell(new.ending)
            return Submitted(id=id_, record=new.ending.record)
        else:
            try:
                submission.context.run(self._begin, new.new.record, new.asked, new.ticket)
            except Exception as error:  # noqa: BLE001 - whoever asked gets it
                new.cancel()
                failed[id_] = error
        return failed.get(id_) or Submitted(id=id_)
