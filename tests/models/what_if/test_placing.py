"""Why not there: the rules that forbid it, or its price."""

from dataclasses import replace

import pytest

from models.allocation.sia.parameters import SiaParameters
from models.forecast.lasting import Lasting
from models.performance.goodput.spec import TableEntry, ThroughputTable
from models.placement.ahead.parameters import AheadParameters
from models.placement.arnold.parameters import ArnoldParameters
from models.plan import PlanRequest
from models.what_if.difference import JobChange, difference, price
from models.what_if.placing import variant_task, with_lateness
from models.what_if.variant import Variant, WantedPlace, applied
from models.workload import Job, NodeGpus, Parallelism
from stowplan.errors import InputError
from tests.models.placement.scenes import node
from tests.models.what_if.scenes import NODES, gang_request, on, planned, snapshot
from topology.calendar import CalendarEntry, EntryKind
from topology.cluster import NodeState

X = Job(id="x", min_gpus=8, current=on(n1=(0, 1, 2, 3), n2=(0, 1, 2, 3)))
REQUEST = gang_request(X, Job(id="y", min_gpus=8), Job(id="z", min_gpus=4))


def why_not(job: str, gpus: tuple[NodeGpus, ...] | None = None, start_s: float | None = None) -> Variant:
    return Variant(name="why not", place=WantedPlace(job=job, gpus=gpus, start_s=start_s))


def test_the_price_is_what_the_others_lose() -> None:
    # y is to start on n3 and n4 before z. With z on n3, y waits: its 8 GPUs are the price; z itself gains its 4.
    base = planned(REQUEST)
    task = variant_task(why_not("z", on(n3=(0, 1, 2, 3))), REQUEST)
    assert task.request is not None
    other = planned(task.request)
    changed = difference(base, other, "z")
    assert changed is not None
    assert {job.job_id: job.change for job in changed.jobs} == {"y": JobChange.STOPPED, "z": JobChange.STARTED}
    assert changed.objective.difference is None
    assert [(term.name, term.difference) for term in changed.terms] == [("started", -8.0)]
    assert price(base, other, "z") == 8.0


def test_a_job_that_has_the_gpus_waits() -> None:
    task = variant_task(why_not("z", on(n2=(0, 1, 2, 3))), REQUEST)
    assert task.request is not None
    jobs = {job.id: job for job in task.request.snapshot.jobs}
    assert (jobs["x"].current, jobs["z"].current, jobs["z"].preemptible) == (None, on(n2=(0, 1, 2, 3)), False)
    allocations = {item.job_id: item for item in planned(task.request).outcome.plan.allocations}  # type: ignore[union-attr]
    assert allocations["z"].gpus == on(n2=(0, 1, 2, 3))


@pytest.mark.parametrize(
    ("jobs", "asked", "codes"),
    [
        ((replace(X, preemptible=False), Job(id="z")), why_not("z", on(n1=(0,))), {"gpu_taken_twice"}),
        ((replace(X, preemptible=False),), why_not("x", on(n3=(0, 1, 2, 3), n4=(0, 1, 2, 3))), {"pinned_job_moved"}),
        ((Job(id="z", min_gpus=4),), why_not("z", on(n1=(0, 1))), {"below_min_gpus"}),
        ((Job(id="z"),), why_not("z", on(n5=(0,))), {"node_unavailable"}),
        ((Job(id="z"),), why_not("z", on(n1=(0, 1))), {"other_size"}),
        ((Job(id="z"),), why_not("z", on(n1=(7,))), {"unknown_gpu"}),
    ],
)
def test_rules_that_forbid_it_are_listed(jobs: tuple[Job, ...], asked: Variant, codes: set[str]) -> None:
    nodes = (*NODES, node("n5", 4, path=("r2",), state=NodeState.DRAINED))
    task = variant_task(asked, gang_request(*jobs, nodes=nodes))
    assert task.request is None
    assert {issue.code for issue in task.forbidden} == codes
    assert all(issue.pointer.startswith("/place/nodes") for issue in task.forbidden)


@pytest.mark.parametrize(
    ("asked", "code", "pointer"),
    [
        (why_not("z"), "one_of", "/place"),
        (why_not("z", on(n1=(0,)), 60.0), "one_of", "/place"),
        (why_not("z", start_s=60.0), "no_start_times", "/place/start_s"),
        (why_not("z", on(n9=(0,))), "unknown_node", "/place/nodes/n9"),
    ],
)
def test_what_cannot_be_asked_is_refused(asked: Variant, code: str, pointer: str) -> None:
    with pytest.raises(InputError) as error:
        variant_task(asked, REQUEST)
    assert (code, pointer) in [(issue.code, issue.pointer) for issue in error.value.issues]


def test_what_the_policy_has_against_it_is_a_rule() -> None:
    # Sia: a table without 2 GPUs has no speed for them; 1 and 4 it has.
    entries = tuple(TableEntry(gpu_type="a", num_gpus=n, value=float(n)) for n in (1, 4))
    job = Job(id="t", performance=ThroughputTable(entries=entries))
    request = PlanRequest(snapshot=snapshot(job), parameters=SiaParameters())
    (issue,) = variant_task(why_not("t", on(n1=(0, 1))), request).forbidden
    assert (issue.code, issue.pointer) == ("reservation_cannot_run", "/place/nodes")
    task = variant_task(why_not("t", on(n1=(0, 1, 2, 3))), request)
    assert task.request is not None


