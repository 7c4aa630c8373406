"""A cluster of our own deployments under the clock of this machine.

    <root>/control.lock     held by the one who controls the cluster
    <root>/NAME/            a job, by the name of its deployment (`executor.deployed.job`)

All that is needed to go on lies there, so that another process takes over what runs; nodes are as it is told then.
"""

import fcntl
import logging
import math
import threading
import time
from collections.abc import Iterator, Sequence, Set
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import IO

from executor.control.actions import Action, Place, Stop
from executor.control.backend import Facts, Measured
from executor.control.events import (
    Arrival,
    CalendarChange,
    Completion,
    Event,
    Failure,
    Measurement,
    NodeChange,
    Tick,
)
from executor.deployed.job import DeployedJob, Happening, Patience, is_there, write_job
from executor.deployed.submission import Submission
from models.workload import Snapshot
from stowplan.errors import InputError, StowplanError
from topology.calendar import CalendarEntry
from topology.cluster import Cluster, NodeState

# No name of a deployment.
_LOCK = "control.lock"
# So many times as long as a job was looked at, it is not.
_REST = 9
_logger = logging.getLogger("stowplan.executor.deployed.backend")


class Clock:
    """Seconds that nobody sets, and the wait for what may change."""

    def now_s(self) -> float:
        """Seconds since some moment."""
        return time.monotonic()

    def wait(self, changed: threading.Condition, limit_s: float) -> None:
        """Wait until somebody notifies, at most so long."""
        changed.wait(limit_s)


