"""What was found of objects, as long as they live.

Objects are told apart by identity: frozen dataclasses of many parts take long to hash and to compare, and some have no
hash. An entry goes when its object does, so that nothing is kept that nobody else keeps.
"""

import weakref
from typing import Generic, TypeVar

K = TypeVar("K")
V = TypeVar("V")


class OfLiving(Generic[K, V]):
    """A map from objects, which can be referred to weakly and do not change, to what was found of them."""

    def __init__(self) -> None:
        self._found: dict[int, tuple[weakref.ref[K], V]] = {}

    def __len__(self) -> int:
        return len(self._found)

    def get(self, thing: K) -> V | None:
        """What was found of an object; None when nothing was."""
        known = self._found.get(id(thing))
        # An id is given again once its object is gone, which may be before its entry is.
        return known[1] if known is not None and known[0]() is thing else None

    def put(self, thing: K, found: V) -> None:
        """Keep what was found of an object."""
        key, map_ = id(thing), self._found

        def forget(reference: weakref.ref[K]) -> None:
            known = map_.get(key)
            if known is not None and known[0] is reference:
                del map_[key]

        map_[key] = (weakref.ref(thing, forget), found)
