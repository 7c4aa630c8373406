"""A real server in a thread, so that streams, disconnects and concurrency are what clients meet."""

import ssl
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import httpx
import uvicorn
from fastapi import FastAPI

from api.common.settings import Settings
from api.server import listen
from api.web import server_config

START_LIMIT_S = 90.0
# Without certificates, which take longer to load than most requests: nothing here is encrypted.
NO_CERTIFICATES = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
_SETTINGS = Settings(shutdown_s=1.0)


@contextmanager
def serving(app: FastAPI, settings: Settings = _SETTINGS) -> Iterator[httpx.Client]:
    """Serve `app` on a free port and give a client for it; `settings` are those of connections."""
    listener = listen("127.0.0.1", 0)
    server = uvicorn.Server(server_config(app, settings))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
    thread.start()
    try:
        end_s = time.monotonic() + START_LIMIT_S
        while not server.started and thread.is_alive() and time.monotonic() < end_s:
            time.sleep(0.005)
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        with httpx.Client(base_url=url, timeout=90, verify=NO_CERTIFICATES) as client:
            yield client
    finally:
        server.should_exit = True
        thread.join()
        listener.close()
