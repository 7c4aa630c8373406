"""`serve`: the service, until a signal comes."""

import ctypes
import os
import socket
import ssl
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
        When the address cannot be listened on, the user's catalogue or the certificate is wrong, or workers have
        nowhere to run.
    ExtraMissingError
        When workers shall run on what is not installed.
    WorkerError
        When the application does not start.
    """
    with ExitStack() as stack:
        if settings.catalogue:
            stack.enter_context(using_catalogue(Path(settings.catalogue)))
        stack.enter_context(files_for_us_only())
        if settings.holds_secrets:
            _keep_others_out()
        refuse_bad_certificate(settings)
        if settings.otlp_endpoint:
            # It takes the web stack along, which otherwise loads beside the workers; who cannot have it is told first.
            from api.app import load_tracing

            load_tracing()
        listener = stack.enter_context(listen(settings.host, settings.port))
        pool = stack.enter_context(worker_pool(settings, stack.enter_context(worker_engine(settings))))
        # The workers load what they need while this process loads the web stack, which takes as long.
        from api.web import run

        run(settings, listener, pool)


def _keep_others_out() -> None:
    """Close this process to others of the same user, where Linux can: its variables may hold a secret.

    That takes core dumps and debuggers with it.
    """
    # Not every libc has it.
    with suppress(AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 0)


def refuse_bad_certificate(settings: Settings) -> None:
    """Look at the files of TLS before anything is started.

    Raises
    ------
    InputError
        When they cannot be read, do not belong together, or the key is encrypted.
    """
    if not settings.tls_certificate:
        return
    for path in (settings.tls_certificate, settings.tls_key):
        if not os.access(path, os.R_OK):
            raise InputError(f"{path} cannot be read; --tls-certificate and --tls-key name PEM files")
    try:
        # With a password, so that nobody is asked for one on the terminal.
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(settings.tls_certificate, settings.tls_key, "none")
    except ssl.SSLError as error:
        raise InputError(
            f"{settings.tls_certificate} and {settings.tls_key} are no certificate and its unencrypted key: "
            f"{error.reason or error}"
        ) from error


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
