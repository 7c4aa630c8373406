"""Changes make another request, and what is wrong with them is said where they stand."""

from dataclasses import replace

import pytest

from models.allocation.gang.parameters import GangMethod, GangParameters
from models.allocation.sia.parameters import SiaParameters
from models.plan import PlanRequest
from models.what_if.variant import AddedNodes, Variant, WantedPlace, applied
from models.workload import Job, Snapshot
from stowplan.errors import InputError
from tests.growth import work
from tests.models.placement.scenes import node
from tests.models.what_if.scenes import gang_request, on, snapshot
from topology.calendar import CalendarEntry, EntryKind
from topology.cluster import NodeState

REQUEST = gang_request(Job(id="x", min_gpus=4, current=on(n1=(0, 1, 2, 3))), Job(id="y", min_gpus=8))
MAINTENANCE = CalendarEntry(name="pdu", kind=EntryKind.MAINTENANCE, from_s=60.0, nodes=("n4",))


def states(request: PlanRequest) -> list[str]:
    return [node.state.value for node in request.snapshot.cluster.nodes]


def test_no_change_gives_an_equal_request() -> None:
    assert applied(Variant(name="none"), REQUEST) == REQUEST


def test_nodes_are_named_by_themselves_or_by_their_unit() -> None:
    changed = applied(Variant(name="v", drain=("r2",), down=("n1",)), REQUEST)
    assert states(changed) == ["down", "up", "drained", "drained"]
    assert states(applied(Variant(name="back", up=("r2", "n1")), changed)) == ["up"] * 4


def test_added_nodes_get_names_that_are_free() -> None:
    request = gang_request(Job(id="y"), nodes=(node("added-2", 4, path=("r1",)),))
    added = (
        AddedNodes(num_nodes=2, gpu_type="a", num_gpus=8, path=("r3",)),
        AddedNodes(num_nodes=1, gpu_type="a", num_gpus=4, path=("r1",)),
    )
    nodes = applied(Variant(name="v", add_nodes=added), request).snapshot.cluster.nodes
    assert [node.id for node in nodes] == ["added-2", "added-1", "added-3", "added-4"]
    assert [(node.num_gpus, node.path) for node in nodes[1:]] == [(8, ("r3",)), (8, ("r3",)), (4, ("r1",))]


def test_jobs_are_changed_removed_and_added() -> None:
    variant = Variant(
        name="v", jobs={"y": {"min_gpus": 4, "priority": 2}}, remove_jobs=("x",), add_jobs=(Job(id="z", min_gpus=2),)
    )
    jobs = applied(variant, REQUEST).snapshot.jobs
    assert jobs == (Job(id="y", min_gpus=4, priority=2), Job(id="z", min_gpus=2))


def test_parameters_choose_the_policy() -> None:
    assert applied(Variant(name="v", parameters=SiaParameters()), REQUEST).policy == "sia"
    assert applied(Variant(name="v"), REQUEST).parameters == GangParameters(method=GangMethod.ILP)


def test_entries_of_the_calendar_come_and_go() -> None:
    there = applied(Variant(name="v", add_entries=(MAINTENANCE,)), REQUEST)
    assert there.snapshot.calendar == (MAINTENANCE,)
    assert applied(Variant(name="v", remove_entries=("pdu",)), there) == REQUEST


@pytest.mark.parametrize(
    ("variant", "found"),
    [
        (Variant(name="v", drain=("r1", "n9")), [("unknown_node", "/drain/1")]),
        (Variant(name="v", drain=("r1",), down=("n2",)), [("two_states", "/down/0")]),
        (
            Variant(name="v", add_nodes=(AddedNodes(num_nodes=3, gpu_type="b", num_gpus=8, path=("r1",)),)),
            [("unknown_gpu_type", "/add_nodes/0/gpu_type")],
        ),
        (Variant(name="v", jobs={"w": {}}), [("unknown_job", "/jobs/w")]),
        (Variant(name="v", jobs={"x": {}}, remove_jobs=("x",)), [("changed_and_removed", "/jobs/x")]),
        (Variant(name="v", jobs={"y": {"max_gpus": 2}}), [("min_above_max", "/jobs/y/max_gpus")]),
        # x runs there; the fault is that of the job that is added.
        (
            Variant(name="v", add_jobs=(Job(id="z", current=on(n1=(3,))),)),
            [("gpu_taken_twice", "/add_jobs/0/current/n1")],
        ),
        (
            Variant(name="v", add_jobs=(Job(id="x"),)),
            [("duplicate_id", "/jobs/x/id"), ("duplicate_id", "/add_jobs/0/id")],
        ),
        (Variant(name="v", remove_entries=("pdu",)), [("unknown_calendar_entry", "/remove_entries/0")]),
        (
            Variant(name="v", add_entries=(replace(MAINTENANCE, nodes=("n9",)),)),
            [("unknown_node", "/add_entries/0/nodes/0")],
        ),
        (Variant(name="v", place=WantedPlace(job="w", gpus=on(n1=(0,)))), [("unknown_job", "/place/job")]),
        (
            Variant(name="v", remove_jobs=("y",), place=WantedPlace(job="y", gpus=on(n1=(0,)))),
            [("unknown_job", "/place/job")],
        ),
    ],
)
def test_faults_are_said_where_they_stand(variant: Variant, found: list[tuple[str, str]]) -> None:
    with pytest.raises(InputError) as error:
        applied(variant, REQUEST)
    assert [(issue.code, issue.pointer) for issue in error.value.issues] == found


def test_the_cost_grows_with_the_cluster() -> None:
    def cost(size: int) -> int:
        nodes = tuple(node(f"n{k}", 4, path=(f"r{k // 8}",)) for k in range(size))
        jobs = tuple(Job(id=f"j{k}") for k in range(size))
        request = replace(REQUEST, snapshot=Snapshot(cluster=snapshot(nodes=nodes).cluster, jobs=jobs))
        drained = tuple(f"r{k}" for k in range(0, size // 8, 2))
        variant = Variant(name="v", drain=drained, jobs={f"j{k}": {"priority": 2} for k in range(size)})
        assert sum(node.state is NodeState.DRAINED for node in applied(variant, request).snapshot.cluster.nodes) > 0
        return work(lambda: applied(variant, request))

    assert cost(400) <= 2.3 * cost(200)
