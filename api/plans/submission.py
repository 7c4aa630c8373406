"""Plans that are asked for: each is stored, then queued, so that one that is answered for is never lost."""

import threading
import time
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from api.common.asking import caller_now
from api.common.batches import Batches, Prepared
from api.common.errors import StoreUnavailableError
from api.plans.ending import Ending, Endings
from api.plans.reading import ReadPlan
from api.schemas.plan import PlanStatus, TimingsDoc
from api.store.database import Store
from api.store.leases import Others
from api.store.records import NewPlan, PlanRecord
from stowplan import __version__
from stowplan.records import to_json

_MS_PER_S = 1e3


@dataclass(frozen=True, slots=True, kw_only=True)
class Submission:
    """A plan that was read, and what is to be stored of it."""

    asked: ReadPlan
    new: NewPlan


def new_record(asked: ReadPlan, idempotency_key: str | None) -> PlanRecord:
    """The first row of a plan."""
    return PlanRecord(
        id=f"plan-{uuid.uuid4().hex}",
        policy=asked.policy,
        status=PlanStatus.QUEUED,
        queued_at_s=time.time(),
        version=__version__,
        input_hash=asked.input_hash,
        options=asked.options.model_dump_json(),
        timings="",
        idempotency_key=idempotency_key,
    )


def new_plan(plan: ReadPlan, record: PlanRecord, received_s: float) -> NewPlan:
    """What is stored of a plan that the client asks for who is known here, and that came at `received_s` (monotonic
    clock)."""
    return NewPlan(
        record=replace(record, timings=_accepted(received_s)),
        asked=plan.input,
        posted_hash=plan.posted_hash,
        # What is stored has nothing to fill in: who goes on with it could not say these again.
        notes=to_json(plan.filled_in) if plan.filled_in else None,
        client=caller_now().client,
        due_s=record.queued_at_s + plan.request.options.time_limit_s,
    )


def _accepted(received_s: float) -> str:
    accept_ms = (time.perf_counter() - received_s) * _MS_PER_S
    timings = TimingsDoc(
        accept_ms=accept_ms, queue_ms=None, phases_ms={}, cpu_ms=None, first_incumbent_ms=None, total_ms=None
    )
    return timings.model_dump_json()


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
        Queues a plan that is stored; where it raises, the plan is stored no more.
    """

    def __init__(
        self,
        store: Store,
        endings: Endings,
        admission: threading.Lock,
        refuse: Callable[[int, Others], None],
        begin: Callable[[PlanRecord, ReadPlan], None],
    ) -> None:
        self._store, self._endings = store, endings
        self._admission, self._refuse, self._begin = admission, refuse, begin
        # Plans that are being stored.
        self.coming: set[str] = set()
        self._batches: Batches[Submission, str] = Batches("write", self._write)

    def submit_all(self, asked: Sequence[tuple[ReadPlan, str | None]], received_s: float) -> list[str]:
        """What `Plans.submit_all` does."""
        new = [new_plan(plan, new_record(plan, key), received_s) for plan, key in asked]
        with self._admission:
            self.coming |= (coming := {plan.record.id for plan in new})
            try:
                ids = self._store.add_plans(new, self._refuse)
                for plan, (read, _), id_ in zip(new, asked, ids, strict=True):
                    if id_ == plan.record.id:
                        self._begin(plan.record, read)
            finally:
                self.coming -= coming
        return ids

    async def submit_read(self, read: Callable[[], ReadPlan], idempotency_key: str | None, received_s: float) -> str:
        """What `Plans.submit_read` does."""

        def prepare() -> Submission:
            asked = read()
            return Submission(asked=asked, new=new_plan(asked, new_record(asked, idempotency_key), received_s))

        return await self._batches.do(prepare)

    def end_soon(self) -> None:
        """Write the ends of plans that have come."""
        self._batches.wake()

    def close(self) -> None:
        """Store what has been asked for, and nothing more."""
        self._batches.close()

    def _write(self, submissions: Sequence[Prepared[Submission]]) -> list[str | Exception]:
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
                ids = [self._begun(each, of, failed) for each, of in zip(submissions, found, strict=True)]
            finally:
                self.coming -= coming
        self._endings.finish(endings, stored)
        return ids

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
    ) -> str | Exception:
        """Queue a plan that is stored, unless it was known; gives its id.

        `failed`: plans of this batch that could not be queued, and so are stored no more. Others may have asked for
        the same one with its key.
        """
        if isinstance(found, Exception):
            return found
        (id_,), record = found, submission.value.new.record
        if id_ == record.id:
            try:
                submission.context.run(self._begin, record, submission.value.asked)
            except Exception as error:  # noqa: BLE001 - whoever asked gets it
                failed[id_] = error
        return failed.get(id_, id_)
