"""No client keeps others from their turn: requests, places in the queue, bytes."""

from collections.abc import Iterator, Mapping

import httpx
import pytest

from api.app import create_app
from api.common.settings import Settings
from solver.pool import WorkerPool
from stowplan.errors import InputError
from tests.api.asking import post
from tests.api.conftest import SETTINGS
from tests.api.serving import serving

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
    with pytest.raises(InputError, match="client_share is .* must be above 0 and at most 1"):
        Settings(client_share=share)
