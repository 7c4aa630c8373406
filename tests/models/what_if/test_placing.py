"""Why not there: the rules that forbid it, or its price."""

from dataclasses import replace

import pytest

from models.what_if.difference import JobChange, difference, price
from models.what_if.placing import variant_task
from models.what_if.variant import Variant, WantedPlace
from models.workload import Job, NodeGpus
from stowplan.errors import InputError
from tests.models.placement.scenes import node
from tests.models.what_if.scenes import NODES, gang_request, on, planned
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
