"""The protocol: errors, limits, headers, pages, metrics."""

import gzip
import json
import socket
import threading
import time
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from api.app import create_app
from api.common.setting_kinds import IN_MEMORY
from api.common.settings import Settings
from api.http.body import BodyLimitMiddleware
from models.policies import POLICIES
from solver.pool import WorkerPool
from tests.api.asking import JSON, planned, post
from tests.api.requests import hard_request, json_text, sia_request
from tests.api.serving import serving
from tests.waiting import eventually


def _problem(answer: httpx.Response, status: int, code: str) -> dict[str, object]:
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    problem: dict[str, object] = answer.json()
    assert problem["code"] == code
    assert problem["instance"] == answer.request.url.path
    return problem


def _details(problem: dict[str, Any]) -> list[str]:
    return [issue["detail"] for issue in problem["errors"]]


@pytest.mark.parametrize("path", ["/v1/plans", "/v1/plans:validate"])
def test_malformed_json_names_the_place(client: httpx.Client, path: str) -> None:
    answer = client.post(path, content=b'{"policy": "sia",\n  "snapshot": nope}', headers=JSON)
    problem = _problem(answer, 400, "malformed_json")
    assert "line 2 column 16" in str(problem["detail"])


@pytest.mark.parametrize(
    "content", [b"", b"\xff", b"[" * 100_000, b'{"policy": "\\ud800"}', b'{"snapshot": {"base": "\xff"}}']
)
def test_what_is_not_json_is_refused(client: httpx.Client, content: bytes) -> None:
    _problem(client.post("/v1/plans", content=content, headers=JSON), 400, "malformed_json")


@pytest.mark.parametrize("document", [[], "text", 3, None])
def test_json_that_is_no_object_is_refused(client: httpx.Client, document: object) -> None:
    _problem(post(client, "/v1/plans", document), 422, "invalid_input")


def test_unknown_fields_are_compared_with_known_ones(client: httpx.Client) -> None:
    problem = _problem(post(client, "/v1/plans", sia_request(optoins={})), 422, "invalid_input")
    assert "did you mean 'options'" in json.dumps(problem["errors"])


def test_a_body_of_another_kind_is_refused(client: httpx.Client) -> None:
    answer = client.post("/v1/plans", content=b"{}", headers={"Content-Type": "text/plain"})
    _problem(answer, 415, "unsupported_media_type")


def test_many_faults_are_listed_in_part(client: httpx.Client) -> None:
    problem = _problem(post(client, "/v1/plans", sia_request([{"id": 1}] * 5000)), 422, "invalid_input")
    assert "5000 errors" in str(problem["detail"])
    assert isinstance(problem["errors"], list)
    assert len(problem["errors"]) == 200


def test_unknown_paths_plans_and_methods(client: httpx.Client) -> None:
    _problem(client.get("/v1/nothing"), 404, "not_found")
    for path in ("", "/input", "/figure.svg", "/figure.png", "/model.mps", "/events"):
        _problem(client.get(f"/v1/plans/plan-0{path}"), 404, "not_found")
    _problem(client.post("/v1/plans/plan-0:cancel"), 404, "not_found")
    _problem(client.delete("/v1/plans/plan-0"), 404, "not_found")
    _problem(client.get("/v1/snapshots/snapshot-0"), 404, "not_found")
    _problem(client.get("/v1/examples/none"), 404, "not_found")
    _problem(client.get("/v1/plans/"), 404, "not_found")


@pytest.mark.parametrize(
    ("path", "methods"),
    [
        ("/v1/plans", "GET, POST"),
        ("/v1/plans/plan-0", "DELETE, GET"),
        ("/v1/plans/plan-0:cancel", "POST"),
        ("/v1/deployments/deployment-0:stop", "POST"),
        ("/v1/deployments/deployment-0:reconfigure", "POST"),
        ("/v1/snapshots", "POST"),
        ("/healthz", "GET"),
    ],
)
@pytest.mark.parametrize("method", ["PUT", "OPTIONS"])
def test_a_wrong_method_is_told_the_right_ones(client: httpx.Client, method: str, path: str, methods: str) -> None:
    answer = client.request(method, path, json={})
    _problem(answer, 405, "method_not_allowed")
    assert answer.headers["allow"] == methods


