"""The pulse of a rank, by which its agent tells one that hangs from one that works.

A rank says how long it may take until it says so again, and the agent counts. They share a file outside the folder of
the run, so that neither a slow file system nor clocks that differ are taken for a hang. What never says anything is not
watched. Needs the standard library only, as the agent does.
"""

import faulthandler
import os
import signal
import struct
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

# Variable with the path of the file.
PULSE = "STOWPLAN_PULSE"
# Asks a rank with a pulse for the stacks of its threads, even where it waits in a library.
DUMP_STACKS = signal.SIGUSR1
# Count of beats, seconds until the next one.
_BEAT = struct.Struct("dd")


class Pulse:
    """Of this process; where no agent has started it, nobody listens."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._file = os.open(environment.get(PULSE, os.devnull), os.O_WRONLY | os.O_CREAT, 0o600)
        self._count = 0
        faulthandler.register(DUMP_STACKS)

    def beat(self, limit_s: float) -> None:
        """Say that the next beat comes within `limit_s` seconds; infinity where nobody knows."""
        self._count += 1
        # A full disk takes no first beat, and every further one in its place.
        with suppress(OSError):
            os.pwrite(self._file, _BEAT.pack(self._count, limit_s), 0)


class Listener:
    """Hears the pulse of one rank in the file `path`."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._beat = b""
        self._silent_s = 0.0

    @property
    def is_watched(self) -> bool:
        """Whether the rank has said anything."""
        return len(self._beat) == _BEAT.size

    def is_late(self, passed_s: float) -> bool:
        """Whether the rank is silent for longer than it said; `passed_s`: seconds of ours since the last question.

        Time in which the whole host stood still does not count.
        """
        beat = self.path.read_bytes() if self.path.exists() else b""
        self._silent_s = self._silent_s + passed_s if beat == self._beat else 0.0
        self._beat = beat
        return self.is_watched and self._silent_s > _BEAT.unpack(beat)[1]
