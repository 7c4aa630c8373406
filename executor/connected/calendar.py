"""The calendar of a connected cluster, as it becomes known: asked again and again where it stands."""

from collections.abc import Callable
from datetime import datetime

from models.workload import Snapshot
from topology.calendar import CalendarEntry
from topology.cluster import Cluster

CalendarNews = Callable[[datetime], tuple[CalendarEntry, ...] | None]
"""Asked at a moment: entries of a calendar in seconds from then, or None where they are those of the last time."""


class FollowedCalendar:
    """Entries on the clock of a cluster; without `news` there are none, ever. `due_s`: when it is asked next."""

    def __init__(self, news: CalendarNews | None, every_s: float) -> None:
        self._news, self._every_s = news, every_s
        self.entries: tuple[CalendarEntry, ...] = ()
        self.due_s = 0.0 if news is not None else float("inf")

    def changed(self, now_s: float, moment: datetime, cluster: Cluster) -> bool:
        """Ask, if it is due; whether the entries are others now.

        Raises
        ------
        InputError
            When it cannot be had, or does not go with the cluster; the entries stay as they are.
        """
        if self._news is None or now_s < self.due_s:
            return False
        self.due_s = now_s + self._every_s
        entries = self._news(moment)
        if entries is None:
            return False
        # Looked through once, before anybody relies on it.
        Snapshot(cluster=cluster, jobs=(), calendar=entries)
        self.entries = tuple(entry.seen_at(-now_s) for entry in entries)
        return True
