"""The profiles of many jobs as one array, from which blocks of (job, configuration) pairs are gathered."""

from collections.abc import Collection
from dataclasses import dataclass
from itertools import chain
from operator import attrgetter
from typing import Self

import numpy as np

from models.configurations import ConfigurationSet
from models.performance.goodput.batch import Pairs
from models.performance.goodput.bootstrap import scaling_parameters
from models.performance.goodput.efficiency import signal_share
from models.performance.goodput.spec import GoodputModel
from models.performance.goodput.throughput import Coefficients
from stowplan.arrays import FloatArray, IntArray, Mask

_COEFFICIENTS = ("alpha_c", "beta_c", "alpha_r", "beta_r", "alpha_n", "beta_n", "gamma")
_coefficients = attrgetter(*_COEFFICIENTS)
_own_fields = attrgetter(
    "gpus_per_replica", "min_local_batch", "max_local_batch", *(f"parameters.{name}" for name in _COEFFICIENTS)
)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ProfileTable:
    """M jobs on T GPU types; K profiles in all.

    jobs: int64 (M,), the caller's index of each job. profile_of: int64 (M, T) into the profiles, -1 for none.
    values: float64 (15, K) by profile: GPUs per replica, smallest and largest local batch, initial and largest batch,
    share of the signal, alpha_c and beta_c, and the seven parameters that scale the time of a step. Integers up to 2^53
    are exact.
    """

    jobs: IntArray
    profile_of: IntArray
    values: FloatArray

    @classmethod
    def of(cls, models: dict[int, GoodputModel], gpu_types: tuple[str, ...], *, elastic: bool) -> Self:
        """Gather the models of jobs that are all elastic, or all keep their initial batch."""
        profile_of = np.full((len(models), len(gpu_types)), -1, dtype=np.int64)
        owner: list[int] = []
        own: list[tuple[float, ...]] = []
        bootstrapped: dict[int, tuple[float, ...]] = {}
        for row, model in enumerate(models.values()):
            for t, name in enumerate(gpu_types):
                profile = model.profiles.get(name)
                if profile is not None:
                    if profile.single_gpu_only:
                        bootstrapped[len(own)] = _coefficients(scaling_parameters(model, name))
                    profile_of[row, t] = len(own)
                    owner.append(row)
                    own.append(_own_fields(profile))
        fields = np.fromiter(chain.from_iterable(own), dtype=np.float64).reshape(len(own), 3 + len(_COEFFICIENTS)).T
        scaling = fields[3:].copy()
        if bootstrapped:
            scaling[:, list(bootstrapped)] = np.array(list(bootstrapped.values())).T
        return cls(
            jobs=np.array(list(models), dtype=np.int64),
            profile_of=profile_of,
            values=np.concatenate(
                [fields[:3], _batch_fields(models.values(), elastic=elastic)[:, owner], fields[3:5], scaling]
            ),
        )

    def feasible_pairs(self, configurations: ConfigurationSet, wanted: Mask) -> tuple[IntArray, IntArray]:
        """Row and configuration (N,) of every pair: whole replicas, and a batch that feeds all of them.

        `wanted` (J, C) leaves pairs out; its rows are the caller's jobs.
        """
        known_rows, known_columns = np.nonzero((self.profile_of >= 0)[:, configurations.type_index] & wanted[self.jobs])
        profile = self.profile_of[known_rows, configurations.type_index[known_columns]]
        gpus_per_replica, min_local_batch, _, _, maximum_batch = (self.values[k, profile] for k in range(5))
        replicas, left_over = np.divmod(configurations.num_gpus[known_columns], gpus_per_replica)
        feasible = (left_over == 0) & (min_local_batch * replicas <= maximum_batch)
        return known_rows[feasible], known_columns[feasible]

    def pairs(self, rows: IntArray, columns: IntArray, configurations: ConfigurationSet) -> Pairs:
        """The pairs (rows[n], columns[n]) as arrays for the batch search."""
        profile = self.profile_of[rows, configurations.type_index[columns]]
        gpus_per_replica, min_local, max_local, initial, maximum, share, alpha_c, beta_c, *scaling = np.take(
            self.values, profile, axis=1
        )
        return Pairs(
            num_nodes=configurations.num_nodes[columns],
            num_replicas=configurations.num_gpus[columns] // gpus_per_replica.astype(np.int64),
            bandwidth_fraction=configurations.bandwidth_fraction[columns],
            initial_batch=initial,
            maximum_batch=maximum,
            min_local_batch=min_local,
            max_local_batch=max_local,
            signal_share=share,
            alpha_c=alpha_c,
            beta_c=beta_c,
            scaling=Coefficients(
                alpha_c=scaling[0],
                beta_c=scaling[1],
                alpha_r=scaling[2],
                beta_r=scaling[3],
                alpha_n=scaling[4],
                beta_n=scaling[5],
                gamma=scaling[6],
            ),
        )


def _batch_fields(models: Collection[GoodputModel], *, elastic: bool) -> FloatArray:
    """Initial and largest batch, and share of the signal, of each model: float64 (3, M)."""
    initial = np.array([model.batch.initial for model in models], dtype=np.float64)
    maximum = np.array([model.batch.maximum for model in models], dtype=np.float64)
    squared_norm = np.array([model.gradient.squared_norm for model in models], dtype=np.float64)
    variance = np.array([model.gradient.variance for model in models], dtype=np.float64)
    return np.stack([initial, maximum if elastic else initial, signal_share(squared_norm, variance)])
