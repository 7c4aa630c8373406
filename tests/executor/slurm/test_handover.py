"""What Slurm is told of a plan, and in which order; what it is not told, and what is refused."""

from dataclasses import replace

import pytest

from executor.slurm.actions import (
    TOP_PRIORITY,
    HoldJob,
    RankJob,
    ReleaseJob,
    Reserve,
    SlurmAction,
    SteerJob,
    StopBy,
    StopJob,
)
from executor.slurm.handover import HandOverOptions, Running, Waiting, hand_over
from models.plan import Change, JobMove, Promise
from models.workload import Parallelism
from stowplan.errors import InputError, Severity
from tests.executor.slurm.scenes import gets, later, left, plan, runs, snapshot, waits
from tests.growth import work
from topology.calendar import CalendarEntry, EntryKind, Shape

REQUEUE = HandOverOptions(running=Running.REQUEUE)


def codes(error: InputError) -> list[tuple[str, str]]:
    return [(issue.code, issue.pointer) for issue in error.issues]


def started(job_id: str, rank: int) -> tuple[SlurmAction, ...]:
    return ReleaseJob(job_id=job_id), RankJob(job_id=job_id, priority=TOP_PRIORITY - rank)


def test_jobs_that_start_are_held_told_and_released_in_the_order_of_the_plan() -> None:
    made = hand_over(
        plan(gets("2", n1=8, n2=8), gets("1", n3=4), gets("9", Change.KEPT, n4=8), left("3")),
        snapshot(waits("1", 4), waits("2", 16), waits("3", 32), runs("9", n4=8)),
    )
    assert made.actions == (
        HoldJob(job_id="2"),
        HoldJob(job_id="1"),
        SteerJob(job_id="2", nodes=("n1", "n2")),
        SteerJob(job_id="1", nodes=("n3",)),
        *started("2", 0),
        *started("1", 1),
    )
    # Whole nodes say which GPUs; half a node does not.
    assert [(note.code, note.pointer) for note in made.notes] == [("gpu_indices_not_said", "/allocations/1/gpus")]
    assert made.notes[0].severity is Severity.WARNING


def test_what_waits_may_be_held_and_priorities_may_stay() -> None:
    options = HandOverOptions(waiting=Waiting.HOLD, top_priority=None)
    made = hand_over(plan(gets("1", n1=8), left("2")), snapshot(waits("1"), waits("2")), options)
    assert made.actions == (
        HoldJob(job_id="2"),
        HoldJob(job_id="1"),
        SteerJob(job_id="1", nodes=("n1",)),
        ReleaseJob(job_id="1"),
    )


def test_numbers_of_gpus_are_said_where_nodes_do_not_say_them() -> None:
    made = hand_over(
        plan(gets("1", n1=4, n2=4), gets("2", n3=8, n4=4), gets("3", n1=2), gets("5", n2=3)),
        snapshot(waits("1", 8), waits("2", 12), waits("3", 4), waits("5", 3)),
    )
    steered = {item.job_id: item for item in made.actions if isinstance(item, SteerJob)}
    assert (steered["1"].gpus_per_node, steered["1"].num_gpus) == (4, None)
    assert (steered["2"].gpus_per_node, steered["2"].num_gpus) == (None, None)
    assert (steered["3"].gpus_per_node, steered["3"].num_gpus) == (2, 2)
    assert (steered["5"].gpus_per_node, steered["5"].num_gpus) == (None, None)
    notes = {note.code: note for note in made.notes}
    assert notes["uneven_nodes"].pointer == "/allocations/1/gpus"
    assert "gets 8, 4 GPUs of its nodes" in notes["uneven_nodes"].detail
    assert notes["size_changed"].pointer == "/allocations/2/num_gpus"
    assert notes["gpu_indices_not_said"].detail.endswith("(and at 3 more places)")


def test_degrees_that_somebody_has_said_are_no_change_of_size() -> None:
    job = waits("1", 1, parallelism=Parallelism(tp=8, pp=1, dp=1))
    made = hand_over(plan(gets("1", n1=8)), snapshot(job))
    assert not made.notes
    assert SteerJob(job_id="1", nodes=("n1",), gpus_per_node=8, num_gpus=8) in made.actions


MOVES = plan(gets("1", Change.MOVED, n2=8), gets("2", n1=8), left("3", preempted=True))
MOVING = snapshot(runs("1", n1=8), waits("2"), runs("3", n2=8))


