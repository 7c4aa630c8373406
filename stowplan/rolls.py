"""What was found of each of a sequence of records, as arrays, carried over to the next sequence that has most of them.

Rounds that follow one another have nearly all of their records in common. What is found of a record alone, or of it
beside something that is as it was, is found once: the round after takes it by position, and looks at no other record
than those that are new. Records are told apart by identity, and do not change.
"""

import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import repeat
from operator import eq, is_
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import DTypeLike, NDArray

from stowplan.arrays import IntVector
from stowplan.living import Living, OfLiving

K = TypeVar("K")
O = TypeVar("O", bound=Living)  # noqa: E741 - owner
# Clusters that are planned in turns; so many records tell which sequence another one goes on from.
_RECENT = 4
_SAMPLE = 32
# What is found by one name, and what it is found beside.
_MOST_BYTES = 64 * 2**20

_FEW = 8
# So many elements are soon compared as bytes, and those that differ found one by one.
_SMALL = 4096
# So few are sooner looked at than arrays are asked.
_FEW_ROWS = 64
# When a value is the one that was there, by kind of array. Not of floats: 0.0 is -0.0, and is not written like it.
_IS_SAME: Mapping[str, Callable[[Any, Any], bool]] = {"b": eq, "i": eq, "O": is_}

Find = Callable[[list[int]], Iterable[Any]]
"""Values of the records at these positions."""


class _Found:
    """`values` (n, ...), found beside the very objects `same`, what is `equal`, and of each record what is `beside`."""

    __slots__ = ("beside", "equal", "same", "values")

    def __init__(
        self, values: NDArray[Any], same: tuple[object, ...], equal: object, beside: tuple[NDArray[Any], ...]
    ) -> None:
        self.values = values
        self.same = same
        self.equal = equal
        self.beside = beside


