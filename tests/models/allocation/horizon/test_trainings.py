"""Jobs with models in placement classes: a plan is made for the bandwidth of its class, and told as fast as it is where
its nodes are, which may have more between them."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from random import Random

import numpy as np
import pytest

from models.allocation.horizon.homes import homes_of
from models.allocation.horizon.parameters import HorizonParameters
from models.allocation.parallel_plan_check import parallel_plan_violations
from models.allocation.sia.extraction import extract_plan
from models.performance.iteration.modelling import performance_model
from models.plan import Change, JobAllocation, Plan, PlanRequest
from models.planning import plan
from models.transformer import Transformer
from models.workload import Job, Snapshot
from solver.options import SolveOptions
from tests.models.allocation.horizon.scenes import instance_of
from tests.models.placement.scenes import dice
from topology.cluster import Cluster, GpuType, Node, NodeState, Tier

KIND = GpuType(
    name="gpu",
    memory_bytes=80 * 10**9,
    peak_flops_per_s=989.5e12,
    intra_node_bandwidth_bytes_per_s=450e9,
    inter_node_bandwidth_bytes_per_s=25e9,
)
SMALL = Transformer(
    num_layers=24, hidden_size=2048, num_heads=16, vocabulary_size=51200, sequence_length=1024, global_batch=64
)
LARGE = replace(SMALL, num_layers=32, hidden_size=4096, num_heads=32, global_batch=256)
PARAMETERS = HorizonParameters()


def racks(*sizes: int, core: float = 0.25) -> Cluster:
    """Racks of nodes of 8 GPUs: r0n0, r0n1, ..."""
    nodes = tuple(
        Node(id=f"r{k}n{i}", gpu_type="gpu", num_gpus=8, path=(f"r{k}",))
        for k, size in enumerate(sizes)
        for i in range(size)
    )
    return Cluster(gpu_types=(KIND,), nodes=nodes, tiers=(Tier(name="rack"),), core_bandwidth_fraction=core)


def extracted(snapshot: Snapshot, *, rank: int) -> tuple[Plan, JobAllocation]:
    """The only job on two nodes: within one rack, or with `rank` 0 anywhere."""
    it = instance_of(snapshot, PARAMETERS)
    assert it.rooms is not None
    classes = it.rooms.classes
    (c,) = np.flatnonzero((it.sia.configurations.num_nodes == 2) & (classes.rank == rank) & ~classes.stays)
    chosen = np.array([c])
    packing = ((it.rooms.configuration == c) & (np.cumsum(it.rooms.configuration == c) == 1)).astype(np.int64)
    found = extract_plan(it.sia, chosen, homes_of(it, chosen, packing))
    return found, found.allocations[0]


@pytest.mark.parametrize("rank", [0, 1])
def test_a_plan_made_for_less_bandwidth_is_told_as_fast_as_where_it_is(rank: int) -> None:
    """Whole nodes of one rack are free: so is what may lie anywhere, planned for a quarter of the bandwidth."""
    made = racks(2, 2)
    nodes = tuple(replace(node, gpus_in_use=(0,)) if node.id == "r1n0" else node for node in made.nodes)
    snapshot = Snapshot(cluster=replace(made, nodes=nodes), jobs=(Job(id="j", transformer=LARGE, min_gpus=16),))
    found, got = extracted(snapshot, rank=rank)
    assert {part.node for part in got.gpus} == {"r0n0", "r0n1"}
    assert got.parallel_plan is not None
    speed = performance_model(LARGE, snapshot.cluster).throughput(got.parallel_plan)
    assert got.expected_goodput == pytest.approx(speed, rel=1e-9)
    assert parallel_plan_violations(snapshot, found) == []


def test_who_stays_although_chosen_in_another_class_is_told_as_fast_as_it_runs() -> None:
    """Two nodes anywhere are chosen for a job that runs within a rack, whose restarts cost nothing: it is not moved and
    keeps its plan, which is faster than the one for a quarter of the bandwidth."""
    job = Job(id="j", transformer=LARGE, min_gpus=16, max_gpus=16)
    snapshot = Snapshot(cluster=racks(2, 2), jobs=(job,))
    runs = extracted(snapshot, rank=1)[1]
    running = replace(job, current=runs.gpus, parallel_plan=runs.parallel_plan)
    got = extracted(replace(snapshot, jobs=(running,)), rank=0)[1]
    assert got.change is Change.KEPT
    assert got.parallel_plan == runs.parallel_plan
    assert got.expected_goodput == runs.expected_goodput


def uneven(rng: Random) -> Cluster:
    """1,024 GPUs in racks of 1 to 16 nodes below pods of up to four, a few nodes smaller, in use in part, or down."""
    nodes: list[Node] = []
    rack = 0
    while len(nodes) < 128:
        path = f"p{rack // rng.choice((2, 4))}", f"r{rack}"
        for _ in range(min(rng.randint(1, 16), 128 - len(nodes))):
            node = Node(id=f"n{len(nodes):03}", gpu_type="gpu", num_gpus=8, path=path)
            chance = rng.random()
            if chance < 0.05:
                node = replace(node, num_gpus=4)
            elif chance < 0.1:
                node = replace(node, gpus_in_use=(0, 3))
            elif chance < 0.15:
                node = replace(node, state=NodeState.DOWN)
            nodes.append(node)
        rack += 1
    pod, core = rng.choice(((1.0, 0.25), (0.5, 0.25), (0.5, 0.5)))
    tiers = Tier(name="pod", bandwidth_fraction=pod), Tier(name="rack")
    return Cluster(
        gpu_types=(KIND,),
        nodes=tuple(nodes),
        tiers=tiers,
        core_bandwidth_fraction=core,
        minipod_tier=rng.choice((None, "pod")),
    )


def going_on(rng: Random, snapshot: Snapshot, given: Mapping[str, JobAllocation]) -> Snapshot:
    """Some time later: a part of the jobs has ended, the others run as was planned, and work is left of them."""
    jobs: Sequence[Job] = [
        replace(
            job,
            current=given[job.id].gpus if job.id in given else None,
            parallel_plan=given[job.id].parallel_plan if job.id in given else None,
            remaining_iterations=rng.choice((50.0, 1e3, 1e5)),
            age_s=job.age_s + 600.0,
        )
        for job in snapshot.jobs
        if rng.random() < 0.8
    ]
    return replace(snapshot, jobs=tuple(jobs))


@pytest.mark.parametrize("seed", range(4))
def test_plans_on_uneven_nodes_are_as_fast_as_is_told_round_after_round(seed: int) -> None:
    """All plans are checked; what stays is as fast as it runs, which the check takes as given."""
    rng = dice(seed)
    jobs = tuple(
        Job(
            id=f"j{k}",
            transformer=rng.choice((SMALL, LARGE)),
            max_gpus=rng.choice((16, 128, 256)),
            remaining_iterations=rng.choice((50.0, 1e3, 1e5)),
            restart_cost_s=rng.choice((0.0, 30.0)),
        )
        for k in range(24)
    )
    snapshot = Snapshot(cluster=uneven(rng), jobs=jobs)
    options, changes = SolveOptions(solver="decomposition", relative_gap=0.01), set()
    for _ in range(4):
        outcome = plan(PlanRequest(snapshot=snapshot, parameters=PARAMETERS, options=options))
        assert outcome.plan is not None
        given = {item.job_id: item for item in outcome.plan.allocations}
        model_of = {
            job.id: performance_model(job.transformer, snapshot.cluster) for job in snapshot.jobs if job.transformer
        }
        for item in given.values():
            assert item.parallel_plan is not None
            changes.add(item.change)
            speed = model_of[item.job_id].throughput(item.parallel_plan)
            assert item.expected_goodput == pytest.approx(speed, rel=1e-9)
        snapshot = going_on(rng, snapshot, given)
    assert changes >= {Change.STARTED, Change.KEPT, Change.RESCALED}
