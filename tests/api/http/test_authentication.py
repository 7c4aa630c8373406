"""A service with a token: everything under /v1 asks for it, and nothing else does."""

from collections.abc import Iterator

import httpx
import pytest

from api.app import create_app
from api.common.environment import read_settings
from api.common.settings import Settings
from solver.pool import WorkerPool
from stowplan.errors import InputError
from tests.api.asking import post
from tests.api.conftest import SETTINGS
from tests.api.measurements import batch_of
from tests.api.requests import sia_request
from tests.api.serving import serving

TOKEN = "s3cret-tok.en"  # noqa: S105 - for these tests only
GIVEN = {"Authorization": f"Bearer {TOKEN}"}


@pytest.fixture(scope="module")
def guarded(pool: WorkerPool) -> Iterator[httpx.Client]:
    with serving(create_app(SETTINGS.model_copy(update={"token": TOKEN}), pool=pool)) as client:
        yield client


@pytest.mark.parametrize("path", ["/v1/plans", "/v1/policies", "/v1/jobs/llm/performance", "/v1/nothing", "/v1"])
def test_without_the_token_nothing_is_told(guarded: httpx.Client, path: str) -> None:
    answer = guarded.get(path)
    assert answer.status_code == 401
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.headers["www-authenticate"] == 'Bearer realm="stowplan"'
    assert answer.json()["code"] == "unauthorized"
    assert "Authorization: Bearer" in answer.json()["detail"]


@pytest.mark.parametrize(
    "given", ["Bearer", "Bearer s3cret-tok.e", "Bearer s3cret-tok.en!", f"Basic {TOKEN}", TOKEN, "Bearer \u00fc"]
)
def test_wrong_tokens_are_refused(guarded: httpx.Client, given: str) -> None:
    answer = guarded.get("/v1/plans", headers=[(b"Authorization", given.encode("latin-1"))])
    assert (answer.status_code, answer.json()["detail"]) == (401, "the token is wrong")


def test_a_body_is_not_read_for_strangers(guarded: httpx.Client) -> None:
    assert post(guarded, "/v1/plans", sia_request()).status_code == 401
    assert post(guarded, "/v1/jobs/llm/metrics", batch_of()).status_code == 401
    # The connection is still good.
    assert guarded.get("/v1/jobs/llm/performance", headers=GIVEN).status_code == 404


def test_with_the_token_all_is_as_usual(guarded: httpx.Client) -> None:
    assert guarded.get("/v1/plans", headers=GIVEN).status_code == 200
    assert guarded.get("/v1/plans", headers={"authorization": f"bearer  {TOKEN}"}).status_code == 200
    assert post(guarded, "/v1/jobs/llm/metrics", batch_of(), **GIVEN).json()["accepted"] == 20


@pytest.mark.slow
@pytest.mark.parametrize("path", ["/", "/healthz", "/readyz", "/metrics", "/openapi.json"])
def test_operations_need_no_token(guarded: httpx.Client, path: str) -> None:
    # Ready or not: that is no secret.
    assert guarded.get(path).status_code in (200, 503)


def test_settings_take_a_token_and_do_not_show_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STOWPLAN_TOKEN", TOKEN)
    settings = read_settings({})
    assert settings.token == TOKEN
    assert TOKEN not in repr(settings)
    monkeypatch.delenv("STOWPLAN_TOKEN")
    assert read_settings({}).token is None


@pytest.mark.parametrize("token", ["", "two words", "line\nbreak", "t\u00f6ken"])
def test_tokens_that_no_header_holds_are_refused(token: str) -> None:
    with pytest.raises(InputError, match="token must be of letters") as caught:
        Settings(token=token)
    assert not token or token not in str(caught.value)
