"""A cluster under a virtual clock. From event to event: nothing is done at a fixed step.

Whoever has GPUs does no work for a delay, then works at the speed that is true of that allocation. Work is credited
when the allocation ends, at the speed at which it was done. The backend keeps its own account of GPUs and work: it
refuses to give a GPU away twice, or to let a job end whose speed does not integrate to its work.
"""

import heapq
import math
from collections.abc import Sequence
from dataclasses import replace

from executor.control.actions import Action, Place, Stop
from executor.control.backend import Facts, JobFacts, Measured
from executor.control.events import Arrival, CalendarChange, Completion, Event, Failure, NodeChange, Tick
from executor.simulation.progress import Progress, SimulationState, Submission
from executor.simulation.truth import Truth
from models.placement.occupancy import mask_of
from models.plan import JobAllocation
from topology.calendar import CalendarEntry
from topology.cluster import Cluster, NodeState

# Of the work, and of the clock, from which seconds are subtracted.
_ROUNDING = 1e-9


class SimulatedBackend:
    """A `ClusterBackend`.

    Parameters
    ----------
    submissions
        By time, ids unique.
    changes
        Of nodes and of the calendar, by time.
    horizon_s
        Nothing happens after it.
    state
        Where to go on from; the rest must be what it was then.
    """

    def __init__(
        self,
        cluster: Cluster,
        submissions: Sequence[Submission],
        truth: Truth,
        *,
        changes: Sequence[NodeChange | CalendarChange] = (),
        horizon_s: float = math.inf,
        state: SimulationState | None = None,
    ) -> None:
        self._truth = truth
        self._submissions = submissions
        self._jobs = {submission.job.id: submission.job for submission in submissions}
        self._changes = changes
        self._horizon_s = horizon_s
        self._cluster = cluster
        self._free = {node.id: (1 << node.num_gpus) - 1 & ~mask_of(node.gpus_in_use) for node in cluster.nodes}
        self._calendar: tuple[CalendarEntry, ...] = ()
        self._states = {node.id: node.state for node in cluster.nodes}
        self._type_of = {node.id: node.gpu_type for node in cluster.nodes}
        self._now_s = 0.0
        self._num_submitted = 0
        self._num_changes = 0
        self._num_left = len(submissions)
        self._wake_s: float | None = None
        self._has_changed = False
        self._progress: dict[str, Progress] = {}
        self._on_node: dict[str, set[str]] = {node.id: set() for node in cluster.nodes}
        # (end, number of submission, id); entries of allocations that are gone are passed over.
        self._ends: list[tuple[float, int, str]] = []
        self._number = {submission.job.id: k for k, submission in enumerate(submissions)}
        if state is not None:
            self._resume(state)

    @property
    def now_s(self) -> float:
        """The virtual clock."""
        return self._now_s

    @property
    def num_left(self) -> int:
        """Jobs that have not ended, those to come included."""
        return self._num_left

    def facts(self) -> Facts:
        """What runs where."""
        here = [progress for progress in self._progress.values() if progress.ended_s is None]
        nodes = tuple(replace(node, state=self._states[node.id]) for node in self._cluster.nodes)
        return Facts(
            cluster=replace(self._cluster, nodes=nodes),
            jobs=tuple(self._facts_of(progress) for progress in here),
            calendar=self._calendar,
        )

    def measured(self, job_id: str) -> Measured:
        """By the truth."""
        progress = self._progress[job_id]
        known = self._truth.measured(job_id, progress.done_at(self._now_s), progress.batch)
        is_starting = progress.allocation is not None and self._now_s < progress.works_s
        return replace(known, is_starting=True) if is_starting else known

    def next_events(self) -> tuple[Event, ...]:
        """Turn the clock to the next instant at which something happens; empty at the end of jobs, or of time."""
        events: tuple[Event, ...] = ()
        # What ends a segment of work is no event.
        while not events:
            at_s = self._next_s()
            if at_s == math.inf:
                return ()
            if at_s > self._horizon_s:
                self._now_s = self._horizon_s
                self.account()
                return ()
            events = self._events_at(at_s)
        return events

    def _events_at(self, at_s: float) -> tuple[Event, ...]:
        self._now_s = at_s
        events: list[Event] = list(self._completions())
        events += self._node_events()
        while self._num_submitted < len(self._submissions) and self._submissions[self._num_submitted].at_s <= at_s:
            events.append(self._submit(self._submissions[self._num_submitted]))
        self._has_changed = bool(events)
        if self._wake_s is not None and self._wake_s <= at_s:
            self._wake_s = None
            events.append(Tick(at_s=at_s))
        return tuple(events)

    def wake_at(self, at_s: float) -> None:
        """Ask for a tick."""
        self._wake_s = at_s

    def act(self, actions: Sequence[Action], late_s: float = 0.0) -> None:
        """Stop, start and move jobs; those that are placed do no work for so much longer."""
        self._has_changed = self._has_changed or bool(actions)
        places = [action.allocation for action in actions if isinstance(action, Place)]
        for action in actions:
            if isinstance(action, Stop):
                self._give_back(self._progress[action.job_id])
        for allocation in places:
            if self._progress[allocation.job_id].allocation is not None:
                self._give_back(self._progress[allocation.job_id])
        for allocation in places:
            self._place(allocation, late_s)

    def state(self) -> SimulationState:
        """What it takes to go on from here."""
        return SimulationState(
            now_s=self._now_s,
            num_submitted=self._num_submitted,
            num_changes=self._num_changes,
            wake_s=self._wake_s,
            has_changed=self._has_changed,
            jobs=tuple(replace(progress) for progress in self._progress.values()),
        )

    def account(self) -> None:
        """Credit what was done until now."""
        for progress in self._progress.values():
            progress.account(self._now_s)

    def progress(self) -> tuple[Progress, ...]:
        """What has become of the jobs, by submission."""
        return tuple(self._progress.values())

    def _next_s(self) -> float:
        """When something happens next; infinite when nothing will."""
        while self._ends and not self._is_current(*self._ends[0]):
            heapq.heappop(self._ends)
        if not self._num_left:
            return math.inf
        times_s = [self._ends[0][0]] if self._ends else []
        if self._num_submitted < len(self._submissions):
            times_s.append(self._submissions[self._num_submitted].at_s)
        if self._num_changes < len(self._changes):
            times_s.append(self._changes[self._num_changes].at_s)
        # A round that changed nothing, with nothing to come, is the last one: so would be all others.
        if self._wake_s is not None and (times_s or self._has_changed or self._now_s < self._settled_s()):
            times_s.append(self._wake_s)
        return min(times_s, default=math.inf)

    def _settled_s(self) -> float:
        """When the last entry of the calendar begins or ends."""
        times_s = (time_s for entry in self._calendar for time_s in (entry.begin_s, entry.end_s))
        return max((time_s for time_s in times_s if time_s < math.inf), default=-math.inf)

    def _completions(self) -> list[Event]:
        events: list[Event] = []
        while self._ends and self._ends[0][0] <= self._now_s:
            end = heapq.heappop(self._ends)
            if self._is_current(*end):
                progress = self._progress[end[2]]
                if progress.speed == 0:
                    self._work_on(progress)
                elif self._segment_end(progress) < self._truth.work(progress.job_id):
                    self._end_segment(progress)
                    self._work_on(progress)
                else:
                    events.append(self._complete(progress))
        return events

    def _is_current(self, ends_s: float, _: int, job_id: str) -> bool:
        progress = self._progress[job_id]
        return progress.allocation is not None and progress.ends_s == ends_s

    def _end_segment(self, progress: Progress) -> None:
        """Credit what the segment did, which is what it was to do."""
        end = self._segment_end(progress)
        done = progress.done_at(self._now_s)
        if abs(done - end) > _ROUNDING * (end + progress.speed * self._now_s):
            raise AssertionError(f"job {progress.job_id!r} ends a segment with {done} of {end} done")
        progress.done, progress.works_s = end, self._now_s

    def _segment_end(self, progress: Progress) -> float:
        """How much is done when the segment ends."""
        work = self._truth.work(progress.job_id)
        return work if progress.until is None else min(progress.until, work)

    def _work_on(self, progress: Progress) -> None:
        """Begin the next segment."""
        allocation = progress.allocation
        if allocation is None:
            raise AssertionError(f"job {progress.job_id!r} works without GPUs")
        segment = self._truth.segment(allocation, progress.done, progress.batch)
        if segment.seen is not None:
            self._truth.learn(progress.job_id, segment.seen)
            progress.seen = (*progress.seen, segment.seen)
        progress.speed, progress.until, progress.batch = segment.speed, segment.until, segment.batch
        progress.ends_s = progress.works_s + (self._segment_end(progress) - progress.done) / segment.speed
        heapq.heappush(self._ends, self._end(progress))

    def _complete(self, progress: Progress) -> Completion:
        self._end_segment(progress)
        self._give_back(progress)
        progress.ended_s = self._now_s
        self._num_left -= 1
        return Completion(at_s=self._now_s, job_id=progress.job_id)

    def _node_events(self) -> list[Event]:
        events: list[Event] = []
        while self._num_changes < len(self._changes) and self._changes[self._num_changes].at_s <= self._now_s:
            change = self._changes[self._num_changes]
            self._num_changes += 1
            if isinstance(change, CalendarChange):
                self._calendar = change.entries
                events.append(change)
                continue
            self._states[change.node] = change.state
            if change.state is NodeState.DOWN:
                broken = sorted(self._on_node[change.node], key=self._number.__getitem__)
                events += [self._break(self._progress[job_id]) for job_id in broken]
            events.append(change)
        return events

    def _break(self, progress: Progress) -> Failure:
        self._give_back(progress)
        kept = self._truth.kept(progress.job_id, progress.done)
        progress.lost += progress.done - kept
        progress.done = kept
        progress.num_failures += 1
        progress.expected_s = self._truth.expected_s(progress.job_id, kept)
        return Failure(at_s=self._now_s, job_id=progress.job_id, remaining_s=progress.expected_s)

    def _submit(self, submission: Submission) -> Arrival:
        self._num_submitted += 1
        job = submission.job
        self._progress[job.id] = Progress(job_id=job.id, submitted_s=submission.at_s, expected_s=job.remaining_s)
        return Arrival(at_s=submission.at_s, job=job)

    def _place(self, allocation: JobAllocation, late_s: float) -> None:
        progress = self._progress[allocation.job_id]
        is_first = progress.num_starts == 0
        progress.started_s = self._now_s if is_first else progress.started_s
        progress.num_starts += 1
        if not is_first:
            kind = allocation.change.value
            progress.restarts = {**progress.restarts, kind: progress.restarts.get(kind, 0) + 1}
        progress.allocation, progress.since_s = allocation, self._now_s
        self._occupy(progress)
        progress.works_s = self._now_s + late_s + self._truth.delay_s(allocation, is_first=is_first)
        progress.speed, progress.ends_s = 0.0, progress.works_s
        if progress.works_s > self._now_s:
            heapq.heappush(self._ends, self._end(progress))
        else:
            self._work_on(progress)

    def _occupy(self, progress: Progress) -> None:
        for part in progress.allocation.gpus if progress.allocation is not None else ():
            mask = mask_of(part.gpus)
            if mask & ~self._free[part.node] or self._states[part.node] is NodeState.DOWN:
                raise AssertionError(f"job {progress.job_id!r} gets GPUs of node {part.node!r} that it cannot have")
            self._free[part.node] &= ~mask
            self._on_node[part.node].add(progress.job_id)

    def _end(self, progress: Progress) -> tuple[float, int, str]:
        return progress.ends_s, self._number[progress.job_id], progress.job_id

    def _give_back(self, progress: Progress) -> None:
        progress.account(self._now_s)
        for part in progress.allocation.gpus if progress.allocation is not None else ():
            self._free[part.node] |= mask_of(part.gpus)
            self._on_node[part.node].discard(progress.job_id)
        progress.allocation = None

    def _facts_of(self, progress: Progress) -> JobFacts:
        return JobFacts(
            job=self._jobs[progress.job_id],
            submitted_s=progress.submitted_s,
            since_s=progress.since_s,
            remaining_s=progress.expected_s,
            num_starts=progress.num_starts,
            attained_gpu_s=progress.gpu_s,
            attained_s=self._attained_s(progress),
            allocation=progress.allocation,
        )

    def _attained_s(self, progress: Progress) -> dict[str, float]:
        """Seconds for which the job had GPUs of each type, until `since_s`."""
        attained_s: dict[str, float] = {}
        for span in progress.spans:
            gpu_type = self._type_of[span.gpus[0].node]
            attained_s[gpu_type] = attained_s.get(gpu_type, 0.0) + span.end_s - span.start_s
        return attained_s

    def _resume(self, state: SimulationState) -> None:
        self._now_s, self._wake_s, self._has_changed = state.now_s, state.wake_s, state.has_changed
        self._num_submitted, self._num_changes = state.num_submitted, state.num_changes
        for change in self._changes[: state.num_changes]:
            if isinstance(change, CalendarChange):
                self._calendar = change.entries
            else:
                self._states[change.node] = change.state
        for saved in state.jobs:
            progress = replace(saved)
            self._progress[progress.job_id] = progress
            for seen in progress.seen:
                self._truth.learn(progress.job_id, seen)
            self._num_left -= progress.ended_s is not None
            if progress.allocation is not None:
                self._occupy(progress)
                heapq.heappush(self._ends, self._end(progress))
