"""Goodputs of rounds that follow one another: what is as it was is taken from the matrix of a round before.

What a job with a model reaches on a configuration depends on its model, on whether its batch may change, and on the
configuration alone. So the rows of jobs whose performance equals that of the job of the same id in an earlier round are
copied, and only the other pairs are searched; models that were fitted are not fitted again. Tables are looked up anew,
which takes no longer than a copy. The result is that of `evaluate`.

What is kept is bounded: a few rounds, and together no more than so many bytes. A round that alone has more is not kept,
and neither is one without configurations, of a cluster that is down, which tells nothing.
"""

import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from models.configurations import ConfigurationSet
from models.performance.goodput.matrix import GoodputMatrix, KnownPairs, evaluate
from models.performance.goodput.sharing import with_shared_observations
from models.performance.goodput.spec import GoodputModel, GoodputObservations
from models.workload import Adaptivity, Job
from stowplan.arrays import IntVector, Mask

# Services plan a few clusters in turns.
_ROUNDS = 4
_BYTES = 128 * 2**20
# A job with a model of a few GPU types.
_JOB_BYTES = 8 * 2**10
# So many jobs tell which round another one goes on from.
_SAMPLE = 32
_MODELS = (GoodputModel, GoodputObservations)
_T = TypeVar("_T", bound=np.generic)
_ARRAYS = tuple(field.name for field in fields(GoodputMatrix) if field.name != "models")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Round:
    """What was evaluated: of J jobs, which have what they share, the `pairs` (J, C). row_of: by id of the job."""

    jobs: Sequence[Job]
    row_of: Mapping[str, int]
    configurations: ConfigurationSet
    matrix: GoodputMatrix
    pairs: Mask

    @property
    def num_bytes(self) -> int:
        """Size of the arrays, and about that of the jobs."""
        arrays = int(sum(getattr(self.matrix, name).nbytes for name in _ARRAYS)) + self.pairs.nbytes
        return arrays + _JOB_BYTES * len(self.jobs)

    def row(self, job: Job) -> int:
        """The row of a job that is the same as far as goodput goes; -1 where there is none."""
        row = self.row_of.get(job.id, -1)
        return row if row >= 0 and _is_same(self.jobs[row], job) else -1


_kept: list[_Round] = []
_keeping = threading.Lock()


def evaluate_round(jobs: Sequence[Job], configurations: ConfigurationSet, wanted: Mask) -> GoodputMatrix:
    """Evaluate all jobs on all configurations; see `evaluate`, which gives the same, and raises the same."""
    shared = with_shared_observations(jobs)
    before = _most_alike(shared, configurations)
    known = None if before is None else _known(before, shared, configurations, wanted)
    matrix = evaluate(jobs, configurations, wanted, known)
    if not len(configurations):
        return matrix
    has_model = np.zeros(len(jobs), dtype=np.bool_)
    has_model[list(matrix.models)] = True
    now = _Round(
        jobs=tuple(shared),
        row_of={job.id: j for j, job in enumerate(shared)},
        configurations=configurations,
        matrix=matrix,
        pairs=wanted & has_model[:, None],
    )
    _keep(now, before)
    return matrix


def forget_rounds() -> None:
    """Keep nothing of the rounds so far."""
    with _keeping:
        _kept.clear()


def _keep(now: _Round, before: _Round | None) -> None:
    """Keep a round in place of the one before it, and of those that were not asked for in the longest time."""
    with _keeping:
        rounds = [now, *(each for each in _kept if each is not before)][:_ROUNDS]
        while rounds and sum(each.num_bytes for each in rounds) > _BYTES:
            rounds.pop()
        _kept[:] = rounds


def _most_alike(jobs: Sequence[Job], configurations: ConfigurationSet) -> _Round | None:
    """The round that has most of these jobs, by a sample; None where none has any."""
    sample = jobs[:: max(1, len(jobs) // _SAMPLE)]
    with _keeping:
        rounds = [each for each in _kept if each.configurations.gpu_types == configurations.gpu_types]
    alike = [(sum(each.row(job) >= 0 for job in sample), each) for each in rounds]
    most, best = max(alike, key=lambda counted: counted[0], default=(0, None))
    return best if most else None


def _known(before: _Round, jobs: Sequence[Job], configurations: ConfigurationSet, wanted: Mask) -> KnownPairs:
    """What the round before tells of these jobs."""
    found = [before.row(job) for job in jobs]
    rows = np.array(found, dtype=np.int64)
    columns = _columns(before.configurations, configurations)
    pairs = _taken(before.pairs, rows, columns)
    arrays: dict[str, Any] = {name: _taken(getattr(before.matrix, name), rows, columns) for name in _ARRAYS}
    # Of jobs with a model nothing else is known than these pairs.
    unwanted = pairs & ~wanted
    if unwanted.any():
        pairs &= wanted
        for array in arrays.values():
            array[unwanted] = 0
    return KnownPairs(
        matrix=GoodputMatrix(**arrays),
        models={j: before.matrix.models[row] for j, row in enumerate(found) if row in before.matrix.models},
        pairs=pairs,
    )


def _taken(values: NDArray[_T], rows: IntVector, columns: IntVector | None) -> NDArray[_T]:
    """Values (J', C') at rows and columns, 0 where either is -1; `columns` None: all."""
    chosen = values[np.maximum(rows, 0)] if columns is None else values[np.ix_(np.maximum(rows, 0), columns)]
    chosen[rows < 0] = 0
    if columns is not None:
        chosen[:, columns < 0] = 0
    return chosen


def _columns(before: ConfigurationSet, now: ConfigurationSet) -> IntVector | None:
    """Where each configuration (C,) stood before, -1 for nowhere; None where all stand as they did."""
    parts = zip(_parts(before), _parts(now), strict=True)
    if len(before) == len(now) and all((own == other).all() for own, other in parts):
        return None
    index = {key: c for c, key in enumerate(_keys(before))}
    return np.array([index.get(key, -1) for key in _keys(now)], dtype=np.int64)


def _parts(configurations: ConfigurationSet) -> tuple[NDArray[Any], ...]:
    """What tells configurations of the same GPU types apart, each (C,)."""
    return (
        configurations.type_index,
        configurations.num_nodes,
        configurations.num_gpus,
        configurations.bandwidth_fraction,
    )


def _keys(configurations: ConfigurationSet) -> Iterator[tuple[float, ...]]:
    return zip(*(part.tolist() for part in _parts(configurations)), strict=True)


def _is_same(before: Job, now: Job) -> bool:
    """Whether goodputs of both are the same: their models, or what they are fitted to, and who chooses the batch."""
    own, other = before.performance, now.performance
    return (
        isinstance(other, _MODELS)
        and (own is other or own == other)
        and (before.adaptivity is Adaptivity.ELASTIC) is (now.adaptivity is Adaptivity.ELASTIC)
    )
