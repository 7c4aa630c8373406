"""The application on uvicorn. `api.server` loads it when the workers are on their way."""

import gc
import logging
import signal
import socket
import threading
from contextlib import closing
from types import FrameType

import uvicorn
from fastapi import FastAPI

from api.app import create_app
from api.common.settings import Settings
from api.http.connections import limited_protocol
from api.services import Services
from api.store.database import Store
from solver.pool import WorkerPool
from stowplan.errors import WorkerError

# Longer than the minute after which clients that ask in rounds come again.
_KEEP_ALIVE_S = 75
_NEW_OBJECTS = 20_000
_logger = logging.getLogger("stowplan.api.web")


def run(settings: Settings, listener: socket.socket, pool: WorkerPool) -> None:
    """Serve on the socket until SIGINT or SIGTERM; the pool has been started and stays open.

    Raises
    ------
    StoreError
        When the database cannot be opened.
    WorkerError
        When the application does not start.
    """
    with closing(Store(settings.database_location)) as store:
        app = create_app(settings, pool, store)
        host, port = listener.getsockname()[:2]
        scheme = "https" if settings.tls_certificate else "http"
        _logger.info("serving on %s://%s:%d, plans in %s", scheme, host, port, store.identity)
        # What start-up has made stays for good: garbage collection need not look at it while it reads large requests.
        gc.collect()
        gc.freeze()
        # Requests leave hardly a cycle: to look for some after every 700 objects took a thirtieth of a plan's time.
        gc.set_threshold(_NEW_OBJECTS)
        server = _Server(server_config(app, settings), app.state)
        server.run(sockets=[listener])
        if not server.started:
            raise WorkerError("the service could not start; its log says why")


def server_config(app: FastAPI, settings: Settings) -> uvicorn.Config:
    """Set uvicorn up for a service."""
    return uvicorn.Config(
        app,
        http=limited_protocol(settings),
        ws="none",
        log_level="warning",
        server_header=False,
        timeout_keep_alive=_KEEP_ALIVE_S,
        ssl_certfile=settings.tls_certificate or None,
        ssl_keyfile=settings.tls_key or None,
        timeout_graceful_shutdown=max(1, round(settings.shutdown_s)),
    )


class _Server(uvicorn.Server):
    """Begins to stop the plans at the signal, not only when the last connection is closed."""

    def __init__(self, config: uvicorn.Config, state: object) -> None:
        super().__init__(config)
        self._state = state

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:  # noqa: ARG002 - the signature of handlers
        """Handle a signal; in a thread, because signal handlers must not wait for locks."""
        services: Services | None = getattr(self._state, "services", None)
        if services is not None:
            threading.Thread(target=services.begin_shutdown, name="begin-shutdown").start()
        # Uvicorn's own handler notes the signal and raises it again in the end, which would kill this process before
        # the database is closed.
        if self.should_exit and sig == signal.SIGINT:
            self.force_exit = True
        self.should_exit = True
