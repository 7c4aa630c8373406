"""What shares and rounds are made of: where each job of fixed size may run, how fast, and on how many GPUs in all."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from models.allocation.gavel.parameters import GavelParameters
from models.configurations import ConfigurationSet, enumerate_configurations
from models.performance.goodput.matrix import evaluate
from models.performance.goodput.spec import ThroughputTable
from models.placement.occupancy import Occupancy, occupancy
from models.placement.placeability import PlaceabilityRows, free_rows
from models.workload import Job, Snapshot
from stowplan.arrays import FloatMatrix, IntMatrix, IntVector, Mask


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class GavelInstance:
    """J jobs and T GPU types.

    configuration: int64 (J, T), the smallest of `configurations` that holds the job's GPUs of the type, -1 for none; of
    its GPUs those that the job does not need stay idle. speed: float64 (J, T), samples/s, 1 for a job without
    performance; 0 where it cannot run. offered: bool (J, T), where the job can run and fits what is free for the plan,
    alone. pinned: bool (J,), running jobs that keep their GPUs.
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
    blocks = _Blocks(enumerate_configurations(snapshot.cluster), {job.min_gpus for job in jobs})
    rows = free_rows(snapshot.cluster, taken.free_masks, blocks.configurations)
    configuration, speed = blocks.of(jobs), blocks.speeds(jobs)
    fits = np.append(rows.fits_alone(), False)[configuration]
    pinned = np.array([job.id in taken.pinned for job in jobs], dtype=np.bool_)
    return GavelInstance(
        snapshot=snapshot,
        parameters=parameters,
        configurations=blocks.configurations,
        taken=taken,
        rows=rows,
        configuration=configuration,
        speed=np.where(configuration >= 0, speed, 0.0),
        offered=(configuration >= 0) & (speed > 0) & fits & ~pinned[:, None],
        pinned=pinned,
    )


class _Blocks:
    """For every size (S) and type the smallest configuration that holds so many GPUs."""

    def __init__(self, everything: ConfigurationSet, sizes: set[int]) -> None:
        self._sizes = np.array(sorted(sizes), dtype=np.int64)
        num_types = len(everything.gpu_types)
        self._block = np.full((self._sizes.size, num_types), -1, dtype=np.int64)
        for t in range(num_types):
            # By ascending GPUs.
            mine = np.flatnonzero(everything.type_index == t)
            k = np.searchsorted(everything.num_gpus[mine], self._sizes)
            holds = k < mine.size
            self._block[holds, t] = mine[k[holds]]
        # Those over one node tell how large it is.
        kept = everything.num_nodes == 1
        kept[self._block[self._block >= 0]] = True
        # -1 is that of no block, whatever there is.
        self._block = np.append(np.cumsum(kept) - 1, -1)[self._block]
        self.configurations = everything.subset(kept)

    def of(self, jobs: Sequence[Job]) -> IntMatrix:
        """Configuration (J, T) of each job on the types that it allows, -1 for none."""
        names = self.configurations.gpu_types
        allowed = [[job.gpu_types is None or name in job.gpu_types for name in names] for job in jobs]
        of_types = np.array(allowed, dtype=np.bool_).reshape(len(jobs), len(names))
        return np.where(of_types, self._block[self._size_of(jobs)], -1)

    def speeds(self, jobs: Sequence[Job]) -> FloatMatrix:
        """Samples/s (J, T) on just the size of the job, on as few nodes as hold it; 1 without a table."""
        is_known = np.array([isinstance(job.performance, ThroughputTable) for job in jobs], dtype=np.bool_)
        speeds = np.ones((len(jobs), self._block.shape[1]))
        sizes = self._size_of(jobs)
        # Size by size: of each job only its own counts.
        for size in np.unique(sizes[is_known]).tolist():
            members = np.flatnonzero(is_known & (sizes == size))
            types = np.flatnonzero(self._block[size] >= 0)
            speeds[members] = 0.0
            speeds[np.ix_(members, types)] = evaluate(
                [jobs[i] for i in members.tolist()], self._asked(size, types)
            ).goodput
        return speeds

    def _asked(self, size: int, types: IntVector) -> ConfigurationSet:
        """Just so many GPUs of each of the types, on as few nodes as hold them."""
        blocks = self._block[size, types]
        return ConfigurationSet(
            gpu_types=self.configurations.gpu_types,
            type_index=types,
            num_nodes=self.configurations.num_nodes[blocks],
            num_gpus=np.full(types.size, self._sizes[size]),
            bandwidth_fraction=self.configurations.bandwidth_fraction[blocks],
        )

    def _size_of(self, jobs: Sequence[Job]) -> IntVector:
        return np.searchsorted(self._sizes, np.array([job.min_gpus for job in jobs], dtype=np.int64))
