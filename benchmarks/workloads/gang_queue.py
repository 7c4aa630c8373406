"""Queues of jobs of which only the size is known, in front of a busy cluster. Same seed, same input.

Cluster    nodes of 8 H100, leaves of 16 nodes, pods of 16 leaves.
Sizes      1, 2, 4, 8, 16, 32, 64 and 128 GPUs with shares 30, 12, 12, 20, 12, 8, 4 and 2, up to a quarter of the
           cluster; of those below 8 and of 8 and 16, one in ten is 3, 6, or 12 GPUs instead.
Times      remaining seconds exponential, mean 2 h, of running and waiting jobs alike; age the same.
Running    jobs take nodes in the order of the cluster until 90 % of the nodes hold one; the rest of a node that a job
           does not fill is left to the next one that fits with probability 0.7, so that free GPUs lie scattered.
Queues     eight, equally many jobs each; priorities 1 to 3.
"""

import random
from collections.abc import Iterator, Sequence

from models.workload import Job, NodeGpus, Snapshot
from topology.cluster import Cluster, Node, Tier
from topology.gpu_catalogue import find_product, gpu_type_of

NUM_QUEUES = 8
_GPUS_PER_NODE = 8
_SHARES = {1: 30, 2: 12, 4: 12, 8: 20, 16: 12, 32: 8, 64: 4, 128: 2}
_ODD = {2: 3, 4: 6, 8: 6, 16: 12}
_MEAN_S = 7200.0
_BUSY = 0.9


def queue_snapshot(num_gpus: int, num_waiting: int, seed: int) -> Snapshot:
    """A busy cluster, and so many jobs that wait."""
    rng = random.Random(seed)  # noqa: S311 - reproducible, no secret
    cluster = leaf_cluster(num_gpus // _GPUS_PER_NODE)
    sizes = [size for size in _SHARES if 4 * size <= num_gpus]
    running = list(_running(cluster, sizes, rng))
    waiting = [_job(f"w{k}", _size(sizes, rng), rng) for k in range(num_waiting)]
    return Snapshot(cluster=cluster, jobs=(*running, *waiting))


def leaf_cluster(num_nodes: int) -> Cluster:
    """Nodes of 8 H100 below leaves and pods."""
    h100 = gpu_type_of(find_product("h100"), "bf16")
    nodes = (
        Node(
            id=f"n{k:05}",
            gpu_type=h100.name,
            num_gpus=_GPUS_PER_NODE,
            path=(f"pod{k // 256:02}", f"leaf{k // 16:03}"),
        )
        for k in range(num_nodes)
    )
    tiers = (Tier(name="pod", bandwidth_fraction=0.5), Tier(name="leaf"))
    return Cluster(gpu_types=(h100,), nodes=tuple(nodes), tiers=tiers, core_bandwidth_fraction=0.25)


def _running(cluster: Cluster, sizes: Sequence[int], rng: random.Random) -> Iterator[Job]:
    last = int(_BUSY * len(cluster.nodes))
    node, used, k = 0, 0, 0
    while node < last:
        size = min(_size(sizes, rng), (last - node) * _GPUS_PER_NODE)
        parts = []
        if used and (size > _GPUS_PER_NODE - used or rng.random() > 0.7):
            node, used = node + 1, 0
            continue
        for left in range(size, 0, -_GPUS_PER_NODE):
            count = min(left, _GPUS_PER_NODE)
            parts.append(NodeGpus(node=cluster.nodes[node].id, gpus=tuple(range(used, used + count))))
            used += count
            if used == _GPUS_PER_NODE:
                node, used = node + 1, 0
        yield _job(f"r{k}", size, rng, tuple(parts))
        k += 1


def _size(sizes: Sequence[int], rng: random.Random) -> int:
    size = rng.choices(sizes, weights=[_SHARES[size] for size in sizes])[0]
    return _ODD.get(size, size) if rng.random() < 0.1 else size


def _job(name: str, size: int, rng: random.Random, current: tuple[NodeGpus, ...] | None = None) -> Job:
    return Job(
        id=name,
        min_gpus=size,
        current=current,
        age_s=rng.expovariate(1.0 / _MEAN_S),
        remaining_s=rng.expovariate(1.0 / _MEAN_S),
        priority=rng.randint(1, 3),
        queue=f"q{rng.randrange(NUM_QUEUES)}",
    )
