"""What was found lately, as far as it does not weigh too much together."""

from collections import OrderedDict
from collections.abc import Hashable
from threading import Lock
from typing import Generic, TypeVar

V = TypeVar("V")


class Recent(Generic[V]):
    """A map of limited weight. What was not asked for the longest goes first.

    most: weight of all together. most_of_one: what weighs more is not kept. most_entries: how many there are at most.
    """

    def __init__(self, *, most: int, most_of_one: int, most_entries: int) -> None:
        self._limits = most, most_of_one, most_entries
        self._found: OrderedDict[Hashable, tuple[V, int]] = OrderedDict()
        self._weight = 0
        # Services plan in several threads.
        self._lock = Lock()

    def __len__(self) -> int:
        return len(self._found)

    @property
    def weight(self) -> int:
        """Of all that is kept."""
        return self._weight

    def get(self, key: Hashable) -> V | None:
        """What was found; None when it was not, or is kept no longer."""
        with self._lock:
            known = self._found.get(key)
            if known is None:
                return None
            self._found.move_to_end(key)
            return known[0]

    def put(self, key: Hashable, found: V, weight: int) -> None:
        """Keep what was found, in place of what was before."""
        with self._lock:
            self._drop(key)
            if weight <= self._limits[1]:
                self._keep(key, found, weight)

    def grow(self, key: Hashable, found: V, weight: int) -> bool:
        """Whether what is kept may weigh so much more: no longer when something else is kept instead, or when it were
        too much for one."""
        with self._lock:
            known = self._found.get(key)
            if known is None or known[0] is not found or known[1] + weight > self._limits[1]:
                return False
            self._drop(key)
            self._keep(key, found, known[1] + weight)
            return True

    def clear(self) -> None:
        """Keep nothing."""
        with self._lock:
            self._found.clear()
            self._weight = 0

    def _drop(self, key: Hashable) -> None:
        known = self._found.pop(key, None)
        if known is not None:
            self._weight -= known[1]

    def _keep(self, key: Hashable, found: V, weight: int) -> None:
        most, _, most_entries = self._limits
        while self._found and (self._weight + weight > most or len(self._found) >= most_entries):
            self._drop(next(iter(self._found)))
        self._found[key] = found, weight
        self._weight += weight
