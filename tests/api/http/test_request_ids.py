"""Every answer, problem, log line has the id of its request; the access log has nothing secret."""

import json
import logging
import re
from collections.abc import Iterator

import httpx
import pytest

from api.app import create_app
from api.common.asking import ASKING, Asking, RequestIds
from solver.pool import WorkerPool
from tests.api.asking import post
from tests.api.conftest import SETTINGS
from tests.api.serving import serving
from tests.waiting import eventually

OPERATORS = "operators-own"
GIVEN = {"Authorization": f"Bearer {OPERATORS}"}


@pytest.fixture(scope="module")
def logged(pool: WorkerPool) -> Iterator[httpx.Client]:
    """A service with a token, an access log, and a route that breaks."""
    app = create_app(SETTINGS.model_copy(update={"token": OPERATORS, "access_log": True}), pool=pool)

    @app.get("/v1/broken")
    def broken() -> None:
        logging.getLogger("stowplan.tests").warning("about to break")
        raise ZeroDivisionError

    with serving(app) as client:
        yield client


def test_an_id_that_is_given_is_kept(logged: httpx.Client) -> None:
    answer = logged.get("/v1/plans/none", headers={**GIVEN, "X-Request-Id": "trace:4bf9/07.A=_-"})
    assert answer.headers["x-request-id"] == answer.json()["request_id"] == "trace:4bf9/07.A=_-"
    assert logged.get("/healthz", headers={"X-Request-Id": "probe"}).headers["x-request-id"] == "probe"


@pytest.mark.parametrize("given", ["", "two words", "x" * 129, 'a"b', "a\tb", "<script>"])
def test_others_are_replaced(logged: httpx.Client, given: str) -> None:
    made = [logged.get("/v1/plans", headers={"X-Request-Id": given}).json()["request_id"] for _ in range(2)]
    assert all(re.fullmatch("[0-9a-f]{32}", id_) for id_ in made)
    assert made[0] != made[1]


def test_what_breaks_has_its_id_too(logged: httpx.Client, caplog: pytest.LogCaptureFixture) -> None:
    caplog.handler.addFilter(RequestIds())
    # Uvicorn ends a connection on which something broke: the next test is not to meet it.
    answer = logged.get("/v1/broken", headers={**GIVEN, "X-Request-Id": "r-500", "Connection": "close"})
    assert answer.status_code == 500
    assert answer.headers["x-request-id"] == answer.json()["request_id"] == "r-500"
    lines = {record.getMessage(): getattr(record, "request", None) for record in caplog.records}
    # The route runs in another thread.
    assert lines["about to break"] == lines["GET /v1/broken failed"] == " [r-500]"


def test_lines_outside_of_requests_have_none() -> None:
    record = logging.LogRecord("a", logging.INFO, "", 0, "text", (), None)
    ASKING.set(None)
    assert RequestIds().filter(record)
    assert record.request == ""  # type: ignore[attr-defined]
    ASKING.set(Asking(id="r", path="/"))
    RequestIds().filter(record)
    ASKING.set(None)
    assert record.request == " [r]"  # type: ignore[attr-defined]


def test_the_access_log_is_json_without_secrets(logged: httpx.Client, capfd: pytest.CaptureFixture[str]) -> None:
    headers = {**GIVEN, "X-Request-Id": "r-log"}
    logged.get("/v1/plans?limit=7&status=failed", headers=headers)
    post(logged, "/v1/plans", {"policy": "said-in-the-body"}, **headers)
    logged.get("/v1/nothing", headers={"Authorization": "Bearer a-wrong-token"})
    text = ""

    def more() -> str:
        nonlocal text
        text += capfd.readouterr().out
        return text

    # A line is written when the answer has left.
    eventually(more, lambda seen: seen.count("\n") >= 3)
    lines = [json.loads(line) for line in text.splitlines()]
    shown = [(line["method"], line["path"], line["route"], line["status"], line["client"]) for line in lines]
    assert shown == [
        ("GET", "/v1/plans", "list_plans", 200, "operator"),
        ("POST", "/v1/plans", "create_plan", 422, "operator"),
        ("GET", "/v1/nothing", None, 401, None),
    ]
    assert [line["request_id"] for line in lines[:2]] == ["r-log"] * 2
    assert all(line["duration_ms"] > 0 and line["bytes"] > 0 and line["from"] == "127.0.0.1" for line in lines)
    assert not any(secret in text for secret in (OPERATORS, "a-wrong-token", "said-in-the-body", "limit=7"))
