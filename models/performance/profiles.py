"""The profiles of many jobs as one array, from which blocks of (job, configuration) pairs are gathered."""

from dataclasses import dataclass
from operator import attrgetter
from typing import Self

import numpy as np

from models.configurations import ConfigurationSet
from models.performance.batch import Pairs
from models.performance.bootstrap import scaling_parameters
from models.performance.efficiency import signal_share
from models.performance.spec import GoodputModel, TypeProfile
from models.performance.throughput import Coefficients, FloatArray, IntArray

_NUM_COLUMNS = 15
_coefficients = attrgetter("alpha_c", "beta_c", "alpha_r", "beta_r", "alpha_n", "beta_n", "gamma")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ProfileTable:
    """M jobs on T GPU types; K profiles in all.

    jobs: int64 (M,), the caller's index of each job. profile_of: int64 (M, T) into the profiles, -1 for none.
    values: float64 (15, K), the fields of a profile in the order of `_fields`; integers up to 2^53 are exact.
    """

    jobs: IntArray
    profile_of: IntArray
    values: FloatArray

    @classmethod
    def of(cls, models: dict[int, GoodputModel], gpu_types: tuple[str, ...], *, elastic: bool) -> Self:
        """Gather the models of jobs that are all elastic, or all keep their initial batch."""
        profile_of = np.full((len(models), len(gpu_types)), -1, dtype=np.int64)
        values: list[tuple[float, ...]] = []
        for row, model in enumerate(models.values()):
            share = float(signal_share(model.gradient.squared_norm, model.gradient.variance))
            for t, name in enumerate(gpu_types):
                profile = model.profiles.get(name)
                if profile is not None:
                    profile_of[row, t] = len(values)
                    values.append(_fields(model, name, profile, share, elastic=elastic))
        return cls(
            jobs=np.array(list(models), dtype=np.int64),
            profile_of=profile_of,
            values=np.array(values, dtype=np.float64).reshape(-1, _NUM_COLUMNS).T.copy(),
        )

    def feasible_pairs(self, configurations: ConfigurationSet) -> tuple[IntArray, IntArray]:
        """Row and configuration (N,) of every pair: whole replicas, and a batch that feeds all of them."""
        profile = self.profile_of[:, configurations.type_index]
        known_rows, known_columns = np.nonzero(profile >= 0)
        gpus_per_replica, min_local_batch, _, _, maximum_batch = self.values[:5, profile[known_rows, known_columns]]
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


def _fields(
    model: GoodputModel, gpu_type: str, profile: TypeProfile, share: float, *, elastic: bool
) -> tuple[float, ...]:
    """One column of `ProfileTable.values`; the last seven are the parameters that scale the time of a step."""
    return (
        profile.gpus_per_replica,
        profile.min_local_batch,
        profile.max_local_batch,
        model.batch.initial,
        model.batch.maximum if elastic else model.batch.initial,
        share,
        profile.parameters.alpha_c,
        profile.parameters.beta_c,
        *_coefficients(scaling_parameters(model, gpu_type)),
    )
