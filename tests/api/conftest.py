"""One pool for all tests: starting workers is the slow part."""

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from api import workers
from api.app import create_app
from api.common.setting_kinds import IN_MEMORY
from api.common.settings import Settings
from solver.pool import WorkerPool
from solver.process import LocalEngine
from tests.api.postgresql import Server, programs, running
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


def postgresql_programs() -> Path:
    """Programs of a PostgreSQL server; the test is skipped where there are none."""
    found = programs()
    if found is None:
        pytest.skip("PostgreSQL is not installed (Debian: apt install postgresql)")
    return found


@pytest.fixture(scope="session")
def postgresql() -> Iterator[Server]:
    """A server that tests share; those that stop it have one of their own."""
    with running(postgresql_programs()) as server:
        yield server


@pytest.fixture(params=["file", "memory", "postgresql"])
def location(request: pytest.FixtureRequest, tmp_path: Path) -> Path | str | None:
    """Where a database may be: of each kind one that there is not yet, or that is empty."""
    if request.param == "postgresql":
        server: Server = request.getfixturevalue("postgresql")
        return server.database()
    return tmp_path / "plans.sqlite" if request.param == "file" else None


@pytest.fixture(params=["file", "postgresql"])
def lasting(request: pytest.FixtureRequest, tmp_path: Path) -> Path | str:
    """Of these the kinds that outlive the process."""
    if request.param == "postgresql":
        server: Server = request.getfixturevalue("postgresql")
        return server.database()
    return tmp_path / "plans.sqlite"


@pytest.fixture(scope="module", params=["memory", "postgresql"])
def each_client(request: pytest.FixtureRequest, pool: WorkerPool) -> Iterator[httpx.Client]:
    """A service on SQLite, and one on PostgreSQL, that tests of a module share."""
    settings = SETTINGS
    if request.param == "postgresql":
        settings = settings.model_copy(update={"database": request.getfixturevalue("postgresql").database()})
    with serving(create_app(settings, pool=pool)) as shared:
        yield shared
