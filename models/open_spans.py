"""When enough is open at a time: intervals of seconds from now, and the first moment that many of them share."""

import math
from collections.abc import Iterable, Iterator
from itertools import groupby

Span = tuple[float, float]
"""From, until, in seconds."""

Closed = tuple[Span, ...]
"""Intervals, ascending by their begin."""


def open_spans(ready_s: float, closed: Closed) -> Iterator[Span]:
    """The intervals from `ready_s` on that are not closed."""
    for from_s, until_s in closed:
        if ready_s < from_s:
            yield ready_s, from_s
        ready_s = max(ready_s, until_s)
    if ready_s < math.inf:
        yield ready_s, math.inf


def first_moment_s(spans: Iterable[tuple[Span, int, int]], num_whole: int, num_rooms: int) -> float:
    """The first moment within spans that have so many whole nodes and so many with room together; infinite for none."""
    events: list[tuple[float, int, int]] = []
    for (from_s, until_s), more_whole, more_rooms in spans:
        events += [(from_s, more_whole, more_rooms), (until_s, -more_whole, -more_rooms)]
    whole = rooms = 0
    for time_s, at_once in groupby(sorted(events), key=lambda event: event[0]):
        for _, more_whole, more_rooms in at_once:
            whole += more_whole
            rooms += more_rooms
        if whole >= num_whole and rooms >= num_rooms and time_s < math.inf:
            return float(time_s)
    return math.inf
