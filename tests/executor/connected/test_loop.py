"""The loop of a connection over a cluster that stands still but for its clock."""

import math
from collections.abc import Callable, Sequence
from itertools import islice

from executor.connected.loop import decisions
from executor.connected.nearness import NearNodesFirst
from executor.control.actions import Action, Place
from executor.control.backend import Facts, JobFacts, Measured
from executor.control.events import Event, Tick
from executor.control.options import ControlOptions
from models.allocation.gang.parameters import GangParameters
from models.plan import Change, JobAllocation
from models.planning import plan
from models.workload import Job
from tests.executor.connected.test_nearness import runs
from tests.executor.connected.test_planning import cluster
from topology.calendar import CalendarEntry, EntryKind

OPEN_S, WAIT_S = 150.0, 2.0
MOST_TICKS = 9


class Still:
    """Nothing happens there but the ticks that were asked for; it is closed when none is to come."""

    needs_new_controller = False

    def __init__(self, *jobs: Job, calendar: tuple[CalendarEntry, ...] = ()) -> None:
        self.now_s = 100.0
        self._jobs, self._calendar = jobs, calendar
        self._wake_s = self.now_s
        self.ticks_s: list[float] = []
        self.placed: dict[str, float] = {}

    def facts(self) -> Facts:
        facts = (
            JobFacts(job=job, submitted_s=90.0, since_s=90.0, remaining_s=None, allocation=_allocation(job))
            for job in self._jobs
        )
        return Facts(cluster=cluster(), jobs=tuple(facts), calendar=self._calendar)

    def measured(self, job_id: str) -> Measured:  # noqa: ARG002 - of the protocol
        return Measured()

    def next_events(self) -> Sequence[Event]:
        if self._wake_s == math.inf:
            return ()
        self.now_s, self._wake_s = max(self.now_s, self._wake_s), math.inf
        self.ticks_s.append(self.now_s)
        assert len(self.ticks_s) <= MOST_TICKS, "woken again and again"
        return (Tick(at_s=self.now_s),)

    def wake_at(self, at_s: float) -> None:
        self._wake_s = at_s

    def take_over(self) -> None:
        raise AssertionError("nobody asked for a new controller")

    def act(self, actions: Sequence[Action], late_s: float = 0.0) -> None:
        assert late_s == 0
        for action in actions:
            assert isinstance(action, Place)
            self.placed[action.allocation.job_id] = self.now_s

    def run(
        self, *, due_s: Callable[[], float | None] | None = None, round_s: float | None = None, most: int | None = None
    ) -> list[float]:
        """When it was decided, in so many steps at most."""
        near = NearNodesFirst(plan, WAIT_S, lambda: self.now_s)
        options = ControlOptions(parameters=GangParameters(), round_s=round_s)
        steps = decisions(self, options, near, due_s or (lambda: near.due_s))
        return [step.at_s for step in islice(steps, most) if step.decision is not None]


def _allocation(job: Job) -> JobAllocation | None:
    if job.current is None:
        return None
    return JobAllocation(job_id=job.id, gpu_type="H100", num_gpus=job.min_gpus, gpus=job.current, change=Change.KEPT)


WIDE = Job(id="wide", min_gpus=16)


def test_what_the_controller_had_asked_for_comes_though_a_job_waits_for_closer_nodes() -> None:
    """Maintenance closes the last node until its end; that is when `late` can start."""
    closed = CalendarEntry(name="fans", kind=EntryKind.MAINTENANCE, from_s=0.0, until_s=OPEN_S, nodes=("n21",))
    still = Still(*runs("n00", "n10", "n20"), WIDE, Job(id="late", min_gpus=8), calendar=(closed,))
    assert still.run() == [100.0, 102.0, OPEN_S]
    assert still.placed == {"wide": 102.0, "late": OPEN_S}


def test_a_moment_that_is_over_is_not_asked_for_again() -> None:
    """A planner that was not asked again, since nothing could start, names the moment that it named before."""
    still = Still(*runs("n00", "n01", "n10", "n11", "n20"), WIDE)
    assert still.run(due_s=lambda: 102.0) == []
    assert still.ticks_s == [100.0, 102.0]


def test_in_rounds_a_job_that_waits_for_closer_nodes_starts_in_the_next_one() -> None:
    still = Still(*runs("n00", "n10", "n20"), WIDE)
    assert still.run(round_s=60.0, most=2) == [100.0, 120.0]
    assert still.placed == {"wide": 120.0}
