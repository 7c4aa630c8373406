"""The reservation that a job already has when it is planned again, and what becomes of it.

It is the one that the job names (`calendar_entry`); else a reservation of the job's name, else one that it owns: of
several the first to begin. It is no obstacle, but a promise: a start at its begin, or now where that is past, and its
nodes, where it names them.
"""

from collections.abc import Iterable

from models.plan import Promise
from models.workload import Job
from topology.calendar import CalendarEntry, EntryKind

_TOLERANCE = 1e-6


def own_reservation(job: Job, calendar: Iterable[CalendarEntry]) -> CalendarEntry | None:
    """The reservation of a job that waits, or None."""
    known = [entry for entry in calendar if entry.kind is EntryKind.RESERVATION and not entry.is_over]
    if job.calendar_entry is not None:
        known = [entry for entry in known if entry.name == job.calendar_entry]
    else:
        known = [entry for entry in known if job.id in (entry.name, entry.owner)]
    return min(known, key=lambda entry: (entry.name != job.id, entry.begin_s, entry.name), default=None)


def promised_start_s(entry: CalendarEntry) -> float:
    """When a job of a reservation is to start."""
    return max(0.0, entry.begin_s)


def keeps_start(entry: CalendarEntry, start_s: float) -> bool:
    """Whether a start is the one that was promised."""
    return abs(start_s - promised_start_s(entry)) <= _TOLERANCE


def promise_of(entry: CalendarEntry, nodes: Iterable[str]) -> Promise:
    """What becomes of a reservation when its job gets these nodes."""
    got = tuple(nodes)
    named, chosen = set(entry.nodes), set(got)
    return Promise(
        reservation=entry.name,
        start_s=promised_start_s(entry),
        new_nodes=tuple(node for node in got if node not in named) if entry.nodes else (),
        left_nodes=tuple(node for node in entry.nodes if node not in chosen),
    )
