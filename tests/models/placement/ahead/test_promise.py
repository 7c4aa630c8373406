"""Planning a job again that has a reservation: its start is kept, few nodes change, and what changes is told."""

from dataclasses import replace

import pytest

from models.placement.ahead.check import plan_violations
from models.placement.ahead.parameters import AheadParameters
from models.plan import AheadPlacement, PlanOutcome, PlanRequest
from models.planning import plan
from models.workload import Job, Snapshot
from solver.options import SolveOptions
from tests.models.placement.ahead.scenes import DAY_S, cluster, on, wanted
from topology.calendar import CalendarEntry, EntryKind, Shape
from topology.cluster import NodeState

_PRICES = AheadParameters(
    alpha=1.0,
    eviction_price_per_node=0.0,
    restart_price_per_gpu_hour=0.0,
    idle_price_per_node_hour=0.0,
    node_change_price=1.5,
)
# a: 1 2 3       Two nodes on one minipod now would cost 1. Promised are a1 and b1 in two days, which cost 4.
# b: 1 2
_BIG = wanted("big", rows=2, columns=1)
_OWN = CalendarEntry(name="big", kind=EntryKind.RESERVATION, from_s=2 * DAY_S, until_s=5 * DAY_S, nodes=("a1", "b1"))


def planned(snapshot: Snapshot, parameters: AheadParameters = _PRICES, solver: str = "exact") -> PlanOutcome:
    return plan(PlanRequest(snapshot=snapshot, parameters=parameters, options=SolveOptions(solver=solver)))


def only(outcome: PlanOutcome) -> AheadPlacement:
    assert outcome.plan is not None
    (placed,) = outcome.plan.ahead
    return placed


def remedy(outcome: PlanOutcome) -> str:
    assert outcome.plan is not None
    return next(job.remedy for job in outcome.plan.unplaced if job.job_id == "big")


def scene(entry: CalendarEntry = _OWN, *jobs: Job, job: Job = _BIG) -> Snapshot:
    return Snapshot(cluster=cluster(3, 2), jobs=(job, *jobs), calendar=(entry,))


@pytest.mark.parametrize(
    ("entry", "job"),
    [
        (_OWN, _BIG),
        (replace(_OWN, name="r7", owner="big"), _BIG),
        (replace(_OWN, name="r7"), replace(_BIG, calendar_entry="r7")),
    ],
    ids=["name", "owner", "named by the job"],
)
@pytest.mark.parametrize("solver", ["exact", "highs"])
def test_what_was_promised_is_kept(entry: CalendarEntry, job: Job, solver: str) -> None:
    placed = only(outcome := planned(scene(entry, job=job), solver=solver))
    assert (placed.start_s, sorted(placed.placement.hosts)) == (2 * DAY_S, ["a1", "b1"])
    assert placed.promise is not None
    promise = placed.promise
    assert (promise.reservation, promise.start_s, promise.new_nodes, promise.left_nodes) == (
        entry.name,
        2 * DAY_S,
        (),
        (),
    )
    # Two minipods, two days late; nothing has changed.
    assert outcome.objective == pytest.approx(4.0)
    assert remedy(outcome) == f"reservation {entry.name!r} stays as it is"


def test_the_reservation_of_somebody_else_is_an_obstacle() -> None:
    foreign = replace(_OWN, name="other", from_s=0.0, nodes=("a1", "a2", "a3", "b1"))
    placed = only(planned(scene(foreign)))
    assert (placed.start_s, placed.promise) == (5 * DAY_S, None)


def test_a_node_that_fails_is_replaced_and_the_start_stays() -> None:
    snapshot = scene()
    nodes = tuple(replace(n, state=NodeState.DRAINED) if n.id == "b1" else n for n in snapshot.cluster.nodes)
    placed = only(outcome := planned(replace(snapshot, cluster=replace(snapshot.cluster, nodes=nodes))))
    assert placed.start_s == 2 * DAY_S
    assert placed.promise is not None
    # The other one stays, and now one minipod is enough: one change costs 1.5, two would cost 3.
    assert (len(placed.promise.new_nodes), placed.promise.left_nodes) == (1, ("b1",))
    assert placed.promise.new_nodes[0] in {"a2", "a3"}
    assert outcome.objective == pytest.approx(2.0 + 1.0 + 1.5)
    assert "change 1 of its nodes (now a" in remedy(outcome)


def test_nodes_change_where_that_is_worth_its_price() -> None:
    placed = only(outcome := planned(scene(), replace(_PRICES, node_change_price=0.2)))
    assert placed.promise is not None
    assert (placed.start_s, len(placed.promise.new_nodes)) == (2 * DAY_S, 1)
    # One minipod in place of two saves 1 for 0.2.
    assert outcome.objective == pytest.approx(2.0 + 1.0 + 0.2)


def test_a_start_that_has_become_impossible_changes_and_says_so() -> None:
    # Nobody makes way before the third day.
    late = Job(id="late", current=on("a1", "a2", "a3", "b1", "b2"), preemptible=False, remaining_s=3 * DAY_S)
    placed = only(outcome := planned(scene(_OWN, late)))
    assert placed.start_s >= 3 * DAY_S
    assert placed.promise is not None
    assert placed.promise.start_s == 2 * DAY_S
    assert outcome.plan is not None
    assert {term.term: term.value for term in outcome.plan.score}["start_change"] == 1000.0
    assert "change its start (was 2.00 days)" in remedy(outcome)


def test_a_start_changes_for_its_price() -> None:
    # Now saves two days, and one minipod for the change of one node.
    parameters = replace(_PRICES, start_change_price=0.5, node_change_price=0.1)
    assert only(planned(scene(), parameters)).start_s == 0.0


def test_a_reservation_that_has_begun_is_for_now() -> None:
    begun = replace(_OWN, from_s=-DAY_S, until_s=None)
    placed = only(planned(scene(begun)))
    assert placed.promise is not None
    assert (placed.start_s, placed.promise.start_s) == (0.0, 0.0)


def test_a_shape_promises_a_start_and_no_nodes() -> None:
    shape = replace(_OWN, nodes=(), shape=Shape(num_nodes=2))
    placed = only(planned(scene(shape)))
    assert placed.start_s == 2 * DAY_S
    assert placed.promise is not None
    assert placed.promise.new_nodes == placed.promise.left_nodes == ()
    assert placed.placement.num_minipods_used == 1


def test_a_plan_that_is_reserved_and_posted_again_a_day_later_is_the_same_plan() -> None:
    first = only(planned(Snapshot(cluster=cluster(3, 2), jobs=(replace(_BIG, earliest_start_s=4 * DAY_S),))))
    nodes = tuple(node.node for node in first.nodes)
    entry = replace(_OWN, from_s=first.start_s - DAY_S, until_s=None, nodes=nodes)
    again = only(planned(scene(entry, job=replace(_BIG, earliest_start_s=3 * DAY_S))))
    assert (again.start_s, {node.node for node in again.nodes}) == (first.start_s - DAY_S, set(nodes))


def test_a_wrong_word_about_the_reservation_is_found() -> None:
    snapshot = scene()
    outcome = planned(snapshot)
    placed = only(outcome)
    assert outcome.plan is not None
    assert outcome.objective is not None
    wrong = replace(outcome.plan, ahead=(replace(placed, promise=None),))
    codes = {issue.code for issue in plan_violations(snapshot, _PRICES, wrong, outcome.objective)}
    assert codes == {"wrong_promise"}
