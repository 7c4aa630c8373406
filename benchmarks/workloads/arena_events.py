"""Events for Arena: moments of the Philly trace and made-up ones; jobs that came first run where `arena` put them."""

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from benchmarks.workloads.published.arena import ROUND_S, active_jobs, simulated_cluster
from models.allocation.arena.parameters import ArenaAnswer, ArenaObjective, ArenaParameters
from models.performance.goodput.spec import TableEntry, ThroughputTable
from models.plan import PlanRequest
from models.planning import plan
from models.workload import Job, NodeGpus, Snapshot
from topology.cluster import Cluster

# A burst of submissions, the round of the published comparison, and the most active jobs.
PHILLY_ROUNDS = (670, 1673, 1926)
# What the heuristic finds is compared with what the integer program does.
ALGORITHM_1 = ArenaParameters(answer=ArenaAnswer.ALGORITHM)
OBJECTIVES: Mapping[str, ArenaParameters] = {
    "throughput, normalised": ALGORITHM_1,
    "throughput, samples/s": replace(ALGORITHM_1, normalise=False),
    "deadlines": replace(ALGORITHM_1, objective=ArenaObjective.DEADLINES),
    "finish-time fairness": replace(ALGORITHM_1, objective=ArenaObjective.FINISH_TIME_FAIRNESS),
}
_FIRST_EVENT_S = 3600.0
# Nodes and speed of each type in a generated cluster, whose nodes are those of the published one.
_GENERATED = {"a100": (8, 1.0), "v100": (2, 0.5), "a40": (16, 0.45), "a10": (16, 0.35)}


def philly_event(round_number: int) -> Snapshot:
    """A moment of the Philly trace on the 1,280-GPU cluster; needs the published data."""
    return _second_event(simulated_cluster(), active_jobs("philly", round_number * ROUND_S), _is_early)


def generated_event(load: float, seed: int, copies: int = 1) -> Snapshot:
    """Jobs that together request `load` times the GPUs of a cluster of `copies` times 128; the first half runs."""
    rng = random.Random(seed)  # noqa: S311 - reproducible instances, no secret
    published = simulated_cluster()
    nodes = [
        node if copy == 0 else replace(node, id=f"{node.id}-{copy}")
        for name, (num_nodes, _) in _GENERATED.items()
        for node in [node for node in published.nodes if node.gpu_type == name][:num_nodes]
        for copy in range(copies)
    ]
    cluster = replace(published, nodes=tuple(nodes))
    jobs: list[Job] = []
    requested = 0
    while requested < load * cluster.num_gpus:
        num_gpus = rng.choices((1, 2, 4, 8, 16), weights=(5, 15, 37, 33, 10))[0]
        requested += num_gpus
        jobs.append(_generated_job(rng, len(jobs), num_gpus))
    half = {job.id for job in jobs[: len(jobs) // 2]}
    return _second_event(cluster, jobs, lambda job: job.id in half)


def _generated_job(rng: random.Random, number: int, num_gpus: int) -> Job:
    speed, exponent, smallest = rng.uniform(1, 50), rng.uniform(0.5, 1.0), rng.choice((1, 1, 2, 4))
    entries = tuple(
        TableEntry(gpu_type=name, num_gpus=n, value=speed * factor * rng.uniform(0.8, 1.2) * n**exponent)
        for name, (_, factor) in _GENERATED.items()
        for n in (1, 2, 4, 8, 16, 32)
        if n >= smallest
    )
    return Job(
        id=f"j{number:03}",
        min_gpus=max(1, num_gpus // 2),
        max_gpus=2 * num_gpus,
        performance=ThroughputTable(entries=entries, batch_size=256),
        age_s=rng.uniform(0.0, 7200.0),
        restart_cost_s=rng.uniform(60.0, 300.0),
        priority=rng.randint(1, 3),
        remaining_iterations=rng.uniform(50, 5000),
        deadline_s=rng.uniform(1e3, 1e5),
    )


def _is_early(job: Job) -> bool:
    return job.age_s > _FIRST_EVENT_S


def _second_event(cluster: Cluster, jobs: Sequence[Job], first: Callable[[Job], bool]) -> Snapshot:
    """The snapshot in which the jobs that came first run where `arena` put them on the empty cluster."""
    early = tuple(replace(job, age_s=max(0.0, job.age_s - _FIRST_EVENT_S)) for job in jobs if first(job))
    outcome = plan(PlanRequest(snapshot=Snapshot(cluster=cluster, jobs=early), parameters=ALGORITHM_1))
    where: dict[str, tuple[NodeGpus, ...]] = {}
    if outcome.plan is not None:
        where = {item.job_id: item.gpus for item in outcome.plan.allocations}
    return Snapshot(cluster=cluster, jobs=tuple(replace(job, current=where.get(job.id)) for job in jobs))
