"""A service on PostgreSQL, over HTTP: what it promises on a file it promises here, also when the server goes away."""

from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from api.app import create_app
from api.common.settings import Settings
from api.plans import planning
from api.store.dialects import postgresql as dialect
from solver.pool import WorkerPool
from tests.api import tasks
from tests.api.asking import events_of, planned, post, until
from tests.api.conftest import postgresql_programs
from tests.api.plans.test_run import WorksAs, canceled, started, works_as
from tests.api.postgresql import Server, running
from tests.api.requests import sia_request
from tests.api.serving import serving
from tests.waiting import eventually

__all__ = ["works_as"]


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    """One that tests stop."""
    with running(postgresql_programs()) as own:
        yield own


def health(client: httpx.Client, path: str = "/healthz") -> tuple[int, str]:
    answer = client.get(path)
    return answer.status_code, answer.json()["status"]


def test_plans_survive_a_restart_whole_and_under_their_keys(
    server: Server, pool: WorkerPool, works_as: WorksAs
) -> None:
    settings = Settings(database=server.database(), shutdown_s=1.0, workers=1)
    with serving(create_app(settings, pool=pool)) as client:
        kept = planned(client, sia_request())
        works_as(tasks.hanging_task)
        request = sia_request(options={"seed": 1})
        left = post(client, "/v1/plans", request, Idempotency_Key="once").json()
        stopped = started(client, sia_request())
        assert canceled(client, stopped)["status"] == "canceled"
        until(client, left["links"]["self"], lambda plan: plan["status"] == "solving")
    works_as(planning.planned)
    with serving(create_app(settings, pool=pool)) as client:
        assert client.get(kept["links"]["self"]).json() == kept
        assert events_of(client, kept)[-1][1:] == ("state", {"status": "succeeded"})
        # What had found nothing goes on, under its id and its key.
        again = post(client, "/v1/plans", request, Idempotency_Key="once", Prefer="wait=50")
        assert (again.json()["id"], again.json()["status"]) == (left["id"], "succeeded")
        other = post(client, "/v1/plans", sia_request(), Idempotency_Key="once")
        assert (other.status_code, other.json()["code"]) == (409, "idempotency_conflict")
        assert [plan["id"] for plan in client.get("/v1/plans").json()["plans"]] == [
            stopped["id"],
            left["id"],
            kept["id"],
        ]
        assert client.delete(kept["links"]["self"]).status_code == 204
        assert client.get(kept["links"]["self"]).status_code == 404


@pytest.mark.slow
def test_what_ends_while_the_server_is_away_is_written_when_it_is_back(
    server: Server, pool: WorkerPool, works_as: WorksAs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dialect, "_WATCH_S", 0.1)
    settings = Settings(database=server.database(), shutdown_s=1.0)
    with serving(create_app(settings, pool=pool)) as client:
        kept = planned(client, sia_request())
        works_as(tasks.improving_task)
        solving = started(client, sia_request())
        server.stop()
        try:
            for answer in (client.get(kept["links"]["self"]), post(client, "/v1/plans", sia_request())):
                assert (answer.status_code, answer.json()["code"]) == (503, "store_error")
            _, said = eventually(lambda: health(client), lambda seen: seen[0] == 503)
            assert "is lost: " in said
            assert health(client, "/readyz")[0] == 503
            # What runs is in memory: it can be asked for, and ends; but how is said only once nobody else can say it.
            ended = client.post(solving["links"]["cancel"], headers={"Prefer": "wait=1"}).json()
            assert ended["status"] == "solving"
        finally:
            server.start()
        eventually(lambda: health(client), lambda seen: seen == (200, "ok"))
        assert client.get(kept["links"]["self"]).json() == kept

        def stored() -> Any:
            answer = client.get("/v1/plans", params={"status": "canceled"}).json()
            return answer["plans"]

        assert [plan["id"] for plan in eventually(stored)] == [solving["id"]]
        final = client.get(solving["links"]["self"]).json()
        assert (final["status"], final["verified"]) == ("canceled", True)
    with serving(create_app(settings, pool=pool)) as client:
        # It has not to be planned again.
        assert client.get(solving["links"]["self"]).json() == final


def test_names_with_what_postgresql_cannot_hold_are_refused_or_not_found(server: Server, pool: WorkerPool) -> None:
    with serving(create_app(Settings(database=server.database()), pool=pool)) as client:
        unknown = client.get("/v1/plans/%00").json()
        assert (unknown["code"], "cannot contain NUL" in unknown["detail"]) == ("invalid_input", True)
        for path in ("/v1/plans/%00", "/v1/clusters/%00", "/v1/jobs/%00/metrics", "/v1/snapshots/a%00b"):
            assert client.get(path).status_code in (404, 422), path
        named = planned(client, sia_request([{**sia_request()["snapshot"]["jobs"][0], "id": "j\u00e9\U0001f600"}]))
        assert client.get(named["links"]["input"]).json()["snapshot"]["jobs"][0]["id"] == "j\u00e9\U0001f600"