def test_running_jobs_lose_gpus_only_where_somebody_asks_for_that() -> None:
    with pytest.raises(InputError) as caught:
        hand_over(MOVES, MOVING)
    assert codes(caught.value) == [("stops_running_job", "/allocations/0"), ("stops_running_job", "/unplaced/0")]
    with pytest.raises(InputError) as caught:
        hand_over(MOVES, MOVING, HandOverOptions(running=Running.CANCEL))
    assert codes(caught.value) == [("moves_running_job", "/allocations/0")]


def test_requeued_jobs_start_at_once_elsewhere_or_wait() -> None:
    made = hand_over(MOVES, MOVING, REQUEUE)
    assert made.actions == (
        StopJob(job_id="1", by=StopBy.REQUEUE),
        StopJob(job_id="3", by=StopBy.REQUEUE),
        HoldJob(job_id="2"),
        SteerJob(job_id="1", nodes=("n2",), at_once=True),
        SteerJob(job_id="2", nodes=("n1",)),
        *started("1", 0),
        *started("2", 1),
        ReleaseJob(job_id="3"),
    )
    # Where what waits is held, it stays on hold.
    held = hand_over(MOVES, MOVING, replace(REQUEUE, waiting=Waiting.HOLD))
    assert held.actions == made.actions[:-1]


def test_canceled_jobs_are_over() -> None:
    canceled = hand_over(
        plan(gets("2", n2=8), left("3", preempted=True)),
        snapshot(waits("2"), runs("3", n2=8)),
        HandOverOptions(running=Running.CANCEL, waiting=Waiting.HOLD),
    )
    assert canceled.actions[0] == StopJob(job_id="3", by=StopBy.CANCEL)
    assert [item.job_id for item in canceled.actions if not isinstance(item, StopJob | Reserve)] == ["2"] * 4


def test_jobs_ahead_wait_in_their_reservation() -> None:
    made = hand_over(
        plan(gets("2", n4=8), left("1"), later("1", "n2", "n1", spares=("n3",))),
        snapshot(waits("1", 16, user="ada"), waits("2")),
        HandOverOptions(waiting=Waiting.HOLD),
        1000.0,
    )
    reserve = Reserve(
        name="stowplan-1",
        nodes=("n2", "n1", "n3"),
        from_s=3600.0,
        until_s=7200.0,
        taken_at_s=1000.0,
        users=("ada",),
        replaces=True,
    )
    assert made.actions == (
        reserve,
        HoldJob(job_id="2"),
        HoldJob(job_id="1"),
        SteerJob(job_id="2", nodes=("n4",)),
        SteerJob(job_id="1", nodes=("n2", "n1"), reservation="stowplan-1"),
        *started("2", 0),
        *started("1", 1),
    )


def test_a_promise_is_the_reservation_that_is_changed() -> None:
    promise = Promise(reservation="pretrain", start_s=1800.0, new_nodes=("n1",), left_nodes=("n4",))
    entry = CalendarEntry(name="pretrain", kind=EntryKind.RESERVATION, from_s=1800.0, until_s=5400.0, nodes=("n4",))
    made = hand_over(
        plan(left("1"), later("1", "n1", promise=promise)),
        snapshot(waits("1", user="ada", calendar_entry="pretrain"), calendar=(entry,)),
    )
    reserves = [item for item in made.actions if isinstance(item, Reserve)]
    assert [(item.name, item.nodes, item.replaces) for item in reserves] == [("pretrain", ("n1",), True)]


def test_what_is_not_done_for_a_job_ahead_is_noted() -> None:
    move = JobMove(job_id="5", from_nodes=("n1",), to_nodes=("n3",), latest_s=600.0, price=1.0)
    ahead = later("1", "n1", moves=(move,), expected_evictions=0.25)
    made = hand_over(plan(left("1"), ahead), snapshot(waits("1", user="ada")))
    assert [note.code for note in made.notes] == ["moves_not_made", "evictions_not_made"]
    assert "0.25 nodes" in made.notes[1].detail


