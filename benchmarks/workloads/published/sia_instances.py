"""Recorded inputs of Sia's released policy as snapshots: costs in goodput tables, forced rows as reservations."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks.paths import PUBLISHED
from models.allocation.sia.parameters import SiaObjective, SiaParameters
from models.performance.goodput.spec import GoodputTable, TableEntry
from models.workload import Job, Reservation, Snapshot
from topology.cluster import Cluster, GpuType, Node

DIRECTORY = PUBLISHED / "sia/instances"

_GIB = 2**30
_GBIT = 1e9 / 8


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeKind:
    """A machine of the published simulation."""

    num_gpus: int
    gpu_type: GpuType


NODE_KINDS: Mapping[str, NodeKind] = {
    "aws": NodeKind(
        num_gpus=4,
        gpu_type=GpuType(
            name="aws",
            memory_bytes=16 * _GIB,
            peak_flops_per_s=65e12,
            intra_node_bandwidth_bytes_per_s=16e9,
            inter_node_bandwidth_bytes_per_s=50 * _GBIT,
        ),
    ),
    "rtx": NodeKind(
        num_gpus=8,
        gpu_type=GpuType(
            name="rtx",
            memory_bytes=11 * _GIB,
            peak_flops_per_s=54e12,
            intra_node_bandwidth_bytes_per_s=16e9,
            inter_node_bandwidth_bytes_per_s=50 * _GBIT,
        ),
    ),
    "dgx-ext": NodeKind(
        num_gpus=8,
        gpu_type=GpuType(
            name="dgx-ext",
            memory_bytes=40 * _GIB,
            peak_flops_per_s=312e12,
            intra_node_bandwidth_bytes_per_s=600e9,
            inter_node_bandwidth_bytes_per_s=1600 * _GBIT,
        ),
    ),
}


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RecordedInstance:
    """One recorded policy input.

    optimum: minimum of sum A_ij X_ij + lambda (J - sum X_ij) under the forced rows. forced: job id -> what it is
    forced to.
    """

    name: str
    snapshot: Snapshot
    parameters: SiaParameters
    optimum: float
    forced: Mapping[str, Reservation]


def instance_names(directory: Path = DIRECTORY) -> tuple[str, ...]:
    """Names of the instances that are there; none when the data are not beside the checkout."""
    return tuple(sorted(path.stem for path in directory.glob("*.npz")))


def load_instance(name: str, directory: Path = DIRECTORY) -> RecordedInstance:
    """Read one instance."""
    facts = json.loads((directory / f"{name}.json").read_text())
    with np.load(directory / f"{name}.npz") as arrays:
        costs, previous, forced = arrays["A"], arrays["prev"], arrays["forced"]
        queue_penalty = float(arrays["lam"])
    configurations = [(item["type"], item["nodes"], item["gpus"]) for item in facts["configs"]]
    jobs: list[Job] = []
    reservations: dict[str, Reservation] = {}
    for job_id, row, present, is_forced in zip(facts["jobs"], costs, previous, forced, strict=True):
        if is_forced:
            kind, _, num_gpus = configurations[present]
            reservations[job_id] = Reservation(gpu_type=kind, num_gpus=num_gpus)
        entries = tuple(
            TableEntry(gpu_type=kind, num_nodes=num_nodes, num_gpus=num_gpus, value=float(cost))
            for (kind, num_nodes, num_gpus), cost in zip(configurations, row, strict=True)
        )
        jobs.append(Job(id=job_id, performance=GoodputTable(entries=entries), reservation=reservations.get(job_id)))
    return RecordedInstance(
        name=name,
        snapshot=Snapshot(cluster=simulated_cluster(facts["capacity_gpus"]), jobs=tuple(jobs)),
        parameters=SiaParameters(queue_penalty=queue_penalty, objective=SiaObjective.GIVEN_COSTS),
        optimum=float(facts["solvers"]["HIGHS0"]["obj"]),
        forced=reservations,
    )


def simulated_cluster(num_gpus: Mapping[str, int]) -> Cluster:
    """Whole free nodes that give so many GPUs of each type."""
    return Cluster(
        gpu_types=tuple(NODE_KINDS[kind].gpu_type for kind in num_gpus),
        nodes=tuple(
            Node(id=f"{kind}-{k:03}", gpu_type=kind, num_gpus=NODE_KINDS[kind].num_gpus)
            for kind, total in num_gpus.items()
            for k in range(total // NODE_KINDS[kind].num_gpus)
        ),
    )
