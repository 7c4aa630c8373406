"""Comparisons, replays and forecasters that end while the database is away: nothing of them is lost."""

from collections.abc import Iterator
from contextlib import contextmanager

import httpx
import pytest
from sqlalchemy import Connection

import api.comparisons.race
import api.forecasts.service
import api.replays.run
from api.app import create_app
from api.common import unstored
from api.common.errors import StoreError
from api.store.database import Store
from api.store.leases import Leases
from solver.pool import WorkerPool
from tests.api.asking import post, until
from tests.api.conftest import SETTINGS
from tests.api.forecast_requests import forecaster_request
from tests.api.replay_requests import replay_request
from tests.api.requests import Json, sia_request
from tests.api.serving import serving
from tests.api.warm import WarmPool
from tests.waiting import eventually

pytestmark = pytest.mark.slow


class Leaving(Store):
    """A database that goes away after so many changes; below 0: it stays."""

    left = -1
    num_refused = 0

    @contextmanager
    def writing(self) -> Iterator[Connection]:
        if self.left == 0:
            self.num_refused += 1
            raise StoreError("the connection is lost")
        self.left -= 1
        with super().writing() as connection:
            yield connection


CASES: dict[str, tuple[str, Json, str]] = {
    "comparison": ("/v1/solver-comparisons", {**sia_request(), "solvers": ["highs"]}, "succeeded"),
    "replays": ("/v1/replays", replay_request(), "succeeded"),
    # It can be asked once what it learned is stored, and is said to be there then.
    "forecaster": ("/v1/forecasters", forecaster_request("left"), "running"),
}


@pytest.fixture(autouse=True)
def warm(pool: WorkerPool, monkeypatch: pytest.MonkeyPatch) -> None:
    """All share the workers of plans."""
    for module in (api.comparisons.race, api.replays.run, api.forecasts.service):
        monkeypatch.setattr(module, "WorkerPool", lambda *_, **__: WarmPool(pool))
    monkeypatch.setattr(unstored, "_AGAIN_S", 0.02)


@pytest.fixture
def store() -> Leaving:
    return Leaving(None)


@pytest.mark.parametrize("case", CASES)
def test_what_ends_while_the_database_is_away_is_written_when_it_is_back(
    case: str, store: Leaving, pool: WorkerPool
) -> None:
    path, body, meanwhile = CASES[case]
    with serving(create_app(SETTINGS, pool, store)) as client:
        # The change that keeps the request.
        store.left = 1
        self = post(client, path, body).headers["location"]
        # Again and again; the replay before its end.
        eventually(lambda: store.num_refused > 4)
        assert until(client, self, lambda seen: seen["status"] == meanwhile)
        assert len(Leases(store).held()) == 1
        assert client.delete(self).status_code in (202, 503)
        store.left = -1
        final = until(client, self, lambda seen: seen["status"] == "succeeded")
        eventually(lambda: not Leases(store).held())
        assert client.get(self).json() == final
        assert_whole(client, final)
        assert client.delete(self).status_code == 204
        assert client.get(self).status_code == 404


def assert_whole(client: httpx.Client, document: Json) -> None:
    """What there is beside the document is there, too."""
    if path := document["links"].get("report"):
        report = client.get(path)
        assert report.status_code == 200, report.text
        assert len(report.json().get("replays", ())) == len(document.get("replays", ()))


def test_who_stops_meanwhile_tries_a_last_time_and_is_not_held_up(store: Leaving, pool: WorkerPool) -> None:
    settings = SETTINGS.model_copy(update={"shutdown_s": 600.0})
    with serving(create_app(settings, pool, store)) as client:
        store.left = 1
        self = post(client, *CASES["comparison"][:2]).headers["location"]
        eventually(lambda: store.num_refused > 1)
        assert until(client, self, lambda seen: seen["status"] == "succeeded")
    assert len(Leases(store).held()) == 1
    store.close()
