"""A Kubernetes cluster as the controller sees it: what its API tells becomes events, decisions become patches.

Pods wait behind our scheduling gate, and start on the node that the patch which lifts it names. Nothing is kept here
that cannot be read from the cluster: what was decided is noted there before anything starts, so that whoever comes next
goes on where this one ended.
"""

import logging
from collections.abc import Callable, Sequence
from dataclasses import replace

from executor.connected.calendar import CalendarNews, FollowedCalendar
from executor.connected.clock import Clock
from executor.connected.journal import Journal
from executor.connected.kubernetes.book import Book
from executor.connected.kubernetes.cluster import ClusterCopy
from executor.connected.kubernetes.observing import Observed, observe
from executor.connected.kubernetes.sending import Sender
from executor.connected.kubernetes.starting import Starter
from executor.connected.kubernetes.terms import Terms
from executor.connected.kubernetes.told import Patience
from executor.control.actions import Action, Place, Stop
from executor.control.backend import Facts, Measured
from executor.control.events import Arrival, CalendarChange, Event, Tick
from models.cluster_state import StateOptions
from models.wording import counted
from stowplan.errors import InputError
from topology.cluster import Cluster

# Whether the watches stand is looked at so often at least.
_LONGEST_PAUSE_S = 30.0
_logger = logging.getLogger("stowplan.executor.connected.kubernetes.backend")


