"""One pool for all tests: starting workers is the slow part."""

from collections.abc import Iterator

import httpx
import pytest

from api import workers
from api.app import create_app
from api.common.settings import IN_MEMORY, Settings
from solver.pool import WorkerPool
from solver.process import LocalEngine
from tests.api.serving import serving

SETTINGS = Settings(database=IN_MEMORY, heartbeat_s=0.2, shutdown_s=1.0, deadline_slack_s=30.0, max_wait_s=50.0)


@pytest.fixture(scope="session")
def pool() -> Iterator[WorkerPool]:
    """Workers load what tests ask for: all solvers and modelling layers cost each of them ten seconds."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(workers, "IDLE_LOAD", ())
        lazy = workers.worker_pool(SETTINGS, LocalEngine())
    with lazy:
        yield lazy


@pytest.fixture(scope="session")
def client(pool: WorkerPool) -> Iterator[httpx.Client]:
    """A service that tests share: none may count on being alone."""
    with serving(create_app(SETTINGS, pool=pool)) as shared:
        yield shared
