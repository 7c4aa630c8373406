"""What was found of each job of a snapshot, carried over from round to round."""

from collections.abc import Mapping
from dataclasses import MISSING, dataclass, fields
from functools import cache
from itertools import compress
from operator import attrgetter, ne

import numpy as np

from models.performance.goodput.spec import GoodputObservations
from models.workload import Job, Snapshot
from stowplan.arrays import IntVector, Mask, none_of
from stowplan.living import found_once
from stowplan.rolls import Roll, Rolls

_rolls: Rolls[Snapshot, Job] = Rolls()
_DEFAULTS = {field.name: field.default for field in fields(Job) if field.default is not MISSING}
# Beside the fields: that the performance is observations.
_OBSERVED = "observations"
_BITS = {name: 1 << k for k, name in enumerate((*_DEFAULTS, _OBSERVED))}
_of_fields, _default_values = attrgetter(*_DEFAULTS), tuple(_DEFAULTS.values())


def roll_of(snapshot: Snapshot) -> Roll[Job]:
    """The roll of the jobs of a snapshot."""
    return _rolls.of(snapshot, snapshot.jobs)


@found_once
def row_of(snapshot: Snapshot) -> Mapping[str, int]:
    """Where each job stands, by its id; in the order of the jobs."""
    return {job.id: row for row, job in enumerate(snapshot.jobs)}


@dataclass(frozen=True, slots=True, eq=False)
class _Said:
    """What jobs say otherwise than by default, a bit for each name: `of_each` of them (J,), and `somewhere`, of any."""

    of_each: IntVector
    somewhere: int


@found_once
def _said(snapshot: Snapshot) -> _Said:
    jobs = snapshot.jobs
    of_each = roll_of(snapshot).each("says", np.int64, lambda rows: (_bits_of(jobs[k]) for k in rows))
    return _Said(of_each, int(np.bitwise_or.reduce(of_each)))


def _bits_of(job: Job) -> int:
    bits = sum(compress(_BITS.values(), map(ne, _of_fields(job), _default_values)))
    return bits | _BITS[_OBSERVED] if isinstance(job.performance, GoodputObservations) else bits


@cache
def _mask_of(names: tuple[str, ...]) -> int:
    return sum(_BITS[name] for name in set(names))


def some_say(snapshot: Snapshot, *names: str) -> bool:
    """Whether any job says something of one of these fields: what is not its default."""
    return _said(snapshot).somewhere & _mask_of(names) != 0


def say(snapshot: Snapshot, *names: str) -> Mask:
    """Whether each job (J,) says something of one of these fields; read-only. Nearly always none does."""
    said, asked = _said(snapshot), _mask_of(names)
    if not said.somewhere & asked:
        return none_of(said.of_each.size)
    return np.asarray(said.of_each & asked != 0)


def rows_that_say(snapshot: Snapshot, *names: str) -> list[int]:
    """The rows of the jobs that say something of one of these fields."""
    rows: list[int] = say(snapshot, *names).nonzero()[0].tolist() if some_say(snapshot, *names) else []
    return rows


def reserves(snapshot: Snapshot) -> Mask:
    """Whether each job (J,) has a reservation; read-only."""
    return say(snapshot, "reservation")


def is_preemptible(snapshot: Snapshot) -> Mask:
    """Whether each job (J,) may be taken its GPUs."""
    return ~say(snapshot, "preemptible")


def has_model(snapshot: Snapshot) -> Mask:
    """Whether each job (J,) says what it trains; read-only."""
    return say(snapshot, "transformer", "operators")


def has_observations(snapshot: Snapshot) -> bool:
    """Whether the performance of any job is observations."""
    return some_say(snapshot, _OBSERVED)
