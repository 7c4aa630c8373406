"""The application: rooms put together, nothing else."""

import importlib
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager, closing
from types import ModuleType
from typing import Any

from fastapi import Depends, FastAPI
from starlette.concurrency import run_in_threadpool

from api.common.metrics import MetricsMiddleware
from api.common.settings import Settings
from api.http.access import authorize
from api.http.authentication import CallerMiddleware
from api.http.body import BodyLimitMiddleware
from api.http.connections import CrowdedMiddleware
from api.http.cross_site import CrossSiteMiddleware
from api.http.describe import PROBLEM_RESPONSES, openapi_document
from api.http.page import install_pages
from api.http.problems import install_problem_handlers
from api.http.request_ids import RequestIdMiddleware
from api.http.routers import (
    calendars,
    calibrations,
    checks,
    clusters,
    comparisons,
    deployments,
    forecasters,
    jobs,
    parallel,
    plans,
    replays,
    reservations,
    service,
    snapshots,
    tokens,
    what_if,
)
from api.reading.readers import Readers
from api.services import Services
from api.store.database import Store
from api.workers import reader_pool, worker_engine, worker_pool
from solver.pool import WorkerPool
from solver.process import LocalEngine
from stowplan import __version__
from stowplan.errors import ExtraMissingError

_ROUTERS = (
    plans.router,
    what_if.router,
    comparisons.router,
    parallel.router,
    calibrations.router,
    replays.router,
    forecasters.router,
    deployments.router,
    jobs.router,
    checks.router,
    snapshots.router,
    clusters.router,
    calendars.router,
    reservations.router,
    tokens.router,
    service.router,
)
_DESCRIPTION = """\
Post a snapshot of a GPU cluster and its jobs, get an allocation: solved, with bound and gap, and checked by code that
knows no solver. Errors are RFC 9457 problem details with stable codes; unknown fields are refused.
"""


class _Application(FastAPI):
    """Describes the bodies and errors that FastAPI does not see, too."""

    def openapi(self) -> dict[str, Any]:
        """Give the OpenAPI document."""
        if self.openapi_schema is None:
            self.openapi_schema = openapi_document(self)
        return self.openapi_schema


def create_app(settings: Settings, pool: WorkerPool | None = None, store: Store | None = None) -> FastAPI:
    """Build the application.

    A `pool` that is given has been started and is not closed here; the same holds for a `store`.

    Raises
    ------
    ExtraMissingError
        When traces are wanted and OpenTelemetry is not installed.
    """
    tracing = load_tracing().Tracing.to(settings.otlp_endpoint) if settings.otlp_endpoint else None

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        with ExitStack() as stack:
            own_store = store or stack.enter_context(closing(Store(settings.database_location)))
            own_pool = pool or worker_pool(settings, stack.enter_context(worker_engine(settings))).start()
            # What workers elsewhere read would have to go there.
            near = own_pool if isinstance(own_pool.engine, LocalEngine) else None
            readers = Readers(reader_pool(settings, own_pool.engine), settings.read_s, settings.small_body_bytes, near)
            if tracing is not None:
                stack.callback(tracing.close)
            app.state.services = Services(settings, own_store, own_pool, readers, tracing)
            own_pool.load_idle()
            try:
                yield
            finally:
                await run_in_threadpool(app.state.services.close, pool is None)

    app = _Application(
        title="Stowplan",
        version=__version__,
        summary="Solved, bounded, checked placement of LLM training jobs",
        description=_DESCRIPTION,
        lifespan=lifespan,
        responses=PROBLEM_RESPONSES,
        generate_unique_id_function=lambda route: route.name,
        redirect_slashes=False,
        # To make the document takes long, and nobody else is answered then: `api.http.page` has the one checked in.
        openapi_url=None,
        # The pages that FastAPI offers load their scripts from elsewhere; the one there does not.
        docs_url=None,
        redoc_url=None,
    )
    for router in _ROUTERS:
        app.include_router(router, dependencies=[Depends(authorize)])
    install_pages(app)
    install_problem_handlers(app, [route for router in _ROUTERS for route in router.routes])
    app.add_middleware(BodyLimitMiddleware, settings=settings)
    app.add_middleware(CallerMiddleware, settings=settings)
    app.add_middleware(CrossSiteMiddleware, host_names=settings.host_names)
    app.add_middleware(CrowdedMiddleware)
    app.add_middleware(MetricsMiddleware)
    if tracing is not None:
        tracing.install(app)
    app.add_middleware(RequestIdMiddleware, settings=settings)
    return app


def load_tracing() -> ModuleType:
    """Give `api.http.tracing`, which nobody loads who wants no traces.

    Raises
    ------
    ExtraMissingError
        When OpenTelemetry is not installed.
    """
    try:
        return importlib.import_module("api.http.tracing")
    except ModuleNotFoundError as error:
        raise ExtraMissingError(
            f"traces need {error.name}; install the extra: pip install -e '.[otel]' in a checkout"
        ) from error
