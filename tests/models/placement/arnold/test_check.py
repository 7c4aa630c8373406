"""The check finds every kind of fault in a plan that was right, and none in one made by hand."""

import math
from collections.abc import Callable
from dataclasses import replace

import pytest

from models.placement.arnold.check import placement_violations, plan_violations
from models.placement.arnold.parameters import ArnoldParameters
from models.plan import Plan, PretrainingPlacement, SpreadPair
from models.workload import Job, NodeGpus, Reservation, Snapshot
from tests.models.placement.arnold.scenes import L20, fabric, formulated, planned, pretraining
from topology.cluster import NodeState

RUNS = Job(id="runs", current=(NodeGpus(node="B-3", gpus=(0, 1)),))
WAITS = Job(id="waits")
JOB = pretraining(3, 2)
CLUSTER = fabric({"A": 4, "B": 4}, busy={"A": 1})
SNAPSHOT = Snapshot(cluster=CLUSTER, jobs=(JOB, RUNS, WAITS))


def right_plan() -> tuple[Plan, PretrainingPlacement]:
    """Rows 0 and 1 in A, row 2 in B."""
    _, plan, placement = planned(formulated(CLUSTER, JOB, ArnoldParameters(alpha=0.3), RUNS, WAITS))
    return plan, placement


PLAN, PLACEMENT = right_plan()


def with_cells(*cells: tuple[str, ...]) -> PretrainingPlacement:
    """The placement with other nodes, minipods and ranks as their names say."""
    return replace(
        PLACEMENT,
        cells=cells,
        minipods=tuple(tuple(node[0] for node in row) for row in cells),
        hosts=tuple(row[c] for c in range(len(cells[0])) for row in cells),
    )


def codes(placement: PretrainingPlacement, snapshot: Snapshot = SNAPSHOT) -> set[str]:
    return {issue.code for issue in placement_violations(snapshot, placement, "minipod")}


def test_the_plan_is_right() -> None:
    assert PLACEMENT.cells == (("A-0", "A-1"), ("A-2", "A-3"), ("B-0", "B-1"))
    assert plan_violations(SNAPSHOT, PLAN, "minipod", 1.3) == []


def test_a_placement_made_by_hand_can_be_judged() -> None:
    """Crossed on purpose: legal, only worse. Every row spans A and B, so T = 2."""
    crossed = replace(
        with_cells(("A-0", "B-0"), ("A-1", "B-1"), ("A-2", "B-2")),
        minipod_spread=SpreadPair(dp=1, pp=2),
        distance=SpreadPair(dp=0, pp=2),
        max_unit_spread=2,
        objective_eq4=0.3 * 2 + 0.7 * 2,
        objective_eq2=0.7 * 2,
    )
    assert codes(crossed) == set()


@pytest.mark.parametrize(
    ("cells", "code"),
    [
        ((("A-0", "A-1"), ("A-2", "A-3"), ("B-0", "B-9")), "unknown_node"),
        ((("A-0", "A-1"), ("A-2", "A-3"), ("B-0", "B-0")), "node_taken_twice"),
        ((("A-0", "A-1"), ("A-2", "A-4"), ("B-0", "B-1")), "node_not_up"),
        ((("A-0", "A-1"), ("A-2", "A-3"), ("B-0", "B-3")), "node_not_free"),
        ((("A-0", "A-1"), ("A-2", "A-3")), "wrong_shape"),
        ((("A-0", "A-1", "A-2"), ("B-0", "B-1", "B-2")), "wrong_shape"),
    ],
)
def test_wrong_nodes(cells: tuple[tuple[str, ...], ...], code: str) -> None:
    assert code in codes(with_cells(*cells))


@pytest.mark.parametrize(
    ("wrong", "code"),
    [
        (replace(PLACEMENT, job_id="nobody"), "unknown_job"),
        (replace(PLACEMENT, job_id="waits"), "unknown_job"),
        (replace(PLACEMENT, cells=()), "ragged_matrix"),
        (replace(PLACEMENT, cells=((), ()), minipods=((), ())), "ragged_matrix"),
        (replace(PLACEMENT, cells=(*PLACEMENT.cells[:2], ("B-0",))), "ragged_matrix"),
        (replace(PLACEMENT, minipods=PLACEMENT.minipods[:2]), "ragged_matrix"),
        (replace(PLACEMENT, minipods=(("A", "A"), ("A", "A"), ("B", "A"))), "wrong_minipod"),
        (replace(PLACEMENT, hosts=PLACEMENT.hosts[::-1]), "wrong_rank_order"),
        (replace(PLACEMENT, hosts=PLACEMENT.hosts[:-1]), "wrong_rank_order"),
        (replace(PLACEMENT, scheduling_unit="tp"), "wrong_unit"),
        (replace(PLACEMENT, scheduling_unit="dp"), "wrong_spread"),
        (replace(PLACEMENT, beta=0.6), "wrong_affinity"),
        (replace(PLACEMENT, alpha=math.nan), "wrong_affinity"),
        (replace(PLACEMENT, alpha=1.3, beta=-0.3), "wrong_affinity"),
        (replace(PLACEMENT, minipod_spread=SpreadPair(dp=1, pp=1)), "wrong_spread"),
        (replace(PLACEMENT, distance=SpreadPair(dp=2, pp=1)), "wrong_spread"),
        (replace(PLACEMENT, num_minipods_used=1), "wrong_spread"),
        (replace(PLACEMENT, max_unit_spread=2), "wrong_spread"),
        (replace(PLACEMENT, objective_eq4=1.2), "wrong_objective"),
        (replace(PLACEMENT, objective_eq4=math.nan), "wrong_objective"),
        (replace(PLACEMENT, objective_eq2=0.3), "wrong_objective"),
    ],
)
def test_wrong_claims(wrong: PretrainingPlacement, code: str) -> None:
    assert code in codes(wrong)


