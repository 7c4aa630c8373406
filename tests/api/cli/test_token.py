"""`stowplan token` as a person uses it: on the file of a stopped service, and at one that runs."""

import re
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import httpx
import pytest
from typer.testing import CliRunner, Result

from api.app import create_app
from api.cli.main import app
from api.cli.token import TOKEN_COMMANDS
from api.store.database import Store
from solver.pool import WorkerPool
from tests.api.conftest import SETTINGS
from tests.api.serving import serving

OPERATORS = "operators-own"


def run(*arguments: object) -> Result:
    return CliRunner().invoke(app, ["token", *map(str, arguments)])


@pytest.fixture
def database(tmp_path: Path) -> Path:
    Store(tmp_path / "plans.sqlite").close()
    return tmp_path / "plans.sqlite"


@pytest.fixture(scope="module")
def guarded(pool: WorkerPool) -> Iterator[httpx.Client]:
    with serving(create_app(SETTINGS.model_copy(update={"token": OPERATORS}), pool=pool)) as client:
        yield client


def test_the_help_of_the_group_says_what_each_command_says() -> None:
    for name, known in TOKEN_COMMANDS.items():
        assert known.summary in " ".join(run(name, "--help").stdout.split())


def test_tokens_of_a_stopped_service(database: Path, pool: WorkerPool) -> None:
    made = run("create", "ops", "--role", "admin", "--expires", "12h", "--database", database)
    assert made.exit_code == 0, made.stderr
    assert re.fullmatch(r"token-[0-9a-f]{16} of ops \(admin\) expires at .*Z; it is not shown again:\n", made.stderr)
    token, id_ = made.stdout.strip(), made.stderr.split()[0]
    options = SETTINGS.model_copy(update={"database": str(database)})
    # Without STOWPLAN_TOKEN: that there is a token is enough to ask for one.
    with serving(create_app(options, pool=pool)) as client:
        assert client.get("/v1/tokens").status_code == 401
        assert client.get("/v1/tokens", headers={"Authorization": f"Bearer {token}"}).status_code == 200
        running = run("create", "late", "--role", "viewer", "--database", database)
        assert "in use by another process" in running.stderr
    assert f"{id_}  ops  admin  made " in run("list", "--database", database).stdout
    assert "  revoked 20" in run("revoke", id_, "--database", database).stdout
    assert "  revoked 20" in run("list", "--database", database).stdout


def test_tokens_of_a_service_that_runs(guarded: httpx.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STOWPLAN_TOKEN", OPERATORS)
    url = str(guarded.base_url)
    made = run("create", "nightly", "--role", "planner", "--expires", "never", "--url", f"{url}/")
    assert made.exit_code == 0, made.stderr
    mine = {"Authorization": f"Bearer {made.stdout.strip()}"}
    assert guarded.get("/v1/plans", headers=mine).status_code == 200
    id_ = made.stderr.split()[0]
    assert f"{id_}  nightly  planner  made " in run("list", "--url", url).stdout
    assert run("revoke", id_, "--url", url).exit_code == 0
    assert guarded.get("/v1/plans", headers=mine).status_code == 401
    assert "refuses (404): there is no token 'token-x'" in run("revoke", "token-x", "--url", url).stderr
    monkeypatch.setenv("STOWPLAN_TOKEN", made.stdout.strip())
    assert "refuses (401): the token was revoked" in run("list", "--url", url).stderr
    monkeypatch.delenv("STOWPLAN_TOKEN")
    assert "refuses (401): this service asks for a token" in run("list", "--url", url).stderr


def test_lists_of_many_go_over_pages(database: Path) -> None:
    with closing(Store(database)) as store, store.writing() as connection:
        for k in range(501):
            connection.exec_driver_sql(
                "INSERT INTO tokens (id, client, role, hash, created_at_s) VALUES (?, 'c', 'viewer', ?, 0)",
                (f"t{k}", k),
            )
    lines = run("list", "--database", database).stdout.splitlines()
    assert (len(lines), lines[0][:4], lines[-1][:2]) == (501, "t500", "t0")


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (("create", "a", "--role", "root"), "role is 'root'; must be one of viewer, planner, deployer, admin"),
        (("create", "a b", "--role", "viewer"), "NAME is 'a b'; must be 1 to 64 letters"),
        (("create", "operator", "--role", "viewer"), "client is 'operator', which stands for"),
        (("create", "a", "--role", "viewer", "--expires", "90"), "--expires is '90'; must be like 90d or 12h"),
        (("create", "a", "--role", "viewer", "--expires", "9999d"), "at most 3650d"),
        (("list", "--url", "http://127.0.0.1:1"), "say either --url"),
        (("revoke", "token-x"), "there is no token 'token-x'"),
    ],
)
def test_wrong_lines(database: Path, line: tuple[str, ...], said: str) -> None:
    done = run(*line, "--database", database)
    assert done.exit_code == 2
    assert said in done.stderr


def test_wrong_places(tmp_path: Path) -> None:
    assert "there is no database" in run("list", "--database", tmp_path / "none").stderr
    assert "must begin with http" in run("list", "--url", "ftp://x").stderr
    assert "does not answer" in run("list", "--url", "http://127.0.0.1:1").stderr
    assert "say either --url" in run("list").stderr
