"""Calendars of clusters by name: entries that clients write, beside the reservations that were confirmed."""

import time
from collections.abc import Callable
from urllib.parse import quote

from api.calendars.conflicts import cluster_of, oddities, refuse_conflicts, refuse_faults
from api.calendars.reservations import RESERVATIONS_PATH, seen_at
from api.clusters.service import CLUSTERS_PATH, Clusters
from api.common.errors import NotFoundError, PreconditionFailedError, PreconditionRequiredError
from api.common.times import time_of
from api.convert.calendar import calendar_from_documents
from api.convert.icalendar import icalendar_of
from api.convert.issues import issue_documents
from api.convert.located import located
from api.figures.picture_format import PictureFormat
from api.figures.request import CalendarFigure
from api.schemas.reservation import CalendarBody, CalendarDoc, CalendarLinksDoc, ReservationDoc
from api.schemas.snapshot import ClusterDoc, SnapshotReference
from api.store.calendars import CalendarStore
from api.store.database import Store
from api.store.resolved import source_document
from api.store.snapshots import Snapshots
from api.store.stored_calendar import ENTRIES, StoredCalendar, entries_of
from stowplan.errors import InputError, Issue


class Calendars:
    """The stored calendars. now_s: a clock (Unix seconds)."""

    def __init__(
        self, store: Store, snapshots: Snapshots, clusters: Clusters, now_s: Callable[[], float] = time.time
    ) -> None:
        self._store = CalendarStore(store)
        self._clusters = clusters
        self._snapshots = snapshots
        self._now_s = now_s

    def calendar(self, name: str) -> CalendarDoc:
        """Look at a calendar; NotFoundError when there is none."""
        return _document(self._stored(name))

    def put(self, name: str, body: CalendarBody, version: int | None) -> tuple[CalendarDoc, bool]:
        """Write the entries of a calendar; the second value is whether it is new.

        Parameters
        ----------
        version
            Which one is changed; None for a calendar that there is not yet.

        Raises
        ------
        InputError
            When the entries are wrong.
        CalendarConflictError
            When they exclude a reservation that was confirmed.
        PreconditionRequiredError, PreconditionFailedError
            When there is a calendar and no version was given, or another one.
        """
        now_s = self._now_s()
        now = time_of(now_s)
        known = self._store.calendar(name, now_s)
        cluster = self._cluster_text(body) or (self._clusters.text(name) if known is None else known.cluster)
        if cluster is None:
            detail = f"is missing; there is no calendar and no cluster {name!r} yet that has these nodes"
            raise InputError(detail, [Issue(code="missing_field", pointer="/cluster", detail=detail)])
        with located("/cluster"):
            built = cluster_of(cluster)
        refuse_faults(built, body.entries, now, "/entries")
        entries = ENTRIES.dump_json(body.entries).decode()

        def check(stored: StoredCalendar) -> None:
            refuse_conflicts(stored, now)

        if version is None:
            if known is not None or not self._store.create(name, now_s, cluster, entries, check):
                raise PreconditionRequiredError(
                    f"there is a calendar {name!r}; get it, and say in If-Match which version (its ETag) you change"
                )
            return self.calendar(name), True
        if not self._store.replace(name, version, now_s, cluster, entries, check):
            has = "there is none" if known is None else f"it has version {known.version}"
            raise PreconditionFailedError(
                f"calendar {name!r} is not of version {version} any more ({has}); get it and change that"
            )
        return self.calendar(name), False

    def icalendar(self, name: str) -> str:
        """All that a calendar holds, as iCalendar; NotFoundError when there is none."""
        stored = self._stored(name)
        return icalendar_of(entries_of(stored), time_of(stored.at_s), stored.name)

    def drawable(self, name: str, format_: PictureFormat) -> CalendarFigure:
        """What is to be drawn of a calendar; NotFoundError when there is none."""
        stored = self._stored(name)
        now = time_of(stored.at_s)
        return CalendarFigure(
            name=name,
            cluster=cluster_of(stored.cluster),
            entries=calendar_from_documents(entries_of(stored), now),
            taken_at=now,
            format=format_,
        )

    def _stored(self, name: str) -> StoredCalendar:
        stored = self._store.calendar(name, self._now_s())
        if stored is None:
            raise NotFoundError(f"there is no calendar of a cluster {name!r}; PUT it first")
        return stored

    def _cluster_text(self, body: CalendarBody) -> str | None:
        source = body.cluster
        if isinstance(source, SnapshotReference):
            with located("/cluster"):
                return source_document(source, self._snapshots.find).cluster.model_dump_json()
        return None if source is None else source.model_dump_json()


def _document(stored: StoredCalendar) -> CalendarDoc:
    now = time_of(stored.at_s)
    entries = ENTRIES.validate_json(stored.entries)
    name = quote(stored.name, safe="")
    path = f"{CLUSTERS_PATH}/{name}/calendar"
    return CalendarDoc(
        name=stored.name,
        version=stored.version,
        updated_at=time_of(stored.updated_at_s),
        num_nodes=len(ClusterDoc.model_validate_json(stored.cluster).nodes),
        entries=entries,
        reservations=tuple(
            seen_at(ReservationDoc.model_validate_json(text), stored.at_s) for text in stored.reservations
        ),
        warnings=issue_documents(oddities(stored, now, len(entries))),
        links=CalendarLinksDoc(
            self=path,
            icalendar=f"{path}.ics",
            figure=f"{path}/figure.svg",
            figure_png=f"{path}/figure.png",
            reservations=f"{RESERVATIONS_PATH}?cluster={name}",
        ),
    )
