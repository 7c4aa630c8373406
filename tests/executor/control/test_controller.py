"""The controller against a recording backend, and its parts: the difference to a plan, and what it knows of GPUs."""

from collections.abc import Sequence

import pytest

from executor.control.actions import Action, Place, Stop, difference
from executor.control.backend import Facts, Measured
from executor.control.book import Book
from executor.control.controller import Controller
from executor.control.events import Arrival, Completion, Event, Failure, Measurement, NodeChange, Tick
from executor.control.options import ControlOptions
from executor.simulation.replay import Replay
from models.allocation.gang.idle import may_start
from models.allocation.gang.parameters import GangParameters, QueueOrder
from models.plan import Change, JobAllocation, Plan
from models.workload import Job, NodeGpus
from stowplan.errors import InputError
from tests.executor.simulation.scenes import setup_of
from tests.executor.simulation.test_replay import FOUR, failing
from tests.models.allocation.gang.scenes import cluster
from topology.cluster import Cluster, NodeState


def unmeasured(job_id: str) -> Measured:
    raise AssertionError(f"asked what {job_id} measured, of which only the size is known")


class Recording:
    """A cluster that is told what happens, and keeps what it is asked to do."""

    def __init__(self, where: Cluster, instants: Sequence[tuple[float, Sequence[Event]]]) -> None:
        self._where = where
        self._instants = iter(instants)
        self.now_s = 0.0
        self.actions: list[tuple[Action, ...]] = []

    def facts(self) -> Facts:
        return Facts(cluster=self._where, jobs=())

    def measured(self, job_id: str) -> Measured:
        return unmeasured(job_id)

    def next_events(self) -> Sequence[Event]:
        self.now_s, events = next(self._instants, (self.now_s, ()))
        return events

    def wake_at(self, at_s: float) -> None:
        raise AssertionError(f"woken at {at_s} without rounds")

    def act(self, actions: Sequence[Action], late_s: float = 0.0) -> None:
        assert late_s == 0
        self.actions.append(tuple(actions))


def given_to(job_id: str, change: Change = Change.STARTED, gpu_type: str = "a", **gpus: range) -> JobAllocation:
    parts = tuple(NodeGpus(node=node, gpus=tuple(own)) for node, own in gpus.items())
    count = sum(len(part.gpus) for part in parts)
    return JobAllocation(job_id=job_id, gpu_type=gpu_type, num_gpus=count, gpus=parts, change=change)


def plan_with(*allocations: JobAllocation) -> Plan:
    return Plan(allocations=allocations, unplaced=(), score=())


@pytest.mark.parametrize("replay", [Replay(setup_of(FOUR, 8)), failing(3)], ids=["four", "failing"])
def test_whatever_the_backend_the_same_events_lead_to_the_same_actions(replay: Replay) -> None:
    steps = []
    while (step := replay.step()) is not None:
        steps.append(step)
    recording = Recording(replay.setup.cluster, [(step.at_s, step.events) for step in steps])
    controller = Controller(recording, replay.setup.control)
    while controller.step() is not None:
        pass
    simulated = [step.decision.actions for step in steps if step.decision is not None]
    assert recording.actions == simulated
    assert any(simulated)


def test_a_job_that_rises_while_nothing_happens_is_planned_when_it_does() -> None:
    """A job of the third priority rises a minute and two after it came; a running one and one of the first never."""
    waits, first = Job(id="waits", min_gpus=8, priority=3), Job(id="first", min_gpus=8)

    class Waking(Recording):
        def wake_at(self, at_s: float) -> None:
            woken.append((self.now_s, at_s))

    woken: list[tuple[float, float]] = []
    events: list[tuple[float, tuple[Event, ...]]] = [
        (0.0, (Arrival(at_s=0.0, job=Job(id="runs", min_gpus=4)),)),
        (10.0, (Arrival(at_s=10.0, job=waits),)),
        (15.0, (Arrival(at_s=15.0, job=first),)),
        (71.0, (Tick(at_s=71.0),)),
        (131.0, (Tick(at_s=131.0),)),
    ]
    # With preemption a plan may always start somebody.
    parameters = GangParameters(order=QueueOrder.PRIORITY, promotion_after_s=60.0, preemption=True)
    controller = Controller(Waking(cluster(4), events), ControlOptions(parameters=parameters))
    while controller.step() is not None:
        pass
    assert woken == [(10.0, 71.0), (15.0, 71.0), (71.0, 131.0)]


def test_the_difference_gives_back_before_it_takes() -> None:
    running = {
        "keeps": given_to("keeps", a0=range(2)),
        "moves": given_to("moves", a0=range(2, 4)),
        "grows": given_to("grows", a1=range(1)),
        "other type": given_to("other type", a1=range(1, 2)),
        "stops": given_to("stops", a2=range(4)),
    }
    plan = plan_with(
        given_to("starts", a2=range(2)),
        given_to("keeps", a0=range(2)),
        given_to("moves", a2=range(2, 4)),
        given_to("grows", a1=range(2)),
        given_to("other type", gpu_type="b", b0=range(1)),
    )
    first, *others = difference(running, plan)
    assert first == Stop(job_id="stops")
    assert [(item.allocation.job_id, item.allocation.change) for item in others if isinstance(item, Place)] == [
        ("starts", Change.STARTED),
        ("moves", Change.MOVED),
        ("grows", Change.RESCALED),
        ("other type", Change.RETYPED),
    ]
    assert difference(running, plan_with(*running.values())) == ()


