"""Goodputs of rounds that follow one another: what is as it was is taken from the matrix of a round before.

What a job reaches on a configuration depends on its model or table, on whether its batch may change, and on the
configuration alone. So the rows of jobs whose performance equals that of the job of the same id in an earlier round are
copied, as are those of new jobs that train as some other one did there, and only the other pairs are searched; models
that were fitted are not fitted again. Where configurations are others, tables are looked up anew. Where nothing at all
is other, the matrix is the very same. The result is that of `evaluate`, read-only.

What is kept is bounded: a few rounds, and together no more than so many bytes. A round that alone has more is not kept,
and neither is one without configurations, of a cluster that is down, which tells nothing.
"""

import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from itertools import repeat
from operator import is_
from typing import Any, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from models.configurations import ConfigurationSet
from models.performance.goodput.matrix import GoodputMatrix, KnownPairs, evaluate
from models.performance.goodput.sharing import shared_jobs
from models.performance.goodput.spec import GoodputModel, GoodputObservations
from models.roll import roll_of, row_of, say
from models.workload import Adaptivity, Job, Snapshot
from stowplan.arrays import IntVector, Mask
from stowplan.rolls import objects

# Services plan a few clusters in turns.
_ROUNDS = 4
_BYTES = 128 * 2**20
# A job with a model of a few GPU types.
_JOB_BYTES = 8 * 2**10
# So many jobs tell which round another one goes on from.
_SAMPLE = 32
_T = TypeVar("_T", bound=np.generic)
_ARRAYS = tuple(field.name for field in fields(GoodputMatrix) if field.name != "models")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Asked:
    """What is evaluated: J jobs, which have what they share. row_of: by id; performances, is_elastic (J,): of each.
    traits (J,): equal of jobs with a model or observations that are the same as far as goodput goes; 0 of others."""

    jobs: Sequence[Job]
    row_of: Mapping[str, int]
    performances: NDArray[Any]
    is_elastic: Mask
    traits: IntVector
    configurations: ConfigurationSet

    @classmethod
    def of(cls, snapshot: Snapshot, configurations: ConfigurationSet) -> Self:
        """The jobs, with what tells them apart."""
        jobs, roll, shared = snapshot.jobs, roll_of(snapshot), shared_jobs(snapshot)
        performances = roll.each("performance", np.object_, lambda rows: (jobs[j].performance for j in rows))
        return cls(
            jobs=shared,
            row_of=row_of(snapshot),
            performances=performances if shared is jobs else objects([job.performance for job in shared], len(jobs)),
            is_elastic=~say(snapshot, "adaptivity"),
            traits=roll.each("trait", np.int64, lambda rows: (_trait(jobs[j]) for j in rows)),
            configurations=configurations,
        )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Round:
    """What was evaluated where `wanted` (J, C). num_bytes: size of the arrays, and about that of the jobs."""

    asked: _Asked
    matrix: GoodputMatrix
    wanted: Mask
    num_bytes: int

    @classmethod
    def of(cls, asked: _Asked, matrix: GoodputMatrix, wanted: Mask) -> Self:
        """A round that was evaluated; nobody may write to its arrays any more."""
        arrays = [wanted, *(getattr(matrix, name) for name in _ARRAYS)]
        for array in (*arrays, matrix.models):
            array.setflags(write=False)
        num_bytes = sum([array.nbytes for array in arrays]) + _JOB_BYTES * len(asked.jobs)
        return cls(asked=asked, matrix=matrix, wanted=wanted, num_bytes=num_bytes)

    @property
    def pairs(self) -> Mask:
        """Of jobs with a model the pairs (J, C) that were evaluated."""
        return np.asarray(self.wanted & self.matrix.models.astype(np.bool_)[:, None])

    def answers(self, now: _Asked, wanted: Mask) -> bool:
        """Whether these are the very jobs as far as goodput goes, in their order, and as much was wanted of them."""
        own = self.asked
        return (
            own.configurations is now.configurations
            and own.row_of == now.row_of
            and own.is_elastic.tobytes() == now.is_elastic.tobytes()
            # Lists are equal where their elements are the same or equal.
            and own.performances.tolist() == now.performances.tolist()
            and self.wanted.tobytes() == wanted.tobytes()
        )

    def rows(self, now: _Asked) -> IntVector:
        """The row of each job (J',), or else of another one, that is the same as far as goodput goes; -1 where there is
        none."""
        rows = np.fromiter(map(self.asked.row_of.get, now.row_of, repeat(-1)), np.int64, len(now.jobs))
        # Nearly all have the very performance.
        same = map(is_, self.asked.performances[rows].tolist(), now.performances.tolist())
        is_known = np.fromiter(same, np.bool_, rows.size) & now.performances.astype(np.bool_)
        is_known &= self.asked.is_elastic[rows] == now.is_elastic
        for j in np.flatnonzero((rows >= 0) & ~is_known).tolist():
            if not self.has(now.jobs[j]):
                rows[j] = -1
        new = (rows < 0).nonzero()[0].tolist()
        if new:
            own = self.asked
            # Of those alike one is asked: models that were fitted to each alone are soon seen to be others.
            row_with = dict(zip(own.traits.tolist(), range(len(own.jobs)), strict=True))
            for j in new:
                row = row_with.get(trait, -1) if (trait := int(now.traits[j])) else -1
                if row >= 0 and _is_same(own.jobs[row], now.jobs[j]):
                    rows[j] = row
        return rows

    def has(self, job: Job) -> bool:
        """Whether there is a job that is the same as far as goodput goes."""
        row = self.asked.row_of.get(job.id, -1)
        return row >= 0 and _is_same(self.asked.jobs[row], job)


