"""Calibrations of systems: fitted by a worker while the client waits, kept by name, beside those that come along."""

import time

from starlette.concurrency import run_in_threadpool

from api.calibrations.reading import ReadCalibration
from api.common.errors import CalibrationExistsError, NotFoundError
from api.common.pages import page_of
from api.common.settings import Settings
from api.common.tasks import run_task
from api.common.times import time_of
from api.convert.calibration import calibration_document, factor_documents
from api.convert.issues import issue_documents
from api.convert.job_model import calibration_from_document, shipped_calibrations
from api.convert.parallel_answer import measure_next_document
from api.schemas.calibration import (
    CalibratedSystemDoc,
    CalibrationLinksDoc,
    CalibrationList,
    CalibrationPageQuery,
    CalibrationSummary,
)
from api.schemas.model import CalibrationDoc
from api.store.calibrations import CalibrationStore
from api.store.database import Store
from api.store.keys import RequestKey
from models.parallelism.measured_site import CalibratedSite
from models.performance.iteration.adjustment import Adjustment
from solver.pool import WorkerPool
from stowplan import __version__

CALIBRATIONS_PATH = "/v1/calibrations"
_TASK = "models.parallelism.site_calibration:calibrated_site_task"


class Calibrations:
    """All calibrations of one service, and those that come along, whose names nobody else gets. What was posted under a
    name before one of that name came along stays."""

    def __init__(self, settings: Settings, store: Store, pool: WorkerPool) -> None:
        self._limit_s = settings.time_limit_s
        self._store = CalibrationStore(store)
        self._pool = pool

    async def create(self, asked: ReadCalibration, idempotency_key: str | None = None) -> CalibratedSystemDoc:
        """Fit a calibration to measurements and keep it; the same request under the same key gives the one that is
        there.

        Raises
        ------
        CalibrationExistsError
            When there is one of this name.
        IdempotencyConflictError
            When the key was used with another request.
        InputError
            When the measurements contradict one another, or are of something else; pointers are relative to the body.
        WorkerTimeoutError
            When the time limit is over.
        """
        key = None
        if idempotency_key is not None:
            key = RequestKey(collection=CALIBRATIONS_PATH, key=idempotency_key, input_hash=asked.input_hash)
        known = await run_in_threadpool(self._known, asked.name, key)
        if known is not None:
            return known
        found: CalibratedSite = await run_task(self._pool, _TASK, asked.site, self._limit_s)
        return await run_in_threadpool(self._keep, asked, found, key)

    def calibration(self, name: str) -> CalibratedSystemDoc:
        """Look at a calibration; NotFoundError when there is none."""
        text = self._store.document(name)
        if text is not None:
            return CalibratedSystemDoc.model_validate_json(text)
        if name not in shipped_calibrations():
            raise _no_calibration(name)
        return _shipped(name)

    def find(self, name: str) -> CalibrationDoc | None:
        """What requests take by a name; None where there is none."""
        return self._store.find(name) or shipped_calibrations().get(name)

    def page(self, query: CalibrationPageQuery) -> CalibrationList:
        """List calibrations from the newest to the oldest."""
        rows, more = page_of(CalibrationSummary, self._store.page, lambda _: None, CALIBRATIONS_PATH, query)
        shipped = tuple(
            CalibrationSummary(**{field: getattr(document, field) for field in CalibrationSummary.model_fields})
            for document in map(_shipped, shipped_calibrations())
        )
        return CalibrationList(calibrations=rows, shipped=shipped, next=more)

    def remove(self, name: str) -> None:
        """Delete a calibration; NotFoundError when there is none, CalibrationExistsError for one that comes along."""
        if self._store.delete(name):
            return
        if name in shipped_calibrations():
            raise CalibrationExistsError(f"calibration {name!r} comes along and cannot be deleted")
        raise _no_calibration(name)

    def _known(self, name: str, key: RequestKey | None) -> CalibratedSystemDoc | None:
        """What came of the same request; CalibrationExistsError when another one has the name."""
        known = self._store.name_of(key)
        if known is not None:
            return self.calibration(known)
        if name in shipped_calibrations() or self._store.document(name) is not None:
            raise _exists(name)
        return None

    def _keep(self, asked: ReadCalibration, found: CalibratedSite, key: RequestKey | None) -> CalibratedSystemDoc:
        now_s = time.time()
        calibration = calibration_document(found, now_s)
        adjustment = found.calibration.adjustment or Adjustment()
        document = CalibratedSystemDoc(
            name=asked.name,
            created_at=time_of(now_s),
            source=calibration.source,
            links=CalibrationLinksDoc(self=f"{CALIBRATIONS_PATH}/{asked.name}"),
            factors=factor_documents(adjustment),
            num_points=adjustment.num_points,
            gpu_type=asked.site.gpu_type.name,
            calibration=calibration,
            measure_next=None if found.measure_next is None else measure_next_document(found.measure_next),
            warnings=issue_documents(found.warnings),
            input_hash=asked.input_hash,
            version=__version__,
        )
        # Two may have asked for one name at the same time.
        if not self._store.add(asked.name, document.model_dump_json(), key):
            known = self._known(asked.name, key)
            assert known is not None  # noqa: S101 - else it has raised
            return known
        return document


def _shipped(name: str) -> CalibratedSystemDoc:
    document = shipped_calibrations()[name]
    adjustment = calibration_from_document(document).adjustment or Adjustment()
    return CalibratedSystemDoc(
        name=name,
        created_at=None,
        source=document.source,
        links=CalibrationLinksDoc(self=f"{CALIBRATIONS_PATH}/{name}"),
        factors=factor_documents(adjustment),
        num_points=adjustment.num_points,
        calibration=document,
        version=__version__,
    )


def _exists(name: str) -> CalibrationExistsError:
    return CalibrationExistsError(f"there is a calibration {name!r}; delete it, or take another name")


def _no_calibration(name: str) -> NotFoundError:
    return NotFoundError(f"there is no calibration {name!r}")
