"""How often clients ask is counted over all services on one database, and keeps nobody else waiting."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing

import pytest
from sqlalchemy import text

from api.app import create_app
from api.store.database import Store
from api.store.rates import SharedRates
from solver.pool import WorkerPool
from tests.api.conftest import SETTINGS
from tests.api.postgresql import Server
from tests.api.serving import serving


@pytest.fixture
def url(postgresql: Server) -> str:
    return postgresql.database()


@pytest.fixture
def rates(url: str) -> Iterator[tuple[SharedRates, SharedRates]]:
    """Of two services: one request in an hour, and five at once."""
    with closing(Store(url)) as one, closing(Store(url)) as other:
        yield SharedRates(one, 1 / 3600, 5), SharedRates(other, 1 / 3600, 5)


def passes(url: str, seconds: float) -> None:
    """So long passes for all clients."""
    with closing(Store(url)) as store, store.writing() as connection:
        connection.execute(text("UPDATE client_rates SET full_at_s = full_at_s - :s"), {"s": seconds})


def test_all_services_together_let_through_as_many_as_one(url: str, rates: tuple[SharedRates, SharedRates]) -> None:
    with ThreadPoolExecutor(8) as threads:
        waits = list(threads.map(lambda k: rates[k % 2].wait_s("one"), range(12)))
    assert sum(wait_s == 0 for wait_s in waits) == 5
    assert all(3590 < wait_s <= 3600 for wait_s in waits if wait_s)
    assert rates[0].wait_s("two") == 0
    # What comes back comes back once, and never more than there was at first.
    passes(url, 3600)
    assert [rates[k].wait_s("one") == 0 for k in range(2)] == [True, False]
    passes(url, 1e6)
    assert [rates[k % 2].wait_s("one") == 0 for k in range(6)] == [True] * 5 + [False]


def test_who_asks_waits_for_nobody_that_writes(url: str, rates: tuple[SharedRates, SharedRates]) -> None:
    with closing(Store(url)) as busy, busy.writing():
        assert rates[0].wait_s("one") == rates[1].wait_s("two") == 0


def test_who_has_asked_one_service_too_often_is_refused_by_another(url: str, pool: WorkerPool) -> None:
    limits = {"database": url, "client_requests_per_s": 1 / 3600, "client_burst": 3}
    with ExitStack() as stack:
        app = (create_app(SETTINGS.model_copy(update=limits), pool=pool) for _ in range(2))
        one, other = (stack.enter_context(serving(each)) for each in app)
        assert [client.get("/v1/policies").status_code for client in (one, other, one)] == [200] * 3
        for client in (other, one):
            refused = client.get("/v1/policies")
            assert (refused.status_code, refused.json()["code"]) == (429, "rate_limited")
            assert 3590 < int(refused.headers["retry-after"]) <= 3600
        assert other.get("/healthz").status_code == 200
