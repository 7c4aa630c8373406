"""What was found of each of a sequence of records, as arrays, carried over to the next sequence that has most of them.

Rounds that follow one another have nearly all of their records in common. What is found of a record alone, or of it
beside something that is as it was, is found once: the round after takes it by position, and looks at no other record
than those that are new. Records are told apart by identity, and do not change.
"""

import weakref
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from itertools import repeat
from operator import is_, is_not
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np
from numpy.typing import DTypeLike, NDArray

from stowplan.arrays import IntVector, Mask
from stowplan.living import Living, OfLiving

K = TypeVar("K")
O = TypeVar("O", bound=Living)  # noqa: E741 - owner
# Clusters that are planned in turns; so many records tell which sequence another one goes on from.
_RECENT = 4
_SAMPLE = 32
# What is found by one name, and what it is found beside.
_MOST_BYTES = 64 * 2**20

_FEW = 8

Find = Callable[[list[int]], Iterable[Any]]
"""Values of the records at these positions."""


class _Found(NamedTuple):
    """`values` (n, ...), found beside the very objects `same`, what is `equal`, and of each record what is `beside`."""

    values: NDArray[Any]
    same: tuple[object, ...]
    equal: object
    beside: tuple[NDArray[Any], ...]

    def goes_with(self, same: tuple[object, ...], equal: object, beside: tuple[NDArray[Any], ...]) -> bool:
        if len(self.same) != len(same) or len(self.beside) != len(beside) or self.equal != equal:
            return False
        if not all(map(is_, self.same, same)):
            return False
        # Asked of everything in every round: no list is made.
        for array, now in zip(self.beside, beside, strict=True):
            if array.ndim != now.ndim or (now.ndim > 1 and array.shape[1:] != now.shape[1:]):
                return False
        return True


class Roll(Generic[K]):
    """A sequence of n records, and what was found of each by name. `before`: what there is to be taken over from."""

    def __init__(self, things: Sequence[K], before: "Roll[K] | None" = None) -> None:
        self.things = things
        self._place = dict(zip(map(id, things), range(len(things)), strict=True))
        self._found: dict[str, _Found] = {}
        # Much is found beside the same arrays: where two of them differ is found once. Only what is carried over is
        # compared a bounded number of times.
        self._compared: dict[tuple[int, int], tuple[NDArray[Any], NDArray[Any], Mask]] = {}
        self._before = before
        self._rows: IntVector = np.zeros(0, dtype=np.int64)
        if before is not None:
            self._rows = np.fromiter(map(before._place.get, map(id, things), repeat(-1)), np.int64, len(things))
            # Else all that ever were would stay.
            before._before = None
            before._compared.clear()
        self._is_other: Mask = self._rows < 0
        # Much is found beside nothing.
        self._others: list[int] = self._is_other.nonzero()[0].tolist()

    def num_in(self, things: Sequence[K]) -> int:
        """How many of these records are in the sequence."""
        return sum([id(thing) in self._place for thing in things])

    def each(
        self,
        name: str,
        kind: DTypeLike,
        find: Find,
        *,
        same: tuple[object, ...] = (),
        equal: object = None,
        beside: tuple[NDArray[Any], ...] = (),
    ) -> NDArray[Any]:
        """What `find` gives for each record: (n,) of the type `kind`, or (n, ...) where it gives an array; read-only.

        It must be a function of the record, of the objects `same`, of what is `equal`, and of the record's elements of
        the arrays `beside` (n, ...), which are compared by identity where they are objects, and are not written to any
        more. It is asked for those records alone for which none of that is as it was; for all where the arrays are too
        large to be kept. No other caller may have the same `name`, a literal.
        """
        known, is_carried = self._found.get(name), False
        if known is None and self._before is not None:
            known, is_carried = self._before._found.get(name), True
        if known is None or not known.goes_with(same, equal, beside):
            values = _values(find(list(range(len(self.things)))), kind, len(self.things))
        else:
            new = self._new(known, beside, is_carried=is_carried)
            if not (is_carried or new):
                return known.values
            # Of rows this takes half as long as an index.
            values = known.values.take(self._rows, axis=0) if is_carried else known.values.copy()
            if new:
                _put(find(new), values, new)
        values.setflags(write=False)
        if values.nbytes + sum([array.nbytes for array in beside]) <= _MOST_BYTES:
            self._found[name] = _Found(values, same, equal, beside)
        else:
            # What a smaller sequence had may be compared again and again.
            self._compared.clear()
        return values

    def _new(self, known: _Found, beside: tuple[NDArray[Any], ...], *, is_carried: bool) -> list[int]:
        """The records that were not there, or beside something else."""
        if is_carried and not beside:
            return self._others
        if not is_carried and all(map(is_, known.beside, beside)):
            return []
        is_new = self._is_other if is_carried else np.zeros(len(self.things), dtype=np.bool_)
        for before, now in zip(known.beside, beside, strict=True):
            if is_carried:
                is_new = is_new | self._differs_from(before, now)
            elif before is not now:
                is_new = is_new | _differs(before, now)
        new: list[int] = is_new.nonzero()[0].tolist()
        return new

    def _differs_from(self, before: NDArray[Any], now: NDArray[Any]) -> Mask:
        """Where an array is other than one of the roll before."""
        known = self._compared.get((id(before), id(now)))
        if known is None:
            known = self._compared[id(before), id(now)] = before, now, _differs(before.take(self._rows, axis=0), now)
        return known[2]


def _differs(before: NDArray[Any], now: NDArray[Any]) -> Mask:
    if now.dtype == np.object_:
        return np.fromiter(map(is_not, before.tolist(), now.tolist()), np.bool_, now.size)
    return np.asarray(before != now if now.ndim == 1 else (before != now).any(axis=1))


def objects(things: Iterable[object], count: int) -> NDArray[Any]:
    """An array (count,) of objects, be they sequences or not."""
    return np.fromiter(things, dtype=np.object_, count=count)


def _values(found: Iterable[Any], kind: DTypeLike, count: int) -> NDArray[Any]:
    return found.copy() if isinstance(found, np.ndarray) else np.fromiter(found, dtype=kind, count=count)


def _put(found: Iterable[Any], values: NDArray[Any], rows: list[int]) -> None:
    """Put what was found of records where they stand. Few are new in most rounds: one by one is soonest."""
    if isinstance(found, np.ndarray) or len(rows) > _FEW:
        values[rows] = _values(found, values.dtype, len(rows))
    else:
        for row, value in zip(rows, found, strict=True):
            values[row] = value


class Rolls(Generic[O, K]):
    """Rolls of the sequences that objects have, which go with them."""

    def __init__(self) -> None:
        self._of: OfLiving[O, Roll[K]] = OfLiving()
        self._recent: deque[weakref.ref[Roll[K]]] = deque(maxlen=_RECENT)

    def of(self, owner: O, things: Sequence[K]) -> Roll[K]:
        """The roll of the sequence of `owner`, which does not change; it goes on from the recent one that is most
        alike."""
        known = self._of.get(owner)
        if known is None:
            sample = things[:: max(1, len(things) // _SAMPLE)]
            recent = [roll for each in tuple(self._recent) if (roll := each()) is not None]
            alike = [(roll.num_in(sample), roll) for roll in recent]
            most, best = max(alike, key=lambda counted: counted[0], default=(0, None))
            known = Roll(things, best if most else None)
            self._of.put(owner, known)
            self._recent.appendleft(weakref.ref(known))
        return known