def test_wrong_parameters_and_headers(client: httpx.Client) -> None:
    problem = _problem(client.get("/v1/plans?limit=0"), 422, "invalid_input")
    assert _details(problem) == ["query parameter 'limit' is \"0\"; must be at least 1"]
    problem = _problem(client.get("/v1/plans?status=lost"), 422, "invalid_input")
    assert _details(problem)[0].startswith("query parameter 'status' is \"lost\"; must be 'queued', 'building'")
    problem = _problem(client.get("/v1/plans?statsu=failed"), 422, "invalid_input")
    assert _details(problem) == ["query parameter 'statsu' is not known"]
    # Beyond what the database can compare with.
    _problem(client.get(f"/v1/plans?before={2**63}"), 422, "invalid_input")
    _problem(post(client, "/v1/plans", sia_request(), Prefer="wait=soon"), 400, "invalid_header")
    problem = _problem(client.get("/v1/plans/plan-0/events", headers={"Last-Event-ID": "x"}), 400, "invalid_header")
    assert _details(problem)[0].startswith("header 'Last-Event-ID' is \"x\"; must be a valid integer")
    _problem(post(client, "/v1/plans", sia_request(), Idempotency_Key="x" * 300), 400, "invalid_header")


def test_a_compressed_body_is_refused(client: httpx.Client) -> None:
    body = gzip.compress(json_text(sia_request()))
    answer = client.post("/v1/plans", content=body, headers={**JSON, "Content-Encoding": "gzip"})
    problem = _problem(answer, 415, "unsupported_media_type")
    assert "Content-Encoding gzip" in str(problem["detail"])


def test_an_index_says_where_to_go(client: httpx.Client) -> None:
    index = client.get("/").json()
    assert index["name"] == "stowplan"
    for name, path in index["links"].items():
        # Readiness may have to be waited for.
        answer = client.get(path, follow_redirects=True)
        assert answer.status_code in ((200, 503) if name == "readiness" else (200,)), path


def test_without_prefer_the_answer_is_a_promise(client: httpx.Client) -> None:
    """What is planned takes minutes, lest it has ended before the answer leaves."""
    answer = post(client, "/v1/plans", hard_request())
    assert answer.status_code == 202
    assert answer.headers["retry-after"] == "1"
    assert "preference-applied" not in answer.headers
    assert answer.headers["location"] == answer.json()["links"]["self"]
    client.post(answer.json()["links"]["cancel"])
    final = client.get(answer.headers["location"], headers={"Prefer": "wait=50"})
    assert final.json()["status"] == "canceled"
    assert final.headers["preference-applied"] == "wait=50"


def test_waiting_is_capped(client: httpx.Client) -> None:
    answer = post(client, "/v1/plans", sia_request(), Prefer="respond-async, wait=9999")
    assert answer.status_code == 200
    assert answer.headers["preference-applied"] == "wait=50"


def test_preferences_may_come_in_several_headers(client: httpx.Client) -> None:
    headers = [*JSON.items(), ("Prefer", "respond-async"), ("Prefer", "wait=50")]
    answer = client.post("/v1/plans", content=json_text(sia_request()), headers=headers)
    assert answer.status_code == 200
    assert answer.headers["preference-applied"] == "wait=50"


def test_plans_are_listed_in_pages(client: httpx.Client) -> None:
    ids = [planned(client, sia_request())["id"] for _ in range(3)]
    first = client.get("/v1/plans?limit=2&status=succeeded").json()
    second = client.get(first["next"]).json()
    listed = [plan["id"] for page in (first, second) for plan in page["plans"]]
    assert listed[:3] == ids[::-1]
    assert all(plan["status"] == "succeeded" for plan in second["plans"])
    assert client.get("/v1/plans?before=1").json() == {"plans": [], "next": None}


def test_a_final_plan_can_be_deleted_and_canceling_it_changes_nothing(client: httpx.Client) -> None:
    plan = planned(client, sia_request())
    canceled = client.post(f"{plan['links']['self']}:cancel")
    assert canceled.status_code == 200
    assert canceled.json() == plan
    assert client.delete(plan["links"]["self"]).status_code == 204
    _problem(client.get(plan["links"]["self"]), 404, "not_found")


def test_policies_say_what_they_need(client: httpx.Client) -> None:
    policies = {policy["name"]: policy for policy in client.get("/v1/policies").json()["policies"]}
    assert list(policies) == list(POLICIES)
    assert policies["sia"]["parameters"]["properties"]["fairness_power"]["default"] == -0.5
    assert all(policy["needs"] and policy["gives"] for policy in policies.values())


def test_examples_are_listed_and_sound(client: httpx.Client) -> None:
    for known in client.get("/v1/examples").json()["examples"]:
        answer = post(client, "/v1/plans:validate", client.get(known["href"]).json())
        assert answer.json()["valid"], known["id"]


