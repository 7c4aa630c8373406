"""Connections on a real socket: who asks too slowly is not waited for, and health is told to all."""

import asyncio
import re
import socket
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, closing
from http.client import HTTPConnection

import httpx
import pytest
from starlette.responses import StreamingResponse

from api.app import create_app
from api.common.setting_kinds import IN_MEMORY
from api.common.settings import Settings
from api.http.connections import NUM_SPARE
from api.web import server_config
from solver.pool import WorkerPool
from tests.api.serving import serving
from tests.waiting import LIMIT_S, eventually

_LIMIT_S = 0.5
_HASTY = Settings(database=IN_MEMORY, header_timeout_s=_LIMIT_S, body_timeout_s=_LIMIT_S, shutdown_s=1.0)
_CROWDED = Settings(database=IN_MEMORY, max_connections=2, shutdown_s=1.0)
_POST = b"POST /v1/plans HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 1000\r\n\r\n"


@pytest.fixture(scope="module")
def hasty(pool: WorkerPool) -> Iterator[httpx.Client]:
    """A service that waits half a second for heads and bodies."""
    app = create_app(_HASTY, pool=pool)

    @app.get("/ticks")
    def ticks() -> StreamingResponse:
        return StreamingResponse(_ticks())

    with serving(app, _HASTY) as client:
        yield client


async def _ticks() -> AsyncIterator[bytes]:
    """Twice in the time that a head or a body may take, six times."""
    for _ in range(6):
        yield b"tick\n"
        await asyncio.sleep(_LIMIT_S / 2)


@pytest.fixture
def crowded(pool: WorkerPool) -> Iterator[httpx.Client]:
    """A service that takes two connections."""
    with serving(create_app(_CROWDED, pool=pool), _CROWDED) as client:
        yield client


def _connection(client: httpx.Client) -> socket.socket:
    return socket.create_connection((client.base_url.host, client.base_url.port), timeout=LIMIT_S)


def _dripped(connection: socket.socket, drop: bytes) -> bytes:
    """What comes until the connection is closed, while `drop` is sent ten times in the time limit."""
    connection.settimeout(_LIMIT_S / 10)
    came, end_s = b"", time.monotonic() + LIMIT_S
    while time.monotonic() < end_s:
        try:
            connection.sendall(drop)
            part = connection.recv(65_536)
        except TimeoutError:
            continue
        except ConnectionError:
            return came
        if not part:
            return came
        came += part
    raise AssertionError(f"the connection is still open; {came!r} came")


@pytest.mark.parametrize("head", [b"", b"G", b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n"])
def test_a_head_that_does_not_come_is_not_waited_for(hasty: httpx.Client, head: bytes) -> None:
    with _connection(hasty) as connection:
        connection.sendall(head)
        assert connection.recv(1) == b""


def test_a_head_that_comes_in_drops_is_not_waited_for(hasty: httpx.Client) -> None:
    with _connection(hasty) as connection:
        connection.sendall(b"GET /healthz HTTP/1.1\r\n")
        assert _dripped(connection, b"x-more: 1\r\n") == b""


def test_the_second_head_of_a_connection_is_not_waited_for_either(hasty: httpx.Client) -> None:
    with _connection(hasty) as connection:
        connection.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\nGET")
        assert _dripped(connection, b"x").count(b"HTTP/1.1 200") == 1


@pytest.mark.parametrize(
    "head", [_POST, _POST.replace(b"Content-Length: 1000", b"Transfer-Encoding: chunked") + b"3e8\r\n"]
)
def test_a_body_that_does_not_come_is_answered_408(hasty: httpx.Client, head: bytes) -> None:
    with _connection(hasty) as connection:
        connection.sendall(head)
        answer = _dripped(connection, b" ")
    assert answer.startswith(b"HTTP/1.1 408 ")
    assert b"application/problem+json" in answer
    assert b'"code":"body_timeout"' in answer
    assert b"within 0.5 s" in answer


def test_the_rest_of_a_body_that_was_refused_is_not_waited_for(hasty: httpx.Client) -> None:
    with _connection(hasty) as connection:
        connection.sendall(_POST.replace(b"application/json", b"text/plain"))
        assert _dripped(connection, b" ").startswith(b"HTTP/1.1 415 ")


@pytest.mark.parametrize("when", ["at once", "later"])
@pytest.mark.parametrize(
    ("body", "status"), [(b"{}", b"422"), (b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n", b"400")]
)
def test_a_request_that_offers_an_upgrade_is_answered_as_any_other_and_its_body_is_no_request(
    client: httpx.Client, when: str, body: bytes, status: bytes
) -> None:
    offer = b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABk\r\nContent-Length: %d\r\n"
    head = _POST.replace(b"Content-Length: 1000\r\n", offer % len(body))
    with _connection(client) as connection:
        for part in (head + body,) if when == "at once" else (head, body):
            connection.sendall(part)
            # It is read before the next one comes.
            client.get("/healthz")
        connection.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        with connection.makefile("rb") as file:
            answers = file.read()
    assert re.findall(rb"HTTP/1.1 (\d+) ", answers) == [status, b"200"]


@pytest.mark.parametrize("more", [b"Host: other\r\n\r\n", b"x-more: " + 65_536 * b"x"])
def test_a_head_with_two_hosts_or_without_end_is_refused(hasty: httpx.Client, more: bytes) -> None:
    with _connection(hasty) as connection:
        connection.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n" + more)
        assert _dripped(connection, b"").startswith(b"HTTP/1.1 400 ")


@pytest.mark.slow
def test_a_stream_is_not_cut(hasty: httpx.Client) -> None:
    with hasty.stream("GET", "/ticks") as answer:
        assert list(answer.iter_lines()) == ["tick"] * 6


@pytest.mark.slow
def test_a_connection_is_kept_between_requests(hasty: httpx.Client) -> None:
    with closing(HTTPConnection(hasty.base_url.host, hasty.base_url.port or 0, timeout=LIMIT_S)) as connection:
        for _ in range(2):
            connection.request("GET", "/healthz")
            assert connection.getresponse().read()
            connection.sock.settimeout(2 * _LIMIT_S)
            with pytest.raises(TimeoutError):
                connection.sock.recv(1)
            connection.sock.settimeout(LIMIT_S)
    # Who comes every minute finds the connection open.
    assert server_config(create_app(_HASTY), _HASTY).timeout_keep_alive > 60


@pytest.mark.slow
def test_health_is_told_on_more_connections_than_the_service_takes(crowded: httpx.Client) -> None:
    with ExitStack() as stack:
        for _ in range(2):
            stack.enter_context(_connection(crowded))
        for path in ("/healthz", "/metrics"):
            assert crowded.get(path).status_code == 200
        refused = crowded.get("/v1/plans")
        assert (refused.status_code, refused.headers["connection"]) == (503, "close")
        assert refused.headers["retry-after"]
        assert refused.headers["content-type"] == "application/problem+json"
        assert refused.json()["code"] == "overloaded"
    assert eventually(lambda: crowded.get("/v1/plans").status_code, lambda status: status == 200)


@pytest.mark.slow
def test_connections_beyond_the_spare_ones_are_closed(crowded: httpx.Client) -> None:
    with ExitStack() as stack:
        held = [stack.enter_context(_connection(crowded)) for _ in range(2 + NUM_SPARE)]
        with _connection(crowded) as beyond:
            assert beyond.recv(1) == b""
        held[0].close()
        assert eventually(lambda: _status(crowded, "/healthz"), lambda status: status == 200)


def _status(client: httpx.Client, path: str) -> int | None:
    try:
        return client.get(path).status_code
    except httpx.TransportError:
        return None
