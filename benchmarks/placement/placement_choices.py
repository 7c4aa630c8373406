"""Three placements of a small job on a leaf-spine network, one rank a host: Arnold's, a random and the worst one."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import permutations

import numpy as np
from numpy.typing import NDArray

from benchmarks.placement.namespaces import LeafSpine
from models.parallel_plan import ParallelPlan, symmetric_plan
from models.performance.iteration.model import PerformanceModel
from models.performance.iteration.modelling import performance_model
from models.placement.arnold.parameters import ArnoldParameters, SpreadObjective
from models.plan import PlanRequest
from models.planning import plan
from models.transformer import Precision, Transformer
from models.workload import Job, Parallelism, Snapshot
from topology.cluster import Cluster, GpuType, Node, Tier

MODEL = Transformer(
    num_layers=4,
    hidden_size=256,
    vocabulary_size=512,
    sequence_length=64,
    global_batch=16,
    num_heads=4,
    precision=Precision.FP32,
)
# Sequences of one micro-batch of a replica.
_MICRO_BATCH = 2
# About a core of a CPU; what it computes is the same wherever a rank sits.
_CORE_FLOPS_PER_S = 5e10
_CORE_MEMORY_BYTES = 4 * 2**30
_CORE_BYTES_PER_S = 1e10


# No slots: the performance model is cached in the instance.
@dataclass(frozen=True, kw_only=True)
class Scene:
    """A network that is to be filled by one job of `pp` stages and `dp` replicas."""

    layout: LeafSpine
    pp: int
    dp: int

    @property
    def name(self) -> str:
        """Degrees, as in `PP2xDP2`."""
        return "x".join(f"{axis}{degree}" for axis, degree in (("PP", self.pp), ("DP", self.dp)) if degree > 1)

    @cached_property
    def performance(self) -> PerformanceModel:
        """White-box times of the job on the network, transfers between stages included."""
        return replace(performance_model(MODEL, cluster_of(self.layout)), send_receive=True)

    def plan(self, hosts: Iterable[str]) -> ParallelPlan:
        """Plan with rank k on the k-th host."""
        return symmetric_plan(
            num_layers=MODEL.num_layers,
            pp=self.pp,
            dp=self.dp,
            tp=1,
            global_batch=MODEL.global_batch,
            num_micro_batches=MODEL.global_batch // (_MICRO_BATCH * self.dp),
            gpu_type="core",
            gpus=tuple((host, 0) for host in hosts),
        )

    def predicted_s(self, hosts: Iterable[str]) -> float:
        """Step time that the performance model predicts."""
        return self.performance.iteration(self.plan(hosts)).total_s

    def crossings(self, hosts: Iterable[str]) -> int:
        """Neighbours in the rings of the replicas, and stages, that sit under different leaves."""
        grid = self.leaves(hosts)
        return int((grid != np.roll(grid, 1, axis=1)).sum() + (grid[1:] != grid[:-1]).sum())

    def leaves(self, hosts: Iterable[str]) -> NDArray[np.str_]:
        """Leaf of every rank, (pp, dp)."""
        leaf = {host: leaf for leaf, members in self.layout.leaves.items() for host in members}
        return np.array([leaf[host] for host in hosts]).reshape(self.pp, self.dp)

    def orders(self) -> Iterator[tuple[str, ...]]:
        """All orders of the hosts."""
        return permutations(sorted(self.layout.hosts))


def cluster_of(layout: LeafSpine) -> Cluster:
    """Snapshot of the network: leaves are minipods, a pair across the spine gets an uplink."""
    kind = GpuType(
        name="core",
        memory_bytes=_CORE_MEMORY_BYTES,
        peak_flops_per_s=_CORE_FLOPS_PER_S,
        intra_node_bandwidth_bytes_per_s=_CORE_BYTES_PER_S,
        inter_node_bandwidth_bytes_per_s=layout.host_bits_per_s / 8,
    )
    return Cluster(
        gpu_types=(kind,),
        nodes=tuple(
            Node(id=host, gpu_type="core", num_gpus=1, path=(leaf,))
            for host, leaf in sorted((host, leaf) for leaf, hosts in layout.leaves.items() for host in hosts)
        ),
        tiers=(Tier(name="leaf"),),
        minipod_tier="leaf",
        core_bandwidth_fraction=min(1.0, layout.uplink_bits_per_s / layout.host_bits_per_s),
    )


def affinity(scene: Scene) -> float:
    """Affinity alpha of DP groups: j_dp / (j_dp + j_pp) (Arnold section 5.2), from predicted step times.

    j_dp is the relative gain over the slowest order of the fastest one that keeps the DP groups under leaves, j_pp the
    same for PP groups. Groups of one host, or such as fit under no leaf, gain nothing.
    """
    slowest = max(map(scene.predicted_s, scene.orders()))
    gains = [slowest / aligned - 1.0 if aligned else 0.0 for aligned in (_aligned(scene, axis) for axis in (1, 0))]
    return gains[0] / sum(gains) if sum(gains) else 0.5


def _aligned(scene: Scene, axis: int) -> float | None:
    """Least step time of orders whose groups along `axis` of the grid (stages, replicas) stay under one leaf each."""
    if (scene.pp, scene.dp)[axis] == 1:
        return None
    grids = ((order, scene.leaves(order)) for order in scene.orders())
    aligned = (order for order, grid in grids if (grid == grid.take([0], axis=axis)).all())
    return min(map(scene.predicted_s, aligned), default=None)


def arnold(scene: Scene) -> tuple[str, ...]:
    """Hosts in rank order as Arnold places the job by Eq. 2."""
    job = Job(
        id="job",
        min_gpus=scene.pp * scene.dp,
        parallelism=Parallelism(tp=1, pp=scene.pp, dp=scene.dp),
        transformer=MODEL,
    )
    parameters = ArnoldParameters(alpha=affinity(scene), spread_objective=SpreadObjective.EQ2)
    outcome = plan(PlanRequest(snapshot=Snapshot(cluster=cluster_of(scene.layout), jobs=(job,)), parameters=parameters))
    if outcome.plan is None or outcome.plan.pretraining is None:
        raise RuntimeError(f"the job was not placed: {outcome.termination}")
    return outcome.plan.pretraining.hosts


def adversarial(scene: Scene) -> tuple[str, ...]:
    """The order of the longest predicted step; of several, the first of those with most neighbours across the spine."""
    return max(scene.orders(), key=lambda order: (round(scene.predicted_s(order), 9), scene.crossings(order)))


def shuffled(scene: Scene, seed: int) -> tuple[str, ...]:
    """A random order."""
    return tuple(map(str, np.random.default_rng(seed).permutation(sorted(scene.layout.hosts))))


def placements(scene: Scene, seed: int) -> Mapping[str, tuple[str, ...]]:
    """Hosts in rank order by placement."""
    return {"arnold": arnold(scene), "random": shuffled(scene, seed), "adversarial": adversarial(scene)}
