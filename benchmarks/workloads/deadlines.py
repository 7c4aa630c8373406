"""Elastic jobs with deadlines on one GPU type, half of the nodes busy. Same seed, same input.

Cluster    nodes of 8 A100.
Jobs       one for every 4 GPUs. Samples/s on 1 to 32 GPUs grow by 1.4 to 2 at the first doubling, by less at each more.
Work       exponential, mean 4 h on one GPU.
Deadlines  three quarters of the jobs: tightness uniform from 0.5 to 1.5 (ElasticFlow), of the time on 2 GPUs.
Running    jobs have 4 GPUs each, two to a node, on half of the nodes.
"""

import random

from models.performance.goodput.spec import TableEntry, ThroughputTable
from models.workload import Job, NodeGpus, Snapshot
from topology.cluster import Cluster, Node
from topology.gpu_catalogue import find_product, gpu_type_of

_GPUS_PER_NODE = 8
_MEAN_S = 4 * 3600.0
_BATCH = 32


def deadlines_snapshot(num_gpus: int, seed: int) -> Snapshot:
    """A cluster of so many GPUs and its jobs."""
    rng = random.Random(seed)  # noqa: S311 - reproducible, no secret
    kind = gpu_type_of(find_product("a100-80gb"), "bf16")
    num_nodes = num_gpus // _GPUS_PER_NODE
    nodes = tuple(Node(id=f"n{k:05}", gpu_type=kind.name, num_gpus=_GPUS_PER_NODE) for k in range(num_nodes))
    jobs = tuple(_job(rng, k, kind.name, nodes) for k in range(num_gpus // 4))
    return Snapshot(cluster=Cluster(gpu_types=(kind,), nodes=nodes), jobs=jobs)


def _job(rng: random.Random, k: int, kind: str, nodes: tuple[Node, ...]) -> Job:
    speeds, growth = [rng.uniform(1, 100)], rng.uniform(1.4, 2.0)
    while len(speeds) < 6:
        speeds.append(speeds[-1] * growth)
        growth = 1 + (growth - 1) * rng.uniform(0.7, 1.0)
    entries = [TableEntry(gpu_type=kind, num_gpus=2**n, value=speed) for n, speed in enumerate(speeds)]
    alone_s = rng.expovariate(1 / _MEAN_S) + 60.0
    due_s = rng.uniform(0.5, 1.5) * alone_s * speeds[0] / speeds[1]
    runs = k < len(nodes)
    first = 4 * (k % 2)
    return Job(
        id=f"j{k}",
        performance=ThroughputTable(entries=tuple(entries), batch_size=_BATCH),
        remaining_iterations=alone_s * speeds[0] / _BATCH,
        deadline_s=due_s if rng.random() < 0.75 else None,
        restart_cost_s=30.0,
        current=(NodeGpus(node=nodes[k // 2].id, gpus=tuple(range(first, first + 4))),) if runs else None,
        attained_gpu_s=3600.0 if runs else 0.0,
    )
