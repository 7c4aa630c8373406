"""Tokens: shown once, kept as hashes, good until they expire or are revoked; no restart in between."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import httpx
import pytest
from sqlalchemy import update

from api.app import create_app
from api.common.asking import ANYBODY, OPERATOR, Caller, Role
from api.common.errors import NotFoundError, UnauthorizedError
from api.schemas.token import TokenBody, TokenPageQuery
from api.store.database import Store
from api.store.tables import TOKENS
from api.tokens.service import Tokens
from solver.pool import WorkerPool
from stowplan.errors import InputError
from tests.api.asking import post
from tests.api.conftest import SETTINGS
from tests.api.serving import serving

OPERATORS = "operators-own"
GIVEN = {"Authorization": f"Bearer {OPERATORS}"}
NIGHTLY = TokenBody(client="nightly", role=Role.PLANNER)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with closing(Store(tmp_path / "plans.sqlite")) as opened:
        yield opened


@pytest.fixture(scope="module")
def guarded(pool: WorkerPool) -> Iterator[httpx.Client]:
    with serving(create_app(SETTINGS.model_copy(update={"token": OPERATORS}), pool=pool)) as client:
        yield client


def test_a_token_names_its_client_and_the_file_does_not_have_it(store: Store, tmp_path: Path) -> None:
    tokens = Tokens(store, OPERATORS)
    made = tokens.create(NIGHTLY)
    # 32 random bytes as base64, behind what says what it is.
    assert len(made.token) == len("stow_") + 43
    assert made.token != tokens.create(NIGHTLY).token
    assert tokens.caller(f"Bearer {made.token}") == Caller(client="nightly", role=Role.PLANNER)
    assert tokens.caller(f"Bearer {OPERATORS}") == OPERATOR
    with closing(sqlite3.connect(tmp_path / "plans.sqlite")) as connection:
        text = "\n".join(connection.iterdump())
    assert made.id in text
    assert made.token not in text
    assert made.token.removeprefix("stow_") not in text


def test_without_any_token_nobody_is_asked_and_none_is_made(store: Store) -> None:
    tokens = Tokens(store, None)
    assert tokens.caller(None) == ANYBODY
    assert ANYBODY.role is Role.ADMIN
    # As on the command line, while no service runs.
    made = tokens.make(NIGHTLY)
    restarted = Tokens(store, None)
    with pytest.raises(UnauthorizedError, match="asks for a token"):
        restarted.caller(None)
    assert restarted.caller(f"bearer  {made.token}").client == "nightly"
    restarted.revoke(made.id)
    # That none is good any more opens nothing.
    with pytest.raises(UnauthorizedError, match="asks for a token"):
        Tokens(store, None).caller(None)


def test_tokens_end(store: Store) -> None:
    tokens = Tokens(store, OPERATORS)
    first, second = tokens.create(NIGHTLY), tokens.create(NIGHTLY)
    revoked = tokens.revoke(first.id)
    assert revoked.revoked_at is not None
    assert tokens.revoke(first.id) == revoked
    with pytest.raises(UnauthorizedError, match="the token was revoked at 20"):
        tokens.caller(f"Bearer {first.token}")
    assert tokens.caller(f"Bearer {second.token}").client == "nightly"
    with store.writing() as connection:
        connection.execute(update(TOKENS).where(TOKENS.c.id == second.id).values(expires_at_s=1.0))
    with pytest.raises(UnauthorizedError, match="the token expired at 1970-01-01T00:00:01"):
        tokens.caller(f"Bearer {second.token}")
    with pytest.raises(NotFoundError, match="there is no token 'token-x'"):
        tokens.revoke("token-x")
    with pytest.raises(InputError, match="'operator', which stands for"):
        tokens.create(TokenBody(client="operator", role=Role.VIEWER))


def test_pages(store: Store) -> None:
    tokens = Tokens(store, OPERATORS)
    ids = [tokens.create(TokenBody(client="c", role=Role.VIEWER, expires_in_days=None)).id for _ in range(5)]
    first = tokens.page(TokenPageQuery(limit=3))
    assert [token.id for token in first.tokens] == ids[:1:-1]
    assert first.next == "/v1/tokens?limit=3&before=3"
    assert [token.id for token in tokens.page(TokenPageQuery(limit=3, before=3)).tokens] == ids[1::-1]
    assert tokens.page(TokenPageQuery(limit=3, before=3)).next is None
    assert first.tokens[0].expires_at is None


def test_rotation_over_http_needs_no_restart(guarded: httpx.Client) -> None:
    admin = post(guarded, "/v1/tokens", {"client": "ops", "role": "admin"}, **GIVEN).json()
    mine = {"Authorization": f"Bearer {admin['token']}"}
    following = post(guarded, "/v1/tokens", {"client": "ops", "role": "admin", "expires_in_days": 1.0}, **mine)
    assert following.headers["cache-control"] == "no-store"
    theirs = {"Authorization": f"Bearer {following.json()['token']}"}
    assert guarded.post(f"/v1/tokens/{admin['id']}:revoke", headers=theirs).json()["revoked_at"] is not None
    assert guarded.get("/v1/plans", headers=mine).json()["detail"].startswith("the token was revoked at ")
    listed = guarded.get("/v1/tokens", headers=theirs).json()["tokens"]
    assert {following.json()["id"], admin["id"]} <= {token["id"] for token in listed}
    assert not any("token" in token or "hash" in token for token in listed)


@pytest.mark.parametrize(
    ("body", "pointer"),
    [
        ({"client": "", "role": "viewer"}, "/client"),
        ({"client": "two words", "role": "viewer"}, "/client"),
        ({"client": "a", "role": "root"}, "/role"),
        ({"client": "a", "role": "viewer", "expires_in_days": 0}, "/expires_in_days"),
        ({"client": "a", "role": "viewer", "expires_in_days": 1e9}, "/expires_in_days"),
        ({"client": "a"}, "/role"),
    ],
)
def test_wrong_bodies(guarded: httpx.Client, body: dict[str, object], pointer: str) -> None:
    answer = post(guarded, "/v1/tokens", body, **GIVEN)
    assert answer.status_code == 422
    assert [issue["pointer"] for issue in answer.json()["errors"]] == [pointer]


def test_an_open_service_makes_none(client: httpx.Client) -> None:
    answer = post(client, "/v1/tokens", {"client": "first", "role": "admin"})
    assert (answer.status_code, answer.json()["code"]) == (409, "open_service")
    assert "STOWPLAN_TOKEN" in answer.json()["detail"]
    assert client.get("/v1/plans").status_code == 200
