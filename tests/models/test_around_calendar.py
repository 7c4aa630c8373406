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
from tests.growth import work
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
# Planning ahead starts nothing now.
@pytest.mark.parametrize("name", [name for name in POLICIES if name != "ahead"])
def test_a_reservation_is_for_its_jobs(name: str) -> None:
    """All nodes are there twice, and the second ones are reserved for the first job."""
    request = example(name)
    cluster, jobs = request.snapshot.cluster, request.snapshot.jobs
    twins = tuple(replace(node, id=f"{node.id}'", gpus_in_use=()) for node in cluster.nodes)
    entry = CalendarEntry(
        name="r", kind=EntryKind.RESERVATION, from_s=-1.0, until_s=DAY_S, nodes=tuple(node.id for node in twins)
    )
    waiting = tuple(replace(job, current=None, parallel_plan=None, expansions=()) for job in jobs)
    scene = Snapshot(
        cluster=replace(cluster, nodes=(*cluster.nodes, *twins)),
        jobs=(replace(waiting[0], calendar_entry="r"), *waiting[1:]),
        calendar=(entry,),
    )
    found = plan(replace(request, snapshot=scene)).plan
    assert found is not None
    places = {item.job_id: {part.node for part in item.gpus} for item in found.allocations}
    assert all(name == jobs[0].id or nodes.isdisjoint(entry.nodes) for name, nodes in places.items())
    if name not in {"arnold", "gang", "gang-ilp"}:
        assert places[jobs[0].id] <= set(entry.nodes)
    assert jobs[0].id in places


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
    """Jobs of the first part by id, the nodes that it hands out, and the jobs that are left out."""
    snapshot = Snapshot(cluster=pods(2, 2), jobs=jobs, calendar=calendar)
    made = around(snapshot, Access(snapshot, 0.05))
    assert [job.job_id for job in made.unplaced()] == [snapshot.jobs[k].id for k in made.left_out]
    found = made.parts[0].planned
    return {job.id: job for job in found.jobs}, up(found), {snapshot.jobs[k].id for k in made.left_out}


def up(snapshot: Snapshot) -> set[str]:
    return {node.id for node in snapshot.cluster.nodes if node.state is NodeState.UP}


SHORT, UNKNOWN = Job(id="short", remaining_s=0.5 * DAY_S), Job(id="unknown")
TOMORROW = reserved("r", 1, 2, "n0")


def test_nodes_that_some_may_not_use_are_handed_out_to_nobody() -> None:
    jobs, there, out = planned(SHORT, UNKNOWN, calendar=(TOMORROW,))
    assert (set(jobs), there, out) == ({"short", "unknown"}, {"n1", "n2", "n3"}, set())
    # Without the one that may last, they are open to all.
    assert planned(SHORT, calendar=(TOMORROW,))[1] == {"n0", "n1", "n2", "n3"}


def test_who_may_use_no_node_is_left_out_and_keeps_none_from_others() -> None:
    everywhere = reserved("r", 1, 2, "n0", "n1", "n2", "n3", kind=EntryKind.MAINTENANCE)
    jobs, there, out = planned(SHORT, UNKNOWN, calendar=(everywhere,))
    assert (set(jobs), there, out) == ({"short"}, {"n0", "n1", "n2", "n3"}, {"unknown"})
    snapshot = Snapshot(cluster=pods(2, 2), jobs=(SHORT, UNKNOWN), calendar=(everywhere,))
    (told,) = around(snapshot, Access(snapshot, 0.05)).unplaced()
    assert (told.reason, told.counts["admitted_in_s"], told.preempted) == ("reserved", 2 * DAY_S, False)


def test_a_cluster_that_is_reserved_is_for_the_jobs_of_the_reservation() -> None:
    everywhere = reserved("r", -1, 2, "n0", "n1", "n2", "n3")
    own = Job(id="own", calendar_entry="r")
    jobs, there, out = planned(own, SHORT, calendar=(everywhere,))
    assert (set(jobs), there, out) == ({"own"}, {"n0", "n1", "n2", "n3"}, {"short"})


def test_jobs_of_a_reservation_are_planned_on_its_nodes_beside_all_others() -> None:
    own, big = Job(id="own", calendar_entry="r"), Job(id="big", calendar_entry="r", min_gpus=16)
    guest = replace(UNKNOWN, id="guest", preemptible=False, current=(NodeGpus(node="n0", gpus=(0, 1)),))
    entry = replace(TOMORROW, from_s=-5.0)
    snapshot = Snapshot(cluster=pods(2, 2), jobs=(UNKNOWN, own, big, guest), calendar=(entry,))
    first, second = around(snapshot, Access(snapshot, 0.05)).parts
    # Its one node has too few GPUs for the big one, which is planned with all others.
    assert ([job.id for job in first.planned.jobs], up(first.planned)) == (
        ["unknown", "big", "guest"],
        {"n1", "n2", "n3"},
    )
    assert ([job.id for job in second.planned.jobs], up(second.planned)) == (["own"], {"n0"})
    assert second.planned.cluster.nodes[0].gpus_in_use == (0, 1), "who cannot be preempted stays"


def test_who_runs_on_nodes_that_will_be_closed_stays_until_then() -> None:
    on_it = replace(UNKNOWN, id="on it", current=(NodeGpus(node="n0", gpus=(0, 1)),))
    jobs, there, _ = planned(on_it, UNKNOWN, calendar=(TOMORROW,))
    assert not jobs["on it"].preemptible
    assert jobs["on it"].current == on_it.current
    assert "n0" not in there
    jobs, there, _ = planned(on_it, UNKNOWN, calendar=(replace(TOMORROW, from_s=0.0),))
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


def test_making_the_snapshot_grows_with_the_size() -> None:
    def cost(num: int) -> int:
        entries = tuple(reserved(f"r{k}", 1 + k, 40, *(f"n{n}" for n in range(k, num, 8))) for k in range(4))
        jobs = tuple(
            Job(id=f"j{k}", remaining_s=DAY_S * (k % 7) + k, calendar_entry=f"r{k % 4}" if k % 5 == 0 else None)
            for k in range(num)
        )
        snapshot = Snapshot(cluster=pods(num), jobs=jobs, calendar=entries)

        def made() -> None:
            assert around(snapshot, Access(snapshot, 0.05)).parts

        return work(made)

    cost(50)
    assert cost(200) <= 2.3 * cost(100)
