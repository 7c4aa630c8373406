"""No client keeps others from their turn: requests, places in the queue, bytes."""

import socket
from collections.abc import Iterator, Mapping

import httpx
import pytest

import api.plans.run
from api.app import create_app
from api.common.settings import Settings
from solver.pool import WorkerPool
from stowplan.errors import InputError
from tests.api.asking import JSON, post
from tests.api.conftest import SETTINGS
from tests.api.requests import sia_request
from tests.api.serving import serving
from tests.api.tasks import hanging_task
from tests.waiting import eventually

OPERATOR = {"Authorization": "Bearer operators-own"}


@pytest.fixture
def limited(pool: WorkerPool) -> Iterator[httpx.Client]:
    """One request in an hour, and three at once."""
    limits = {"token": "operators-own", "client_requests_per_s": 1 / 3600, "client_burst": 3}
    with serving(create_app(SETTINGS.model_copy(update=limits), pool=pool)) as client:
        yield client


def headers_of(client: httpx.Client, name: str) -> Mapping[str, str]:
    made = post(client, "/v1/tokens", {"client": name, "role": "planner"}, **OPERATOR)
    assert made.status_code == 201, made.text
    return {"Authorization": f"Bearer {made.json()['token']}"}


def test_who_asks_too_often_waits_and_nobody_else(limited: httpx.Client) -> None:
    one, two = headers_of(limited, "one"), headers_of(limited, "two")
    again = headers_of(limited, "one")
    assert [limited.get("/v1/policies", headers=one).status_code for _ in range(3)] == [200] * 3
    refused = limited.get("/v1/policies", headers=one)
    assert (refused.status_code, refused.json()["code"]) == (429, "rate_limited")
    assert 3500 < int(refused.headers["retry-after"]) <= 3600
    # It is the client that counts, not the token.
    assert limited.get("/v1/policies", headers=again).status_code == 429
    assert limited.get("/v1/policies", headers=two).status_code == 200
    # Whoever looks whether the service lives is no client.
    assert limited.get("/healthz").status_code == 200


@pytest.mark.parametrize("share", [0.0, -1.0, 1.5, float("nan")])
def test_wrong_shares(share: float) -> None:
    with pytest.raises(InputError, match=r"client_share is .* must be above 0 and at most 1"):
        Settings(client_share=share)


def test_a_client_has_its_share_of_the_queue_and_others_theirs(
    pool: WorkerPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(api.plans.run, "PLAN_TASK", f"{hanging_task.__module__}:{hanging_task.__name__}")
    limits = {"token": "operators-own", "queue_size": 4, "workers": 2, "client_share": 0.5, "shutdown_s": 2.0}
    with serving(create_app(SETTINGS.model_copy(update=limits), pool=pool)) as client:
        one, two = headers_of(client, "one"), headers_of(client, "two")
        mine = [post(client, "/v1/plans", sia_request(), **one) for _ in range(3)]
        assert [answer.status_code for answer in mine] == [202] * 3
        refused = post(client, "/v1/plans", sia_request(), **one)
        assert (refused.status_code, refused.json()["code"]) == (429, "queue_full")
        assert "3 plans of one run or wait" in refused.json()["detail"]
        assert "a client may have 3" in refused.json()["detail"]
        assert post(client, "/v1/plans", sia_request(), **two).status_code == 202
        # What ends makes room.
        cancel = mine[0].json()["links"]["cancel"]
        assert client.post(cancel, headers={**one, "Prefer": "wait=50"}).json()["status"] == "canceled"
        assert post(client, "/v1/plans", sia_request(), **one).status_code == 202
        for plan in client.get("/v1/plans", headers=one).json()["plans"]:
            client.post(f"/v1/plans/{plan['id']}:cancel", headers={**one, "Prefer": "wait=50"})


def test_a_client_has_its_share_of_bodies_and_others_theirs(pool: WorkerPool) -> None:
    limits = {"token": "operators-own", "max_body_bytes": 2000, "max_bodies_bytes": 6000, "client_share": 0.4}
    with serving(create_app(SETTINGS.model_copy(update=limits), pool=pool)) as client:
        one, two = headers_of(client, "one"), headers_of(client, "two")
        head = (
            "POST /v1/plans HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            f"Authorization: {one['Authorization']}\r\nContent-Length: 2000\r\n\r\n"
        )

        def code(headers: Mapping[str, str]) -> str:
            answer = client.post("/v1/plans", content=b" " * 1900, headers={**JSON, **headers})
            told: str = answer.json()["code"]
            return told

        def beside_another() -> tuple[str, str]:
            # Anew every time: whichever body comes second is refused, and that may be this one.
            with socket.create_connection((client.base_url.host, client.base_url.port)) as unfinished:
                unfinished.sendall(head.encode() + b" " * 1900)
                return code(one), code(two)

        eventually(beside_another, lambda seen: seen == ("overloaded", "malformed_json"))
        eventually(lambda: code(one), lambda seen: seen == "malformed_json")
