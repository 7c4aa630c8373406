"""What was found of objects, as long as they live.

Objects are told apart by identity: frozen dataclasses of many parts take long to hash and to compare, and some have no
hash. An entry goes when its object does, so that nothing is kept that nobody else keeps.
"""

import weakref
from collections.abc import Callable
from functools import partial, wraps
from operator import is_
from typing import Any, Generic, TypeVar

K = TypeVar("K")
V = TypeVar("V")
# By id: the object, and where something is kept of it by the same id. One reference for all maps, as it takes longest.
# Threads that meet need no lock (which a fork, or a collection amid `put`, could find taken). Each step on a dict or a
# list is whole; `setdefault` gives all that come with an object one reference, and the others go without a call. What
# `_forget` takes out is of an object that nobody can ask for any more, whose id is not given again before it is done.
_alive: dict[int, tuple["weakref.ref[Any]", list[dict[int, Any]]]] = {}


class Living:
    """Base of classes with slots whose objects can be referred to weakly: as a slot of their own it would keep
    `stowplan.slots` from making copies of them."""

    __slots__ = ("__weakref__",)


class OfLiving(Generic[K, V]):
    """A map from objects, which are `Living` and do not change, to what was found of them.

    What was found must not refer to its object, which would never go. `by_id`: what was found, beside the object by
    whose id it stands; to be read alone.
    """

    def __init__(self) -> None:
        self.by_id: dict[int, tuple[weakref.ref[K], V]] = {}

    def get(self, thing: K) -> V | None:
        """What was found of an object; None when nothing was."""
        known = self.by_id.get(id(thing))
        # An entry that was left behind, however that came, is not that of the object that has its id now.
        return known[1] if known is not None and known[0]() is thing else None

    def put(self, thing: K, found: V) -> None:
        """Keep what was found of an object, in place of what was found before."""
        key = id(thing)
        known = _alive.get(key)
        if known is None:
            known = _alive.setdefault(key, (weakref.ref(thing, partial(_forget, key)), []))
        if key not in self.by_id:
            known[1].append(self.by_id)
        self.by_id[key] = (known[0], found)


class OfUnchanged(Generic[K, V]):
    """A map from objects to what was found of them beside others, as long as all of these are the same.

    What is found must be a function of the object, of the others that were the same, and of what was equal. The others
    are kept as long as the object lives and is not asked with new ones; they must not refer to it.
    """

    def __init__(self) -> None:
        self._found: OfLiving[K, tuple[tuple[object, ...], object, V]] = OfLiving()

    def get(self, thing: K, same: tuple[object, ...], equal: object = None) -> V | None:
        """What was found of an object beside the very objects `same`, and with what is `equal`; None when nothing
        was."""
        entry = self._found.by_id.get(id(thing))
        if entry is None or entry[0]() is not thing:
            return None
        others, was_equal, found = entry[1]
        if was_equal is not equal and was_equal != equal:
            return None
        # Nearly always there is one.
        is_same = others[0] is same[0] if len(others) == 1 else all(map(is_, others, same))
        return found if is_same else None

    def put(self, thing: K, same: tuple[object, ...], equal: object, found: V) -> None:
        """Keep what was found, in place of what was found before."""
        self._found.put(thing, (same, equal, found))


def found_once(function: Callable[[K], V]) -> Callable[[K], V]:
    """A function of objects that are `Living` and do not change, asked once for each; see `OfLiving`."""
    found: OfLiving[K, V] = OfLiving()
    # As `OfLiving.get` does it, without the call: most is asked far more often than it is found, and may be None.
    by_id = found.by_id

    @wraps(function)
    def of(thing: K) -> V:
        known = by_id.get(id(thing))
        if known is not None and known[0]() is thing:
            return known[1]
        value = function(thing)
        found.put(thing, value)
        return value

    return of


def _forget(key: int, _: object, alive: dict[int, tuple[Any, list[dict[int, Any]]]] = _alive) -> None:
    # At the end of the interpreter names of modules go before objects do.
    _, keepers = alive.pop(key)
    for found in keepers:
        # Two threads that were the first to put something there have both said so.
        found.pop(key, None)