class KubernetesCluster:
    """A `ClusterBackend` of a cluster whose API is mirrored by `copy`.

    `calendar` is asked again and again for its entries. `may_send` raises ApiError when somebody else decides by now,
    which ends the events. `say` gets lines about what is odd, each once.
    `needs_new_controller`: the events ended because there are other nodes than before, or jobs have other ranks.
    """

    def __init__(
        self,
        copy: ClusterCopy,
        terms: Terms,
        options: StateOptions,
        journal: Journal,
        *,
        calendar: CalendarNews | None = None,
        patience: Patience | None = None,
        clock: Clock | None = None,
        may_send: Callable[[], None] = lambda: None,
        say: Callable[[str], None] = _logger.info,
    ) -> None:
        self._copy, self._terms, self._options = copy, terms, options
        self._patience = patience or Patience()
        self._calendar = FollowedCalendar(calendar, self._patience.calendar_s)
        self._clock, self._say = clock or Clock(), say
        self._sender = Sender(copy, journal, self._clock, may_send)
        self._start_s = self._clock.now_s()
        self._wake_s: float | None = None
        self._is_closed = False
        self.needs_new_controller = self._is_other_cluster = False
        self._unread_since_s: float | None = None
        self._news_since_s: float | None = None
        copy.take_news()
        self._book = Book(self._read(), lambda name, what: say(f"{name}: {what}" if name else what))
        self._starter = Starter(self._book, self._sender, self._patience)
        self._begin()
        # One that is wrong from the beginning ends it.
        self._calendar.changed(0.0, self._clock.moment(), self.state.cluster)

    @property
    def now_s(self) -> float:
        """The clock when it was looked at last."""
        return self._book.now_s

    @property
    def state(self) -> Observed:
        """What was seen last."""
        return self._book.observed

    def summary(self) -> str:
        """What there is, in a line."""
        observed = self.state
        gpus = sum(node.num_gpus for node in observed.cluster.nodes)
        placed = sum(gang.nodes is not None for gang in observed.gangs.values())
        return (
            f"{counted(len(observed.cluster.nodes), 'node')} with {counted(gpus, 'GPU')}; governed are "
            f"{counted(len(observed.gangs), 'job')}, of which {placed} have their nodes; others run "
            f"{counted(len(observed.foreign), 'job')}"
        )

    def close(self) -> None:
        """End the wait for events; what was placed goes on, and what waits behind the gate waits on."""
        with self._copy.changed:
            self._is_closed = True
            self._copy.changed.notify_all()

    def release(self) -> int:
        """Let everything go that waits and was not placed, wherever Kubernetes puts it; how many pods and workloads."""
        return self._sender.release(self._read().gangs.values(), self._say)

    def serve_checks(self) -> None:
        """Tell Kueue that our admission checks are served; ApiError when that is refused."""
        self._sender.serve_checks()

    def facts(self) -> Facts:
        """What runs where, as far as it was told."""
        return Facts(cluster=self.state.cluster, jobs=self._book.facts(), calendar=self._calendar.entries)

    def measured(self, job_id: str) -> Measured:  # noqa: ARG002 - Kubernetes measures nothing of it
        """Nothing: pods do not say how fast they are."""
        return Measured()

    def wake_at(self, at_s: float) -> None:
        """Ask for a tick."""
        self._wake_s = at_s

    def next_events(self) -> Sequence[Event]:
        """Wait until something changes; empty once it is closed, or when a new controller is needed.

        Raises
        ------
        InputError
            When what the API says was not understood for too long.
        ApiError
            When it did not answer for too long, or somebody else decides by now.
        """
        while not self._is_closed and not self.needs_new_controller:
            events = self._look()
            if events or self.needs_new_controller:
                return () if self.needs_new_controller else events
            with self._copy.changed:
                is_new = (self._copy.has_news() or self._book.must_read) and self._news_since_s is None
                if not self._is_closed and not is_new:
                    self._clock.wait(self._copy.changed, self._pause_s())
        return ()

    def take_over(self) -> None:
        """Look at everything anew, for a new controller."""
        self.needs_new_controller = False
        # The facts have it all.
        self._starter.take_events()
        self._wake_s = self.now_s
        if self._is_other_cluster:
            self._is_other_cluster = False
            self._book.begin(self.state)
            self._begin()

    def act(self, actions: Sequence[Action], late_s: float = 0.0) -> None:  # noqa: ARG002 - the clock has gone on itself
        """Note what was decided, and patch as far as it can be done at once."""
        for action in actions:
            if isinstance(action, Stop):
                self._starter.stop(action.job_id)
        for action in actions:
            if isinstance(action, Place):
                self._starter.place(action.allocation)
        self._starter.reconcile()

    def _begin(self) -> None:
        """Tell all that there is; jobs that wait get a tick, since nothing else might happen."""
        for event in self._book.arrivals():
            if isinstance(event, Arrival) and event.allocation is None:
                self._wake_s = self.now_s

    def _read(self) -> Observed:
        objects = self._copy.objects()
        return observe(objects, self._terms, replace(self._options, taken_at_s=self._clock.moment().timestamp()))

    def _look(self) -> tuple[Event, ...]:
        """What has happened: what ended first, then nodes, arrivals, the tick."""
        self._book.now_s = now_s = self._clock.now_s() - self._start_s
        events = self._starter.take_events()
        self._sender.may_send()
        self._copy.check(self._patience.unread_s)
        if self._copy.has_news() or self._book.must_read or self._unread_since_s is not None:
            self._news_since_s = now_s if self._news_since_s is None else self._news_since_s
            if now_s - self._news_since_s >= self._patience.settle_s:
                events += self._changed()
        events += self._calendar_change()
        self._starter.reconcile()
        events += self._starter.take_events()
        if self._wake_s is not None and self._wake_s <= now_s:
            self._wake_s = None
            events.append(Tick(at_s=now_s))
        return tuple(events)

    def _changed(self) -> list[Event]:
        self._copy.take_news()
        self._news_since_s, self._book.must_read = None, False
        try:
            observed = self._read()
        except InputError as error:
            # Nodes and pods come by different watches: one may be a moment ahead.
            self._unread_since_s = self.now_s if self._unread_since_s is None else self._unread_since_s
            if self.now_s - self._unread_since_s > self._patience.unread_s:
                raise
            self._book.tell("", str(error))
            return []
        before, self._unread_since_s = self._book.see(observed), None
        if _shape(before.cluster) != _shape(observed.cluster):
            self.needs_new_controller, self._is_other_cluster = True, True
            return []
        events = self._book.changes(before.cluster)
        self.needs_new_controller = self._book.take_priorities()
        return events

    def _calendar_change(self) -> list[Event]:
        """What has become known of the calendar; one that cannot be had stays as it was."""
        try:
            is_new = self._calendar.changed(self.now_s, self._clock.moment(), self.state.cluster)
        except InputError as error:
            self._book.tell("calendar", str(error))
            return []
        return [CalendarChange(at_s=self.now_s, entries=self._calendar.entries)] if is_new else []

    def _pause_s(self) -> float:
        """Until there may be something to do."""
        due_s = [self._calendar.due_s, *(told.due_s for told in self._book.told.values() if told.failures)]
        due_s += [] if self._wake_s is None else [self._wake_s]
        due_s += [] if self._news_since_s is None else [self._news_since_s + self._patience.settle_s]
        return max(0.0, min([_LONGEST_PAUSE_S, *(at_s - self.now_s for at_s in due_s)]))


def _shape(cluster: Cluster) -> tuple[object, ...]:
    """What of a cluster no event tells."""
    nodes = tuple((node.id, node.gpu_type, node.num_gpus, node.gpus_in_use, node.path) for node in cluster.nodes)
    return nodes, cluster.gpu_types, cluster.tiers, cluster.minipod_tier
