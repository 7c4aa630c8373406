"""Requests that bring or name a snapshot: from bytes to what the services need of them."""

import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from starlette.concurrency import run_in_threadpool

from api.common.settings import Settings
from api.convert.plain_change import base_of
from api.jobs.calibrated_snapshots import MeasuredJobs
from api.reading.readers import Readers, Then
from api.reading.texts import Lacking, LackingError, RequestText, WantedForecasts
from api.store.calendars import CalendarStore
from api.store.calibrations import CalibrationStore
from api.store.clusters import ClusterStore
from api.store.snapshots import Snapshots
from api.store.texts import BodyName
from models.forecast.known import SnapshotForecasts
from stowplan.errors import Issue

# What a forecaster says of jobs, or why it says nothing, with a pointer relative to the request.
Forecast = Callable[[WantedForecasts], Awaitable[SnapshotForecasts | Issue]]


class RequestReader:
    """Has requests read, and fetches what they refer to."""

    def __init__(
        self,
        readers: Readers,
        snapshots: Snapshots,
        clusters: ClusterStore,
        calendars: CalendarStore,
        calibrations: CalibrationStore,
        measured: MeasuredJobs,
        forecast: Forecast,
        settings: Settings,
    ) -> None:
        self._readers = readers
        self._snapshots = snapshots
        self._clusters = clusters
        self._calendars = calendars
        self._calibrations = calibrations
        self._measured = measured
        self._forecast = forecast
        # The token is nobody's business but ours.
        self._settings = settings.model_copy(update={"token": None})

    async def read(
        self, task: str, body: bytes, *, fill_in: bool = True, by_name: bool = True, then: Then | None = None
    ) -> Any:
        """Have `body` read by `task`, which takes a `RequestText`; give what it returns, or what `then` makes of that.

        Without `fill_in` it is read as it stands, whatever was measured of its jobs; without `by_name` not by who has
        but the name of what it changes, as `near` says it.

        Raises
        ------
        InputError
            When the request is wrong.
        WorkerTimeoutError, QueueFullError
            When it is not read in time, or too many wait.
        """
        text = self._text(body, self._kept_elsewhere(body) if by_name else {}, fill_in=fill_in)
        when_known = None if then is None else partial(_unless_lacking, then)
        while isinstance(found := await self._read(task, text, when_known), Lacking):
            if found.forecasts is None:
                text = await run_in_threadpool(self._supplied, text, found)
            else:
                text = replace(text, forecasts=await self._forecast(found.forecasts))
        return found

    def near(self, body: bytes) -> RequestText | None:
        """What an idle worker is told to read that keeps what `body` changes; None where there is none."""
        kept = self._kept_elsewhere(body)
        return self._text(body, kept, fill_in=True) if kept else None

    def _text(self, body: bytes, kept: Mapping[str, BodyName | None], *, fill_in: bool) -> RequestText:
        known = self._measured.ids() if fill_in else frozenset[str]()
        return RequestText(body=body, settings=self._settings, measured_jobs=known, snapshots=kept)

    def _kept_elsewhere(self, body: bytes) -> dict[str, BodyName | None]:
        """The base that a small text changes, by its name, where an idle worker keeps it."""
        if len(body) > self._settings.small_body_bytes or (base := base_of(body)) is None:
            return {}
        name = self._snapshots.recent(base)
        return {base: name} if name is not None and self._readers.is_kept(name.hash) else {}

    async def _read(self, task: str, text: RequestText, then: Then | None) -> Any:
        try:
            return await self._readers.read(task, text, text.num_bytes, text.wants, then)
        except LackingError as error:
            return error.lacking

    def _supplied(self, text: RequestText, lacking: Lacking) -> RequestText:
        stored = None if lacking.snapshot_id is None else self._snapshots.find_body(lacking.snapshot_id)
        calendar = None if lacking.calendar is None else self._calendars.calendar(lacking.calendar, time.time())
        if calendar is not None:
            # The snapshot has nodes of its own.
            calendar = replace(calendar, cluster="")
        if lacking.cluster is not None:
            cluster = self._clusters.cluster(lacking.cluster)
            text = replace(text, clusters={lacking.cluster: None if cluster is None else cluster.body.text})
        calibrations = {name: self._calibrations.find(name) for name in lacking.calibrations}
        text = replace(text, calibrations={**text.calibrations, **calibrations})
        return text.with_found(lacking, stored, {job: self._measured.of(job) for job in lacking.jobs}, calendar)


def _unless_lacking(then: Then, read: Callable[[], Any]) -> Awaitable[Any]:
    def all_of_it() -> Any:
        found = read()
        if isinstance(found, Lacking):
            raise LackingError(found)
        return found

    return then(all_of_it)
