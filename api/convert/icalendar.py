"""Calendars as iCalendar (RFC 5545), for the programs in which people keep theirs."""

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from hashlib import sha256

from api.schemas.calendar import CalendarEntryDoc
from models.wording import counted
from stowplan import __version__

# Octets of a line without its end (section 3.1).
_MAX_OCTETS = 75
_MAX_NAMED = 20


def icalendar_of(entries: Sequence[CalendarEntryDoc], now: datetime, name: str) -> str:
    """The text of a calendar, an event an entry. What has no end is an event of its begin alone."""
    lines = [
        "BEGIN:VCALENDAR",
        "VERSION:2.0",
        f"PRODID:-//Stowplan//Stowplan {__version__}//EN",
        "CALSCALE:GREGORIAN",
        f"NAME:{_text(name)}",
        f"X-WR-CALNAME:{_text(name)}",
    ]
    for entry in entries:
        lines += _event(entry, now, name)
    return "".join(f"{_folded(line)}\r\n" for line in [*lines, "END:VCALENDAR"])


def _event(entry: CalendarEntryDoc, now: datetime, calendar: str) -> Iterator[str]:
    uid = sha256(f"{calendar}\n{entry.name}".encode()).hexdigest()[:32]
    yield "BEGIN:VEVENT"
    yield f"UID:{uid}@stowplan"
    yield f"DTSTAMP:{_time(now)}"
    yield f"DTSTART:{_time(entry.from_time)}"
    if entry.until_time is not None:
        yield f"DTEND:{_time(entry.until_time)}"
    yield f"SUMMARY:{_text(f'{entry.kind.value} {entry.name}')}"
    yield f"DESCRIPTION:{_text(_description(entry))}"
    yield f"CATEGORIES:{entry.kind.value}"
    yield "STATUS:CONFIRMED"
    # What people have in the same calendar is not affected by it.
    yield "TRANSP:TRANSPARENT"
    yield "END:VEVENT"


def _description(entry: CalendarEntryDoc) -> str:
    lines = [nodes_words(entry)]
    if entry.owner:
        lines.append(f"owner: {entry.owner}")
    if not entry.hard:
        lines.append("soft: preemptible jobs may use the nodes and make way")
    if entry.until_time is None and not entry.kind.is_moment:
        lines.append("no end")
    return "\n".join(lines)


def nodes_words(entry: CalendarEntryDoc) -> str:
    """Which nodes an entry is over: `3 nodes: n0, n1, n2`, `64 nodes of h100 in pod1`."""
    shape = entry.shape
    if shape is None:
        shown = ", ".join(entry.nodes[:_MAX_NAMED])
        rest = len(entry.nodes) - _MAX_NAMED
        return f"{counted(len(entry.nodes), 'node')}: {shown}" + (f" and {rest} more" if rest > 0 else "")
    kind = f" of {shape.gpu_type}" if shape.gpu_type is not None else ""
    place = f" in {shape.minipod}" if shape.minipod is not None else ""
    return counted(shape.num_nodes, "node") + kind + place


def _time(moment: datetime) -> str:
    """UTC, form 2 of section 3.3.5; it knows whole seconds."""
    return f"{moment.astimezone(UTC):%Y%m%dT%H%M%SZ}"


def _text(value: str) -> str:
    """TEXT of section 3.3.11."""
    for char in ("\\", ";", ","):
        value = value.replace(char, f"\\{char}")
    return value.replace("\n", "\\n")


def _folded(line: str) -> str:
    """A line, folded where it is too long, and never within a character."""
    parts, part, num_octets = [], "", 0
    for char in line:
        size = len(char.encode())
        if num_octets + size > _MAX_OCTETS:
            parts.append(part)
            # The space that goes on is an octet of the next line.
            part, num_octets = "", 1
        part, num_octets = part + char, num_octets + size
    return "\r\n ".join([*parts, part])
