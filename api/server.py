"""`serve`: the service, until a signal comes."""

import ctypes
import socket
from contextlib import ExitStack, suppress
from pathlib import Path

from api.common.private_files import files_for_us_only
from api.common.settings import Settings
from api.workers import worker_engine, worker_pool
from models.catalogue import using_catalogue
from stowplan.errors import InputError

_BACKLOG = 2048
# From linux/prctl.h.
_PR_SET_DUMPABLE = 4


def serve(settings: Settings) -> None:
    """Serve until SIGINT or SIGTERM.

    Raises
    ------
    StoreError
        When the database cannot be opened.
    InputError
        When the address cannot be listened on, the user's catalogue is wrong, or workers have nowhere to run.
    ExtraMissingError
        When workers shall run on what is not installed.
    WorkerError
        When the application does not start.
    """
    with ExitStack() as stack:
        if settings.catalogue:
            stack.enter_context(using_catalogue(Path(settings.catalogue)))
        stack.enter_context(files_for_us_only())
        if settings.token is not None:
            _keep_others_out()
        listener = stack.enter_context(listen(settings.host, settings.port))
        pool = stack.enter_context(worker_pool(settings, stack.enter_context(worker_engine(settings))))
        # The workers load what they need while this process loads the web stack, which takes as long.
        from api.web import run

        run(settings, listener, pool)


def _keep_others_out() -> None:
    """Close this process to others of the same user, where Linux can: its variables may hold the token.

    That takes core dumps and debuggers with it.
    """
    # Not every libc has it.
    with suppress(AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 0)


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
