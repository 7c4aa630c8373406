"""A Kubernetes cluster as the controller sees it: what its API tells becomes events, decisions become patches.

Pods wait behind our scheduling gate, and start on the node that the patch which lifts it names. Nothing is kept here
that cannot be read from the cluster: what was decided is noted there before anything starts, so that whoever comes next
goes on where this one ended.
"""

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

from executor.connected.calendar import CalendarNews, FollowedCalendar
from executor.connected.journal import Journal
from executor.connected.kubernetes.api import ApiError
from executor.connected.kubernetes.clock import Clock
from executor.connected.kubernetes.cluster import ClusterCopy
from executor.connected.kubernetes.gangs import Gang, due_pods, node_of, uid_of
from executor.connected.kubernetes.observing import Foreign, Observed, observe
from executor.connected.kubernetes.sending import MAX_NOTE_BYTES, Sender
from executor.connected.kubernetes.terms import Terms
from executor.connected.kubernetes.told import Patience, Told
from executor.connected.ledger import Ledger
from executor.control.actions import Action, Place, Stop
from executor.control.backend import Facts, JobFacts, Measured
from executor.control.events import Arrival, CalendarChange, Completion, Event, Failure, NodeChange, Tick
from executor.kubernetes.placing import UnsayableError, hosts_of_pods
from models.cluster_state import StateOptions
from models.plan import Change, JobAllocation
from models.wording import counted
from models.workload import Job, NodeGpus
from stowplan.errors import InputError
from topology.cluster import Cluster

# Whether the watches stand is looked at so often at least.
_LONGEST_PAUSE_S = 30.0
_logger = logging.getLogger("stowplan.executor.connected.kubernetes.backend")


