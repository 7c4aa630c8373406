"""A PostgreSQL server of the tests' own: in a temporary folder, on a socket there, with a database for each test."""

import itertools
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg

from stowplan.child_environment import child_environment
from tests.waiting import eventually

_END_LIMIT_S = 60.0
# It refuses to run as root.
_USER = "postgres"
# Nothing here has to survive a power failure.
_SETTINGS = ("listen_addresses=", "fsync=off", "full_page_writes=off", "max_connections=200", "shared_buffers=32MB")


def programs() -> Path | None:
    """Folder with the server's programs, of the newest version where Debian puts them; None where there is none."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/postgres"), key=lambda path: float(path.parts[4]))
    found += [Path(path) for name in ("postgres",) if not found and (path := shutil.which(name))]
    return found[-1].parent if found else None


class Server:
    """A server that can be stopped and started again."""

    def __init__(self, programs: Path, folder: Path) -> None:
        self._programs, self._folder = programs, folder
        self._user = _USER if os.geteuid() == 0 else None
        self._numbers = itertools.count(1)
        self._process: subprocess.Popen[bytes] | None = None
        if self._user is not None:
            shutil.chown(folder, self._user, self._user)
        # An order of texts that is not that of their code points, as most servers have.
        order = ("--locale-provider=icu", "--icu-locale=en", "--locale=C.UTF-8")
        fast = ("--no-sync", "--auth=trust")
        made = subprocess.run(
            [programs / "initdb", "-D", folder / "data", *fast, "--encoding=UTF8", "--username=stowplan", *order],
            capture_output=True,
            text=True,
            **self._as_user(),
        )
        assert made.returncode == 0, made.stderr

    def start(self) -> None:
        """Start, and wait until it answers."""
        options = [part for setting in _SETTINGS for part in ("-c", setting)]
        with (self._folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [self._programs / "postgres", "-D", self._folder / "data", "-k", self._folder, *options],
                stdout=log,
                stderr=log,
                **self._as_user(),
            )
        eventually(self._answers)

    def stop(self, how: signal.Signals = signal.SIGINT) -> None:
        """Stop at once: sessions end with an error. SIGQUIT: as a crash."""
        if self._process is not None:
            self._process.send_signal(how)
            self._process.wait(_END_LIMIT_S)
            self._process = None

    def database(self, options: str = "") -> str:
        """URL of a new database that is empty."""
        name = f"test_{next(self._numbers)}"
        self.execute(f"CREATE DATABASE {name} {options}")
        return self.url(name)

    def run(self, program: str, *arguments: str) -> None:
        """Run one of the programs of its clients, as the user of the tests."""
        done = subprocess.run([self._programs / program, *arguments], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr

    def url(self, name: str) -> str:
        return f"postgresql://stowplan@/{name}?host={self._folder}"

    def execute(self, statement: str, url: str | None = None) -> None:
        """As its administrator."""
        with psycopg.connect(url or self.url("postgres"), autocommit=True) as connection:
            connection.execute(statement.encode())

    def cut(self, url: str) -> None:
        """End all sessions of a database, as a proxy or an administrator may."""
        name = url.split("/")[3].split("?")[0]
        self.execute(f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{name}'")  # noqa: S608

    def _answers(self) -> bool:
        try:
            self.execute("SELECT 1")
        except psycopg.OperationalError:
            assert self._process is not None
            assert self._process.poll() is None, (self._folder / "log").read_text()
            return False
        return True

    def _as_user(self) -> dict[str, Any]:
        user: dict[str, Any] = (
            {} if self._user is None else {"user": self._user, "group": self._user, "extra_groups": []}
        )
        return {**user, "cwd": self._folder, "env": child_environment()}


@contextmanager
def running(programs: Path) -> Iterator[Server]:
    """A server until the end of the body. Its socket needs a short path."""
    folder = Path(tempfile.mkdtemp(prefix="pg-"))
    server = None
    try:
        server = Server(programs, folder)
        server.start()
        yield server
    finally:
        if server is not None:
            server.stop()
        shutil.rmtree(folder)