def test_nobody_s_reservation_is_refused() -> None:
    ahead = plan(left("1"), later("1", "n1"))
    for user in (None, "two words", "-ada"):
        with pytest.raises(InputError) as caught:
            hand_over(ahead, snapshot(waits("1", user=user)))
        assert codes(caught.value) == [("reservation_of_nobody", "/ahead/0")]
    options = HandOverOptions(users=("bob",), accounts=("llm",))
    (reserve, *_) = hand_over(ahead, snapshot(waits("1")), options).actions
    assert isinstance(reserve, Reserve)
    assert (reserve.users, reserve.accounts) == (("bob",), ("llm",))


def entry(
    name: str, kind: EntryKind, from_s: float = 60.0, until_s: float | None = 3660.0, **more: object
) -> CalendarEntry:
    over = {} if "shape" in more else {"nodes": ("n2", "n1")}
    return CalendarEntry(name=name, kind=kind, from_s=from_s, until_s=until_s, **{**over, **more})  # type: ignore[arg-type]


CALENDAR = (
    entry("fan week 12", EntryKind.MAINTENANCE),
    entry("course", EntryKind.RESERVATION, hard=False),
    entry("lease", EntryKind.DEPARTURE, 7200.0, None, nodes=("n4",)),
    entry("new", EntryKind.ARRIVAL, 7200.0, None, nodes=("n3",)),
    entry("over", EntryKind.MAINTENANCE, -100.0, -50.0),
    entry("any", EntryKind.MAINTENANCE, 9000.0, 9060.0, shape=Shape(num_nodes=1)),
)


def test_the_calendar_becomes_reservations() -> None:
    jobs = (waits("1", user="ada", calendar_entry="course"), waits("2", user="bob", calendar_entry="course"))
    # Those who may use reservations of nobody may not use nodes that are closed.
    options = HandOverOptions(users=("eve",))
    made = hand_over(plan(left("1"), left("2")), snapshot(*jobs, calendar=CALENDAR), options, 0.0)
    reserves = {item.name: item for item in made.actions if isinstance(item, Reserve)}
    maintenance, course, lease, any_ = reserves.values()
    # A name that is none to Slurm is told apart by a digest.
    assert maintenance.name.startswith("fan-week-12-")
    assert (maintenance.maintenance, maintenance.users, maintenance.replaces) == (True, ("root",), False)
    assert (course.users, course.soft, course.maintenance) == (("ada", "bob"), True, False)
    assert (course.nodes, course.until_s) == (("n1", "n2"), 3660.0)
    assert (lease.nodes, lease.from_s, lease.until_s) == (("n4",), 7200.0, None)
    assert (any_.name, len(any_.nodes)) == ("any", 1)
    assert [(note.code, note.pointer) for note in made.notes] == [("arrival_not_said", "/snapshot/calendar/3")]


def test_reservations_of_nobody_are_left_and_the_calendar_may_be() -> None:
    scene = snapshot(calendar=CALENDAR[1:2])
    made = hand_over(plan(), scene)
    assert (made.actions, [note.code for note in made.notes]) == ((), ["reservation_of_nobody"])
    assert hand_over(plan(), scene, HandOverOptions(accounts=("llm",))).actions
    calendar = HandOverOptions(reserves_calendar=False)
    made = hand_over(plan(), snapshot(calendar=CALENDAR), calendar)
    assert (made.actions, made.notes) == ((), ())


def test_jobs_that_slurm_cannot_be_told_of_are_refused_together() -> None:
    with pytest.raises(InputError) as caught:
        hand_over(
            plan(gets("7+1", n1=8), left("llm"), left("x"), later("x", "n2")),
            snapshot(waits("7+1"), waits("llm"), waits("x", user="ada")),
        )
    assert sorted(codes(caught.value)) == [
        ("not_a_slurm_job", "/ahead/0/placement/job_id"),
        ("not_a_slurm_job", "/allocations/0/job_id"),
        ("not_a_slurm_job", "/unplaced/0/job_id"),
    ]


def test_work_grows_linearly() -> None:
    def told(num_jobs: int) -> int:
        jobs = [waits(str(k), 16) for k in range(1, num_jobs + 1)]
        starts = [
            gets(job.id, Change.STARTED, **{f"n{2 * k + 1}": 8, f"n{2 * k + 2}": 8}) for k, job in enumerate(jobs)
        ]
        scene, planned = snapshot(*jobs, num_nodes=2 * num_jobs), plan(*starts)
        return work(lambda: [item.words() for item in hand_over(planned, scene).actions])

    assert told(2000) < 5 * told(500)
