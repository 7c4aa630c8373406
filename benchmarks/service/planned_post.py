"""POSTs for plans, and whose CPU they take."""

import json
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from http.client import HTTPConnection
from typing import Any, Self

from benchmarks.service.process import Service, descendants_of, loop_cpu_s, threads_cpu_s

LIMIT_S = 60
# Behind the answer: what is written then is part of it.
_AFTER_S = 0.2
_IDLE_S = 2.0
_HEADERS = {"Content-Type": "application/json", "Prefer": f"wait={LIMIT_S}"}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Spent:
    """Milliseconds: since when the machine runs, CPU of the event loop, of all of the service, of all below it."""

    at_ms: float
    http_ms: float
    service_ms: float
    others_ms: float

    @classmethod
    def until_now(cls, service: Service) -> Self:
        """So far, of the threads that there are now."""
        return cls(
            at_ms=1e3 * time.monotonic(),
            http_ms=1e3 * loop_cpu_s(service.pid),
            service_ms=1e3 * threads_cpu_s(service.pid),
            others_ms=1e3 * sum(map(threads_cpu_s, descendants_of(service.pid))),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedPost:
    """The answer as JSON; wall-clock milliseconds until it came; CPU milliseconds of the service and of all others,
    planning included, beyond what they take while nobody asks. `http_ms`, of the service: its event loop, which takes
    connections, parses, routes, waits and answers."""

    answer: dict[str, Any]
    wall_ms: float
    http_ms: float
    service_ms: float
    others_ms: float


class Posts:
    """Requests on one connection, as clients keep it."""

    def __init__(self, service: Service, connection: HTTPConnection) -> None:
        self._service, self._connection = service, connection
        self._before = _Spent.until_now(service)
        time.sleep(_IDLE_S)
        self._idle = _Spent.until_now(service)

    def plan(self, body: bytes) -> PlannedPost:
        """Post a request for a plan and wait for it.

        Raises
        ------
        RuntimeError
            When there is no verified plan.
        """
        before, start_s = _Spent.until_now(self._service), time.perf_counter()
        self._connection.request("POST", "/v1/plans", body, _HEADERS)
        response = self._connection.getresponse()
        raw = response.read()
        wall_ms = 1e3 * (time.perf_counter() - start_s)
        answer = json.loads(raw)
        if response.status != 200 or not answer["verified"]:
            raise RuntimeError(f"answer {response.status} instead of a verified plan: {raw[:500]!r}")
        time.sleep(_AFTER_S)
        after = _Spent.until_now(self._service)

        def beyond_idle(name: str) -> float:
            idle = (getattr(self._idle, name) - getattr(self._before, name)) / (self._idle.at_ms - self._before.at_ms)
            return float(getattr(after, name) - getattr(before, name) - idle * (after.at_ms - before.at_ms))

        parts = {name: beyond_idle(name) for name in ("http_ms", "service_ms", "others_ms")}
        return PlannedPost(answer=answer, wall_ms=wall_ms, **parts)


@contextmanager
def posts(service: Service) -> Iterator[Posts]:
    """Posts to a service that has settled."""
    with closing(HTTPConnection("127.0.0.1", service.port, timeout=2 * LIMIT_S)) as connection:
        yield Posts(service, connection)