def test_a_pretraining_job_is_asked_for_on_nodes() -> None:
    # Arnold's job needs two nodes of the four: without drained ones.
    job = Job(id="llm", parallelism=Parallelism(tp=4, pp=1, dp=2))
    request = PlanRequest(snapshot=snapshot(job), parameters=ArnoldParameters(alpha=0.5))
    free = variant_task(why_not("llm", on(n1=(0, 1, 2, 3), n3=(0, 1, 2, 3))), request)
    assert free.request is not None
    base, other = planned(request), planned(free.request)
    placement = other.outcome.plan.pretraining  # type: ignore[union-attr]
    assert placement is not None
    assert set(placement.hosts) == {"n1", "n3"}
    # Two racks instead of one: alpha x 1 more (Eq. 4), and nothing else.
    assert price(base, other, None) == pytest.approx(other.outcome.objective - base.outcome.objective)  # type: ignore[operator]
    assert price(base, other, None) > 0  # type: ignore[operator]
    drained = applied(Variant(name="v", drain=("n3",)), request)
    (issue,) = variant_task(why_not("llm", on(n1=(0, 1, 2, 3), n3=(0, 1, 2, 3))), drained).forbidden
    assert (issue.code, issue.pointer) == ("node_unavailable", "/place/nodes/n3")
    two = replace(request, snapshot=snapshot(job, replace(job, id="other")))
    with pytest.raises(InputError, match="wrong") as error:
        variant_task(why_not("llm", on(n1=(0, 1, 2, 3))), two)
    assert error.value.issues[0].code == "not_the_job"


def test_a_start_that_is_planned_ahead_has_a_price_within_its_window() -> None:
    # Nothing runs: a day later costs a day of lateness, 1, and idle hours of the two nodes, 24 x 2 x 0.001.
    day_s = 86_400.0
    job = Job(
        id="llm",
        parallelism=Parallelism(tp=4, pp=1, dp=2),
        latest_start_s=7 * day_s,
        lasting=Lasting(probabilities=(1.0,), seconds=(day_s,)),
    )
    request = PlanRequest(snapshot=snapshot(job), parameters=AheadParameters(alpha=0.5))
    task = variant_task(why_not("llm", start_s=day_s), request)
    assert task.request is not None
    base, other = planned(request), with_lateness(planned(task.request), "llm", 0.0)
    changed = difference(base, other)
    assert changed is not None
    assert {term.name: term.difference for term in changed.terms} == pytest.approx({"lateness": 1, "idle_nodes": 0.048})
    assert changed.objective.difference == pytest.approx(1.048)
    assert [row.change for row in changed.jobs] == [JobChange.LATER]
    assert price(base, other, None) == pytest.approx(1.0 + 0.048)
    # It is the only job: other starts cost what the plan says of them itself.
    (own,) = base.outcome.plan.ahead  # type: ignore[union-attr]
    for start in own.other_starts:
        asked = variant_task(why_not("llm", start_s=start.start_s), request).request
        assert asked is not None
        assert base.outcome.objective is not None
        cost = price(base, with_lateness(planned(asked), "llm", 0.0), None)
        assert cost == pytest.approx((start.cost or 0.0) - base.outcome.objective, abs=1e-9)
    (issue,) = variant_task(why_not("llm", start_s=8 * day_s), request).forbidden
    assert (issue.code, issue.pointer) == ("outside_window", "/place/start_s")


def test_parts_of_several_nodes_are_for_policies_that_give_them() -> None:
    # Gang plans six GPUs on nodes of four as a whole node and a part; Sia takes whole nodes.
    table = ThroughputTable(entries=(TableEntry(gpu_type="a", num_gpus=4, value=4.0),))
    job = Job(id="z", min_gpus=6, performance=table)
    request = gang_request(job)
    (allocation,) = planned(request).outcome.plan.allocations  # type: ignore[union-attr]
    assert sorted(len(part.gpus) for part in allocation.gpus) == [2, 4]
    asked = why_not("z", on(n1=(0, 1, 2, 3), n2=(0, 1)))
    assert variant_task(asked, request).forbidden == ()
    (issue,) = variant_task(asked, replace(request, parameters=SiaParameters())).forbidden
    assert (issue.code, issue.pointer) == ("not_whole_nodes", "/place/nodes/n2")


def test_a_calendar_forbids_nodes_where_the_policy_honours_it() -> None:
    # Gang keeps jobs off n3, which is serviced now, and off n4 in an hour but for those that end before.
    entries = (
        CalendarEntry(name="now", kind=EntryKind.MAINTENANCE, from_s=-60.0, until_s=60.0, nodes=("n3",)),
        CalendarEntry(name="soon", kind=EntryKind.MAINTENANCE, from_s=3600.0, until_s=7200.0, nodes=("n4",)),
    )
    jobs = (Job(id="long", min_gpus=4, remaining_s=5000.0), Job(id="short", min_gpus=4, remaining_s=600.0))
    request = gang_request(*jobs)
    request = replace(request, snapshot=replace(request.snapshot, calendar=entries))

    def codes(job: str, node_: str) -> list[str]:
        asked = why_not(job, (NodeGpus(node=node_, gpus=(0, 1, 2, 3)),))
        return [issue.code for issue in variant_task(asked, request).forbidden]

    assert codes("short", "n3") == codes("long", "n4") == ["calendar_not_honoured"]
    assert codes("short", "n4") == codes("long", "n1") == []