def test_nodes_that_changed_since() -> None:
    a0, *others = CLUSTER.nodes
    down = replace(CLUSTER, nodes=(replace(a0, state=NodeState.DOWN), *others))
    used = replace(CLUSTER, nodes=(replace(a0, gpus_in_use=(7,)), *others))
    small = replace(CLUSTER, nodes=(replace(a0, num_gpus=4), *others))
    other = replace(CLUSTER, gpu_types=(*CLUSTER.gpu_types, L20), nodes=(replace(a0, gpu_type="L20"), *others))
    assert codes(PLACEMENT, replace(SNAPSHOT, cluster=down)) == {"node_not_up"}
    assert codes(PLACEMENT, replace(SNAPSHOT, cluster=used)) == {"node_not_free"}
    assert codes(PLACEMENT, replace(SNAPSHOT, cluster=small)) == {"mixed_nodes"}
    assert codes(PLACEMENT, replace(SNAPSHOT, cluster=other)) == {"mixed_nodes"}


def test_types_that_the_job_may_not_use() -> None:
    cluster = replace(CLUSTER, gpu_types=(*CLUSTER.gpu_types, L20))
    for job in (
        replace(JOB, gpu_types=("L20",)),
        replace(JOB, reservation=Reservation(gpu_type="L20", num_gpus=48)),
    ):
        assert codes(PLACEMENT, Snapshot(cluster=cluster, jobs=(job, RUNS))) == {"wrong_gpu_type"}


def test_gpus_per_node_that_do_not_carry_the_parallelism() -> None:
    cluster = fabric({"A": 4, "B": 4}, num_gpus=6)
    assert "wrong_shape" in codes(PLACEMENT, Snapshot(cluster=cluster, jobs=(JOB,)))


def _without(plan: Plan, job_id: str) -> Plan:
    return replace(
        plan,
        allocations=tuple(item for item in plan.allocations if item.job_id != job_id),
        unplaced=tuple(item for item in plan.unplaced if item.job_id != job_id),
    )


def _with_allocation(plan: Plan, of: str, **changes: object) -> Plan:
    return replace(
        plan,
        allocations=tuple(
            replace(item, **changes) if item.job_id == of else item  # type: ignore[arg-type]  # any field
            for item in plan.allocations
        ),
    )


@pytest.mark.parametrize(
    ("spoil", "code"),
    [
        (lambda plan: replace(plan, pretraining=None), "no_placement"),
        (lambda plan: _without(plan, "llm"), "job_not_covered_once"),
        (lambda plan: _without(plan, "runs"), "job_not_covered_once"),
        (lambda plan: _without(plan, "waits"), "job_not_covered_once"),
        (lambda plan: replace(plan, allocations=plan.allocations * 2), "job_not_covered_once"),
        (lambda plan: _with_allocation(plan, "runs", job_id="nobody"), "unknown_job"),
        (lambda plan: _with_allocation(plan, "runs", job_id="waits"), "job_moved"),
        (lambda plan: _with_allocation(plan, "runs", gpus=(NodeGpus(node="B-2", gpus=(0, 1)),)), "job_moved"),
        (lambda plan: _with_allocation(plan, "runs", num_gpus=3), "allocation_mismatch"),
        (lambda plan: _with_allocation(plan, "runs", gpu_type="L20"), "allocation_mismatch"),
        (
            lambda plan: _with_allocation(plan, "llm", gpus=plan.allocations[0].gpus[::-1]),
            "allocation_mismatch",
        ),
        (lambda plan: _with_allocation(plan, "llm", gpus=plan.allocations[0].gpus[1:]), "allocation_mismatch"),
        (lambda plan: replace(plan, score=plan.score[:1]), "wrong_score"),
        (lambda plan: replace(plan, score=(replace(plan.score[0], value=math.nan),)), "wrong_score"),
        (lambda plan: replace(plan, pretraining=replace(PLACEMENT, objective_eq4=9.0)), "wrong_objective"),
    ],
)
def test_wrong_plans(spoil: Callable[[Plan], Plan], code: str) -> None:
    assert code in {issue.code for issue in plan_violations(SNAPSHOT, spoil(PLAN), "minipod", 1.3)}


@pytest.mark.parametrize(("claimed", "found"), [(1.3, []), (2.0, []), (1.2, ["objective_mismatch"])])
def test_a_plan_may_be_better_than_claimed_never_worse(claimed: float, found: list[str]) -> None:
    assert [issue.code for issue in plan_violations(SNAPSHOT, PLAN, "minipod", claimed)] == found