def book_of(*sizes: int) -> Book:
    return Book(Facts(cluster=cluster(*sizes), jobs=()))


def test_two_jobs_may_change_places() -> None:
    book = book_of(4, 4)
    for name in ("j", "k"):
        book.tell(Arrival(at_s=0.0, job=Job(id=name, min_gpus=4)))
    book.note([Place(allocation=given_to("j", a0=range(4))), Place(allocation=given_to("k", a1=range(4)))], 0.0)
    book.note([Place(allocation=given_to("j", a1=range(4))), Place(allocation=given_to("k", a0=range(4)))], 1.0)
    assert {name: item.gpus[0].node for name, item in book.running.items()} == {"j": "a1", "k": "a0"}
    assert book.rooms == {"a": [2, 0, 0, 0, 0]}
    with pytest.raises(ValueError, match="not free"):
        book.note([Place(allocation=given_to("k", a1=range(1)))], 2.0)


def test_a_book_follows_jobs_and_nodes() -> None:
    book = book_of(4, 2)
    job = Job(id="j", min_gpus=2, remaining_s=100.0)
    book.tell(Arrival(at_s=10.0, job=job))
    assert (list(book.wanted), book.rooms) == ([(2, None)], {"a": [0, 0, 1, 0, 1]})
    book.note([Place(allocation=given_to("j", a0=range(2)))], 30.0)
    assert (list(book.wanted), book.rooms) == ([], {"a": [0, 0, 2, 0, 0]})
    (now,) = book.snapshot(50.0, unmeasured).jobs
    assert (now.age_s, now.remaining_s, now.num_restarts) == (40, 80, 0)
    assert now.current == (NodeGpus(node="a0", gpus=(0, 1)),)
    book.tell(Measurement(at_s=60.0, job_id="j", remaining_s=10.0))
    assert book.snapshot(65.0, unmeasured).jobs[0].remaining_s == 5
    # Its node fails: it waits, and the largest node that is left has two GPUs.
    book.tell(Failure(at_s=66.0, job_id="j", remaining_s=90.0))
    book.tell(NodeChange(at_s=66.0, node="a0", state=NodeState.DOWN))
    assert (list(book.wanted), book.rooms) == ([(2, None)], {"a": [0, 0, 1]})
    (now,) = book.snapshot(70.0, unmeasured).jobs
    assert (now.current, now.remaining_s) == (None, 90)
    assert book.snapshot(70.0, unmeasured).cluster.nodes[0].state is NodeState.DOWN
    book.note([Place(allocation=given_to("j", a1=range(2)))], 80.0)
    book.tell(Completion(at_s=99.0, job_id="j"))
    book.tell(NodeChange(at_s=99.0, node="a0", state=NodeState.UP))
    assert (book.num_jobs, book.rooms) == (0, {"a": [0, 0, 1, 0, 1]})


def test_a_job_may_run_already_when_it_comes() -> None:
    book = book_of(4, 2)
    job = Job(id="j", min_gpus=2, age_s=5.0)
    book.tell(Arrival(at_s=10.0, job=job, allocation=given_to("j", a0=range(2))))
    assert (list(book.wanted), book.rooms) == ([], {"a": [0, 0, 2, 0, 0]})
    (now,) = book.snapshot(50.0, unmeasured).jobs
    assert (now.current, now.num_restarts, now.attained_gpu_s) == ((NodeGpus(node="a0", gpus=(0, 1)),), 0, 80)
    assert now.age_s == 45


def test_a_job_is_looked_at_when_it_comes() -> None:
    book = book_of(4)
    book.tell(Arrival(at_s=0.0, job=Job(id="j")))
    with pytest.raises(InputError, match="unique"):
        book.tell(Arrival(at_s=1.0, job=Job(id="j")))
    with pytest.raises(InputError):
        book.tell(Arrival(at_s=1.0, job=Job(id="k", min_gpus=0)))


@pytest.mark.parametrize(
    ("num_gpus", "room", "may"),
    [
        (2, [1, 1, 0, 0, 0], False),
        (2, [0, 0, 1, 0, 0], True),
        (4, [0, 0, 0, 2, 0], False),
        (6, [0, 0, 0, 0, 1], False),
        (6, [0, 0, 1, 0, 1], True),
        (8, [0, 0, 0, 0, 2], True),
        (1, [0], False),
    ],
)
def test_what_may_start_follows_the_shapes_of_gang(num_gpus: int, room: list[int], may: bool) -> None:
    gang = GangParameters()
    assert may_start(gang, [(num_gpus, None)], {"a": room}) == may
    assert not may_start(gang, [(num_gpus, ("b",))], {"a": room, "b": [0]})
    assert not may_start(gang, [], {"a": room})
    assert may_start(GangParameters(order=QueueOrder.PRIORITY, preemption=True), [(num_gpus, None)], {"a": room})
