"""Placement classes: what is chosen in one lies in it, what it costs others is counted, and nothing is where all nodes
have the same bandwidth between them."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import combinations, product

import numpy as np
import pytest
from hypothesis import given, settings
from scipy.optimize import linprog

from models.allocation.horizon.check import horizon_violations
from models.allocation.horizon.formulation import HorizonFormulation
from models.allocation.horizon.homes import homes_of
from models.allocation.horizon.instance import HorizonInstance
from models.allocation.horizon.outlook import Outlook
from models.allocation.horizon.parameters import HorizonParameters
from models.allocation.horizon.rooms_check import UnitAudit
from models.allocation.spread_check import SpreadAudit
from models.performance.goodput.spec import TableEntry, ThroughputTable
from models.placement.placeability import takes_whole_nodes, whole_node_sizes
from models.plan import Change, JobAllocation, Plan
from models.workload import Snapshot
from stowplan.errors import Issue
from tests.models.allocation.horizon.scenes import instance_of, random_parameters, timed_snapshot
from tests.models.allocation.horizon.test_check import solved
from tests.models.allocation.horizon.test_exact import best_shares
from tests.models.allocation.horizon.test_plans import planned
from tests.models.allocation.horizon.tiered import fabric, job, synchronised, tiered_snapshot, whole
from tests.models.placement.scenes import SEEDS, dice, packable

TO_THE_END = HorizonParameters(
    num_intervals=3, interval_s=60.0, horizon_s=1200.0, restart_price=1.0, backlog_efficiency=None
)
FAR = replace(TO_THE_END, placement_classes=False)


def halves(cost_s: float = 10.0, work: float = 1000.0, core: float = 0.1, wanted: float = 200.0) -> Snapshot:
    """Two leaves of two nodes, of each of which a job has one; a third job waits that needs two.

        l0n0 left   l0n1 -   |   l1n0 right   l1n1 -

    A step of the third takes 2 s within a leaf, 1 s + 1 s / core across; of the others 1 s.
    """
    return Snapshot(
        cluster=fabric(2, 2, core=core),
        jobs=(
            job("left", 2, work, current=whole("l0n0"), age_s=1000.0, restart_cost_s=cost_s),
            job("right", 2, work, current=whole("l1n0"), age_s=1000.0, restart_cost_s=cost_s),
            job("third", 4, wanted),
        ),
    )


def allocations(plan: Plan) -> Mapping[str, JobAllocation]:
    return {item.job_id: item for item in plan.allocations}


def test_a_pinned_job_beyond_its_bounds_is_counted_where_classes_do_not_pay() -> None:
    """It lies across leaves, with less of the bandwidth than two nodes may have, and is as fast within one."""
    snapshot = halves()
    entry = TableEntry(gpu_type=snapshot.cluster.nodes[0].gpu_type, num_gpus=4, value=1.0)
    stays = replace(
        snapshot.jobs[0],
        current=(*whole("l0n0"), *whole("l1n0")),
        performance=ThroughputTable(entries=(entry,), batch_size=1),
        remaining_iterations=500.0,
        max_gpus=2,
        preemptible=False,
    )
    formulation, plan, objective = solved(replace(snapshot, jobs=(stays,)), HorizonParameters())
    assert formulation.instance.sia.pinned.tolist() == [0]
    assert objective == pytest.approx(500.0)
    assert formulation.violations(plan, objective) == []


def leaves(allocation: JobAllocation) -> set[str]:
    return {part.node[:2] for part in allocation.gpus}


def test_a_job_is_moved_to_keep_another_one_within_a_leaf() -> None:
    """1000 s for who stays, 10 more for who is moved; 10 s to start and 400 s within a leaf, 2,200 s across."""
    formulation, plan, objective = solved(halves(), TO_THE_END)
    given = allocations(plan)
    assert len(leaves(given["third"])) == 1
    assert {given[name].change for name in ("left", "right")} == {Change.KEPT, Change.MOVED}
    assert objective == pytest.approx((1000 + 1010 + 410) / 3)
    assert given["third"].expected_goodput == pytest.approx(4 / 2)
    assert [issue.code for issue in formulation.warnings] == []
    assert formulation.violations(plan, objective) == []


def test_nobody_is_moved_in_vain_where_that_costs_nothing() -> None:
    """A solver may take either: on four leaves two jobs of two nodes each within a leaf, and one apart."""
    snapshot = Snapshot(
        cluster=fabric(2, 2, 2, 2),
        jobs=(
            job("a", 4, 500.0, current=whole("l0n0", "l0n1"), restart_cost_s=0.0),
            job("b", 4, 500.0, current=whole("l2n0", "l2n1"), restart_cost_s=0.0),
            job("one", 2, 500.0, current=whole("l3n1"), restart_cost_s=0.0),
        ),
    )
    it = instance_of(snapshot, TO_THE_END)
    rooms, known = it.rooms, it.sia.configurations
    assert rooms is not None
    elsewhere = np.array(
        [
            np.flatnonzero((known.num_gpus == num_gpus) & (rooms.classes.rank == rank) & ~rooms.classes.stays)[0]
            for num_gpus, rank in ((4, 1), (4, 1), (2, 0))
        ]
    )
    packing = np.isin(rooms.unit, [1, 3]).astype(np.int64)
    homes = homes_of(it, elsewhere, packing)
    assert homes is not None
    assert (homes.moved, dict(homes.within)) == (frozenset(), {})
    _, plan, _ = solved(halves(cost_s=0.0), TO_THE_END)
    changes = sorted(item.change for item in plan.allocations if item.job_id != "third")
    assert changes == [Change.KEPT, Change.MOVED]


def test_without_classes_the_same_job_is_taken_to_be_as_fast_wherever_it_is() -> None:
    formulation, plan, objective = solved(halves(), FAR)
    given = allocations(plan)
    assert objective == pytest.approx((1000 + 1000 + 410) / 3)
    assert len(leaves(given["third"])) == 2
    assert given["third"].expected_goodput == pytest.approx(4 / 11)
    assert [issue.code for issue in formulation.warnings] == ["slower_where_it_is"]
    assert formulation.violations(plan, objective) == []


def test_a_job_is_spread_where_that_costs_less_than_to_move_another_one() -> None:
    """20 steps are 60 s across, and 40 within a leaf, for which somebody would lose 400 s."""
    formulation, plan, objective = solved(halves(cost_s=400.0, core=0.5, wanted=20.0), TO_THE_END)
    given = allocations(plan)
    assert {given[name].change for name in ("left", "right")} == {Change.KEPT}
    assert objective == pytest.approx((1000 + 1000 + 10 + 60) / 3)
    assert given["third"].expected_goodput == pytest.approx(4 / 3)
    assert [issue.code for issue in formulation.warnings] == []
    assert formulation.violations(plan, objective) == []


def test_who_waits_for_a_leaf_is_told() -> None:
    """Across, 20 steps take 2,020 s, within a leaf 40; in 60 s both others have ended; a fourth job has a node."""
    snapshot = halves(cost_s=400.0, work=60.0, core=0.01, wanted=20.0)
    snapshot = replace(snapshot, jobs=(*snapshot.jobs, job("fourth", 2, 60.0)))
    formulation, plan, objective = solved(snapshot, TO_THE_END)
    (waiting,) = plan.unplaced
    assert (waiting.job_id, waiting.reason) == ("third", "outcompeted")
    assert waiting.detail.startswith(
        "is planned to start in about 60 s on 4 a GPUs within one leaf; to start now on 4 a GPUs"
    )
    assert objective == pytest.approx((60 + 60 + 70 + 60 + 10 + 40) / 4)
    assert formulation.violations(plan, objective) == []


@pytest.mark.parametrize("seed", range(4))
def test_where_all_nodes_have_the_same_bandwidth_there_are_no_classes(seed: int) -> None:
    """Nor where no job is faster for it: those of tables."""
    rng = dice(seed)
    snapshot, parameters = tiered_snapshot(rng), random_parameters(rng)
    tiers = tuple(replace(tier, bandwidth_fraction=0.5) for tier in snapshot.cluster.tiers)
    flat = replace(snapshot, cluster=replace(snapshot.cluster, tiers=tiers, core_bandwidth_fraction=0.5))
    tables = timed_snapshot(rng)
    nodes = tuple(replace(node, path=(f"l{k // 2}",)) for k, node in enumerate(tables.cluster.nodes))
    tables = replace(tables, cluster=replace(fabric(1, core=0.5), gpu_types=tables.cluster.gpu_types, nodes=nodes))
    for some in (flat, tables):
        known, without = (instance_of(some, replace(parameters, placement_classes=asked)) for asked in (True, False))
        assert known.rooms is None
        np.testing.assert_array_equal(known.cost, without.cost)
        np.testing.assert_array_equal(known.schedules.use.toarray(), without.schedules.use.toarray())
        np.testing.assert_array_equal(known.pair_configurations, without.pair_configurations)
        np.testing.assert_array_equal(
            known.sia.configurations.bandwidth_fraction, without.sia.configurations.bandwidth_fraction
        )
    assert instance_of(snapshot, parameters).rooms is not None


@settings(max_examples=15, deadline=None)
@given(seed=SEEDS)
def test_plans_are_checked_and_as_good_as_the_whole_program(seed: int) -> None:
    rng = dice(seed)
    snapshot, parameters = tiered_snapshot(rng), random_parameters(rng)
    result, _ = planned(snapshot, parameters)
    whole_program, _ = planned(snapshot, parameters, "highs")
    assert result.termination is whole_program.termination
    if whole_program.objective is not None:
        assert result.objective == pytest.approx(whole_program.objective, rel=1e-6)
        assert result.bound == pytest.approx(whole_program.objective, rel=1e-6)


@settings(max_examples=10, deadline=None)
@given(seed=SEEDS)
def test_the_optimum_equals_trying_everything(seed: int) -> None:
    """All choices that any placement of the jobs on nodes allows, with the room that is left later."""
    rng = dice(seed)
    # How long jobs take on shares of a cluster, and all together, is another test's.
    by = replace(random_parameters(rng), fairness=0.0, backlog_efficiency=None, arrivals_per_h=0.0)
    snapshot = tiered_snapshot(rng, num_jobs=3)
    it = instance_of(snapshot, by)
    options = [
        [*it.sia.utility.offered[i].nonzero()[0].tolist(), *([] if it.jobs[i].reservation is not None else [-1])]
        for i in it.sia.planned.tolist()
    ]
    rooms = _later_rooms(it)
    choices = (dict(zip(it.sia.planned.tolist(), choice, strict=True)) for choice in product(*options))
    best = min((best_shares(it, choice, rooms) for choice in choices if _can_be_placed(it, choice)), default=math.inf)
    result, _ = planned(snapshot, by)
    if math.isinf(best):
        assert result.objective is None
        return
    assert result.objective == pytest.approx(it.offset + best, rel=1e-6, abs=1e-6)


def _later_rooms(it: HorizonInstance) -> list[tuple[list[int], int]]:
    """What configurations take of units later, and what there is, as the check has it."""
    known, nodes = it.sia.configurations, it.sia.snapshot.cluster.nodes
    whole_nodes = {
        node.id for node, mask in zip(nodes, it.sia.taken.free_masks, strict=True) if mask.bit_count() == node.num_gpus
    }
    shapes = [
        (known.gpu_types[t], n, m, share)
        for t, n, m, share in zip(
            known.type_index.tolist(),
            known.num_nodes.tolist(),
            known.num_gpus.tolist(),
            known.bandwidth_fraction.tolist(),
            strict=True,
        )
    ]
    audit = UnitAudit(it.sia.snapshot.cluster, whole_nodes, shapes)
    return [
        ([n // k if n > 1 and share >= least else 0 for _, n, _, share in shapes], limit)
        for _, least, k, limit in audit.limits()
    ]


def elastic(*leaves: int, leaves_of_pod: int = 2) -> Snapshot:
    """Two jobs on one to all nodes, of which one runs on two nodes."""
    fabric_ = fabric(*leaves, core=0.1, leaves_of_pod=leaves_of_pod)
    most = 2 * sum(leaves)
    runs = replace(job("runs", 2, 500.0), max_gpus=most, performance=synchronised(2, most))
    return Snapshot(
        cluster=fabric_, jobs=(replace(runs, current=whole("l0n0", "l0n1")), replace(runs, id="waits", current=None))
    )


@pytest.mark.parametrize("leaves", [(8, 8, 7, 5), (4, 3, 7, 6), (9, 9, 9)])
def test_rows_of_rooms_that_are_left_out_follow_from_others(leaves: Sequence[int]) -> None:
    """The check has all of them: with those of the program no shares take more than there is of any."""
    it = instance_of(elastic(*leaves), TO_THE_END)
    assert it.rooms is not None
    kept = it.rooms.later
    every = _later_rooms(it)
    assert 0 < len(kept.names) < len(every)
    of_kept = {(*takes, limit) for takes, limit in zip(kept.coefficients.tolist(), kept.limits.tolist(), strict=True)}
    assert of_kept <= {(*takes, limit) for takes, limit in every}
    for takes, limit in every:
        most = linprog(-np.array(takes), kept.coefficients, kept.limits)
        assert most.fun is not None
        assert -most.fun <= limit + 1e-6


def test_what_schedules_take_of_rooms_is_what_they_have_in_every_interval() -> None:
    it = instance_of(elastic(4, 3, 4, 2), TO_THE_END)
    assert it.rooms is not None
    known, found, bounds_s = it.sia.configurations, it.schedules, it.intervals.bounds_s
    takes = np.concatenate([[known.num_gpus], it.rooms.later.coefficients])
    expected = np.zeros((len(takes), it.intervals.num - 1, len(found)))
    for s, (now, later, at, ends_s) in enumerate(zip(found.now, found.later, found.at, found.ends_s, strict=True)):
        changes_s = bounds_s[at] if at else ends_s
        for held, from_s, to_s in ((now, 0.0, changes_s), (later, changes_s, ends_s)):
            if held >= 0:
                for k in range(1, it.intervals.num):
                    within_s = min(to_s, bounds_s[k + 1]) - max(from_s, bounds_s[k])
                    expected[:, k - 1, s] += takes[:, held] * max(0.0, within_s) / it.intervals.lengths_s[k]
    np.testing.assert_allclose(found.use.toarray(), expected.reshape(-1, len(found)), atol=1e-9)


def _can_be_placed(it: HorizonInstance, choice: Mapping[int, int]) -> bool:
    """Whether there are nodes for all: whole nodes with the share of the class for each, tried one after the other."""
    known, nodes = it.sia.configurations, it.sia.snapshot.cluster.nodes
    takes_whole, size = takes_whole_nodes(known), int(whole_node_sizes(known)[0])
    free = {node.id: mask.bit_count() for node, mask in zip(nodes, it.sia.taken.free_masks, strict=True)}
    spread = SpreadAudit(it.sia.snapshot.cluster)
    items: list[tuple[int, float]] = []
    partial: list[int] = []
    for i, c in choice.items():
        if c < 0:
            continue
        if it.rooms is not None and it.rooms.classes.stays[c]:
            for part in it.jobs[i].current or ():
                free[part.node] = 0
        elif takes_whole[c]:
            # One node has all that it needs.
            num_nodes = int(known.num_nodes[c])
            items.append((num_nodes, float(known.bandwidth_fraction[c]) if num_nodes > 1 else 0.0))
        else:
            partial.append(int(known.num_gpus[c]))

    def placed(left: Sequence[tuple[int, float]], free: Mapping[str, int]) -> Iterator[Mapping[str, int]]:
        if not left:
            yield free
            return
        num_nodes, share = left[0]
        for names in combinations([name for name, gpus in free.items() if gpus == size], num_nodes):
            if spread.of(names) >= share:
                yield from placed(left[1:], {**free, **dict.fromkeys(names, 0)})

    sizes = [node.num_gpus for node in nodes]
    return any(
        packable(sizes, [*after.values()], size, sorted(partial, reverse=True), 0) for after in placed(items, free)
    )


def test_the_check_finds_jobs_outside_their_class_and_units_that_are_overfull() -> None:
    formulation, plan, objective = solved(halves(), TO_THE_END)
    given = allocations(plan)
    moved = next(name for name in ("left", "right") if given[name].change is Change.MOVED)
    kept = "left" if moved == "right" else "right"

    def codes(plan: Plan = plan, outlook: Outlook = formulation.outlook) -> set[str]:
        return {issue.code for issue in _violations(formulation, plan, outlook, objective)}

    def exchanged(one: str, other: str) -> Plan:
        gpus = {one: given[other].gpus, other: given[one].gpus}
        swap = [replace(item, gpus=gpus.get(item.job_id, item.gpus)) for item in plan.allocations]
        return replace(plan, allocations=tuple(swap))

    assert codes() == set()
    assert codes(plan=exchanged(moved, kept)) == {"moved_unplanned"}
    apart = (given[moved].gpus[0], given["third"].gpus[0])
    spread = [replace(item, gpus=apart) if item.job_id == "third" else item for item in plan.allocations]
    assert codes(plan=replace(plan, allocations=tuple(spread))) == {"outside_its_class"}
    (first, *_) = formulation.outlook.planned[moved]
    stays = {**formulation.outlook.planned, moved: (replace(first, moves=False),)}
    # Who stays pays nothing, and is where it was.
    assert codes(outlook=replace(formulation.outlook, planned=stays)) >= {"moved_unplanned", "wrong_score"}


def test_the_check_finds_too_many_jobs_within_units_later() -> None:
    """Leaves of three nodes: each has room for one job of two nodes, though the nodes of a third would do."""
    waiting = tuple(job(f"w{k}", 4, 200.0) for k in range(3))
    snapshot = Snapshot(cluster=fabric(3, 3, core=0.02), jobs=waiting)
    formulation, plan, objective = solved(snapshot, TO_THE_END)
    (late,) = (name for name, items in formulation.outlook.planned.items() if items[0].change_s is not None)
    (item,) = formulation.outlook.planned[late]
    assert item.later == ("a", 2, 4, 1.0)
    assert item.change_s == pytest.approx(formulation.outlook.bounds_s[2])
    sooner = {**formulation.outlook.planned, late: (replace(item, change_s=formulation.outlook.bounds_s[1]),)}
    found = _violations(formulation, plan, replace(formulation.outlook, planned=sooner), objective)
    assert "over_rooms_later" in {issue.code for issue in found}
    assert "over_capacity_later" not in {issue.code for issue in found}


def _violations(formulation: HorizonFormulation, plan: Plan, outlook: Outlook, objective: float) -> list[Issue]:
    it, base = formulation.instance, formulation.instance.sia
    return horizon_violations(base.snapshot, it.parameters, base.configurations, base.matrix, plan, outlook, objective)
