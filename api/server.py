"""`serve`: the application on uvicorn, until a signal comes."""

import gc
import logging
import os
import signal
import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import FrameType

import uvicorn

from api.app import create_app
from api.common.settings import Settings
from api.services import Services
from api.store.database import Store
from models.catalogue import using_catalogue
from stowplan.errors import InputError, WorkerError

_BACKLOG = 2048
# Longer than the minute after which clients that ask in rounds come again.
_KEEP_ALIVE_S = 75
_logger = logging.getLogger("stowplan.api.server")


def serve(settings: Settings) -> None:
    """Serve until SIGINT or SIGTERM.

    Raises
    ------
    StoreError
        When the database cannot be opened.
    InputError
        When the address cannot be listened on, or the user's catalogue is wrong.
    WorkerError
        When no worker can be started.
    """
    with ExitStack() as stack:
        if settings.catalogue:
            stack.enter_context(using_catalogue(Path(settings.catalogue)))
        stack.enter_context(_files_for_us_only())
        _serve(settings)


@contextmanager
def _files_for_us_only() -> Iterator[None]:
    """Have this process and those that it starts make files that nobody else can read: they hold what clients sent."""
    before = os.umask(0o077)
    try:
        yield
    finally:
        os.umask(before)


def _serve(settings: Settings) -> None:
    listener = listen(settings.host, settings.port)
    try:
        store = Store(settings.database_path)
        try:
            _run(settings, store, listener)
        finally:
            store.close()
    finally:
        listener.close()


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


def _run(settings: Settings, store: Store, listener: socket.socket) -> None:
    app = create_app(settings, store=store)
    config = uvicorn.Config(
        app,
        log_level="warning",
        server_header=False,
        timeout_keep_alive=_KEEP_ALIVE_S,
        timeout_graceful_shutdown=max(1, round(settings.shutdown_s)),
    )
    host, port = listener.getsockname()[:2]
    _logger.info("serving on http://%s:%d, plans in %s", host, port, settings.database)
    # What start-up has made stays for good: garbage collection need not look at it while it reads large requests.
    gc.collect()
    gc.freeze()
    server = _Server(config, app.state)
    server.run(sockets=[listener])
    if not server.started:
        raise WorkerError("the service could not start; its log says why")


def listen(host: str, port: int) -> socket.socket:
    """Give a listening socket.

    Raises
    ------
    InputError
        When the address cannot be listened on.
    """
    # asyncio turns Nagle's algorithm off only for sockets that name their protocol; with it every answer over a
    # kept connection waits 40 ms for a delayed acknowledgement.
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        listener.listen(_BACKLOG)
    except OSError as error:
        listener.close()
        reason = error.strerror or error
        raise InputError(f"cannot listen on {host}:{port}: {reason}; choose another --host or --port") from error
    return listener