_kept: list[_Round] = []
_keeping = threading.Lock()


def evaluate_round(snapshot: Snapshot, configurations: ConfigurationSet, wanted: Mask) -> GoodputMatrix:
    """Evaluate all jobs on all configurations; see `evaluate`, which gives the same, and raises the same."""
    asked = _Asked.of(snapshot, configurations)
    with _keeping:
        rounds = tuple(_kept)
    same = next((each for each in rounds if each.answers(asked, wanted)), None)
    if same is not None:
        # With what is equal now, so that it is the very same the next time.
        _keep(_Round(asked=asked, matrix=same.matrix, wanted=same.wanted, num_bytes=same.num_bytes), same)
        return same.matrix
    before = _most_alike(asked)
    known = None if before is None else _known(before, asked, wanted)
    matrix = evaluate(snapshot.jobs, configurations, wanted, known)
    if len(configurations):
        _keep(_Round.of(asked, matrix, wanted), before)
    return matrix


def forget_rounds() -> None:
    """Keep nothing of the rounds so far."""
    with _keeping:
        _kept.clear()


def _keep(now: _Round, before: _Round | None) -> None:
    """Keep a round in place of the one before it, and of those that were not asked for in the longest time."""
    with _keeping:
        rounds = [now, *(each for each in _kept if each is not before)][:_ROUNDS]
        while rounds and sum([each.num_bytes for each in rounds]) > _BYTES:
            rounds.pop()
        _kept[:] = rounds


def _most_alike(asked: _Asked) -> _Round | None:
    """The round that has most of these jobs, by a sample; None where none has any."""
    sample = asked.jobs[:: max(1, len(asked.jobs) // _SAMPLE)]
    with _keeping:
        gpu_types = asked.configurations.gpu_types
        rounds = [each for each in _kept if each.asked.configurations.gpu_types == gpu_types]
    most, best = 0, None
    for each in rounds:
        num_alike = sum(map(each.has, sample))
        if num_alike > most:
            most, best = num_alike, each
        if most == len(sample):
            # Nearly always the last one has all.
            break
    return best


def _known(before: _Round, asked: _Asked, wanted: Mask) -> KnownPairs:
    """What the round before tells of these jobs."""
    rows = before.rows(asked)
    columns = _columns(before.asked.configurations, asked.configurations)
    if columns is not None:
        # There is no telling what tables say of others.
        rows[~before.matrix.models.astype(np.bool_)[rows]] = -1
    pairs = _taken(before.pairs, rows, columns)
    arrays: dict[str, Any] = {name: _taken(getattr(before.matrix, name), rows, columns) for name in _ARRAYS}
    # Of jobs with a model nothing else is known than these pairs.
    unwanted = pairs & ~wanted
    if unwanted.any():
        pairs &= wanted
        for array in arrays.values():
            array[unwanted] = 0
    models = before.matrix.models[rows]
    models[rows < 0] = None
    return KnownPairs(matrix=GoodputMatrix(**arrays, models=models), jobs=rows >= 0, pairs=pairs)


def _taken(values: NDArray[_T], rows: IntVector, columns: IntVector | None) -> NDArray[_T]:
    """Values (J', C') at rows and columns, 0 where either is -1; `columns` None: all."""
    chosen = values.take(rows, axis=0, mode="wrap") if columns is None else values[np.ix_(rows, columns)]
    if (is_new := rows < 0).any():
        chosen[is_new] = 0
    if columns is not None:
        chosen[:, columns < 0] = 0
    return chosen


def _columns(before: ConfigurationSet, now: ConfigurationSet) -> IntVector | None:
    """Where each configuration (C,) stood before, -1 for nowhere; None where all stand as they did."""
    if before is now:
        return None
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


def _trait(job: Job) -> int:
    known = job.performance
    if not isinstance(known, GoodputModel | GoodputObservations):
        return 0
    batch, gradient = known.batch, known.gradient
    is_elastic = job.adaptivity is Adaptivity.ELASTIC
    return hash((batch.initial, batch.maximum, gradient.squared_norm, gradient.variance, is_elastic))


def _is_same(before: Job, now: Job) -> bool:
    """Whether goodputs of both are the same: their models or tables, or what models are fitted to, and who chooses the
    batch."""
    own, other = before.performance, now.performance
    return (
        other is not None
        and (own is other or own == other)
        and (before.adaptivity is Adaptivity.ELASTIC) is (now.adaptivity is Adaptivity.ELASTIC)
    )