class Roll(Generic[K]):
    """A sequence of n records, and what was found of each by name. `before`: what there is to be taken over from."""

    def __init__(self, things: Sequence[K], before: "Roll[K] | None" = None) -> None:
        self.things = things
        self._place = dict(zip(map(id, things), range(len(things)), strict=True))
        self._found: dict[str, _Found] = {}
        # What the roll before has found; where its records stand there, None where all that are here stand as they did;
        # those that are not there.
        self._earlier: Mapping[str, _Found] = {}
        self._rows: IntVector | None = None
        self._others: list[int] = []
        # Much is found beside the same arrays: where two of them differ is found once. Only what is carried over is
        # compared a bounded number of times.
        self._compared: dict[tuple[int, int], tuple[NDArray[Any], NDArray[Any], list[int] | None]] = {}
        if before is not None:
            self._go_on_from(before)

    def _go_on_from(self, before: "Roll[K]") -> None:
        rows = np.fromiter(map(before._place.get, map(id, self.things), repeat(-1)), np.int64, len(self.things))
        self._others = (rows < 0).nonzero()[0].tolist()
        stay = np.count_nonzero(rows == np.arange(rows.size))
        if len(before.things) != rows.size or stay + len(self._others) != rows.size:
            self._rows = rows
        self._earlier = before._found
        # Else all that ever were would stay.
        before._earlier = {}
        before._compared.clear()

    def num_in(self, things: Sequence[K]) -> int:
        """How many of these records are in the sequence."""
        return sum(map(self._place.__contains__, map(id, things)))

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
        large to be kept. No other caller may have the same `name`, a literal. Where nothing is other than in the
        sequence before, it is the very array.
        """
        known, is_carried = self._found.get(name), False
        if known is None:
            known, is_carried = self._earlier.get(name), True
        new = None if known is None else self._new(known, same, equal, beside, is_carried=is_carried)
        if known is None or new is None:
            values = _values(find(list(range(len(self.things)))), kind, len(self.things))
            values.setflags(write=False)
        else:
            if not (is_carried or new):
                # Beside the very arrays, or such as are alike.
                return known.values
            values = known.values
            if is_carried and self._rows is not None:
                # Of rows this takes half as long as an index.
                values = values.take(self._rows, axis=0)
                values.setflags(write=False)
            if new:
                values = _with(values, find(new), new)
        num_bytes = values.nbytes
        for array in beside:
            num_bytes += array.nbytes
        if num_bytes <= _MOST_BYTES:
            self._found[name] = _Found(values, same, equal, beside)
        else:
            # What a smaller sequence had may be compared again and again.
            self._compared.clear()
        return values

    def _new(
        self,
        known: _Found,
        same: tuple[object, ...],
        equal: object,
        beside: tuple[NDArray[Any], ...],
        *,
        is_carried: bool,
    ) -> list[int] | None:
        """The records that were not there, or beside something else; None for all."""
        if known.equal is not equal and known.equal != equal:
            return None
        if (same or known.same) and not (len(known.same) == len(same) and all(map(is_, known.same, same))):
            return None
        others = self._others if is_carried else []
        if not (beside or known.beside):
            return others
        if len(known.beside) != len(beside):
            return None
        in_place, differing = not is_carried or self._rows is None, set[int]()
        for before, now in zip(known.beside, beside, strict=True):
            if not (before is now and in_place):
                rows = self._differing_from(before, now) if is_carried else _differing(before, now)
                if rows is None:
                    return None
                differing.update(rows)
        return sorted(differing.union(others)) if differing else others

    def _differing_from(self, before: NDArray[Any], now: NDArray[Any]) -> list[int] | None:
        """Where an array is other than one of the roll before; None where it has other rows."""
        key = id(before), id(now)
        known = self._compared.get(key)
        if known is None:
            as_now = before if self._rows is None else before.take(self._rows, axis=0)
            known = self._compared[key] = before, now, _differing(as_now, now)
        return known[2]


def _differing(before: NDArray[Any], now: NDArray[Any]) -> list[int] | None:
    """Where two arrays (n, ...) differ, ascending; None where their rows are of other kinds."""
    if before.shape[1:] != now.shape[1:] or before.dtype.kind != now.dtype.kind:
        return None
    is_small, are_objects = now.size <= _SMALL, now.dtype.hasobject
    if now.ndim > 1:
        if is_small and before.dtype is now.dtype and before.tobytes() == now.tobytes():
            return []
        is_other = before != now
        # To ask each row takes longer, unless most differ.
        where = is_other.ravel().nonzero()[0]
        if where.size <= _SMALL:
            return sorted(set((where // (now.size // len(now))).tolist()) if where.size else ())
        is_other = is_other.any(axis=tuple(range(1, now.ndim)))
    elif now.size <= _FEW_ROWS:
        pairs = enumerate(zip(before.tolist(), now.tolist(), strict=True))
        if are_objects:
            return [row for row, (one, other) in pairs if one is not other]
        return [row for row, (one, other) in pairs if one != other]
    else:
        is_other = _identities(before) != _identities(now) if are_objects else before != now
    rows: list[int] = is_other.nonzero()[0].tolist()
    return rows


def _identities(things: NDArray[Any]) -> IntVector:
    """Of an array of objects what tells them apart, as long as it keeps them: a number for each."""
    return np.ndarray(things.shape, np.intp, things if things.flags.c_contiguous else things.copy())


def objects(things: Iterable[object], count: int) -> NDArray[Any]:
    """An array (count,) of objects, be they sequences or not."""
    return np.fromiter(things, dtype=np.object_, count=count)


def _values(found: Iterable[Any], kind: DTypeLike, count: int) -> NDArray[Any]:
    return found.copy() if isinstance(found, np.ndarray) else np.fromiter(found, dtype=kind, count=count)


def _with(values: NDArray[Any], found: Iterable[Any], rows: list[int]) -> NDArray[Any]:
    """The values with what was found of records where they stand; the very array where that is what stood there. Few
    are new in most rounds: one by one is soonest."""
    if isinstance(found, np.ndarray):
        changed = values.copy()
        if len(rows) == 1:
            changed[rows[0]] = found[0]
        else:
            changed[rows] = found
    elif len(rows) > _FEW:
        changed = values.copy()
        changed[rows] = _values(found, values.dtype, len(rows))
    else:
        is_same, changed = _IS_SAME.get(values.dtype.kind), values
        for row, value in zip(rows, found, strict=True):
            if changed is values:
                if is_same is not None and is_same(values.item(row), value):
                    continue
                changed = values.copy()
            changed[row] = value
    changed.setflags(write=False)
    return changed


class Rolls(Generic[O, K]):
    """Rolls of the sequences that objects have, which go with them."""

    def __init__(self) -> None:
        self._of: OfLiving[O, Roll[K]] = OfLiving()
        self._recent: list[weakref.ref[Roll[K]]] = []

    def of(self, owner: O, things: Sequence[K]) -> Roll[K]:
        """The roll of the sequence of `owner`, which does not change; it goes on from the recent one that is most
        alike."""
        # Asked dozens of times a round: as `OfLiving.get` does it, without the call.
        known = self._of.by_id.get(id(owner))
        return known[1] if known is not None and known[0]() is owner else self._begun(owner, things)

    def _begun(self, owner: O, things: Sequence[K]) -> Roll[K]:
        sample = things[:: max(1, len(things) // _SAMPLE)]
        recent = [roll for each in self._recent if (roll := each()) is not None]
        most, best = 0, None
        for roll in recent:
            num_alike = roll.num_in(sample)
            if num_alike > most:
                most, best = num_alike, roll
        begun = Roll(things, best)
        self._of.put(owner, begun)
        # Those that are gone take no place of others.
        self._recent = [weakref.ref(begun), *map(weakref.ref, recent[: _RECENT - 1])]
        return begun
