"""The reservations of a service in a process of its own, on a database that others use too, told what to do by lines.

Lines of its standard input, each answered by lines of JSON: `confirm ID` answers with the error or null. `hold ID` does
the same, but within the transaction, before it decides, it says `{"inside": names}` of the reservations that it finds
confirmed, and waits for another line.
"""

import json
import sys
from pathlib import Path
from typing import Any

from api.calendars import conflicts, reservations
from api.calendars.planned_nodes import PlannedNodes
from api.calendars.reservations import Reservations
from api.schemas.reservation import ReservationDoc
from api.store.database import Store
from api.store.dialects import sqlite
from api.store.stored_calendar import StoredCalendar
from stowplan.errors import StowplanError


class Unguarded:
    """A file that several may open, as processes do on a machine where locks do not reach."""

    trouble = None

    def __init__(self, _: Path) -> None:
        pass

    def note_log(self) -> None:
        pass

    def close(self) -> None:
        pass


def main(location: str, now_s: str) -> None:
    """Do what the lines say until there are none."""
    vars(sqlite)["DatabaseFile"] = Unguarded
    store = Store(location if "://" in location else Path(location))
    holds = False

    def refuse_conflicts(stored: StoredCalendar, *rest: Any) -> None:
        if holds:
            say({"inside": [ReservationDoc.model_validate_json(text).entry.name for text in stored.reservations]})
            sys.stdin.readline()
        conflicts.refuse_conflicts(stored, *rest)

    vars(reservations)["refuse_conflicts"] = refuse_conflicts
    service = Reservations(store, lambda *_: PlannedNodes(nodes=()), lambda: float(now_s))
    say("open")
    while line := sys.stdin.readline():
        command, id_ = line.split()
        holds = command == "hold"
        say("begins")
        try:
            service.confirm(id_)
        except StowplanError as error:
            say({"code": error.code, "detail": error.detail})
        else:
            say(None)
    store.close()


def say(what: object) -> None:
    """Write a line at once."""
    sys.stdout.write(json.dumps(what) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main(*sys.argv[1:])
