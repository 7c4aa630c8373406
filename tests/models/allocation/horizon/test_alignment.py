"""Nodes and rank order of 3D plans over several minipods are Arnold's."""

from collections.abc import Mapping
from dataclasses import replace
from random import Random

import numpy as np
import pytest

from models.allocation.horizon.parameters import HorizonParameters
from models.allocation.horizon.validation import policy_issues
from models.performance.goodput.spec import ThroughputTable
from models.placement.arnold.matrix import communication_matrix
from models.placement.arnold.parameters import ArnoldParameters, SchedulingUnit
from models.placement.arnold.spread import measure, units_of
from models.plan import Change, JobAllocation, PlanRequest
from models.planning import plan
from models.workload import Job, NodeGpus, Parallelism, Snapshot
from solver.options import SolveOptions
from solver.registry import EXACT
from stowplan.errors import InputError
from tests.models.allocation.horizon.test_trainings import KIND, LARGE, racks
from tests.models.placement.scenes import dice
from topology.calendar import CalendarEntry, EntryKind
from topology.cluster import Cluster, Node, Tier

OPTIONS = SolveOptions(solver="decomposition", relative_gap=0.01)


def fabric(rng: Random, *, core: float) -> Cluster:
    """Minipods of 1 to 7 nodes, some of them in use."""
    made = racks(*(rng.randint(1, 7) for _ in range(8)), core=core)
    nodes = tuple(replace(node, gpus_in_use=(0,)) if rng.random() < 0.15 else node for node in made.nodes)
    return replace(made, nodes=nodes, minipod_tier="rack")


