"""Small clusters with running jobs, and choices of configurations to place on them."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from random import Random

import numpy as np
from hypothesis import strategies as st

from models.configurations import ConfigurationSet, enumerate_configurations
from models.placement.occupancy import Occupancy, gpus_of, mask_of, occupancy
from models.placement.placeability import placeability_rows, takes_whole_nodes, whole_node_sizes
from models.workload import Job, NodeGpus, Snapshot
from stowplan.arrays import IntVector
from topology.cluster import Cluster, GpuType, Node, NodeState, Tier

# Hypothesis' own random objects favour extremes, which hardly ever make a crowded cluster; a seed does not.
SEEDS = st.integers(0, 2**32 - 1)


def dice(seed: int) -> Random:
    return Random(seed)  # noqa: S311 - reproducible instances, no secret


def gpu_type(name: str) -> GpuType:
    return GpuType(
        name=name,
        memory_bytes=80 * 2**30,
        peak_flops_per_s=1e15,
        intra_node_bandwidth_bytes_per_s=4e11,
        inter_node_bandwidth_bytes_per_s=5e10,
    )


def node(
    name: str,
    num_gpus: int = 8,
    kind: str = "a",
    *,
    in_use: tuple[int, ...] = (),
    state: NodeState = NodeState.UP,
    path: tuple[str, ...] = (),
) -> Node:
    return Node(id=name, gpu_type=kind, num_gpus=num_gpus, gpus_in_use=in_use, state=state, path=path)


def cluster(*nodes: Node, tiers: tuple[str, ...] = ()) -> Cluster:
    kinds = sorted({item.gpu_type for item in nodes})
    return Cluster(
        gpu_types=tuple(gpu_type(kind) for kind in kinds),
        nodes=nodes,
        tiers=tuple(Tier(name=name) for name in tiers),
    )


def on(places: Mapping[str, tuple[int, ...]]) -> tuple[NodeGpus, ...]:
    return tuple(NodeGpus(node=name, gpus=gpus) for name, gpus in places.items())


def configuration(configurations: ConfigurationSet, kind: str, num_gpus: int) -> int:
    """Index of the configuration of `num_gpus` GPUs of a type."""
    t = configurations.gpu_types.index(kind)
    (index,) = np.flatnonzero((configurations.type_index == t) & (configurations.num_gpus == num_gpus))
    return int(index)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Scene:
    """A snapshot and a choice of configurations that the placeability rows admit."""

    snapshot: Snapshot
    configurations: ConfigurationSet
    taken: Occupancy
    choice: dict[str, int]

    @property
    def num_free(self) -> IntVector:
        return np.array([mask.bit_count() for mask in self.taken.free_masks], dtype=np.int64)


def random_scene(rng: Random, *, num_nodes: int = 4, num_jobs: int = 7) -> Scene:
    """Nodes of one or two types, of mixed sizes and states, in pods with half of the bandwidth between them; jobs that
    run, wait, are pinned; a placeable choice."""
    nodes = [_random_node(rng, f"n{i}", rng.choice("aab")) for i in range(num_nodes)]
    machines = replace(cluster(*nodes, tiers=("pod", "leaf")), core_bandwidth_fraction=0.5)
    configurations = enumerate_configurations(machines)
    jobs = _random_jobs(rng, machines, num_jobs)
    snapshot = Snapshot(cluster=machines, jobs=jobs)
    taken = occupancy(snapshot)
    return Scene(
        snapshot=snapshot,
        configurations=configurations,
        taken=taken,
        choice=_random_choice(rng, snapshot, configurations, taken),
    )


def _random_node(rng: Random, name: str, kind: str) -> Node:
    largest = {"a": 8, "b": 6}[kind]
    size = largest if rng.random() < 0.8 else rng.randint(1, largest)
    in_use = tuple(gpu for gpu in range(size) if rng.random() < rng.choice((0, 0, 0.3)))
    state = rng.choice([NodeState.UP] * 8 + [NodeState.DRAINED, NodeState.DOWN])
    pod = rng.choice("pq")
    return node(name, size, kind, in_use=in_use, state=state, path=(pod, rng.choice("xy")))


def _random_jobs(rng: Random, machines: Cluster, num_jobs: int) -> tuple[Job, ...]:
    free = {item.id: mask_of(range(item.num_gpus)) & ~mask_of(item.gpus_in_use) for item in machines.nodes}
    jobs = []
    for k in range(num_jobs):
        current: tuple[NodeGpus, ...] | None = None
        if rng.random() < 0.8:
            current = _random_current(rng, machines, free)
        for part in current or ():
            free[part.node] &= ~mask_of(part.gpus)
        jobs.append(Job(id=f"j{k}", current=current, preemptible=rng.random() < 0.85))
    return tuple(jobs)


def _random_current(rng: Random, machines: Cluster, free: Mapping[str, int]) -> tuple[NodeGpus, ...] | None:
    """One to four GPUs on one node (three: a shape that is no configuration), or one or two nodes that are free."""
    kind = rng.choice(machines.gpu_types).name
    members = [item for item in machines.nodes if item.gpu_type == kind]
    if rng.random() < 0.3:
        empty = [item for item in members if free[item.id] == mask_of(range(item.num_gpus))]
        picked = rng.sample(empty, k=min(len(empty), rng.randint(1, 2)))
        return tuple(NodeGpus(node=item.id, gpus=tuple(range(item.num_gpus))) for item in picked) or None
    size = rng.choice((1, 1, 2, 2, 4, 3))
    roomy = [item for item in members if free[item.id].bit_count() >= size]
    if not roomy:
        return None
    host = rng.choice(roomy)
    return (NodeGpus(node=host.id, gpus=tuple(sorted(rng.sample(gpus_of(free[host.id]), size)))),)


def _random_choice(
    rng: Random, snapshot: Snapshot, configurations: ConfigurationSet, taken: Occupancy
) -> dict[str, int]:
    """Mostly the present shape, for waiting jobs a large one; what the rows forbid is left out."""
    num_free = np.array([mask.bit_count() for mask in taken.free_masks], dtype=np.int64)
    rows = placeability_rows(snapshot.cluster.nodes, num_free, configurations)
    counts = np.zeros(len(configurations), dtype=np.int64)
    choice: dict[str, int] = {}
    for job in rng.sample(snapshot.jobs, k=len(snapshot.jobs)):
        if job.id in taken.pinned or not len(configurations):
            continue
        large = np.flatnonzero(configurations.num_gpus >= 4).tolist()
        c = rng.choice(large) if large and not job.current else rng.randrange(len(configurations))
        if job.current and rng.random() < 0.7:
            kind = next(item.gpu_type for item in snapshot.cluster.nodes if item.id == job.current[0].node)
            size = sum(len(part.gpus) for part in job.current)
            t = configurations.gpu_types.index(kind)
            same = np.flatnonzero((configurations.type_index == t) & (configurations.num_gpus == size))
            c = int(same[0]) if same.size else c
        counts[c] += 1
        if (rows.coefficients @ counts <= rows.limits).all():
            choice[job.id] = c
        else:
            counts[c] -= 1
    return choice


def packable(sizes: list[int], free: list[int], node_size: int, items: list[int], num_whole: int) -> bool:
    """Whether `num_whole` whole nodes and partial items fit, by trying every node for every item."""
    if num_whole:
        return any(
            size == free[i] == node_size
            and packable(sizes, [*free[:i], 0, *free[i + 1 :]], node_size, items, num_whole - 1)
            for i, size in enumerate(sizes)
        )
    if not items:
        return True
    return any(
        room >= items[0] and packable(sizes, [*free[:i], room - items[0], *free[i + 1 :]], node_size, items[1:], 0)
        for i, room in enumerate(free)
    )


def can_be_packed(snapshot: Snapshot, configurations: ConfigurationSet, taken: Occupancy, chosen: list[int]) -> bool:
    """Whether jobs in the `chosen` configurations fit on what is free, by trying every node for each of them."""
    nodes = snapshot.cluster.nodes
    whole, sizes = takes_whole_nodes(configurations), whole_node_sizes(configurations)
    for t, kind in enumerate(configurations.gpu_types):
        of_type = [c for c in chosen if configurations.type_index[c] == t]
        members = [i for i, item in enumerate(nodes) if item.gpu_type == kind]
        items = sorted((int(configurations.num_gpus[c]) for c in of_type if not whole[c]), reverse=True)
        num_whole = sum(int(configurations.num_nodes[c]) for c in of_type if whole[c])
        free = [taken.free_masks[i].bit_count() for i in members]
        if not packable([nodes[i].num_gpus for i in members], free, int(sizes[t]), items, num_whole):
            return False
    return True


def whole_size(scene: Scene, kind: str) -> int:
    return int(whole_node_sizes(scene.configurations)[scene.configurations.gpu_types.index(kind)])
