"""Which configurations a job may be given, which one it runs in, and which one a reservation names."""

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from models.configurations import ConfigurationSet
from models.placement.occupancy import Occupancy
from models.placement.placeability import whole_node_sizes
from models.roll import roll_of
from models.workload import Adaptivity, Job, Reservation, Snapshot
from stowplan.arrays import IntVector, Mask
from stowplan.living import found_once
from topology.bandwidth import fractions_of, group_fraction

_Shape = tuple[str, int, int]
"""GPU type, nodes and GPUs."""


def allowed_configurations(jobs: Sequence[Job], configurations: ConfigurationSet) -> Mask:
    """Configurations (J, C) within each job's bounds, GPU types and adaptivity, whatever its performance."""
    lower = np.array([job.min_gpus for job in jobs], dtype=np.float64)[:, None]
    upper = np.array([_max_gpus(job) for job in jobs], dtype=np.float64)[:, None]
    allowed = (lower <= configurations.num_gpus) & (configurations.num_gpus <= upper)
    restricted = [(i, job.gpu_types) for i, job in enumerate(jobs) if job.gpu_types is not None]
    if restricted:
        named = np.array([[name in kinds for name in configurations.gpu_types] for _, kinds in restricted])
        allowed[[i for i, _ in restricted]] &= named[:, configurations.type_index]
    return np.asarray(allowed)


def _max_gpus(job: Job) -> float:
    if job.adaptivity is Adaptivity.RIGID:
        return job.min_gpus
    return np.inf if job.max_gpus is None else job.max_gpus


def allowed_in(snapshot: Snapshot, configurations: ConfigurationSet) -> Mask:
    """`allowed_configurations` (J, C) of the jobs of a snapshot; read-only."""
    return roll_of(snapshot).each(
        "allowed",
        np.bool_,
        lambda rows: allowed_configurations([snapshot.jobs[row] for row in rows], configurations),
        same=(configurations,),
    )


@found_once
def _by_shape(configurations: ConfigurationSet) -> tuple[Mapping[_Shape, list[int]], Mapping[str, int]]:
    """The configurations of each shape, and the GPUs of a whole node of each type."""
    index: dict[_Shape, list[int]] = {}
    parts = (configurations.type_index, configurations.num_nodes, configurations.num_gpus)
    for c, (t, n, m) in enumerate(zip(*(part.tolist() for part in parts), strict=True)):
        index.setdefault((configurations.gpu_types[t], n, m), []).append(c)
    sizes = whole_node_sizes(configurations).tolist()
    return index, dict(zip(configurations.gpu_types, sizes, strict=True))


def current_configurations(snapshot: Snapshot, configurations: ConfigurationSet, taken: Occupancy) -> IntVector:
    """Configuration (J,) in which each running job may stay on its GPUs; -1 where it waits or has to move; read-only.

    A pinned job stays however it sits, so that its shape alone decides. Of several configurations of a shape it is that
    with as much of the bandwidth as its nodes have between them.
    """
    jobs, nodes = snapshot.jobs, snapshot.cluster.nodes

    def found(rows: list[int]) -> Iterator[int]:
        index, node_size = _by_shape(configurations)
        return (current(jobs[row], index, node_size) for row in rows)

    def current(job: Job, index: Mapping[_Shape, list[int]], node_size: Mapping[str, int]) -> int:
        if not taken.keepable(job.id):
            return -1
        slices = taken.running[job.id]
        kind = nodes[slices[0][0]].gpu_type
        counts = [mask.bit_count() for _, mask in slices]
        whole = all(
            count == nodes[node].num_gpus == node_size[kind] for count, (node, _) in zip(counts, slices, strict=True)
        )
        if not (job.id in taken.pinned or whole or sum(counts) < node_size[kind]):
            return -1
        alike = index.get((kind, len(slices), sum(counts)), [-1])
        if len(alike) == 1:
            return alike[0]
        here = group_fraction(fractions_of(snapshot.cluster), [nodes[node].path for node, _ in slices])
        known = configurations.bandwidth_fraction[alike]
        return alike[int(np.argmax(np.where(known <= here, known, -known)))]

    return roll_of(snapshot).each(
        "current",
        np.int64,
        found,
        same=(snapshot.cluster, configurations),
        equal=taken.free_masks,
        beside=(taken.is_pinned(jobs),),
    )


def reserved_configuration(reservation: Reservation, configurations: ConfigurationSet) -> Mask:
    """Mask (C,) of the one configuration that a reservation names; all False when there is none."""
    named = np.array([name == reservation.gpu_type for name in configurations.gpu_types], dtype=np.bool_)
    of_type = named[configurations.type_index]
    return np.asarray(of_type & (configurations.num_gpus == reservation.num_gpus))
