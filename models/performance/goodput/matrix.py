"""Goodput of every job on every configuration (the matrix G of Sia section 3.4, before normalisation).

J jobs, C configurations. Where a job names parameters or observations, every (job, configuration) pair is searched for
its best batch size (`batch`): elastic jobs over B0..Bmax, strong-scaling and rigid jobs at B0, where
goodput is throughput. A hybrid-parallel job with P GPUs per replica has R = GPUs / P replicas, and cannot use
configurations that P does not divide; its replicas synchronise inside a node exactly when the configuration is one
node, and a replica may span nodes (section 5.3). Tables are looked up: they say what was measured, and nothing of how
that goes with the bandwidth between nodes.

Bounds of the job on GPU counts and types are left to the allocation model.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from models.configurations import ConfigurationSet
from models.performance.goodput.batch import NUM_CANDIDATES, choose_batches
from models.performance.goodput.listed import listed
from models.performance.goodput.profiles import ProfileTable
from models.performance.goodput.sharing import with_shared_observations
from models.performance.goodput.spec import GoodputModel, GoodputObservations, GoodputTable, ThroughputTable
from models.performance.goodput.tables import TableLookup
from models.workload import Adaptivity, Job
from stowplan.arrays import FloatArray, FloatVector, IntArray, IntVector, Mask
from stowplan.errors import InputError, Issue

# Elements of one temporary array of the batch search: it stays in the cache, and below the 128 KiB from which the C
# library maps fresh pages for every allocation.
_BLOCK_ELEMENTS = 15_000


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class GoodputMatrix:
    """What each of J jobs reaches on each of C configurations; every array is (J, C), in the order of the inputs.

    goodput: float64, 0 where the job cannot run; samples/s, or the unit of the job's goodput table.
    throughput: float64, samples/s. batch_size, local_batch_size, accumulation_steps: int64. 0 where not known.
    `batch_size` is replicas x local batch x (accumulation steps + 1), or less: never above the job's maximum.
    models: object (J,), the goodput model of each job, given or fitted, None of one without.
    """

    goodput: FloatArray
    throughput: FloatArray
    batch_size: IntArray
    local_batch_size: IntArray
    accumulation_steps: IntArray
    models: NDArray[Any]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class KnownPairs:
    """What was found before, which who gets it completes: of `jobs` (J,) the models, and what tables say; of those with
    a model the goodputs of `pairs` (J, C). All else in `matrix` is 0, or None."""

    matrix: GoodputMatrix
    jobs: Mask
    pairs: Mask


def evaluate(
    jobs: Sequence[Job],
    configurations: ConfigurationSet,
    wanted: Mask | None = None,
    known: KnownPairs | None = None,
) -> GoodputMatrix:
    """Evaluate all jobs on all configurations; the row of a job without performance is 0.

    Performances must have passed `performance_issues`. Observations that jobs share are put together and fitted first,
    equal ones once. The batch search, which is most of the work, is left out where `wanted` (J, C) is False: there too
    goodput is 0; and where pairs are `known`, which must be wanted.

    Raises
    ------
    InputError
        When a goodput is not finite: parameters of absurd magnitude that no single check refuses.
    """
    shape = (len(jobs), len(configurations))
    if wanted is None:
        wanted = np.ones(shape, dtype=np.bool_)
    if known is None:
        matrix, rows = _zeros(shape), list(range(len(jobs)))
    else:
        matrix, rows = known.matrix, np.flatnonzero(~known.jobs).tolist()
        wanted = wanted & ~known.pairs
    for j, model in _goodput_models(jobs, rows).items():
        matrix.models[j] = model
    _fill_tables(matrix, jobs, rows, configurations)
    _fill_models(matrix, jobs, configurations, wanted)
    _raise_unless_finite(matrix, jobs)
    return matrix


def _zeros(shape: tuple[int, int]) -> GoodputMatrix:
    """A matrix in which nobody can run."""
    return GoodputMatrix(
        goodput=np.zeros(shape),
        throughput=np.zeros(shape),
        batch_size=np.zeros(shape, dtype=np.int64),
        local_batch_size=np.zeros(shape, dtype=np.int64),
        accumulation_steps=np.zeros(shape, dtype=np.int64),
        models=np.full(shape[0], None),
    )


def placed(
    matrix: GoodputMatrix,
    jobs: Sequence[Job],
    configurations: ConfigurationSet,
    chosen: tuple[IntVector, IntVector],
    bandwidth_fraction: FloatVector,
) -> GoodputMatrix:
    """The matrix with what jobs reach where they are, which may be less than their configurations promise, or more.

    Parameters
    ----------
    chosen
        Job and configuration (N,) of what is placed, every job once.
    bandwidth_fraction
        Share of the inter-node bandwidth (N,) that the nodes of each have between them.
    """
    rows, columns = chosen
    differs = bandwidth_fraction != configurations.bandwidth_fraction[columns]
    if not differs.any() or not (differs := differs & (matrix.goodput[chosen] > 0)).any():
        return matrix
    found = replace(
        matrix,
        goodput=matrix.goodput.copy(),
        throughput=matrix.throughput.copy(),
        batch_size=matrix.batch_size.copy(),
        local_batch_size=matrix.local_batch_size.copy(),
        accumulation_steps=matrix.accumulation_steps.copy(),
    )
    # Few placements share a fraction of a configuration, and those that do are evaluated together.
    for fraction in np.unique(bandwidth_fraction[differs]).tolist():
        here = differs & (bandwidth_fraction == fraction)
        wanted = np.zeros(matrix.goodput.shape, dtype=np.bool_)
        wanted[rows[here], columns[here]] = True
        as_placed = replace(configurations, bandwidth_fraction=np.full(len(configurations), fraction))
        _fill_models(found, jobs, as_placed, wanted)
    return found


def _fill_tables(
    matrix: GoodputMatrix, jobs: Sequence[Job], asked: Sequence[int], configurations: ConfigurationSet
) -> None:
    throughputs = {j: table for j in asked if isinstance(table := jobs[j].performance, ThroughputTable)}
    goodputs = {j: table for j in asked if isinstance(table := jobs[j].performance, GoodputTable)}
    if not (throughputs or goodputs):
        return
    lookup = TableLookup(configurations)
    for tables in (throughputs, goodputs):
        lookup.fill(matrix.goodput, np.array(list(tables), dtype=np.int64), [listed(t) for t in tables.values()])
    rows = np.array(list(throughputs), dtype=np.int64)
    batch_sizes = np.array([table.batch_size or 0 for table in throughputs.values()], dtype=np.int64)
    matrix.throughput[rows] = matrix.goodput[rows]
    matrix.batch_size[rows] = np.where(matrix.goodput[rows] > 0, batch_sizes[:, None], 0)


def _goodput_models(jobs: Sequence[Job], rows: Sequence[int]) -> dict[int, GoodputModel]:
    """Job index -> goodput model, for those of the jobs `rows` that have one or observations for one."""
    given = {j: model for j in rows if isinstance(model := jobs[j].performance, GoodputModel)}
    asked = [j for j in rows if isinstance(jobs[j].performance, GoodputObservations)]
    if not asked:
        return given
    shared = with_shared_observations(jobs)
    observed = {j: known for j in asked if isinstance(known := shared[j].performance, GoodputObservations)}
    # What fits loads scipy.optimize.
    from models.performance.goodput.fit import fit_models

    return given | dict(zip(observed, fit_models(list(observed.values())), strict=True))


def _fill_models(matrix: GoodputMatrix, jobs: Sequence[Job], configurations: ConfigurationSet, wanted: Mask) -> None:
    """Evaluate the jobs with a model on the configurations that are wanted (J, C)."""
    asked = np.flatnonzero(wanted.any(axis=1) & matrix.models.astype(np.bool_)).tolist()
    for elastic in (True, False):
        chosen = [j for j in asked if (jobs[j].adaptivity is Adaptivity.ELASTIC) is elastic]
        _search(matrix, {j: matrix.models[j] for j in chosen}, configurations, wanted, elastic=elastic)


def _search(
    matrix: GoodputMatrix,
    models: dict[int, GoodputModel],
    configurations: ConfigurationSet,
    wanted: Mask,
    *,
    elastic: bool,
) -> None:
    """Search the batch size of every feasible pair that is wanted, block by block."""
    if not models:
        return
    num_candidates = NUM_CANDIDATES if elastic else 1
    profiles = ProfileTable.of(models, configurations.gpu_types, elastic=elastic)
    rows, columns = profiles.feasible_pairs(configurations, wanted)
    block = _BLOCK_ELEMENTS // num_candidates
    for first in range(0, rows.size, block):
        row, column = rows[first : first + block], columns[first : first + block]
        # Magnitudes that overflow are refused at the end, with the name of the job.
        with np.errstate(all="ignore"):
            best = choose_batches(profiles.pairs(row, column, configurations), num_candidates)
            where = profiles.jobs[row], column
            matrix.goodput[where] = best.goodput
            matrix.throughput[where] = best.throughput
            matrix.batch_size[where] = best.batch_size
            matrix.local_batch_size[where] = best.local_batch
            matrix.accumulation_steps[where] = best.accumulation_steps


def _raise_unless_finite(matrix: GoodputMatrix, jobs: Sequence[Job]) -> None:
    if np.isfinite(matrix.goodput.sum()):
        return
    # Or the sum alone is not.
    wrong = np.flatnonzero(~np.isfinite(matrix.goodput).all(axis=1))
    if wrong.size:
        raise InputError(
            "the goodput of some jobs is not a finite number",
            [
                Issue(
                    code="not_finite",
                    pointer=f"/jobs/{j}/performance",
                    detail=f"the goodput of job {jobs[j].id!r} is not finite; check the magnitudes of its performance",
                )
                for j in wrong.tolist()
            ],
        )
