"""Reservations: proposed -> confirmed -> active -> done, or canceled.

What is proposed holds nothing. Confirming is decided in one transaction of the database: of two reservations that
exclude each other and are confirmed at the same time one wins, and the other is told which.
"""

import hashlib
import threading
import time
import uuid
from collections.abc import Callable
from datetime import UTC, datetime
from urllib.parse import quote

from api.calendars.conflicts import cluster_of, oddities, refuse_conflicts, refuse_faults
from api.calendars.planned_nodes import PlannedNodes
from api.common.errors import NotFoundError, ReservationFinalError
from api.common.times import time_of
from api.convert.issues import issue_documents
from api.schemas.calendar import CalendarEntryDoc
from api.schemas.reservation import (
    ReservationBody,
    ReservationDoc,
    ReservationLinksDoc,
    ReservationList,
    ReservationPageQuery,
    ReservationStatus,
)
from api.store.calendars import CalendarStore
from api.store.database import Store
from api.store.keys import RequestKey
from api.store.stored_calendar import StoredCalendar, StoredReservation
from stowplan.errors import InputError, Issue
from topology.calendar import EntryKind

RESERVATIONS_PATH = "/v1/reservations"
NodesOfPlan = Callable[[str, str | None], PlannedNodes]
_EPOCH = datetime.fromtimestamp(0, UTC)


class Reservations:
    """The reservations of one service.

    nodes_of_plan: (plan id, job id or None) -> the nodes of the job, and for when. now_s: a clock (Unix seconds).
    """

    def __init__(self, store: Store, nodes_of_plan: NodesOfPlan, now_s: Callable[[], float] = time.time) -> None:
        self._store = CalendarStore(store)
        self._nodes_of_plan = nodes_of_plan
        self._now_s = now_s
        self._proposing = threading.Lock()

    def propose(self, body: ReservationBody, idempotency_key: str | None = None) -> ReservationDoc:
        """Keep a reservation that holds nothing yet.

        Raises
        ------
        InputError
            When it is wrong.
        CalendarConflictError
            When the calendar excludes it now.
        NotFoundError, PlanNotFinishedError
            When the plan that it names does not give it nodes.
        IdempotencyConflictError
            When the key was used with another request.
        """
        key = None
        if idempotency_key is not None:
            input_hash = hashlib.sha256(body.model_dump_json().encode()).hexdigest()
            key = RequestKey(collection=RESERVATIONS_PATH, key=idempotency_key, input_hash=f"sha256:{input_hash}")
        with self._proposing:
            known = None if key is None else self._store.reservation_of(key)
            if known is not None:
                return self.reservation(known)
            document = self._proposed(body)
            self._store.add_reservation(_stored(document), key)
        return document

    def confirm(self, id_: str) -> ReservationDoc:
        """Keep the nodes of a reservation from now on; once confirmed it stays so, however often it is asked.

        Raises
        ------
        NotFoundError
            When there is no such reservation.
        ReservationFinalError
            When it was canceled, or its time is over.
        CalendarConflictError
            When the calendar excludes it; the issues name both sides.
        """
        now_s = self._now_s()

        def decide(calendar: StoredCalendar, known: StoredReservation) -> StoredReservation:
            document = _document(known, now_s)
            if document.status in (ReservationStatus.CONFIRMED, ReservationStatus.ACTIVE):
                return known
            if document.status.final or _is_over(document.entry, now_s):
                why = "was canceled" if document.status is ReservationStatus.CANCELED else "is over"
                raise ReservationFinalError(f"reservation {document.entry.name!r} ({id_}) {why}; propose another one")
            what = f"reservation {document.entry.name!r} cannot be confirmed"
            refuse_conflicts(calendar, time_of(now_s), (document.entry,), what)
            changes = {"status": ReservationStatus.CONFIRMED, "confirmed_at": time_of(now_s)}
            return _stored(document.model_copy(update=changes))

        return self._decided(id_, now_s, decide)

    def remove(self, id_: str) -> ReservationDoc | None:
        """Cancel a reservation that is not final, and give it; delete one that is.

        Raises
        ------
        NotFoundError
            When there is none.
        """
        if self.reservation(id_).status.final:
            if not self._store.delete_reservation(id_):
                raise _no_reservation(id_)
            return None
        now_s = self._now_s()

        def decide(_: StoredCalendar, known: StoredReservation) -> StoredReservation:
            document = _document(known, now_s)
            if document.status.final:
                return known
            changes = {"status": ReservationStatus.CANCELED, "canceled_at": time_of(now_s)}
            return _stored(document.model_copy(update=changes))

        return self._decided(id_, now_s, decide)

    def reservation(self, id_: str) -> ReservationDoc:
        """Look at a reservation; NotFoundError when there is none."""
        known = self._store.reservation(id_)
        if known is None:
            raise _no_reservation(id_)
        return _document(known, self._now_s())

    def page(self, query: ReservationPageQuery) -> ReservationList:
        """List reservations from the newest to the oldest."""
        now_s = self._now_s()
        # One more than asked for tells whether there is a next page.
        records = self._store.page(query.limit + 1, query.before, query.cluster)
        page = records[: query.limit]
        more = None
        if len(records) > query.limit:
            of = "" if query.cluster is None else f"&cluster={quote(query.cluster, safe='')}"
            more = f"{RESERVATIONS_PATH}?limit={query.limit}&before={page[-1][0]}{of}"
        found = (seen_at(ReservationDoc.model_validate_json(text), now_s) for _, text in page)
        return ReservationList(reservations=tuple(found), next=more)

    def _decided(
        self, id_: str, now_s: float, decide: Callable[[StoredCalendar, StoredReservation], StoredReservation]
    ) -> ReservationDoc:
        decided = self._store.decide(id_, now_s, decide)
        if decided is None:
            raise _no_reservation(id_)
        return _document(decided, now_s)

    def _proposed(self, body: ReservationBody) -> ReservationDoc:
        now_s = self._now_s()
        calendar = self._store.calendar(body.cluster, now_s)
        if calendar is None:
            detail = f"is {body.cluster!r}; there is no calendar of that name: PUT /v1/clusters/NAME/calendar first"
            raise InputError(detail, [Issue(code="unknown_cluster", pointer="/cluster", detail=detail)])
        planned = PlannedNodes(nodes=body.nodes)
        if body.plan_id is not None:
            planned = self._nodes_of_plan(body.plan_id, body.job_id)
        _refuse_several(body)
        from_time = body.from_time or planned.from_time
        if from_time is None:
            detail = "is missing; only plans of `ahead` say when: give the time from which the nodes are kept"
            raise InputError(detail, [Issue(code="missing_field", pointer="/from_time", detail=detail)])
        # Who says from when, says until when.
        until_time = body.until_time if body.from_time is not None else body.until_time or planned.until_time
        entry = CalendarEntryDoc(
            name=body.name,
            kind=EntryKind.RESERVATION,
            from_time=from_time,
            until_time=until_time,
            nodes=planned.nodes,
            shape=body.shape,
            hard=body.hard,
            owner=body.owner,
        )
        now = time_of(now_s)
        refuse_faults(cluster_of(calendar.cluster), (entry,), now, "", "/calendar/0")
        if _is_over(entry, now_s):
            detail = f"is past; it is {now:%Y-%m-%dT%H:%M:%SZ}"
            raise InputError(detail, [Issue(code="entry_in_the_past", pointer="/until_time", detail=detail)])
        refuse_conflicts(calendar, now, (entry,), f"reservation {body.name!r} is refused")
        id_ = f"reservation-{uuid.uuid4().hex}"
        path = f"{RESERVATIONS_PATH}/{id_}"
        return ReservationDoc(
            id=id_,
            cluster=body.cluster,
            status=ReservationStatus.PROPOSED,
            entry=entry,
            plan_id=body.plan_id,
            job_id=body.job_id,
            created_at=now,
            warnings=issue_documents(oddities(calendar, now, 0, (entry,))),
            links=ReservationLinksDoc(
                self=path, confirm=f"{path}:confirm", calendar=f"/v1/clusters/{quote(body.cluster, safe='')}/calendar"
            ),
        )