class DeployedBackend:
    """A `ClusterBackend` whose jobs are deployments below `root`.

    A run that breaks is a `Failure`: the controller decides where the job goes on. One whose ranks measure something
    else than was known is a `Measurement`. One that cannot be reached keeps its GPUs until it can be ended, or a node
    of it is said to be down.

    One thread controls; any other may `submit`, `change_node`, `change_calendar` and `close`. `calendar`: its entries
    in seconds from when the backend is made, at which `now_s` is 0. `poll_s`: how often it looks what runs. `learns`:
    whether policies are told what the ranks measure of their steps; False where that says nothing of the model, as of
    ranks that share processors. What changes of plan cost they are told anyway.

    Raises
    ------
    InputError
        When another process controls what is below `root`, or what runs there, or the calendar, does not go with the
        cluster.
    """

    def __init__(
        self,
        root: Path,
        cluster: Cluster,
        *,
        calendar: tuple[CalendarEntry, ...] = (),
        patience: Patience | None = None,
        poll_s: float = 0.5,
        clock: Clock | None = None,
        learns: bool = True,
    ) -> None:
        self._root = root
        self._cluster = cluster
        self._calendar = calendar
        self._patience = patience or Patience()
        self._poll_s, self._learns = poll_s, learns
        self._clock = clock or Clock()
        self._start_s = self._clock.now_s()
        self._now_s = 0.0
        self._wake_s: float | None = None
        # What others have told since the last look; `_changed` guards it, and `_work` what the controller does.
        self._told: list[tuple[Arrival, DeployedJob] | NodeChange | CalendarChange] = []
        self._changed, self._work, self._is_closed = threading.Condition(), threading.Lock(), False
        self._due: list[Event] = []
        self._jobs: dict[str, DeployedJob] = {}
        self._num_submitted = 0
        self._lock = _locked(root)
        try:
            self._take_over()
        except BaseException:
            self._release()
            raise

    @property
    def now_s(self) -> float:
        """The clock when it was looked at last."""
        return self._now_s

    def submit(self, submission: Submission) -> None:
        """Take a job, whose arrival is the next event; from here on it is not lost.

        Raises
        ------
        InputError
            When the job does not go with the cluster, there is or was one of that id, or it cannot be written.
        """
        Snapshot(cluster=self._cluster, jobs=(submission.job,))
        with self._changed:
            if self._is_closed:
                raise InputError("the cluster is closed, and takes no job any more")
            folder, at_s = self._root / submission.name, self._passed_s()
            write_job(submission, self._num_submitted, folder)
            self._num_submitted += 1
            job = DeployedJob(folder, self._patience, at_s, learns=self._learns)
            job.resume(self._cluster)
            self._told.append((Arrival(at_s=at_s, job=submission.job), job))
            self._changed.notify_all()

    def change_node(self, node: str, state: NodeState) -> None:
        """Say that a node is down, drained or up again; InputError where there is none of that name."""
        if all(known.id != node for known in self._cluster.nodes):
            raise InputError(f"the cluster has no node {node!r}")
        with self._changed:
            self._told.append(NodeChange(at_s=self._passed_s(), node=node, state=state))
            self._changed.notify_all()

    def change_calendar(self, entries: Sequence[CalendarEntry]) -> None:
        """Say what the calendar is from now on, with all its entries, in seconds from now; InputError where it does not
        go with the cluster. Nodes that are to arrive are nodes of the cluster from the beginning."""
        Snapshot(cluster=self._cluster, jobs=(), calendar=tuple(entries))
        with self._changed:
            at_s = self._passed_s()
            # On the backend's clock.
            known = tuple(entry.seen_at(-at_s) for entry in entries)
            self._told.append(CalendarChange(at_s=at_s, entries=known))
            self._changed.notify_all()

    def close(self) -> None:
        """End the wait for events, for good; what runs goes on, and another process may take over."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()
        with self._work:
            self._release()

    def facts(self) -> Facts:
        """What runs where, as it was decided."""
        jobs = tuple(job.facts(self._now_s) for job in self._jobs.values() if not job.given.has_ended)
        return Facts(cluster=self._cluster, jobs=jobs, calendar=self._calendar)

    def measured(self, job_id: str) -> Measured:
        """What its ranks have measured, and what its changes have cost."""
        return self._jobs[job_id].measured()

    def wake_at(self, at_s: float) -> None:
        """Ask for a tick."""
        self._wake_s = at_s

    def next_events(self) -> Sequence[Event]:
        """Look after the runs until something happens; empty once it is closed.

        Raises
        ------
        OSError
            When it cannot be written what has become of a job; whoever takes over finds it out again.
        """
        while True:
            with self._work:
                if self._is_closed:
                    return ()
                if events := self._look():
                    return events
            with self._changed:
                if not self._told and not self._is_closed:
                    self._clock.wait(self._changed, self._pause_s())

    def act(self, actions: Sequence[Action], late_s: float = 0.0) -> None:  # noqa: ARG002 - the clock has gone on itself
        """Decide on jobs; their runs follow as events are waited for.

        Raises
        ------
        OSError
            When a decision cannot be written; whoever takes over goes on from those that were.
        """
        with self._work:
            if self._is_closed:
                return
            # First, so that no record of another job has GPUs that are given back here.
            for action in actions:
                job = self._jobs[action.job_id if isinstance(action, Stop) else action.allocation.job_id]
                if job.given.allocation is not None:
                    job.give(None, self._cluster, self._now_s)
            for action in actions:
                if isinstance(action, Place):
                    self._place(self._jobs[action.allocation.job_id], action)

    def _place(self, job: DeployedJob, action: Place) -> None:
        try:
            job.give(action.allocation, self._cluster, self._now_s)
        except InputError as error:
            self._due.append(self._ended(job, f"cannot be deployed as planned: {error}"))

    def _take_over(self) -> None:
        """Go on with what lies below the root."""
        folders = [folder for folder in self._root.iterdir() if is_there(folder)]
        jobs = [DeployedJob(folder, self._patience, 0.0, learns=self._learns) for folder in folders]
        for job in sorted(jobs, key=lambda job: job.given.number):
            self._num_submitted = job.given.number + 1
            job.resume(self._cluster)
            if not job.is_over:
                self._jobs[job.id] = job
        jobs_here = tuple(job.submission.job for job in self._jobs.values())
        Snapshot(cluster=self._cluster, jobs=jobs_here, calendar=self._calendar)
        # These wait, as the facts will say.
        tuple(self._lost({node.id for node in self._cluster.nodes if node.state is NodeState.DOWN}))

    def _release(self) -> None:
        """Let others look after the jobs."""
        told = [item[1] for item in self._told if isinstance(item, tuple)]
        for job in (*self._jobs.values(), *told):
            job.close()
        self._lock.close()

    def _passed_s(self) -> float:
        return self._clock.now_s() - self._start_s

    def _pause_s(self) -> float:
        """Until there may be something to do."""
        until_s = math.inf if self._wake_s is None else self._wake_s - self._passed_s()
        return max(0.0, min(self._poll_s, until_s, *(job.pause_s for job in self._jobs.values())))

    def _look(self) -> tuple[Event, ...]:
        """Do what is due, and say what has happened: what ended first, then nodes and calendars, arrivals, the tick."""
        with self._changed:
            told, self._told = self._told, []
        self._now_s = self._passed_s()
        events, self._due = self._due, []
        for job in tuple(self._jobs.values()):
            events += self._happened(job)
        for item in told:
            if isinstance(item, NodeChange):
                events += self._changed_node(item)
            elif isinstance(item, CalendarChange):
                self._calendar = item.entries
                events.append(item)
        for item in told:
            if isinstance(item, tuple):
                events.append(item[0])
                self._jobs[item[1].id] = item[1]
        events += self._started()
        if self._wake_s is not None and self._wake_s <= self._now_s:
            self._wake_s = None
            events.append(Tick(at_s=self._now_s))
        return tuple(events)

    def _happened(self, job: DeployedJob) -> Iterator[Event]:
        """Look after the run of a job, most of the time not where that takes long: its host may not answer."""
        before_s = self._passed_s()
        if before_s < job.rests_until_s:
            return
        try:
            found = job.look(partial(self._others, job))
        except (StowplanError, OSError):
            # The same is due the next time; one broken folder must not keep the others from being looked after.
            _logger.exception("job %s cannot be looked after", job.id)
            return
        finally:
            now_s = self._passed_s()
            job.rests_until_s = now_s + _REST * (now_s - before_s)
        if found is not None and not job.given.has_ended:
            happening, why = found
            if happening is Happening.BROKE:
                yield self._broken(job)
            else:
                yield self._ended(job, None if happening is Happening.DONE else why)
        elif found is None and self._has_news(job):
            yield Measurement(at_s=self._now_s, job_id=job.id, remaining_s=job.left_s())
        if job.is_over:
            self._jobs.pop(job.id).close()

    def _has_news(self, job: DeployedJob) -> bool:
        """Whether its ranks have measured what is not known yet; what cannot be read is due again."""
        try:
            return job.measure(self._cluster)
        except (StowplanError, OSError):
            _logger.exception("what job %s has measured cannot be read", job.id)
            return False

    def _others(self, job: DeployedJob) -> Iterator[DeployedJob]:
        """All jobs but one."""
        return (other for other in self._jobs.values() if other is not job)

    def _started(self) -> Iterator[Event]:
        """Start the jobs whose GPUs are free, in the order of submission; again, as long as runs that go on elsewhere
        leave GPUs at once."""
        due, num_due = [job for job in self._jobs.values() if job.wants_start(self._now_s)], math.inf
        while len(due) < num_due:
            num_due = len(due)
            taken = {gpu for job in self._jobs.values() for gpu in job.gpus} if due else set()
            for job in due:
                fault = job.start(taken, self._now_s, partial(self._others, job))
                if fault is not None:
                    yield self._ended(job, fault)
                taken |= job.gpus
            due = [job for job in due if job.wants_start(self._now_s)]

    def _changed_node(self, change: NodeChange) -> Iterator[Event]:
        """The jobs that break with a node, and the change."""
        nodes = (replace(node, state=change.state) if node.id == change.node else node for node in self._cluster.nodes)
        self._cluster = replace(self._cluster, nodes=tuple(nodes))
        if change.state is NodeState.DOWN:
            yield from self._lost({change.node})
        yield change

    def _lost(self, nodes: Set[str]) -> Iterator[Failure]:
        """What breaks when nodes are down."""
        for job in self._jobs.values():
            if nodes & {node for node, _ in job.gpus}:
                job.lose()
            if job.given.allocation is not None and nodes & {part.node for part in job.given.allocation.gpus}:
                yield self._broken(job)

    def _ended(self, job: DeployedJob, fault: str | None) -> Completion:
        job.end(self._now_s, fault)
        return Completion(at_s=self._now_s, job_id=job.id, fault=fault)

    def _broken(self, job: DeployedJob) -> Failure:
        job.give(None, self._cluster, self._now_s)
        return Failure(at_s=self._now_s, job_id=job.id, remaining_s=job.kept_s())


def _locked(root: Path) -> IO[str]:
    """Become the one who controls what is below `root`."""
    root.mkdir(parents=True, exist_ok=True)
    lock = (root / _LOCK).open("w")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        lock.close()
        raise InputError(f"another process controls the jobs in {root}; end that one first") from error
    return lock
