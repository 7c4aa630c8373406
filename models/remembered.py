"""Answers of functions, remembered: by the process, and on disk by all processes of a user, for the next ones.

For functions that take long and whose answer depends on nothing but hashable arguments whose `repr` says all that
`==` compares, such as frozen dataclasses of strings and numbers, and on what catalogues say. What is on disk holds for
the code that wrote it and the catalogue of the user's that it was written with, and for no other. It is a convenience:
where it cannot be read or written, functions are asked.

`STOWPLAN_CACHE` names the folder; empty: nothing is remembered on disk. Otherwise it is `stowplan` in the user's cache
folder (`XDG_CACHE_HOME`, or `~/.cache`).
"""

import hashlib
import inspect
import os
import re
import sqlite3
import threading
from collections.abc import Callable, Hashable
from contextlib import suppress
from functools import cache, lru_cache, wraps
from pathlib import Path
from typing import Any, ParamSpec, Protocol, TypeVar, get_type_hints

from stowplan.catalogue import own_digest
from stowplan.child_environment import CACHE_VARIABLE
from topology.gpu_catalogue import find_product

Arguments = ParamSpec("Arguments")
Answer = TypeVar("Answer", covariant=True)

# What is full is emptied by half: the oldest answers go. Answers of some KB are 20,000 and more.
_MOST_PAGES = 16_384  # of 4 KiB
_BUSY_S = 0.2
# Files of other versions of the code.
_OTHERS_KEPT = 4
_ADDRESS = re.compile(r" at 0x[0-9a-f]+")
_DROP_HALF = "DELETE FROM answers WHERE rowid <= (SELECT (min(rowid) + max(rowid)) / 2 FROM answers)"


class Remembering(Protocol[Arguments, Answer]):
    """A function that remembers."""

    def __call__(self, *arguments: Arguments.args, **named: Arguments.kwargs) -> Answer:
        """Answer, or give what was answered before."""
        ...

    def forget(self) -> None:
        """Drop what this process remembers; what is on disk stays."""
        ...


def remembered(most: int) -> Callable[[Callable[Arguments, Answer]], Remembering[Arguments, Answer]]:
    """Remember the answers of a function with positional arguments: the `most` latest ones in the process."""

    def decorate(function: Callable[Arguments, Answer]) -> Remembering[Arguments, Answer]:
        name = f"{function.__module__.partition('models.')[2]}.{function.__qualname__}"

        @lru_cache(maxsize=most)
        def answered(*arguments: Any) -> Any:
            disk = _disk()
            key = None if disk is None else _key(name, arguments)
            if disk is None or key is None:
                return function(*arguments)  # type: ignore[call-arg]  # positional ones alone
            adapter = _adapter(function)
            text = disk.get(key)
            if text is not None:
                # What another wrote, or a broken disk.
                with suppress(ValueError):
                    return adapter.validate_json(text)
            answer = function(*arguments)  # type: ignore[call-arg]  # positional ones alone
            disk.put(key, adapter.dump_json(answer))
            return answer

        remembering: Any = wraps(function)(answered)
        remembering.forget = answered.cache_clear
        found: Remembering[Arguments, Answer] = remembering
        return found

    return decorate


class DiskMemory:
    """Answers by key in one SQLite file, of limited size; processes share it.

    Raises
    ------
    OSError, sqlite3.Error
        When there can be no such file.
    """

    def __init__(self, file: Path, most_pages: int = _MOST_PAGES) -> None:
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        # Threads of a worker take turns.
        self._turn = threading.Lock()
        self._database = sqlite3.connect(file, timeout=_BUSY_S, isolation_level=None, check_same_thread=False)
        for pragma in ("journal_mode = WAL", "synchronous = OFF", f"max_page_count = {most_pages}"):
            self._database.execute(f"PRAGMA {pragma}")
        self._database.execute("CREATE TABLE IF NOT EXISTS answers (key BLOB UNIQUE NOT NULL, text BLOB NOT NULL)")

    def get(self, key: bytes) -> bytes | None:
        """The answer; None when there is none, or it cannot be read."""
        with self._turn, suppress(sqlite3.Error):
            row = self._database.execute("SELECT text FROM answers WHERE key = ?", (key,)).fetchone()
            return None if row is None else row[0]
        return None

    def put(self, key: bytes, text: bytes) -> None:
        """Remember an answer, if that can be."""
        with self._turn:
            try:
                self._insert(key, text)
            except sqlite3.Error as error:
                if getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_FULL:
                    with suppress(sqlite3.Error):
                        self._database.execute(_DROP_HALF)
                        self._insert(key, text)

    def _insert(self, key: bytes, text: bytes) -> None:
        self._database.execute("INSERT OR REPLACE INTO answers VALUES (?, ?)", (key, text))

    def close(self) -> None:
        """Close the file."""
        self._database.close()


def _disk() -> DiskMemory | None:
    """What the environment says, opened once per folder."""
    folder = os.environ.get(CACHE_VARIABLE)
    if folder is None:
        home = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
        folder = os.path.join(home, "stowplan")
    return _opened(folder) if folder else None


@cache
def _opened(folder: str) -> DiskMemory | None:
    try:
        file = Path(folder).absolute() / f"answers-{_code()}.sqlite"
        memory = DiskMemory(file)
        others = sorted(file.parent.glob("answers-*.sqlite"), key=lambda path: path.stat().st_mtime, reverse=True)
        for old in [path for path in others if path != file][_OTHERS_KEPT:]:
            for path in (old, *old.parent.glob(f"{old.name}-*")):
                path.unlink(missing_ok=True)
    except (OSError, sqlite3.Error):
        return None
    return memory


@cache
def _code() -> str:
    """Digest of the sources and data files of this room and of what it knows of GPUs."""
    digest = hashlib.blake2b(digest_size=12)
    for room in (Path(__file__).parent, Path(inspect.getfile(find_product)).parent):
        for file in sorted(path for path in room.rglob("*") if path.suffix in (".py", ".cpp", ".toml")):
            digest.update(f"{file.relative_to(room.parent)}\0".encode() + file.read_bytes() + b"\0")
    return digest.hexdigest()


def _key(name: str, arguments: tuple[Hashable, ...]) -> bytes | None:
    """Digest of what is asked, with which catalogue of the user's; None where an argument does not say what it is."""
    text = repr(arguments)
    if _ADDRESS.search(text):
        return None
    return hashlib.blake2b(f"{name}\0{own_digest()}\0{text}".encode(), digest_size=24).digest()


@cache
def _adapter(function: Callable[..., Any]) -> Any:
    """Reads and writes answers of the function's type."""
    # It takes a quarter of a second to load, and not all who have this module ask.
    from pydantic import TypeAdapter

    return TypeAdapter(get_type_hints(function)["return"])