def seen_at(document: ReservationDoc, now_s: float) -> ReservationDoc:
    """A reservation as the clock has it: a confirmed one begins and ends."""
    if document.status is not ReservationStatus.CONFIRMED:
        return document
    if _is_over(document.entry, now_s):
        status = ReservationStatus.DONE
    elif _unix_s(document.entry.from_time) <= now_s:
        status = ReservationStatus.ACTIVE
    else:
        return document
    return document.model_copy(update={"status": status})


def _document(stored: StoredReservation, now_s: float) -> ReservationDoc:
    return seen_at(ReservationDoc.model_validate_json(stored.document), now_s)


def _stored(document: ReservationDoc) -> StoredReservation:
    """The row of a reservation; `status` in it is as it was decided, not what the clock makes of it."""
    until = document.entry.until_time
    return StoredReservation(
        id=document.id,
        calendar=document.cluster,
        holds=document.status is ReservationStatus.CONFIRMED,
        until_s=None if until is None else _unix_s(until),
        document=document.model_dump_json(),
    )


def _refuse_several(body: ReservationBody) -> None:
    given = [name for name in ("nodes", "shape", "plan_id") if getattr(body, name)]
    if len(given) != 1:
        detail = f"gives {' and '.join(given) or 'none'} of `nodes`, `shape` and `plan_id`; give one of them"
        raise InputError(detail, [Issue(code="one_of", pointer="", detail=detail)])
    if body.job_id is not None and body.plan_id is None:
        detail = "names a job of a plan; give its `plan_id`, too"
        raise InputError(detail, [Issue(code="missing_field", pointer="/plan_id", detail=detail)])


def _is_over(entry: CalendarEntryDoc, now_s: float) -> bool:
    return entry.until_time is not None and _unix_s(entry.until_time) <= now_s


def _unix_s(moment: datetime) -> float:
    return (moment - _EPOCH).total_seconds()


def _no_reservation(id_: str) -> NotFoundError:
    return NotFoundError(f"there is no reservation {id_!r}")
