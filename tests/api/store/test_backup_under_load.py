"""Copies of a database that are made while clients post: whatever had ended is in them, whole."""

import sqlite3
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

import httpx
import pytest
from typer.testing import CliRunner

from api.app import create_app
from api.cli.main import app as command_line
from api.schemas.plan import PlanStatus
from api.store.database import Store
from solver.pool import WorkerPool
from tests.api.asking import planned, until
from tests.api.conftest import SETTINGS
from tests.api.postgresql import Server
from tests.api.requests import Json, sia_request
from tests.api.serving import serving
from tests.waiting import eventually

_NUM_CLIENTS = 3
_BEFORE = 6


class Posts:
    """What clients got: the documents and requests of plans that have ended, as answered."""

    def __init__(self, client: httpx.Client) -> None:
        self._client = client
        self.ended: list[tuple[Json, Json]] = []
        self.over = threading.Event()

    def post(self, number: int) -> None:
        """Post one plan after another, each with a snapshot of its own, until it is over."""
        request = sia_request()
        while not self.over.is_set():
            request["snapshot"]["jobs"][0]["age_s"] = number
            plan = planned(self._client, request)
            self.ended.append((plan, self._client.get(plan["links"]["input"]).json()))
            number += _NUM_CLIENTS


@contextmanager
def posting(client: httpx.Client) -> Iterator[Posts]:
    """Clients that post meanwhile."""
    posts = Posts(client)
    with ThreadPoolExecutor(_NUM_CLIENTS) as clients:
        running = [clients.submit(posts.post, number) for number in range(_NUM_CLIENTS)]
        try:
            yield posts
        finally:
            posts.over.set()
    for each in running:
        each.result()


def command(*line: str) -> None:
    done = CliRunner().invoke(command_line, line)
    assert done.exit_code == 0, done.stderr


@pytest.fixture
def restored(lasting: Path | str, tmp_path: Path, request: pytest.FixtureRequest) -> Callable[[], Path | str]:
    """Copies the database and restores the copy elsewhere, by the means of its kind."""

    def of_file() -> Path:
        command("backup", str(lasting), str(tmp_path / "copy.sqlite"))
        command("restore", str(tmp_path / "copy.sqlite"), str(tmp_path / "restored.sqlite"))
        with closing(sqlite3.connect(tmp_path / "restored.sqlite")) as connection:
            assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
            assert connection.execute("PRAGMA foreign_key_check").fetchall() == []
        return tmp_path / "restored.sqlite"

    def of_server() -> str:
        server: Server = request.getfixturevalue("postgresql")
        target = server.database()
        server.run("pg_dump", "--format=custom", f"--file={tmp_path / 'copy'}", str(lasting))
        server.run("pg_restore", f"--dbname={target}", "--exit-on-error", str(tmp_path / "copy"))
        return target

    return of_file if isinstance(lasting, Path) else of_server


@pytest.mark.slow
def test_a_copy_under_load_has_every_plan_that_had_ended_whole(
    lasting: Path | str, restored: Callable[[], Path | str], pool: WorkerPool
) -> None:
    settings = SETTINGS.model_copy(update={"database": str(lasting)})
    with ExitStack() as stack:
        client = stack.enter_context(serving(create_app(settings, pool=pool)))
        posts = stack.enter_context(posting(client))
        eventually(lambda: len(posts.ended) >= _BEFORE)
        before = list(posts.ended)
        copy = restored()
        # Nobody was held up: clients go on.
        num_then = len(posts.ended)
        eventually(lambda: len(posts.ended) > num_then)
    with closing(Store(copy)) as store:
        found = {plan.id: plan for plan in store.plans(1000, None, [])}
        assert {plan["id"] for plan, _ in before} <= set(found)
        # Each that is there is final and whole, or as it was when it was asked for.
        for plan in found.values():
            assert plan.status is PlanStatus.SUCCEEDED or (plan.status, plan.outcome) == (PlanStatus.QUEUED, None)
            assert store.plan_input(plan.id) is not None
            assert (store.plan_events(plan.id) is not None) == plan.status.final
    with serving(create_app(settings.model_copy(update={"database": str(copy)}), pool=pool)) as client:
        for seen, asked in before:
            assert client.get(seen["links"]["self"]).json() == seen
            assert client.get(seen["links"]["input"]).json() == asked
        # What had not ended goes on there.
        for id_ in found:
            assert until(client, f"/v1/plans/{id_}", lambda plan: plan["status"] == "succeeded")["verified"]
