"""What is sent again, when, and how long; without a service, and without waiting."""

import time
from collections.abc import Generator
from email.utils import formatdate
from typing import Any

import httpx
import pytest

from stowplan.client import ProblemError, Retries, UnreachableError
from stowplan.client.retries import sent
from stowplan.client.steps import Pause, Request, request

READ_ERROR = httpx.ReadError("lost")
CONNECT_ERROR = httpx.ConnectError("nobody")
CREATE = request("POST", "/v1/plans", body={}, key="k")
START = request("POST", "/v1/deployments", body={}, repeatable=False)


def carried_out(asked: Request, script: list[Any], retries: Retries) -> tuple[Any, list[float]]:
    """What came of a request that meets these answers and errors one after another, and the pauses between."""
    told = iter(script)
    pauses: list[float] = []
    now_s = [0.0]
    steps: Generator[Any, Any, Any] = sent(asked, retries, lambda: now_s[0])
    try:
        step = next(steps)
        while True:
            if isinstance(step, Pause):
                pauses.append(step.seconds)
                now_s[0] += step.seconds
                step = steps.send(None)
            else:
                assert step is asked
                came = next(told)
                step = steps.throw(came) if isinstance(came, Exception) else steps.send(came)
    except StopIteration as end:
        return end.value, pauses
    except (ProblemError, UnreachableError) as error:
        return error, pauses


def answer(status: int, **headers: str) -> httpx.Response:
    return httpx.Response(status, headers={name.replace("_", "-"): value for name, value in headers.items()})


@pytest.mark.parametrize(
    ("asked", "first", "again"),
    [
        (CREATE, READ_ERROR, True),
        (CREATE, CONNECT_ERROR, True),
        (CREATE, answer(503), True),
        (CREATE, answer(429), True),
        (CREATE, answer(500), False),
        (CREATE, answer(422), False),
        (CREATE, answer(409), False),
        # What starts ranks is sent again only where nothing can have begun.
        (START, READ_ERROR, False),
        (START, answer(503), False),
        (START, CONNECT_ERROR, True),
        (START, answer(429), True),
    ],
)
def test_sent_again_is_what_does_nothing_twice_and_may_succeed(asked: Request, first: Any, *, again: bool) -> None:
    came, pauses = carried_out(asked, [first, answer(202)], Retries())
    assert len(pauses) == int(again)
    assert (getattr(came, "status_code", None) == 202) == again


def test_pauses_grow_up_to_a_limit_and_differ_between_clients() -> None:
    retries = Retries(attempts=7, first_pause_s=1.0, longest_pause_s=8.0)
    came, pauses = carried_out(CREATE, [READ_ERROR] * 7, retries)
    assert isinstance(came, UnreachableError)
    assert "tried 7 times" in str(came)
    assert came.idempotency_key == "k"
    for pause_s, most_s in zip(pauses, (1.0, 2.0, 4.0, 8.0, 8.0, 8.0), strict=True):
        assert most_s / 2 <= pause_s <= most_s
    assert pauses != carried_out(CREATE, [READ_ERROR] * 7, retries)[1]


@pytest.mark.parametrize("dated", [False, True])
def test_retry_after_is_waited_at_least(*, dated: bool) -> None:
    told = formatdate(time.time() + 7.9, usegmt=True) if dated else "7"
    _, (pause_s,) = carried_out(CREATE, [answer(503, Retry_After=told), answer(200)], Retries(longest_pause_s=1.0))
    assert 5 <= pause_s <= 8


def test_a_service_that_wants_more_time_than_there_is_is_not_waited_for() -> None:
    came, pauses = carried_out(CREATE, [answer(503, Retry_After="121")], Retries(total_s=120.0))
    assert isinstance(came, ProblemError)
    assert came.code == "http_503"
    assert pauses == []


def test_what_was_deleted_by_a_lost_attempt_is_deleted() -> None:
    delete = request("DELETE", "/v1/plans/{plan_id}", "p")
    assert carried_out(delete, [READ_ERROR, answer(404)], Retries())[0].status_code == 404
    refused, _ = carried_out(delete, [answer(503), answer(404)], Retries())
    assert isinstance(refused, ProblemError)


@pytest.mark.parametrize("name", ["", ".", ".."])
def test_names_that_would_lead_elsewhere_are_refused(name: str) -> None:
    with pytest.raises(ValueError, match="plan_id is"):
        request("GET", "/v1/plans/{plan_id}", name)
    assert request("GET", "/v1/plans/{plan_id}", "a/b?c").path == "/v1/plans/a%2Fb%3Fc"


def test_retries_have_limits() -> None:
    with pytest.raises(ValueError, match="attempts must be 1 or more"):
        Retries(attempts=0)
    with pytest.raises(ValueError, match="first_pause_s"):
        Retries(first_pause_s=9.0, longest_pause_s=1.0)
