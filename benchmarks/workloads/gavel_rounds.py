"""Jobs of fixed size that share three GPU types in time, in the middle of it. Same seed, same input.

Cluster    nodes of 8 GPUs, a third each V100, A100 and H100.
Jobs       as many as ask together for 1.5 times the GPUs; 70 % one GPU, 12.5 % each two and four, 5 % eight (the shares
           of one, two to four and eight of Gavel section 7.1).
Speed      26 kinds (as many as there are configurations in Gavel's Table 2): samples/s on a V100 from 1 to 100, an A100
           1 to 3 times, an H100 1 to 6 times as fast, and with 0.7 to 1 of the GPUs' worth at every doubling.
Time       ages exponential, mean 4 h; of its age a job had each type up to 0.6 / 3.
Running    jobs take nodes in order, whichever type these have, until none is left.
"""

import random

from models.performance.goodput.spec import TableEntry, ThroughputTable
from models.workload import Job, NodeGpus, Snapshot
from topology.cluster import Cluster, Node
from topology.gpu_catalogue import find_product, gpu_type_of

_TYPES = ("v100", "a100-80gb", "h100")
_FASTEST = {"v100": 1.0, "a100-80gb": 3.0, "h100": 6.0}
_SIZES, _SHARES = (1, 2, 4, 8), (70.0, 12.5, 12.5, 5.0)
_NUM_KINDS = 26
_GPUS_PER_NODE = 8
_LOAD = 1.5
_MEAN_S = 4 * 3600.0


def rounds_snapshot(num_gpus: int, seed: int) -> Snapshot:
    """A full cluster of about so many GPUs, and jobs that wait for their turn."""
    rng = random.Random(seed)  # noqa: S311 - reproducible, no secret
    kinds = tuple(gpu_type_of(find_product(name), "bf16") for name in _TYPES)
    num_nodes = max(len(kinds), num_gpus // _GPUS_PER_NODE)
    nodes = tuple(
        Node(id=f"n{k:05}", gpu_type=kinds[k * len(kinds) // num_nodes].name, num_gpus=_GPUS_PER_NODE)
        for k in range(num_nodes)
    )
    tables = [{size: _table(rng, size) for size in _SIZES} for _ in range(_NUM_KINDS)]
    jobs: list[Job] = []
    asked, node, used = 0, 0, 0
    while asked < _LOAD * num_gpus:
        size = rng.choices(_SIZES, _SHARES)[0]
        asked += size
        if used + size > _GPUS_PER_NODE:
            node, used = node + 1, 0
        current = None
        if node < num_nodes:
            current, used = (NodeGpus(node=nodes[node].id, gpus=tuple(range(used, used + size))),), used + size
        age_s = rng.expovariate(1 / _MEAN_S)
        jobs.append(
            Job(
                id=f"j{len(jobs)}",
                min_gpus=size,
                performance=rng.choice(tables)[size],
                age_s=age_s,
                attained_s={kind.name: 0.2 * rng.random() * age_s for kind in kinds},
                remaining_iterations=rng.expovariate(1 / _MEAN_S) + 1.0,
                current=current,
            )
        )
    return Snapshot(cluster=Cluster(gpu_types=kinds, nodes=nodes), jobs=tuple(jobs))


def _table(rng: random.Random, size: int) -> ThroughputTable:
    base = rng.uniform(1, 100) * (2 * rng.uniform(0.7, 1.0)) ** (size.bit_length() - 1)
    entries = tuple(
        TableEntry(gpu_type=name, num_gpus=size, value=base * rng.uniform(1.0, fastest))
        for name, fastest in _FASTEST.items()
    )
    return ThroughputTable(entries=entries, batch_size=32)
