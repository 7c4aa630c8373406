"""What shares and rounds are made of: where each job of fixed size may run, how fast, and on how many GPUs in all."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from models.allocation.gavel.parameters import GavelParameters
from models.configurations import ConfigurationSet, enumerate_configurations
from models.performance.goodput.matrix import evaluate
from models.performance.goodput.spec import ThroughputTable
from models.placement.occupancy import Occupancy, occupancy
from models.placement.placeability import PlaceabilityRows, placeability_rows
from models.workload import Job, Snapshot
from stowplan.arrays import FloatMatrix, IntMatrix, IntVector, Mask


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class GavelInstance:
    """J jobs and T GPU types.

    configuration: int64 (J, T), the one of `configurations` that has the job's GPUs of the type, -1 for none. speed:
    float64 (J, T), samples/s there, 1 for a job without performance; 0 where it cannot run. offered: bool (J, T), where
    the job can run and fits what is free for the plan, alone. pinned: bool (J,), running jobs that keep their GPUs.
    """

    snapshot: Snapshot
    parameters: GavelParameters
    configurations: ConfigurationSet
    taken: Occupancy
    rows: PlaceabilityRows
    configuration: IntMatrix
    speed: FloatMatrix
    offered: Mask
    pinned: Mask

    @property
    def jobs(self) -> Sequence[Job]:
        """Jobs in the order of the rows."""
        return self.snapshot.jobs


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Pairs:
    """The P columns of a program: jobs, or classes of jobs that are alike, on GPU types.

    owner, gpu_type, configuration: int64 (P,), ordered by owner. size: jobs of each owner.
    """

    owner: IntVector
    gpu_type: IntVector
    configuration: IntVector
    size: IntVector


def gavel_instance(snapshot: Snapshot, parameters: GavelParameters) -> GavelInstance:
    """Look up who may run where."""
    jobs = snapshot.jobs
    taken = occupancy(snapshot)
    configurations = _wanted(enumerate_configurations(snapshot.cluster), {job.min_gpus for job in jobs})
    num_free = np.array([mask.bit_count() for mask in taken.free_masks], dtype=np.int64)
    rows = placeability_rows(snapshot.cluster.nodes, num_free, configurations)
    configuration = _configurations(jobs, configurations)
    exists = configuration >= 0
    speed = np.where(exists, _speeds(jobs, configurations, configuration), 0.0)
    fits = np.append(rows.fits_alone(), False)[configuration]
    pinned = np.array([job.id in taken.pinned for job in jobs], dtype=np.bool_)
    return GavelInstance(
        snapshot=snapshot,
        parameters=parameters,
        configurations=configurations,
        taken=taken,
        rows=rows,
        configuration=configuration,
        speed=speed,
        offered=(speed > 0) & fits & ~pinned[:, None],
        pinned=pinned,
    )


def _wanted(configurations: ConfigurationSet, sizes: set[int]) -> ConfigurationSet:
    """Without those over several nodes that are nobody's size; single-node ones tell how large a node is."""
    wanted = np.isin(configurations.num_gpus, np.array(sorted(sizes), dtype=np.int64))
    return configurations.subset((configurations.num_nodes == 1) | wanted)


def _configurations(jobs: Sequence[Job], configurations: ConfigurationSet) -> IntMatrix:
    """The configuration (J, T) of each job's size on the types that it allows: on a type there is one at most."""
    of_size: dict[int, list[tuple[int, int]]] = {}
    for c, (t, num_gpus) in enumerate(zip(configurations.type_index, configurations.num_gpus, strict=True)):
        of_size.setdefault(int(num_gpus), []).append((int(t), c))
    found = np.full((len(jobs), len(configurations.gpu_types)), -1, dtype=np.int64)
    for i, job in enumerate(jobs):
        for t, c in of_size.get(job.min_gpus, ()):
            if job.gpu_types is None or configurations.gpu_types[t] in job.gpu_types:
                found[i, t] = c
    return found


def _speeds(jobs: Sequence[Job], configurations: ConfigurationSet, configuration: IntMatrix) -> FloatMatrix:
    """Samples/s (J, T) where there is a configuration."""
    is_known = np.array([isinstance(job.performance, ThroughputTable) for job in jobs], dtype=np.bool_)
    # A pinned job may say what nobody here asks for.
    tables = [
        job if known or job.performance is None else replace(job, performance=None)
        for job, known in zip(jobs, is_known, strict=True)
    ]
    on_all = evaluate(tables, configurations).goodput
    speeds = np.take_along_axis(on_all, np.maximum(configuration, 0), axis=1) if len(configurations) else 0.0
    return np.where(is_known[:, None], speeds, 1.0)
