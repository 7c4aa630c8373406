"""Sending a request until there is an answer."""

import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from http import HTTPStatus

import httpx

from stowplan.client.errors import ClientError, ProblemError, UnreachableError
from stowplan.client.steps import Pause, Request, Steps

# Nothing of the request has reached anybody.
_NOT_SENT = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout)
_NOT_DONE = HTTPStatus.TOO_MANY_REQUESTS
_PASSES = (
    _NOT_DONE,
    HTTPStatus.REQUEST_TIMEOUT,
    HTTPStatus.BAD_GATEWAY,
    HTTPStatus.SERVICE_UNAVAILABLE,
    HTTPStatus.GATEWAY_TIMEOUT,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Retries:
    """How often and how long a request is tried.

    Pauses grow from first_pause_s twofold up to longest_pause_s, of which a random half is waited at least, so that
    clients do not come back all at once; where the service says Retry-After, that is waited at least. total_s: no
    attempt begins later than that after the first one.
    """

    attempts: int = 8
    total_s: float = 120.0
    first_pause_s: float = 0.25
    longest_pause_s: float = 10.0

    def __post_init__(self) -> None:
        if self.attempts < 1 or not 0 <= self.first_pause_s <= self.longest_pause_s:
            raise ValueError("attempts must be 1 or more, and 0 <= first_pause_s <= longest_pause_s")

    def pause_s(self, attempt: int, answer: httpx.Response | None = None) -> float:
        """How long to wait behind attempt 1, 2, ..."""
        pause_s = min(self.longest_pause_s, self.first_pause_s * 2.0 ** min(attempt - 1, 60))
        return max(pause_s * random.uniform(0.5, 1.0), _retry_after_s(answer))  # noqa: S311 - nothing is secret


def passes(status: int) -> bool:
    """Whether what was refused with this status may be answered later."""
    return status in _PASSES


def sent(request: Request, retries: Retries, clock: Callable[[], float] = time.monotonic) -> Steps[httpx.Response]:
    """Give the answer to a request, tried as often as it may be.

    Raises
    ------
    ProblemError
        When the service refuses.
    UnreachableError
        When there is no answer.
    """
    end_s = clock() + retries.total_s
    lost = False
    for attempt in range(1, retries.attempts + 1):
        answer: httpx.Response | None = None
        failure: ClientError
        try:
            answer = yield request
        except httpx.TransportError as error:
            failure, again = UnreachableError(request, error, attempt), request.repeatable
            if isinstance(error, _NOT_SENT):
                again = True
            else:
                lost = True
        else:
            # What is not there any more was deleted by the attempt whose answer was lost.
            deleted = lost and request.method == "DELETE" and answer.status_code == HTTPStatus.NOT_FOUND
            if answer.is_success or deleted:
                return answer
            failure = ProblemError(request, answer)
            again = passes(answer.status_code) and (request.repeatable or answer.status_code == _NOT_DONE)
        pause_s = retries.pause_s(attempt, answer)
        if not again or attempt == retries.attempts or clock() + pause_s > end_s:
            raise failure
        yield Pause(seconds=pause_s)
    raise AssertionError("the last attempt returns or raises")


def _retry_after_s(answer: httpx.Response | None) -> float:
    """Of the header, which is a number of seconds or a date (RFC 9110); 0 where it is neither."""
    told = "" if answer is None else answer.headers.get("Retry-After", "")
    if told.isdecimal():
        return float(told)
    try:
        return max(0.0, parsedate_to_datetime(told).timestamp() - time.time())
    except ValueError:
        return 0.0
