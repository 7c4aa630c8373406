"""What the controller was told of jobs, and what it is to be told of those that came, went, broke or changed."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

from executor.connected.kubernetes.gangs import Gang, node_of, uid_of
from executor.connected.kubernetes.observing import Foreign, Observed
from executor.connected.kubernetes.told import Told
from executor.connected.ledger import Ledger
from executor.control.backend import JobFacts
from executor.control.events import Arrival, Completion, Event, Failure, NodeChange
from models.plan import Change, JobAllocation
from models.workload import Job, NodeGpus
from topology.cluster import Cluster


class Book:
    """The jobs that the controller knows, on the clock of the connection: `now_s` is when it was looked at last.

    `observed`: what was seen last. `told`: jobs by name. `ledger`: who has which GPUs. `must_read`: something was set
    aside, whose GPUs are others' work from then on. `say` gets (job, what is odd about it).
    """

    def __init__(self, observed: Observed, say: Callable[[str, str], None]) -> None:
        self._say = say
        self.now_s = 0.0
        self.must_read = False
        # Jobs that are not planned as they are, by what they were made of when they were given up.
        self._set_aside: dict[str, frozenset[str]] = {}
        # Job -> what was said of it last.
        self._said: dict[str, str] = {}
        self.begin(observed)

    def begin(self, observed: Observed) -> None:
        """Know nobody of a cluster; what was set aside stays so."""
        self.observed = observed
        self.told: dict[str, Told] = {}
        self.ledger = Ledger(observed.cluster)
        self._node_names = {host: node for node, host in observed.hostnames.items()}
        self._node_names |= {node.id: node.id for node in observed.cluster.nodes}
        self._types = {node.id: node.gpu_type for node in observed.cluster.nodes}

    def see(self, observed: Observed) -> Observed:
        """Take what is seen now, in place of what was before, which is given back."""
        before, self.observed = self.observed, observed
        self._set_aside = {name: uids for name, uids in self._set_aside.items() if name in observed.gangs}
        return before

    def changes(self, before: Cluster) -> list[Event]:
        """What has happened since: what ended first, then nodes, arrivals."""
        return [*self._ended(), *self._node_changes(before), *self.arrivals()]

    def arrivals(self) -> list[Event]:
        """Jobs that nobody was told of: first those that others run."""
        return [*self._new_foreign(), *self._new_gangs()]

    def take_priorities(self) -> bool:
        """Give jobs the ranks that they have by now; whether one changed, as others come whose priority is new."""
        changed = False
        known = {**{name: item.job for name, item in self.observed.foreign.items()}, **self.observed.jobs}
        for name, told in self.told.items():
            job = known.get(name)
            if job is not None and job.priority != told.job.priority:
                told.job = replace(told.job, priority=job.priority)
                changed = True
        return changed

    def facts(self) -> tuple[JobFacts, ...]:
        """Who runs where, as far as it was told."""
        return tuple(
            JobFacts(
                job=told.job,
                submitted_s=told.submitted_s,
                since_s=told.since_s,
                remaining_s=told.job.remaining_s,
                num_starts=told.num_starts,
                attained_gpu_s=told.job.attained_gpu_s,
                allocation=self._allocation(name),
            )
            for name, told in self.told.items()
        )

    def forget(self, name: str, fault: str | None = None) -> Completion:
        """A job is over, with a fault where it was not let run."""
        del self.told[name]
        self.ledger.release(name)
        return Completion(at_s=self.now_s, job_id=name, fault=fault)

    def broken(self, name: str) -> Failure:
        """A job lost its nodes, and waits again."""
        self.wait_again(name)
        return Failure(at_s=self.now_s, job_id=name, remaining_s=self.told[name].job.remaining_s)

    def wait_again(self, name: str) -> None:
        """A job has no nodes any more."""
        self.ledger.release(name)
        self.told[name] = replace(self.told[name], nodes=None, counts={}, started=frozenset(), failures=0)

    def set_aside(self, name: str, gang: Gang, fault: str) -> Completion:
        """Do not plan a job as it is now; other pods of it are another try."""
        self._set_aside[name], self.must_read = gang.uids, True
        self.tell(name, fault)
        return self.forget(name, fault)

    def tell(self, name: str, what: str) -> None:
        """Say what is odd about a job, or all of it where it has no name; not twice in a row."""
        if self._said.get(name) != what:
            self._said[name] = what
            self._say(name, what)

    def _ended(self) -> Iterator[Event]:
        """Jobs that are over, or broke, or that others changed."""
        gangs, foreign = self.observed.gangs, dict(self._foreign())
        for name, told in tuple(self.told.items()):
            gang = gangs.get(name)
            if not told.is_ours:
                if name not in foreign or foreign[name].counts != told.counts:
                    yield self.forget(name)
            elif gang is None or name not in self.observed.jobs:
                yield self.forget(name)
            elif gang.workload is not None and gang.quota_since is None:
                # Kueue has taken its admission back, and asks again when it has quota.
                yield self.forget(name)
            elif told.nodes is None and (gang.problem is not None or gang.nodes is not None):
                # Somebody has taken pods away, or another one has placed it.
                yield self.forget(name)
            elif told.started and gang.pods and told.started.isdisjoint(gang.uids):
                # Nothing is left of what was started: all of it waits again.
                yield self.broken(name)
            else:
                told.started |= {uid_of(pod.object) for pod in gang.started}

    def _node_changes(self, before: Cluster) -> Iterator[Event]:
        states = {node.id: node.state for node in before.nodes}
        for node in self.observed.cluster.nodes:
            if node.state is not states[node.id]:
                yield NodeChange(at_s=self.now_s, node=node.id, state=node.state)

    def _new_foreign(self) -> Iterator[Event]:
        for name, foreign in self._foreign():
            if name not in self.told:
                parts = self.ledger.lowest(foreign.counts)
                if parts:
                    yield self._arrived(name, foreign.job, parts, counts=foreign.counts)

    def _foreign(self) -> Iterator[tuple[str, Foreign]]:
        """What others run, and what was left half-started."""
        yield from self.observed.foreign.items()
        for name in self._set_aside:
            gang = self.observed.gangs.get(name)
            if gang is not None and name not in self.observed.foreign and name in self.observed.jobs and gang.started:
                counts: dict[str, int] = {}
                for node, num in ((self._node_names.get(node_of(pod) or ""), pod.num_gpus) for pod in gang.started):
                    if node is not None:
                        counts[node] = counts.get(node, 0) + num
                job = replace(self.observed.jobs[name], preemptible=False, parallelism=None)
                yield name, Foreign(job=job, counts=counts)

    def _new_gangs(self) -> Iterator[Event]:
        """Governed jobs that wait, or that somebody before us has placed."""
        for name, gang in self.observed.gangs.items():
            if name in self.told or name not in self.observed.jobs:
                continue
            if self._set_aside.get(name) == gang.uids:
                continue
            self._set_aside.pop(name, None)
            if gang.problem is not None and gang.nodes is None:
                self.tell(name, gang.problem)
            elif gang.nodes is None:
                yield self._arrived(name, self.observed.jobs[name])
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
        parts = self.ledger.lowest(counts)
        if not parts:
            self.tell(name, "was placed on nodes that are not there, or that others have by now")
            return
        yield self._arrived(name, self.observed.jobs[name], parts, counts=counts, nodes=nodes)

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
        is_ours = name in self.observed.gangs and name not in self.observed.foreign and name not in self._set_aside
        self.told[name] = Told(
            job=replace(job, min_gpus=num_gpus, gpu_types=None, current=None) if parts else job,
            submitted_s=self.now_s - job.age_s,
            is_ours=is_ours,
            counts=counts or {},
            nodes=nodes,
            since_s=self.now_s,
            num_starts=bool(parts),
        )
        if parts:
            self.ledger.take(name, parts)
        self._said.pop(name, None)
        return Arrival(at_s=self.now_s, job=self.told[name].job, allocation=self._allocation(name))

    def _allocation(self, name: str) -> JobAllocation | None:
        parts = self.ledger.of(name)
        if not parts:
            return None
        return JobAllocation(
            job_id=name,
            gpu_type=self._types[parts[0].node],
            num_gpus=sum(len(part.gpus) for part in parts),
            gpus=parts,
            change=Change.STARTED,
        )