def training(rng: Random, name: str, *sizes: int) -> Job:
    """A job of one size, with degrees."""
    size, tp, pp = rng.choice(sizes), rng.choice((4, 8)), rng.choice((1, 2, 4))
    return Job(
        id=name,
        transformer=LARGE,
        min_gpus=size,
        max_gpus=size,
        parallelism=Parallelism(tp=tp, pp=pp, dp=size // tp // pp),
        remaining_iterations=1e4,
        restart_cost_s=60.0,
    )


def allocations(snapshot: Snapshot, alpha: float | None) -> Mapping[str, JobAllocation]:
    """What jobs get; every plan is checked."""
    request = PlanRequest(snapshot=snapshot, parameters=HorizonParameters(alpha=alpha), options=OPTIONS)
    outcome = plan(request)
    assert outcome.plan is not None
    return {item.job_id: item for item in outcome.plan.allocations}


def hosts(item: JobAllocation) -> tuple[str, ...]:
    """In rank order."""
    return tuple(dict.fromkeys(node for node, _ in item.rank_gpus))


def degrees(job: Job) -> Parallelism:
    """Those that it says."""
    assert job.parallelism is not None
    return job.parallelism


def speed(item: JobAllocation) -> float:
    """Samples per second."""
    assert item.expected_goodput is not None
    return item.expected_goodput


def eq4(snapshot: Snapshot, job: Job, item: JobAllocation, alpha: float) -> float:
    """The objective of Arnold."""
    matrix = communication_matrix(degrees(job), 8)
    cells = np.array(hosts(item)).reshape(matrix.num_columns, matrix.num_rows).T.tolist()
    return measure(units_of(snapshot, cells, 0)).objective_eq4(alpha, SchedulingUnit.PP)


@pytest.mark.parametrize("alpha", [0.0, 0.3, 1.0])
@pytest.mark.parametrize("core", [0.25, 1.0])
def test_one_big_job_is_placed_as_by_arnold(alpha: float, core: float) -> None:
    """Node by node in rank order wherever it needs several minipods, else within one, which is as good."""
    apart = 0
    for seed in range(12):
        rng = dice(seed)
        job = training(rng, "j", 32, 64, 128)
        snapshot = Snapshot(cluster=fabric(rng, core=core), jobs=(job,))
        request = PlanRequest(
            snapshot=snapshot, parameters=ArnoldParameters(alpha=alpha), options=SolveOptions(solver=EXACT)
        )
        outcome = plan(request)
        got = allocations(snapshot, alpha).get("j")
        if outcome.plan is None:
            assert got is None
            continue
        right = outcome.plan.pretraining
        assert right is not None
        assert got is not None
        assert eq4(snapshot, job, got, alpha) == pytest.approx(right.objective_eq4, abs=1e-9)
        if right.num_minipods_used > 1:
            apart += 1
            assert hosts(got) == right.hosts
    assert apart >= 6


@pytest.mark.parametrize("seed", range(6))
def test_beside_others_the_largest_is_spread_no_further_and_who_stays_stays(seed: int) -> None:
    """Everybody gets as much as without; in the next round all keep their ranks and nodes."""
    rng = dice(seed)
    jobs = {f"j{k}": training(rng, f"j{k}", 32, 64) for k in range(4)}
    snapshot = Snapshot(cluster=fabric(rng, core=1.0), jobs=tuple(jobs.values()))
    before, now = allocations(snapshot, None), allocations(snapshot, 0.3)
    assert len(now) > 1
    assert {name: item.num_gpus for name, item in before.items()} == {name: it.num_gpus for name, it in now.items()}
    largest = max(now, key=lambda name: now[name].num_gpus)
    job = jobs[largest]
    assert eq4(snapshot, job, now[largest], 0.3) <= eq4(snapshot, job, before[largest], 0.3) + 1e-9
    running = [replace(jobs[name], current=it.gpus, parallel_plan=it.parallel_plan) for name, it in now.items()]
    later = allocations(replace(snapshot, jobs=tuple(running)), 0.3)
    assert {item.change for item in later.values()} == {Change.KEPT}
    assert all(later[name].parallel_plan == item.parallel_plan for name, item in now.items())


def test_a_running_job_that_does_not_say_its_ranks_is_warned_of() -> None:
    """Without its plan it stays where it is, in the order of the plan that is made for it there; said once."""
    job = replace(training(dice(2), "j", 64), parallelism=Parallelism(tp=8, pp=2, dp=4))
    snapshot = Snapshot(cluster=replace(racks(4, 2, 4), minipod_tier="rack"), jobs=(job,))
    first = allocations(snapshot, 0.3)["j"]
    silent = replace(job, current=first.gpus)

    def warned(*jobs: Job) -> list[tuple[str, str]]:
        told = policy_issues(replace(snapshot, jobs=jobs), HorizonParameters(alpha=0.3))
        return [(issue.pointer, issue.detail) for issue in told if issue.code == "ranks_unknown"]

    kept = allocations(replace(snapshot, jobs=(silent,)), 0.3)["j"]
    assert (kept.change, kept.gpus) == (Change.KEPT, first.gpus)
    assert hosts(kept) != hosts(first)
    other = Job(id="k", transformer=LARGE, current=(NodeGpus(node="r1n0", gpus=(0, 1)),))
    ((pointer, detail),) = warned(replace(job, id="w"), silent, other)
    assert pointer == "/jobs/1/parallel_plan"
    assert "is not known of 2 running jobs" in detail
    assert "give the plan that they run back as parallel_plan" in detail
    # Waiting, told, on one GPU, with a performance of its own: nothing can be exchanged unseen.
    told = replace(silent, parallel_plan=first.parallel_plan)
    alone = replace(other, current=(NodeGpus(node="r1n0", gpus=(0,)),))
    measured = replace(other, performance=ThroughputTable(entries=()))
    assert not warned(replace(job, id="w"), told, alone)
    assert not warned(measured)


def test_an_affinity_out_of_range_and_a_cluster_without_minipods_are_refused() -> None:
    """What, where, and what would be right."""
    with pytest.raises(InputError, match=r"alpha is 1.5; must lie in \[0, 1\]"):
        HorizonParameters(alpha=1.5)
    snapshot = Snapshot(cluster=racks(2, 2), jobs=(Job(id="j", transformer=LARGE, remaining_iterations=1.0),))
    (issue,) = policy_issues(snapshot, HorizonParameters(alpha=0.3))
    assert (issue.code, issue.pointer) == ("no_minipod_tier", "/cluster/minipod_tier")
    assert issue.detail.endswith("name the one of the tiers ['rack'] that these are, or leave alpha out")
    nodes = tuple(replace(node, path=()) for node in snapshot.cluster.nodes)
    flat = replace(snapshot, cluster=replace(snapshot.cluster, tiers=(), nodes=nodes))
    (issue,) = policy_issues(flat, HorizonParameters(alpha=0.3))
    assert issue.detail.endswith("the cluster has no tiers: give tiers and paths, or leave alpha out")


def test_a_job_stays_in_the_zone_that_its_class_promises() -> None:
    """Four minipods of one node are a zone with half the bandwidth; fewer minipods lie in two zones with a tenth."""
    zones = {"z0": (1, 1, 1, 1), "z1": (3,), "z2": (3,)}
    nodes = tuple(
        Node(id=f"{zone}p{k}n{i}", gpu_type="gpu", num_gpus=8, path=(zone, f"{zone}p{k}"))
        for zone, sizes in zones.items()
        for k, size in enumerate(sizes)
        for i in range(size)
    )
    cluster = Cluster(
        gpu_types=(KIND,),
        nodes=nodes,
        tiers=(Tier(name="zone", bandwidth_fraction=0.5), Tier(name="pod")),
        core_bandwidth_fraction=0.1,
        minipod_tier="pod",
    )
    snapshot = Snapshot(cluster=cluster, jobs=(training(dice(0), "j", 32),))
    assert {name[:2] for name in hosts(allocations(snapshot, 0.0)["j"])} == {"z0"}


def test_nodes_of_another_size_are_not_taken() -> None:
    """Most nodes have four GPUs, which the job, on whole nodes of eight, does not lie on."""
    made = racks(2, 2, 2, 5, 5, 5, core=1.0)
    nodes = tuple(replace(node, num_gpus=4) if node.path[0] in ("r3", "r4", "r5") else node for node in made.nodes)
    job = training(dice(0), "j", 32)
    snapshot = Snapshot(cluster=replace(made, nodes=nodes, minipod_tier="rack"), jobs=(job,))
    got = allocations(snapshot, 0.3)["j"]
    assert {name[:2] for name in hosts(got)} <= {"r0", "r1", "r2"}
    assert eq4(snapshot, job, got, 0.3) == pytest.approx(0.3 * 2 + 0.7 * (1 if degrees(job).pp <= 2 else 2))


def test_who_is_slower_for_it_is_told() -> None:
    """By the model; the affinity is the user's."""
    told = 0
    for seed in range(30):
        rng = dice(seed)
        jobs = tuple(training(rng, f"j{k}", 32, 64) for k in range(3))
        snapshot = Snapshot(cluster=fabric(rng, core=0.25), jobs=jobs)
        before = allocations(snapshot, None)
        outcome = plan(PlanRequest(snapshot=snapshot, parameters=HorizonParameters(alpha=1.0), options=OPTIONS))
        assert outcome.plan is not None
        ratio = {it.job_id: speed(it) / speed(before[it.job_id]) for it in outcome.plan.allocations}
        (*said,) = [issue.detail for issue in outcome.warnings if issue.code == "aligned_slower"]
        assert bool(said) == (min(ratio.values()) < 0.99)
        told += len(said)
    assert told


def test_nodes_that_the_calendar_keeps_are_not_had() -> None:
    """Two minipods do; half of another one is maintained from now on."""
    job = training(dice(1), "j", 64)
    snapshot = Snapshot(cluster=replace(racks(4, 4, 4, 4), minipod_tier="rack"), jobs=(job,))
    closed = CalendarEntry(name="m", kind=EntryKind.MAINTENANCE, from_s=0.0, until_s=1e5, nodes=("r0n0", "r0n1"))
    got = allocations(replace(snapshot, calendar=(closed,)), 0.3)["j"]
    assert not {"r0n0", "r0n1"} & set(hosts(got))
    assert eq4(snapshot, job, got, 0.3) == eq4(snapshot, job, allocations(snapshot, 0.3)["j"], 0.3)


def test_who_is_not_reached_in_time_stays_where_the_plan_has_it_and_that_is_said(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One job over several minipods, and no time."""
    job = training(dice(1), "j", 128)
    snapshot = Snapshot(cluster=replace(racks(*[5] * 4), minipod_tier="rack"), jobs=(job,))
    before = allocations(snapshot, None)
    monkeypatch.setattr("models.allocation.horizon.alignment._LIMIT_S", 0.0)
    outcome = plan(PlanRequest(snapshot=snapshot, parameters=HorizonParameters(alpha=0.3), options=OPTIONS))
    assert outcome.plan is not None
    assert outcome.plan.allocations == (before["j"],)
    (warning,) = [issue for issue in outcome.warnings if issue.code == "not_aligned"]
    assert "there was no time to lay out 1 job by it, 'j' among them" in warning.detail