class KubernetesCluster:
    """A `ClusterBackend` of a cluster whose API is mirrored by `copy`.

    `calendar` is asked again and again for its entries. `say` gets lines about what is odd, each once.
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
        say: Callable[[str], None] = _logger.info,
    ) -> None:
        self._copy, self._terms, self._options = copy, terms, options
        self._patience = patience or Patience()
        self._calendar = FollowedCalendar(calendar, self._patience.calendar_s)
        self._clock, self._say = clock or Clock(), say
        self._sender = Sender(copy, journal, self._clock)
        self._start_s, self._now_s = self._clock.now_s(), 0.0
        self._wake_s: float | None = None
        self._is_closed = False
        # Job -> what was said of it last.
        self._said: dict[str, str] = {}
        self.needs_new_controller = self._is_other_cluster = False
        self._told: dict[str, Told] = {}
        # Jobs that are not planned as they are, by what they were made of when they were given up.
        self._set_aside: dict[str, frozenset[str]] = {}
        self._due: list[Event] = []
        # Something was set aside, whose GPUs are others' work from then on.
        self._must_read = False
        self._unread_since_s: float | None = None
        self._news_since_s: float | None = None
        copy.take_news()
        self._observed = self._read()
        self._begin()
        # One that is wrong from the beginning ends it.
        self._calendar.changed(0.0, self._clock.moment(), self._observed.cluster)

    @property
    def now_s(self) -> float:
        """The clock when it was looked at last."""
        return self._now_s

    @property
    def state(self) -> Observed:
        """What was seen last."""
        return self._observed

    def summary(self) -> str:
        """What there is, in a line."""
        observed = self._observed
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
        jobs = tuple(
            JobFacts(
                job=told.job,
                submitted_s=told.submitted_s,
                since_s=told.since_s,
                remaining_s=told.job.remaining_s,
                num_starts=told.num_starts,
                attained_gpu_s=told.job.attained_gpu_s,
                allocation=self._allocation(name),
            )
            for name, told in self._told.items()
        )
        return Facts(cluster=self._observed.cluster, jobs=jobs, calendar=self._calendar.entries)

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
            When it did not answer for too long.
        """
        while not self._is_closed and not self.needs_new_controller:
            events = self._look()
            if events or self.needs_new_controller:
                return () if self.needs_new_controller else events
            with self._copy.changed:
                is_new = (self._copy.has_news() or self._must_read) and self._news_since_s is None
                if not self._is_closed and not is_new:
                    self._clock.wait(self._copy.changed, self._pause_s())
        return ()

    def take_over(self) -> None:
        """Look at everything anew, for a new controller."""
        self.needs_new_controller = False
        # The facts have it all.
        self._due.clear()
        self._wake_s = self._now_s
        if self._is_other_cluster:
            self._is_other_cluster = False
            self._told.clear()
            self._begin()

    def act(self, actions: Sequence[Action], late_s: float = 0.0) -> None:  # noqa: ARG002 - the clock has gone on itself
        """Note what was decided, and patch as far as it can be done at once."""
        for action in actions:
            if isinstance(action, Stop):
                self._stop(action.job_id)
        for action in actions:
            if isinstance(action, Place):
                self._place(action.allocation)
        self._reconcile()

    def _begin(self) -> None:
        """Tell all that there is; jobs that wait get a tick, since nothing else might happen."""
        self._ledger = Ledger(self._observed.cluster)
        self._node_names = {host: node for node, host in self._observed.hostnames.items()}
        self._node_names |= {node.id: node.id for node in self._observed.cluster.nodes}
        self._types = {node.id: node.gpu_type for node in self._observed.cluster.nodes}
        for event in [*self._new_foreign(), *self._new_gangs()]:
            if isinstance(event, Arrival) and event.allocation is None:
                self._wake_s = self._now_s

    def _read(self) -> Observed:
        objects = self._copy.objects()
        return observe(objects, self._terms, replace(self._options, taken_at_s=self._clock.moment().timestamp()))

    def _look(self) -> tuple[Event, ...]:
        """What has happened: what ended first, then nodes, arrivals, the tick."""
        self._now_s = self._clock.now_s() - self._start_s
        events, self._due = self._due, []
        self._copy.check(self._patience.unread_s)
        if self._copy.has_news() or self._must_read or self._unread_since_s is not None:
            self._news_since_s = self._now_s if self._news_since_s is None else self._news_since_s
            if self._now_s - self._news_since_s >= self._patience.settle_s:
                events += self._changed()
        events += self._calendar_change()
        self._reconcile()
        events += self._due
        self._due = []
        if self._wake_s is not None and self._wake_s <= self._now_s:
            self._wake_s = None
            events.append(Tick(at_s=self._now_s))
        return tuple(events)

    def _changed(self) -> list[Event]:
        self._copy.take_news()
        self._news_since_s, self._must_read = None, False
        try:
            observed = self._read()
        except InputError as error:
            # Nodes and pods come by different watches: one may be a moment ahead.
            self._unread_since_s = self._now_s if self._unread_since_s is None else self._unread_since_s
            if self._now_s - self._unread_since_s > self._patience.unread_s:
                raise
            self._tell("", str(error))
            return []
        before, self._observed, self._unread_since_s = self._observed, observed, None
        self._set_aside = {name: uids for name, uids in self._set_aside.items() if name in observed.gangs}
        if _shape(before.cluster) != _shape(observed.cluster):
            self.needs_new_controller, self._is_other_cluster = True, True
            return []
        events = [*self._ended(), *self._node_changes(before.cluster), *self._new_foreign(), *self._new_gangs()]
        self.needs_new_controller = self._rank()
        return events

    def _rank(self) -> bool:
        """Give jobs the ranks that they have by now; whether one changed, as others come whose priority is new."""
        changed = False
        known = {**{name: item.job for name, item in self._observed.foreign.items()}, **self._observed.jobs}
        for name, told in self._told.items():
            job = known.get(name)
            if job is not None and job.priority != told.job.priority:
                told.job = replace(told.job, priority=job.priority)
                changed = True
        return changed

    def _calendar_change(self) -> list[Event]:
        """What has become known of the calendar; one that cannot be had stays as it was."""
        try:
            is_new = self._calendar.changed(self._now_s, self._clock.moment(), self._observed.cluster)
        except InputError as error:
            self._tell("calendar", str(error))
            return []
        return [CalendarChange(at_s=self._now_s, entries=self._calendar.entries)] if is_new else []

    def _ended(self) -> Iterator[Event]:
        """Jobs that are over, or broke, or that others changed."""
        gangs, foreign = self._observed.gangs, dict(self._foreign())
        for name, told in tuple(self._told.items()):
            gang = gangs.get(name)
            if not told.is_ours:
                if name not in foreign or foreign[name].counts != told.counts:
                    yield self._forget(name)
            elif gang is None or name not in self._observed.jobs:
                yield self._forget(name)
            elif gang.workload is not None and gang.quota_since is None:
                # Kueue has taken its admission back, and asks again when it has quota.
                yield self._forget(name)
            elif told.nodes is None and (gang.problem is not None or gang.nodes is not None):
                # Somebody has taken pods away, or another one has placed it.
                yield self._forget(name)
            elif told.started and gang.pods and told.started.isdisjoint(gang.uids):
                # Nothing is left of what was started: all of it waits again.
                yield self._broken(name)
            else:
                told.started |= {uid_of(pod.object) for pod in gang.started}

    def _forget(self, name: str, fault: str | None = None) -> Completion:
        del self._told[name]
        self._ledger.release(name)
        return Completion(at_s=self._now_s, job_id=name, fault=fault)

    def _broken(self, name: str) -> Failure:
        told = self._told[name]
        self._ledger.release(name)
        self._told[name] = replace(told, nodes=None, counts={}, started=frozenset(), failures=0)
        return Failure(at_s=self._now_s, job_id=name, remaining_s=told.job.remaining_s)

    def _node_changes(self, before: Cluster) -> Iterator[Event]:
        states = {node.id: node.state for node in before.nodes}
        for node in self._observed.cluster.nodes:
            if node.state is not states[node.id]:
                yield NodeChange(at_s=self._now_s, node=node.id, state=node.state)

    def _new_foreign(self) -> Iterator[Event]:
        for name, foreign in self._foreign():
            if name not in self._told:
                parts = self._ledger.lowest(foreign.counts)
                if parts:
                    yield self._arrived(name, foreign.job, parts, counts=foreign.counts)

    def _foreign(self) -> Iterator[tuple[str, Foreign]]:
        """What others run, and what was left half-started."""
        yield from self._observed.foreign.items()
        for name in self._set_aside:
            gang = self._observed.gangs.get(name)
            if gang is not None and name not in self._observed.foreign and name in self._observed.jobs and gang.started:
                counts: dict[str, int] = {}
                for node, num in ((self._node_names.get(node_of(pod) or ""), pod.num_gpus) for pod in gang.started):
                    if node is not None:
                        counts[node] = counts.get(node, 0) + num
                job = replace(self._observed.jobs[name], preemptible=False, parallelism=None)
                yield name, Foreign(job=job, counts=counts)

    def _new_gangs(self) -> Iterator[Event]:
        """Governed jobs that wait, or that somebody before us has placed."""
        for name, gang in self._observed.gangs.items():
            if name in self._told or name not in self._observed.jobs:
                continue
            if self._set_aside.get(name) == gang.uids:
                continue
            self._set_aside.pop(name, None)
            if gang.problem is not None and gang.nodes is None:
                self._tell(name, gang.problem)
            elif gang.nodes is None:
                yield self._arrived(name, self._observed.jobs[name])
            else:
                yield from self._placed_before(name, gang)

    def _placed_before(self, name: str, gang: Gang) -> Iterator[Event]:
        """Go on with what somebody else has noted: the last connection, most likely."""
        nodes, gpus = gang.nodes or (), gang.gpus
        # Where pods are missing at the moment, they had as many as the others.
        each = gpus if len(gpus) == len(nodes) else (max(gpus, default=0),) * len(nodes)
        counts: dict[str, int] = {}
        for node, num in zip(nodes, each, strict=True):
            counts[node] = counts.get(node, 0) + num
        parts = self._ledger.lowest(counts)
        if not parts:
            self._tell(name, "was placed on nodes that are not there, or that others have by now")
            return
        yield self._arrived(name, self._observed.jobs[name], parts, counts=counts, nodes=nodes)

    def _arrived(
        self,
        name: str,
        job: Job,
        parts: tuple[NodeGpus, ...] = (),
        *,
        counts: Mapping[str, int] | None = None,
        nodes: tuple[str, ...] | None = None,
    ) -> Arrival:
        num_gpus = sum(len(part.gpus) for part in parts)
        is_ours = name in self._observed.gangs and name not in self._observed.foreign and name not in self._set_aside
        self._told[name] = Told(
            job=replace(job, min_gpus=num_gpus, gpu_types=None, current=None) if parts else job,
            submitted_s=self._now_s - job.age_s,
            is_ours=is_ours,
            counts=counts or {},
            nodes=nodes,
            since_s=self._now_s,
            num_starts=bool(parts),
        )
        if parts:
            self._ledger.take(name, parts)
        self._said.pop(name, None)
        return Arrival(at_s=self._now_s, job=self._told[name].job, allocation=self._allocation(name))

    def _allocation(self, name: str) -> JobAllocation | None:
        parts = self._ledger.of(name)
        if not parts:
            return None
        return JobAllocation(
            job_id=name,
            gpu_type=self._types[parts[0].node],
            num_gpus=sum(len(part.gpus) for part in parts),
            gpus=parts,
            change=Change.STARTED,
        )

    def _place(self, allocation: JobAllocation) -> None:
        name = allocation.job_id
        told, gang = self._told[name], self._observed.gangs[name]
        self._ledger.release(name)
        self._ledger.take(name, allocation.gpus)
        told.since_s, told.due_s, told.failures = self._now_s, self._now_s, 0
        told.num_starts += 1
        try:
            told.nodes = tuple(hosts_of_pods(allocation.rank_gpus, gang.gpus))
            if len(",".join(told.nodes)) > MAX_NOTE_BYTES:
                raise UnsayableError("too_many_nodes", f"has {len(told.nodes)} nodes, whose names no annotation takes")
        except UnsayableError as error:
            self._give_up(name, gang, str(error))

    def _stop(self, name: str) -> None:
        told, gang = self._told[name], self._observed.gangs[name]
        self._delete(name, gang)
        self._ledger.release(name)
        self._told[name] = replace(told, nodes=None, counts={}, started=frozenset())

    def _delete(self, name: str, gang: Gang) -> None:
        """Have the pods of a gang made anew; those that cannot be deleted are seen to run on, and told so."""
        try:
            self._sender.delete(gang.started)
        except ApiError as error:
            self._tell(name, f"cannot be deleted: {error.detail}")

    def _reconcile(self) -> None:
        """Let go the pods of placed jobs that still wait: those of a new placement, of one that broke off half-way, and
        those that were made anew."""
        for name, told in tuple(self._told.items()):
            gang = self._observed.gangs.get(name)
            if told.nodes is None or gang is None or told.due_s > self._now_s:
                continue
            try:
                due = due_pods(gang, told.nodes, was_whole=len(told.started) >= len(told.nodes))
                self._sender.place(gang, told.nodes, due, self._observed.hostnames)
                told.failures = 0
                told.started |= {uid_of(pod.object) for pod, _ in due}
            except UnsayableError as error:
                self._give_up(name, gang, str(error))
            except ApiError as error:
                self._failed(name, told, gang, error)

    def _failed(self, name: str, told: Told, gang: Gang, error: ApiError) -> None:
        told.failures += 1
        if told.failures < self._patience.tries:
            told.due_s = self._now_s + self._patience.pause_s * 2.0 ** (told.failures - 1)
            self._tell(name, f"could not be started, and is tried again: {error.detail}")
            return
        self._give_up(name, gang, f"{error.detail} ({told.failures} tries)")

    def _give_up(self, name: str, gang: Gang, why: str) -> None:
        """What cannot be started whole is taken back where that is allowed, and set aside where not."""
        started = gang.started
        if started and self._told[name].job.preemptible:
            self._delete(name, gang)
            self._tell(name, f"{len(started)} of {len(gang.pods)} pods were started, and are deleted: {why}")
            self._due.append(self._broken(name))
            return
        half = f"half-started, {len(started)} of {len(gang.pods)} pods: " if started else ""
        self._set_aside[name], self._must_read = gang.uids, True
        self._tell(name, f"{half}{why}")
        self._due.append(self._forget(name, f"{half}{why}"))

    def _pause_s(self) -> float:
        """Until there may be something to do."""
        due_s = [self._calendar.due_s, *(told.due_s for told in self._told.values() if told.failures)]
        due_s += [] if self._wake_s is None else [self._wake_s]
        due_s += [] if self._news_since_s is None else [self._news_since_s + self._patience.settle_s]
        return max(0.0, min([_LONGEST_PAUSE_S, *(at_s - self._now_s for at_s in due_s)]))

    def _tell(self, name: str, what: str) -> None:
        if self._said.get(name) != what:
            self._said[name] = what
            self._say(f"{name}: {what}" if name else what)


def _shape(cluster: Cluster) -> tuple[object, ...]:
    """What of a cluster no event tells."""
    nodes = tuple((node.id, node.gpu_type, node.num_gpus, node.gpus_in_use, node.path) for node in cluster.nodes)
    return nodes, cluster.gpu_types, cluster.tiers, cluster.minipod_tier
