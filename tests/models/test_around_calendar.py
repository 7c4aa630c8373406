"""Every policy beside a calendar: no plan goes against it, and where there is none nothing changes."""

import json
from dataclasses import replace
from functools import cache
from random import Random

import pytest

from api.common.settings import Settings
from api.convert.reading import read_document
from api.convert.request import check_request
from api.reading.texts import RequestText, snapshot_of
from api.schemas.request import PLAN_BODY
from models.access import Access
from models.around_calendar import around
from models.calendar_check import calendar_violations
from models.plan import PlanRequest
from models.planning import plan
from models.policies import POLICIES
from models.workload import Job, NodeGpus, Reservation, Snapshot
from stowplan.errors import InputError
from tests.models.calendar_scenes import with_calendar
from tests.models.test_ignored_fields import EXAMPLES
from tests.paths import ROOT
from tests.topology.test_calendar import DAY_S, pods, reserved
from topology.calendar import CalendarEntry, EntryKind
from topology.cluster import NodeState


@cache
def example(name: str) -> PlanRequest:
    """The packaged example of a policy."""
    document = json.loads((ROOT / f"api/examples/{EXAMPLES[name]}.json").read_text())
    body = {key: document[key] for key in ("snapshot", "parameters") if key in document}
    read = read_document(PLAN_BODY, json.dumps({**body, "policy": name}).encode())
    text = RequestText(body=b"", settings=Settings())
    return check_request(read, snapshot_of(read.snapshot, text).snapshot, text.settings).required()


@cache
def running(name: str) -> Snapshot:
    """The example after its own plan: who was given GPUs runs on them. Arnold's one job waits still."""
    request = example(name)
    found = plan(request).plan
    assert found is not None
    given = {item.job_id: item for item in found.allocations}

    def placed(job: Job) -> Job:
        item = given.get(job.id)
        if name == "arnold":
            return job
        if item is None:
            return replace(job, current=None, parallel_plan=None, expansions=())
        return replace(job, current=item.gpus, parallel_plan=item.parallel_plan, expansions=item.expansions)

    return replace(request.snapshot, jobs=tuple(map(placed, request.snapshot.jobs)))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("name", POLICIES)
def test_no_plan_goes_against_the_calendar(name: str, seed: int) -> None:
    request = example(name)
    base = running(name) if seed % 3 else request.snapshot
    scene = with_calendar(base, seed, scale_s=DAY_S)
    rng = Random(seed)  # noqa: S311 - reproducible, no secret
    scene = replace(scene, jobs=tuple(replace(job, preemptible=rng.random() < 0.8) for job in scene.jobs))
    outcome = plan(replace(request, snapshot=scene))
    if outcome.plan is None:
        assert {job.reason for job in outcome.unplaced} & {"reserved", "capacity", "no_start"}
        return
    assert calendar_violations(scene, outcome.plan.allocations, request.parameters.epsilon) == []
    named = [item.job_id for item in outcome.plan.allocations] + [item.job_id for item in outcome.plan.unplaced]
    assert sorted(named) == sorted(job.id for job in scene.jobs)


@pytest.mark.slow
@pytest.mark.parametrize("name", POLICIES)
def test_a_calendar_that_is_over_changes_nothing(name: str) -> None:
    request = example(name)
    nodes = tuple(node.id for node in request.snapshot.cluster.nodes)
    over = CalendarEntry(name="over", kind=EntryKind.MAINTENANCE, from_s=-2.0, until_s=-1.0, nodes=nodes)
    calendar = (*request.snapshot.calendar, over)
    found = plan(replace(request, snapshot=replace(request.snapshot, calendar=calendar)))
    assert found.plan == plan(request).plan


def planned(*jobs: Job, calendar: tuple[CalendarEntry, ...]) -> tuple[dict[str, Job], set[str], set[str]]:
    """The jobs that are planned, by id, the nodes that are handed out, and the jobs that are left out."""
    snapshot = Snapshot(cluster=pods(2, 2), jobs=jobs, calendar=calendar)
    made = around(snapshot, Access(snapshot, 0.05))
    up = {node.id for node in made.planned.cluster.nodes if node.state is NodeState.UP}
    assert [job.job_id for job in made.unplaced()] == [snapshot.jobs[k].id for k in made.left_out]
    return {job.id: job for job in made.planned.jobs}, up, {snapshot.jobs[k].id for k in made.left_out}


SHORT, UNKNOWN = Job(id="short", remaining_s=0.5 * DAY_S), Job(id="unknown")
TOMORROW = reserved("r", 1, 2, "n0")


def test_nodes_that_some_may_not_use_are_handed_out_to_nobody() -> None:
    jobs, up, out = planned(SHORT, UNKNOWN, calendar=(TOMORROW,))
    assert (set(jobs), up, out) == ({"short", "unknown"}, {"n1", "n2", "n3"}, set())
    # Without the one that may last, they are open to all.
    assert planned(SHORT, calendar=(TOMORROW,))[1] == {"n0", "n1", "n2", "n3"}


def test_who_may_use_no_node_is_left_out_and_keeps_none_from_others() -> None:
    everywhere = reserved("r", 1, 2, "n0", "n1", "n2", "n3", kind=EntryKind.MAINTENANCE)
    jobs, up, out = planned(SHORT, UNKNOWN, calendar=(everywhere,))
    assert (set(jobs), up, out) == ({"short"}, {"n0", "n1", "n2", "n3"}, {"unknown"})
    snapshot = Snapshot(cluster=pods(2, 2), jobs=(SHORT, UNKNOWN), calendar=(everywhere,))
    (told,) = around(snapshot, Access(snapshot, 0.05)).unplaced()
    assert (told.reason, told.counts["admitted_in_s"], told.preempted) == ("reserved", 2 * DAY_S, False)


def test_a_cluster_that_is_reserved_is_for_the_jobs_of_the_reservation() -> None:
    everywhere = reserved("r", -1, 2, "n0", "n1", "n2", "n3")
    own = Job(id="own", calendar_entry="r")
    jobs, up, out = planned(own, SHORT, calendar=(everywhere,))
    assert (set(jobs), up, out) == ({"own"}, {"n0", "n1", "n2", "n3"}, {"short"})


def test_who_runs_on_nodes_that_will_be_closed_stays_until_then() -> None:
    on_it = replace(UNKNOWN, id="on it", current=(NodeGpus(node="n0", gpus=(0, 1)),))
    jobs, up, _ = planned(on_it, UNKNOWN, calendar=(TOMORROW,))
    assert not jobs["on it"].preemptible
    assert jobs["on it"].current == on_it.current
    assert "n0" not in up
    jobs, up, _ = planned(on_it, UNKNOWN, calendar=(replace(TOMORROW, from_s=0.0),))
    assert jobs["on it"] == replace(on_it, current=None)


def test_a_reservation_of_gpus_against_the_calendar_is_refused() -> None:
    request = example("sia")
    first = request.snapshot.cluster.nodes[0]
    nodes = tuple(node.id for node in request.snapshot.cluster.nodes if node.gpu_type == first.gpu_type)
    closed = CalendarEntry(name="m", kind=EntryKind.MAINTENANCE, from_s=0.0, until_s=DAY_S, nodes=nodes)
    job = replace(request.snapshot.jobs[0], reservation=Reservation(gpu_type=first.gpu_type, num_gpus=1))
    snapshot = replace(request.snapshot, jobs=(job, *request.snapshot.jobs[1:]), calendar=(closed,))
    with pytest.raises(InputError, match="reserved"):
        plan(replace(request, snapshot=snapshot))
