"""Reservations as `scontrol show reservations --json` has them, as entries of a calendar.

Slurm before 23.02 has no JSON for them; then what `SLURM_TIME_FORMAT=%s scontrol show reservations --oneliner` writes.
Reservations that repeat or float are read as they are next.
"""

import math
import re
from collections.abc import Iterator, Mapping

from models.cluster_state.base import Notes, SourceDocument
from models.cluster_state.slurm.nodes import SlurmNodes
from models.cluster_state.slurm.records import Record, slurm_records
from stowplan.errors import FileFormatError
from topology.calendar import CalendarEntry, EntryKind
from topology.readers.hostlist import expand_hostlist

COMMAND = "scontrol show reservations --json"
_TEXT_COMMAND = "SLURM_TIME_FORMAT=%s scontrol show reservations --oneliner"
_PAIR = re.compile(r"(\w+)=(\S*)")
_NONE = ("(null)", "N/A", "n/a")
_REPEATS = frozenset({"HOURLY", "DAILY", "WEEKLY", "WEEKDAY", "WEEKEND", "TIME_FLOAT"})


def read_reservations(document: SourceDocument, nodes: SlurmNodes, notes: Notes, at_s: float) -> list[CalendarEntry]:
    """Entries of the reservations that are not over, on the nodes that are planned.

    Raises
    ------
    FileFormatError
        Names the document and the JSON pointer or line, and what is wrong.
    """
    entries = []
    names: set[str] = set()
    for record in _records(document):
        name = record.text("name")
        if not name:
            raise record.fault("name", "is missing; must be the name of the reservation")
        if name in names:
            raise record.fault("name", f"reservation {name!r} stands there twice")
        names.add(name)
        entry = _entry(record, name, nodes, notes, at_s)
        if entry is not None:
            entries.append(entry)
    return entries


def _entry(record: Record, name: str, nodes: SlurmNodes, notes: Notes, at_s: float) -> CalendarEntry | None:
    start_s, end_s = record.time_s("start_time"), record.number("end_time")
    if start_s is None:
        raise record.fault("start_time", f"of reservation {name!r} is missing")
    if end_s is not None and end_s != math.inf and end_s <= max(at_s, start_s):
        return None
    flags = {flag.upper() for flag in record.words("flags")}
    here = _nodes(record, name, nodes)
    if not here:
        detail = f"reservation {name!r} has no node that is planned; it is left out"
        notes.add("reservation_elsewhere", record.document, record.pointer, detail)
        return None
    if flags & _REPEATS:
        detail = f"reservation {name!r} is {'+'.join(sorted(flags & _REPEATS))}; only its next time is known"
        notes.add("reservation_repeats", record.document, record.pointer, detail)
    owners = [text for key in ("accounts", "users", "groups") if (text := record.text(key))]
    return CalendarEntry(
        name=name,
        kind=EntryKind.MAINTENANCE if "MAINT" in flags else EntryKind.RESERVATION,
        from_s=start_s - at_s,
        until_s=None if end_s is None or end_s == math.inf else end_s - at_s,
        nodes=tuple(here),
        # Slurm lets such reservations share their nodes, which two hard ones cannot.
        hard="OVERLAP" not in flags,
        owner=",".join(owners)[:256],
    )


def _nodes(record: Record, name: str, nodes: SlurmNodes) -> list[str]:
    listed = record.text("node_list")
    try:
        names = expand_hostlist(listed) if listed else []
    except ValueError as error:
        raise record.fault("node_list", str(error)) from error
    for node in names:
        if node not in nodes.planned and node not in nodes.left_out:
            raise record.fault(
                "node_list", f"reservation {name!r} has node {node!r}, which {nodes.document.name} does not have"
            )
    return [node for node in names if node in nodes.planned]


def _records(document: SourceDocument) -> Iterator[Record]:
    if document.text.lstrip().startswith("{"):
        yield from slurm_records(document, "reservations", COMMAND)
        return
    for number, line in enumerate(document.text.splitlines(), start=1):
        if line.strip() and not line.startswith("No reservations"):
            yield _LineRecord(document, number, line)


class _LineRecord(Record):
    """A line of KEY=VALUE with the keys of the JSON; faults name the line."""

    __slots__ = ("_line",)
    _KEYS: Mapping[str, str] = {
        "ReservationName": "name",
        "StartTime": "start_time",
        "EndTime": "end_time",
        "Nodes": "node_list",
        "Flags": "flags",
        "Users": "users",
        "Accounts": "accounts",
        "Groups": "groups",
    }

    def __init__(self, document: SourceDocument, line: int, text: str) -> None:
        self._line = line
        found = {self._KEYS[key]: value for key, value in _PAIR.findall(text) if key in self._KEYS}
        values: dict[str, object] = {key: value for key, value in found.items() if value not in _NONE}
        super().__init__(document, f"line {line}", values)
        for key in ("start_time", "end_time"):
            if key in values:
                if not found[key].isdigit():
                    raise self.fault(key, f"is {found[key]!r}, without a time zone; give what `{_TEXT_COMMAND}` writes")
                values[key] = int(found[key])

    def fault(self, key: str, detail: str) -> FileFormatError:
        """The error for something that is wrong with a field of the line."""
        return self.document.fault(f"{key} {detail}", line=self._line)
