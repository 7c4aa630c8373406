"""The pulse of a rank, by which its agent tells one that hangs from one that works.

A rank says what it does now and how long it may take until it says so again, and the agent counts. They share a file
outside the folder of the run, so that neither a slow file system nor clocks that differ are taken for a hang. Needs the
standard library only, as the agent does.
"""

import faulthandler
import math
import os
import signal
import struct
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

# Variable with the path of the file.
PULSE = "STOWPLAN_PULSE"
# Asks a rank with a pulse for the stacks of its threads, even where it waits in a library.
DUMP_STACKS = signal.SIGUSR1
# How often somebody looks whether a folder grows.
_LOOK_S = 30.0
# Count of beats, seconds until the next one, what the rank does.
_BEAT = struct.Struct("dd48s")
_NO_BEAT = bytes(_BEAT.size)


class Pulse:
    """Of this process; where no agent has started it, nobody listens."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        try:
            self._file = os.open(environment.get(PULSE, os.devnull), os.O_WRONLY)
        except OSError:
            # The agent found no room for it, and knows that nobody will be heard.
            self._file = os.open(os.devnull, os.O_WRONLY)
        self._count = 0
        faulthandler.register(DUMP_STACKS)

    def beat(self, limit_s: float, doing: str) -> None:
        """Say that it is `doing` something, and that the next beat comes within `limit_s` seconds; infinity where
        somebody else is watched instead."""
        self._count += 1
        # A full disk takes what goes in the place that the agent took.
        with suppress(OSError):
            os.pwrite(self._file, _BEAT.pack(self._count, limit_s, doing.encode()), 0)

    @contextmanager
    def beats_while_growing(self, folder: Path, limit_s: float, doing: str) -> Iterator[None]:
        """Beat as long as something changes below `folder`, where another process works that has no pulse."""
        done = threading.Event()

        def look() -> None:
            seen = None
            while not done.wait(min(_LOOK_S, limit_s / 4)):
                found = _contents(folder)
                if found != seen:
                    self.beat(limit_s, doing)
                    seen = found

        self.beat(limit_s, doing)
        onlooker = threading.Thread(target=look, name="onlooker", daemon=True)
        onlooker.start()
        try:
            yield
        finally:
            done.set()
            onlooker.join()


def _contents(folder: Path) -> dict[Path, int]:
    """What lies below a folder with its sizes; what goes while it is looked at is left out."""
    found = {}
    for parent, folders, files in os.walk(folder):
        for path in (Path(parent) / name for name in (*folders, *files)):
            with suppress(OSError):
                found[path] = path.stat().st_size
    return found


class Listener:
    """Hears the pulse of one rank in the file `path`, whose first beat comes within `first_limit_s`; infinity where it
    may have none.

    Takes the place of a beat, without which a rank that works would be silent on a full disk; where there is none, the
    rank may be silent.
    """

    def __init__(self, path: Path, first_limit_s: float = math.inf) -> None:
        self.path = path
        try:
            path.write_bytes(_NO_BEAT)
        except OSError:
            first_limit_s = math.inf
        self._first_limit_s = first_limit_s
        self._beat = _NO_BEAT
        self._silent_s = 0.0

    @property
    def is_watched(self) -> bool:
        """Whether the rank has said anything."""
        return self._beat != _NO_BEAT

    def is_late(self, passed_s: float) -> bool:
        """Whether the rank is silent for longer than it said; `passed_s`: seconds of ours since the last question.

        Time in which the whole host stood still does not count.
        """
        beat = self.path.read_bytes().ljust(_BEAT.size, b"\0") if self.path.exists() else _NO_BEAT
        self._silent_s = self._silent_s + passed_s if beat == self._beat else 0.0
        self._beat = beat
        return self._silent_s > self._said[0]

    def describe(self) -> str:
        """What a rank that is late has been doing for how long."""
        limit_s, doing = self._said
        return f"has been {doing} for more than {limit_s:.0f} s"

    @property
    def _said(self) -> tuple[float, str]:
        if not self.is_watched:
            return self._first_limit_s, "starting"
        _, limit_s, doing = _BEAT.unpack(self._beat)
        return limit_s, doing.rstrip(b"\0").decode()
