"""What is taken is counted over all services on one database: a client has its share of all of them together."""

from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from threading import Barrier

import pytest

from api.app import create_app
from api.common.asking import ASKING, Asking, Caller, Role
from api.common.errors import ForecasterExistsError
from api.common.settings import Settings
from api.store.admission import Admit, within_share
from api.store.database import Store
from api.store.forecasters import ForecasterStore
from api.store.leases import live
from api.store.replays import ReplayStore
from api.store.tables import COMPARISONS, FORECASTERS, REPLAYS
from solver.pool import QueueFullError, WorkerPool
from tests.api.asking import post
from tests.api.forecast_requests import forecaster_request
from tests.api.postgresql import Server
from tests.api.replay_requests import replay_request
from tests.api.requests import Json, sia_request
from tests.api.serving import serving

# One runs and one may wait at each service; of the four that two take, a client may have one.
LIMITS = Settings(comparison_queue_size=1, replay_queue_size=1, training_queue_size=1, client_share=0.25)
ADDED: Mapping[str, Callable[[Store, str, Admit], None]] = {
    COMPARISONS.name: lambda store, id_, admit: store.add_comparison(id_, "{}", None, admit),
    REPLAYS.name: lambda store, id_, admit: ReplayStore(store).add(id_, "{}", "{}", None, admit),
    FORECASTERS.name: lambda store, id_, admit: ForecasterStore(store).add(id_, '{"status":"queued"}', None, admit),
}
POSTED: Mapping[str, tuple[str, Json]] = {
    COMPARISONS.name: ("/v1/solver-comparisons", {**sia_request(), "solvers": ["highs"]}),
    REPLAYS.name: ("/v1/replays", replay_request()),
    FORECASTERS.name: ("/v1/forecasters", forecaster_request("late")),
}


@contextmanager
def asked_by(client: str) -> Iterator[None]:
    token = ASKING.set(Asking(id="r", path="/", caller=Caller(client=client, role=Role.PLANNER)))
    try:
        yield
    finally:
        ASKING.reset(token)


def lives(store: Store) -> None:
    with store.writing() as connection:
        live(connection, store, 2)


@pytest.fixture
def url(postgresql: Server) -> str:
    return postgresql.database()


@pytest.mark.parametrize("what", ADDED)
def test_a_client_has_its_share_of_all_services_together(url: str, what: str) -> None:
    admit, add = within_share(LIMITS, what, 1), ADDED[what]
    with closing(Store(url)) as one, closing(Store(url)) as other:
        lives(one)
        lives(other)
        with asked_by("busy"):
            add(one, "first", admit)
            with pytest.raises(QueueFullError, match=f"1 {what} of busy run or wait, .* of the 4 .* may have 1"):
                add(other, "second", admit)
        with asked_by("idle"):
            add(other, "second", admit)


def test_services_refuse_what_their_clients_have_at_others(url: str, pool: WorkerPool) -> None:
    with closing(Store(url)) as other, serving(create_app(LIMITS.model_copy(update={"database": url}), pool)) as client:
        lives(other)
        with asked_by("anybody"):
            for what, add in ADDED.items():
                add(other, f"of-{what}", lambda _: None)
        for what, (path, request) in POSTED.items():
            refused = post(client, path, request)
            assert (refused.status_code, refused.json()["code"]) == (429, "queue_full"), refused.text
            assert f"1 {what} of anybody run or wait" in refused.json()["detail"]
        taken = post(client, "/v1/forecasters", forecaster_request("of-forecasters"))
        assert (taken.status_code, taken.json()["code"]) == (409, "forecaster_exists"), taken.text


def test_of_two_that_ask_for_a_name_at_once_one_has_it(url: str) -> None:
    """Also where both have seen that it was left by one that was interrupted."""
    with closing(Store(url)) as one, closing(Store(url)) as other:
        for k in range(5):
            ForecasterStore(one).add(f"left-{k}", "interrupted")
            ForecasterStore(one).finish(f"left-{k}", "interrupted", is_interrupted=True)

        def add(store: Store, name: str, barrier: Barrier) -> bool:
            barrier.wait(30)
            try:
                ForecasterStore(store).add(name, "new", may_replace=lambda document: document == "interrupted")
            except ForecasterExistsError:
                return False
            return True

        with ThreadPoolExecutor(2) as threads:
            for name in [f"{kind}-{k}" for kind in ("left", "new") for k in range(5)]:
                barrier = Barrier(2)
                won = [threads.submit(add, store, name, barrier) for store in (one, other)]
                assert sorted(future.result(30) for future in won) == [False, True]
                assert ForecasterStore(one).document(name) == "new"