def test_health_and_metrics(client: httpx.Client) -> None:
    planned(client, sia_request(options={"solver": "highs"}))
    assert client.get("/healthz").json()["status"] == "ok"
    assert client.get("/readyz").json()["status"] == "ok"
    client.get("/v1/plans/plan-0")
    text = client.get("/metrics").text
    assert 'stowplan_http_requests_total{method="POST",route="/v1/plans",status="200"}' in text
    assert 'stowplan_http_requests_total{method="GET",route="/v1/plans/{plan_id}",status="404"}' in text
    assert 'stowplan_plans_total{policy="sia",status="succeeded"}' in text
    assert 'stowplan_solve_seconds_count{policy="sia",solver="highs"}' in text
    for gauge in ("stowplan_queue_length", "stowplan_busy_workers", "stowplan_worker_restarts_total"):
        assert f"\n{gauge} " in text


def test_methods_that_nobody_knows_are_counted_together(client: httpx.Client) -> None:
    for method in ("BREW", "BREW2"):
        assert client.request(method, "/healthz").status_code == 405
    text = client.get("/metrics").text
    assert "BREW" not in text
    assert 'stowplan_http_requests_total{method="other",route="/healthz",status="405"}' in text


@pytest.fixture
def small(pool: WorkerPool) -> Iterator[httpx.Client]:
    """A service that reads 2 kB."""
    with serving(create_app(Settings(database=IN_MEMORY, max_body_bytes=2000), pool=pool)) as client:
        yield client


def test_a_body_that_is_too_large_is_refused(small: httpx.Client) -> None:
    large = sia_request([{"id": "x" * 200} for _ in range(20)])
    _problem(post(small, "/v1/plans", large), 413, "body_too_large")

    def chunks() -> Iterator[bytes]:
        # Without a length in the header the bytes are counted as they come.
        for _ in range(30):
            yield b" " * 100
            time.sleep(0.001)

    _problem(small.post("/v1/plans", content=chunks(), headers=JSON), 413, "body_too_large")
    assert small.get("/healthz").status_code == 200


@pytest.mark.slow
def test_bodies_at_a_time_are_limited_together(
    pool: WorkerPool, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = Settings(database=IN_MEMORY, max_body_bytes=2000, max_bodies_bytes=3000)
    count, there, num_bytes = BodyLimitMiddleware._count, threading.Event(), 0

    def counted(self: BodyLimitMiddleware, client: str, more: int) -> None:
        nonlocal num_bytes
        count(self, client, more)
        num_bytes += more
        if num_bytes == 1900:
            there.set()

    monkeypatch.setattr(BodyLimitMiddleware, "_count", counted)
    head = (
        "POST /v1/plans HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 2000\r\n\r\n"
    )

    def answer(client: httpx.Client) -> httpx.Response:
        return client.post("/v1/plans", content=b" " * 1900, headers=JSON)

    with serving(create_app(settings, pool=pool)) as client:
        with socket.create_connection((client.base_url.host, client.base_url.port)) as unfinished:
            unfinished.sendall(head.encode() + b" " * 1900)
            # Of two that come together the second one is refused, whichever that is.
            assert there.wait(60)
            refused = answer(client)
            assert "too many bodies" in str(_problem(refused, 503, "overloaded")["detail"])
            assert refused.headers["retry-after"]
            # Without a body there is room, and streamed ones count, too.
            assert client.get("/v1/plans").status_code == 200
            _problem(client.post("/v1/plans", content=iter([b" " * 1900]), headers=JSON), 503, "overloaded")
        eventually(lambda: answer(client).json()["code"], lambda code: code == "malformed_json")
    assert "too many bodies" not in caplog.text


def test_an_unexpected_error_tells_nothing_but_its_code(pool: WorkerPool) -> None:
    app = create_app(Settings(database=IN_MEMORY), pool=pool)

    @app.get("/bug")
    def bug() -> None:
        raise ZeroDivisionError("secret")

    with serving(app) as client:
        problem = _problem(client.get("/bug"), 500, "internal_error")
        assert "secret" not in json.dumps(problem)


@pytest.mark.slow
def test_a_service_whose_workers_do_not_start_is_ill_and_says_so() -> None:
    with (
        WorkerPool(1, 10, preload=("no_such_module",), start_attempts=1, gives_up=False) as pool,
        serving(create_app(Settings(database=IN_MEMORY), pool=pool)) as client,
    ):
        ill = eventually(lambda: client.get("/healthz"), lambda answer: answer.status_code == 503)
        assert ill.json()["status"].startswith("no worker starts, ")
        assert "a worker died at start" in ill.json()["status"]
        unready = client.get("/readyz")
        assert (unready.status_code, unready.headers["retry-after"]) == (503, "1")
        assert "a worker died at start" in unready.json()["status"]
        problem = _problem(post(client, "/v1/plans", sia_request()), 503, "worker_died")
        assert "no worker starts" in str(problem["detail"])
