"""The calendar over time: what becomes known of it, when it is planned again, and how long jobs still last."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from executor.control.actions import Place
from executor.control.backend import Facts
from executor.control.book import Book
from executor.control.events import Arrival, CalendarChange, Failure
from executor.simulation.replay import Replay, ReplayState
from models.allocation.gang.parameters import GangParameters, QueueOrder
from models.forecast.lasting import Lasting
from models.workload import Job
from stowplan.errors import InputError
from stowplan.records import from_document, to_document
from tests.executor.control.test_controller import given_to, unmeasured
from tests.executor.simulation.scenes import gantt, setup_of
from tests.models.allocation.gang.scenes import cluster
from tests.workloads.jobs import jobs_of
from topology.calendar import CalendarEntry, EntryKind

FOR_D = CalendarEntry(name="for d", kind=EntryKind.RESERVATION, from_s=150.0, until_s=300.0, nodes=("a0",))


def test_a_reservation_is_kept_free_and_used() -> None:
    """A node of 8 GPUs; c comes before d, but would not be over at 150 s, when the reservation of d begins:

    0         100  130  150          250  300  330
    aaaaaaaaaaabbbbb     ddddddddddddd     ccccc
    """
    trace = jobs_of((0, 8, 100), (10, 8, 30), (11, 8, 30), (140, 8, 100))
    setup = setup_of(trace, 8, calendars=(CalendarChange(at_s=5.0, entries=(FOR_D,)),), reserved_for={"d": "for d"})
    # d may use its node when it comes, which nobody else could by then.
    assert gantt(Replay(setup)) == {"a": (0, 100), "b": (100, 130), "d": (140, 240), "c": (300, 330)}


def test_who_runs_when_an_entry_begins_leaves_and_comes_back() -> None:
    """At 20 s maintenance of the node from 50 s to 80 s becomes known; nothing else happens then."""
    entry = replace(FOR_D, kind=EntryKind.MAINTENANCE, from_s=50.0, until_s=80.0)
    setup = setup_of(jobs_of((0, 8, 100)), 8, calendars=(CalendarChange(at_s=20.0, entries=(entry,)),))
    result = Replay(setup).run()
    (job,) = result.jobs
    assert [(span.start_s, span.end_s) for span in job.spans] == [(0, 50), (80, 130)]
    # One that is never told of waits for nothing.
    assert gantt(Replay(replace(setup, calendars=()))) == {"a": (0, 100)}


def test_guests_leave_when_the_jobs_of_a_soft_reservation_come() -> None:
    """The reservation of b holds from 20 s on; b comes at 30 s, and a goes on when b has ended."""
    entry = replace(FOR_D, name="for b", from_s=20.0, hard=False)
    known = (CalendarChange(at_s=0.0, entries=(entry,)),)
    setup = setup_of(jobs_of((0, 8, 100), (30, 8, 20)), 8, calendars=known, reserved_for={"b": "for b"})
    jobs = {job.id: job for job in Replay(setup).run().jobs}
    assert [(span.start_s, span.end_s) for span in jobs["a"].spans] == [(0, 30), (50, 120)]
    assert (jobs["b"].started_s, jobs["b"].ended_s) == (30, 50)


def test_guests_stay_until_the_job_of_a_soft_reservation_can_start() -> None:
    """c has two of three nodes reserved from 20 s on, comes at 30 s, and needs all three:

    a0, a1  aaaaaaaaaaaaaaaaaaccccccaaaaaaaaaaaa
    a2      bbbbbbbbbbbbbbbbbbcccccc
            0        30       60    80          120
    """
    entry = replace(FOR_D, name="for c", from_s=20.0, hard=False, nodes=("a0", "a1"))
    known = (CalendarChange(at_s=0.0, entries=(entry,)),)
    trace = jobs_of((0, 16, 100), (0, 8, 60), (30, 24, 20))
    setup = setup_of(trace, 8, 8, 8, calendars=known, reserved_for={"c": "for c"})
    jobs = {job.id: job for job in Replay(setup).run().jobs}
    spans = {name: [(span.start_s, span.end_s) for span in job.spans] for name, job in jobs.items()}
    assert spans == {"a": [(0, 60), (80, 120)], "b": [(0, 60)], "c": [(60, 80)]}


@pytest.mark.parametrize("num_steps", range(1, 6))
def test_a_replay_goes_on_within_a_calendar(num_steps: int) -> None:
    trace = jobs_of((0, 8, 100), (10, 8, 30), (11, 8, 30), (140, 8, 100))
    setup = setup_of(trace, 8, calendars=(CalendarChange(at_s=5.0, entries=(FOR_D,)),), reserved_for={"d": "for d"})
    begun = Replay(setup)
    for _ in range(num_steps):
        begun.step()
    state = from_document(ReplayState, to_document(begun.state()), "state")
    assert gantt(Replay(setup, state=state)) == gantt(Replay(setup))


def test_rounds_see_the_calendar_at_the_next_one() -> None:
    entry = replace(FOR_D, kind=EntryKind.MAINTENANCE, from_s=50.0, until_s=80.0)
    setup = setup_of(jobs_of((0, 8, 100)), 8, round_s=60.0, calendars=(CalendarChange(at_s=0.0, entries=(entry,)),))
    (job,) = Replay(setup).run().jobs
    # It ends too late to start before 50 s, and may at 120 s.
    assert [(span.start_s, span.end_s) for span in job.spans] == [(120, 220)]


def test_a_book_tells_the_calendar_and_how_long_jobs_last_from_now() -> None:
    lasting = Lasting(probabilities=(0.5, 1.0), seconds=(100.0, 200.0))
    book = Book(Facts(cluster=cluster(8), jobs=(), calendar=(FOR_D,)))
    book.tell(Arrival(at_s=10.0, job=Job(id="j", min_gpus=4, lasting=lasting)))
    (entry,) = book.snapshot(40.0, unmeasured).calendar
    assert (entry.from_s, entry.until_s) == (110.0, 260.0)
    assert book.snapshot(300.0, unmeasured).calendar == ()
    assert [book.next_entry_s(at_s) for at_s in (0.0, 150.0)] == [150.0, 300.0]

    def left(at_s: float) -> Lasting | None:
        return book.snapshot(at_s, unmeasured).jobs[0].lasting

    assert left(40.0) == lasting, "it waits"
    book.note([Place(allocation=given_to("j", a0=range(4)))], 40.0)
    assert left(90.0) == Lasting(probabilities=(0.5, 1.0), seconds=(50.0, 150.0))
    assert left(240.0) is None, "longer than was foreseen"
    book.tell(Failure(at_s=90.0, job_id="j", remaining_s=None))
    assert left(95.0) == lasting
    with pytest.raises(InputError, match="a9"):
        book.tell(CalendarChange(at_s=0.0, entries=(replace(FOR_D, nodes=("a9",)),)))


NODES = ("a0", "a1", "a2")


@st.composite
def calendars(draw: st.DrawFn) -> tuple[CalendarEntry, ...]:
    """Reservations and maintenance that end, on three nodes, no two over one node at a time."""
    entries: list[CalendarEntry] = []
    begin_s = 0.0
    for k in range(draw(st.integers(1, 3))):
        begin_s += draw(st.integers(0, 60))
        until_s = begin_s + draw(st.integers(1, 80))
        nodes = tuple(draw(st.lists(st.sampled_from(NODES), min_size=1, unique=True)))
        kind = draw(st.sampled_from((EntryKind.RESERVATION, EntryKind.MAINTENANCE)))
        hard = draw(st.booleans())
        entries.append(CalendarEntry(name=f"e{k}", kind=kind, from_s=begin_s, until_s=until_s, nodes=nodes, hard=hard))
        begin_s = until_s
    return tuple(entries)


@pytest.mark.slow
@given(
    jobs=st.lists(
        st.tuples(st.integers(0, 150), st.sampled_from((1, 4, 8, 12, 16)), st.integers(1, 90)), min_size=1, max_size=8
    ),
    entries=calendars(),
    known_s=st.integers(0, 60),
    order=st.sampled_from(QueueOrder),
    owner=st.sampled_from((None, "a", "b")),
)
@settings(max_examples=150, deadline=None)
def test_nobody_is_on_a_node_while_it_is_closed(
    jobs: list[tuple[int, int, int]],
    entries: tuple[CalendarEntry, ...],
    known_s: int,
    order: QueueOrder,
    owner: str | None,
) -> None:
    """By the spans of the jobs alone; everybody ends, since all entries do."""
    gang = GangParameters(order=order, preemption=order is not QueueOrder.FIFO)
    setup = setup_of(
        jobs_of(*sorted(jobs)),
        *(8, 8, 8),
        gang=gang,
        calendars=(CalendarChange(at_s=float(known_s), entries=entries),),
        reserved_for={} if owner is None else {owner: "e0"},
    )
    result = Replay(setup).run()
    assert result.num_finished == len(jobs)
    for job in result.jobs:
        for span in job.spans:
            for entry in entries:
                reserves = entry.kind is EntryKind.RESERVATION
                is_open = reserves and (not entry.hard or (job.id == owner and entry.name == "e0"))
                used = {part.node for part in span.gpus} & set(entry.nodes)
                closed_s = max(entry.begin_s, float(known_s), span.start_s)
                assert is_open or not used or closed_s >= min(entry.end_s, span.end_s)
