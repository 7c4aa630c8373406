"""Arnold beside a calendar: the nodes that its job may not use are as if they took no work."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from models.calendar_check import calendar_violations
from models.placement.arnold.parameters import ArnoldParameters, SpreadObjective
from models.plan import PlanOutcome, PlanRequest
from models.planning import plan
from models.workload import Job, NodeGpus, Snapshot
from solver.options import SolveOptions
from tests.models.calendar_scenes import with_calendar
from tests.models.placement.arnold.scenes import fabric, pretraining
from topology.calendar import CalendarEntry, EntryKind
from topology.cluster import Cluster

GIVEN = ArnoldParameters(alpha=0.3)
KINDS = [
    GIVEN,
    replace(GIVEN, tier_weights={"minipod": 1.0, "leaf": 0.5}),
    replace(GIVEN, spread_objective=SpreadObjective.EQ2),
]


def planned(
    cluster: Cluster, *jobs: Job, calendar: tuple[CalendarEntry, ...], parameters: ArnoldParameters = GIVEN
) -> PlanOutcome:
    snapshot = Snapshot(cluster=cluster, jobs=jobs, calendar=calendar)
    return plan(PlanRequest(snapshot=snapshot, parameters=parameters, options=SolveOptions(solver="exact")))


def kept(from_s: float, *nodes: str, hard: bool = True) -> CalendarEntry:
    return CalendarEntry(
        name="r", kind=EntryKind.RESERVATION, from_s=from_s, until_s=from_s + 50.0, nodes=nodes, hard=hard
    )


@pytest.mark.parametrize("parameters", KINDS, ids=["eq4", "tiers", "eq2"])
def test_a_job_avoids_nodes_that_are_closed_before_it_ends(parameters: ArnoldParameters) -> None:
    """Four nodes: A has room for all, but two of it are reserved before the job ends; so it is in B."""
    cluster, job = fabric({"A": 4, "B": 4}), replace(pretraining(2, 2), remaining_s=100.0)
    for from_s, minipods in ((99.0, {"B"}), (100.0, {"A"})):
        found = planned(cluster, job, calendar=(kept(from_s, "A-0", "A-1"),), parameters=parameters).plan
        assert found is not None
        assert found.pretraining is not None
        assert {name for row in found.pretraining.minipods for name in row} == minipods


def test_who_lacks_nodes_that_are_kept_is_told_until_when() -> None:
    job = replace(pretraining(2, 2), remaining_s=100.0)
    outcome = planned(fabric({"A": 4}), job, calendar=(kept(30.0, "A-0"),))
    assert outcome.plan is None
    (told,) = outcome.unplaced
    assert (told.reason, told.counts["admitted_in_s"], told.counts["nodes_kept"]) == ("reserved", 80, 1)
    assert "reservation 'r' from 30 s until 80 s" in told.detail


def test_the_job_of_a_reservation_has_its_nodes_when_it_comes() -> None:
    """Who runs there leaves, unless it cannot; who runs elsewhere stays."""
    cluster, own = fabric({"A": 4, "B": 2}), replace(pretraining(2, 2), calendar_entry="r")
    guest = Job(id="guest", current=(NodeGpus(node="A-1", gpus=(0,)),))
    other = Job(id="other", current=(NodeGpus(node="B-1", gpus=(0,)),))
    for hard in (True, False):
        entry = kept(-1.0, "A-0", "A-1", "A-2", "A-3", hard=hard)
        found = planned(cluster, guest, other, own, calendar=(entry,)).plan
        assert found is not None
        assert {item.job_id for item in found.allocations} == {"llm", "other"}
        assert [(job.job_id, job.reason, job.preempted) for job in found.unplaced] == [("guest", "reserved", True)]
    # One node of its own is missing, and B has another.
    found = planned(cluster, replace(guest, preemptible=False), other, own, calendar=(entry,)).plan
    assert found is not None
    assert found.pretraining is not None
    assert set(found.pretraining.hosts) == {"A-0", "A-2", "A-3", "B-0"}


@pytest.mark.slow
@given(seed=st.integers(0, 100_000), free=st.lists(st.integers(0, 5), min_size=1, max_size=3), data=st.data())
@settings(max_examples=100, deadline=None)
def test_no_plan_goes_against_the_calendar(seed: int, free: list[int], data: Any) -> None:
    if not any(free):
        return
    shape = data.draw(st.sampled_from([(1, 1), (2, 1), (2, 2), (3, 2)]))
    scene = with_calendar(Snapshot(cluster=fabric(free), jobs=(pretraining(*shape),)), seed, scale_s=100.0)
    outcome = planned(scene.cluster, *scene.jobs, calendar=scene.calendar, parameters=data.draw(st.sampled_from(KINDS)))
    if outcome.plan is not None:
        assert calendar_violations(scene, outcome.plan.allocations, 0.05) == []
