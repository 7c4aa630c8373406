"""Two services and one database: of two confirmations one wins. On a file a second service is refused besides."""

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pytest

from api.cli.exit_codes import ExitCode
from api.schemas.reservation import ReservationDoc
from api.store.database import Store
from api.store.dialects import sqlite
from stowplan.child_environment import child_environment
from tests.api.calendars import other_process
from tests.api.calendars.other_process import Unguarded
from tests.api.calendars.test_calendars import START, Clock, Rooms
from tests.api.postgresql import Server
from tests.paths import ROOT

pytestmark = pytest.mark.slow


class Service:
    """The other end of `tests.api.calendars.other_process`."""

    def __init__(self, location: Path | str) -> None:
        command = [sys.executable, "-m", other_process.__name__, str(location), str(START.timestamp())]
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT, env=child_environment()
        )

    def tell(self, line: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()

    def heard(self) -> Any:
        assert self.process.stdout is not None
        return json.loads(self.process.stdout.readline())

    def close(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        assert self.process.wait(60.0) == 0
        assert self.process.stdout is not None
        self.process.stdout.close()


@pytest.fixture(scope="module", params=["file", "postgresql"])
def location(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path | str:
    """A database of each kind, which tests share with the two services on it."""
    if request.param == "postgresql":
        server: Server = request.getfixturevalue("postgresql")
        return server.database()
    return tmp_path_factory.mktemp("shared") / "plans.sqlite"


@pytest.fixture(scope="module")
def rooms(location: Path | str) -> Iterator[Rooms]:
    """A calendar in a database that others may open."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sqlite, "DatabaseFile", Unguarded)
        store = Store(location)
    with closing(store):
        made = Rooms(store, Clock())
        made.write()
        yield made


@pytest.fixture(scope="module")
def services(rooms: Rooms, location: Path | str) -> Iterator[tuple[Service, Service]]:  # noqa: ARG001 - it makes it
    with ExitStack() as stack:
        made = Service(location), Service(location)
        for service in made:
            stack.callback(service.close)
        for service in made:
            assert service.heard() == "open"
        yield made


def proposed(rooms: Rooms, turn: int) -> list[ReservationDoc]:
    """Two reservations of one node that exclude each other."""
    return [rooms.propose(f"{side}{turn}", "n0", begin=turn, end=turn + 1) for side in "ab"]


def test_who_confirms_second_sees_the_first_and_is_told(services: tuple[Service, Service], rooms: Rooms) -> None:
    """The first has begun to decide when the second begins, and ends only then."""
    (first, second), (a, b) = services, proposed(rooms, 0)
    first.tell(f"hold {a.id}")
    assert [first.heard(), first.heard()] == ["begins", {"inside": []}]
    second.tell(f"hold {b.id}")
    assert second.heard() == "begins"
    first.tell("go on")
    assert first.heard() is None
    # It has waited: it decides by what the first one has written.
    assert second.heard() == {"inside": ["a0"]}
    second.tell("go on")
    error = second.heard()
    assert error["code"] == "calendar_conflict"
    assert "'a0'" in error["detail"]
    assert "'b0'" in error["detail"]
    assert [known.entry.name for known in rooms.calendars.calendar("main").reservations] == ["a0"]


def test_of_two_confirmations_at_the_same_time_one_wins(services: tuple[Service, Service], rooms: Rooms) -> None:
    before = len(rooms.calendars.calendar("main").reservations)
    for turn in range(1, 11):
        pair = proposed(rooms, turn)
        for service, one in zip(services, pair, strict=True):
            service.tell(f"confirm {one.id}")
        ends = [(service.heard(), service.heard())[1] for service in services]
        (error,) = [end for end in ends if end is not None]
        assert error["code"] == "calendar_conflict"
        assert f"'a{turn}'" in error["detail"]
        assert f"'b{turn}'" in error["detail"]
    assert len(rooms.calendars.calendar("main").reservations) == before + 10


def test_a_second_service_on_a_file_is_refused(tmp_path: Path) -> None:
    """It says why and what to do; the first one goes on."""
    store = Store(tmp_path / "plans.sqlite")
    command = [
        sys.executable,
        "-m",
        "api.cli.main",
        "serve",
        "--port",
        "0",
        "--database",
        str(tmp_path / "plans.sqlite"),
    ]
    second = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env=child_environment(), timeout=120)
    assert second.returncode == ExitCode.OUR_FAULT
    said = " ".join(second.stderr.split())
    assert f"the database {store.identity} is in use by another process" in said
    assert said.endswith("; stop it or name another file")
    assert "Traceback" not in second.stderr
    Rooms(store, Clock()).write()
    store.close()
