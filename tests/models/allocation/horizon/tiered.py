"""Small clusters of two tiers, and jobs whose speed goes with the bandwidth between their nodes.

A step of a job on several nodes takes 1 s, and 1 s over the share of the bandwidth: 2 s with all of it, 11 s with a
tenth. A step is a sample per GPU.
"""

from dataclasses import replace
from random import Random

from models.performance.goodput.spec import (
    BatchRange,
    GoodputModel,
    GradientStatistics,
    ThroughputParameters,
    TypeProfile,
)
from models.workload import Job, NodeGpus, Reservation, Snapshot
from tests.models.placement.scenes import cluster, node
from topology.cluster import Cluster, Tier

STEP = ThroughputParameters(alpha_c=1.0, beta_c=0.0, alpha_r=0.0, beta_r=0.0, alpha_n=1.0, beta_n=0.0, gamma=1.0)


def fabric(*leaves: int, num_gpus: int = 2, core: float = 0.1, leaves_of_pod: int = 1) -> Cluster:
    """Nodes l0n0, l0n1, ... under leaves of so many nodes; with several leaves to a pod nodes of a pod have half of the
    bandwidth between them."""
    nodes = [
        node(
            f"l{k}n{i}",
            num_gpus,
            path=(f"p{k // leaves_of_pod}", f"l{k}") if leaves_of_pod > 1 else (f"l{k}",),
        )
        for k, size in enumerate(leaves)
        for i in range(size)
    ]
    leaf = Tier(name="leaf")
    tiers = (Tier(name="pod", bandwidth_fraction=0.5), leaf) if leaves_of_pod > 1 else (leaf,)
    flat = cluster(*nodes, tiers=tuple(tier.name for tier in tiers))
    return replace(flat, tiers=tiers, core_bandwidth_fraction=core)


def synchronised(batch: int, most: int) -> GoodputModel:
    """A fixed batch, or one that may grow, all samples of which are worth the same."""
    return GoodputModel(
        batch=BatchRange(initial=batch, maximum=most),
        gradient=GradientStatistics(squared_norm=0.0, variance=1.0),
        profiles={"a": TypeProfile(parameters=STEP, max_local_batch=1)},
    )


def job(name: str, num_gpus: int, iterations: float, **said: object) -> Job:
    """Of exactly so many GPUs, with as many samples a step."""
    made = Job(
        id=name,
        min_gpus=num_gpus,
        max_gpus=num_gpus,
        performance=synchronised(num_gpus, num_gpus),
        remaining_iterations=iterations,
        restart_cost_s=10.0,
    )
    return replace(made, **said)  # type: ignore[arg-type]  # fields of jobs


def whole(*names: str, num_gpus: int = 2) -> tuple[NodeGpus, ...]:
    return tuple(NodeGpus(node=name, gpus=tuple(range(num_gpus))) for name in names)


def tiered_snapshot(rng: Random, *, num_jobs: int = 4) -> Snapshot:
    """Four to six nodes of one or two GPUs under leaves of one to three nodes; jobs that run, wait, or reserve."""
    num_gpus = rng.choice((1, 2))
    leaves = rng.choice(((2, 2), (3, 1), (3, 2), (1, 2, 2), (2, 1, 2)))
    made = fabric(*leaves, num_gpus=num_gpus, core=rng.choice((0.1, 0.4)), leaves_of_pod=rng.choice((1, 2)))
    free = {item.id: [*range(num_gpus)] for item in made.nodes}
    jobs = []
    for k in range(num_jobs):
        least = rng.choice((1, num_gpus, 2 * num_gpus))
        most = rng.choice((least, max(least, 2 * num_gpus), 3 * num_gpus))
        current = _some_gpus(rng, free, num_gpus) if rng.random() < 0.6 else None
        made_job = Job(
            id=f"j{k}",
            min_gpus=least,
            max_gpus=max(least, most),
            performance=synchronised(least, max(least, most)),
            remaining_iterations=rng.choice((None, 20.0, 200.0, 2000.0)),
            restart_cost_s=rng.choice((0.0, 10.0, 90.0)),
            age_s=rng.choice((0.0, 600.0, 30_000.0)),
            current=current,
            preemptible=current is None or rng.random() < 0.8,
            queue=(None, "q", "r")[k % 3],
        )
        reserves = rng.random() < 0.1 and made_job.preemptible
        jobs.append(replace(made_job, reservation=Reservation(gpu_type="a", num_gpus=least)) if reserves else made_job)
    return Snapshot(cluster=made, jobs=tuple(jobs))


def _some_gpus(rng: Random, free: dict[str, list[int]], num_gpus: int) -> tuple[NodeGpus, ...] | None:
    """A GPU, or one to three whole nodes, wherever there are some."""
    whole_free = [name for name, gpus in free.items() if len(gpus) == num_gpus]
    if rng.random() < 0.3:
        open_ = [name for name, gpus in free.items() if gpus]
        if not open_:
            return None
        name = rng.choice(open_)
        return (NodeGpus(node=name, gpus=(free[name].pop(),)),)
    count = rng.choice((1, 2, 3))
    if len(whole_free) < count:
        return None
    names = sorted(rng.sample(whole_free, count))
    for name in names:
        free[name] = []
    return whole(*names, num_gpus=num_gpus)
