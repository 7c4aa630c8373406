"""In which order tasks that wait get a worker.

A task comes as if it had been submitted later by its own deadline: first the one whose submission plus deadline is
earliest. So a short task passes long ones that wait, but only those submitted less than the difference of both
deadlines before it, and no task is passed by what comes later than its own deadline after it. Tasks with the same
deadline keep their order.
"""

import heapq
import itertools
import math
from typing import Generic, TypeVar

T = TypeVar("T")


class TaskQueue(Generic[T]):
    """Tasks that wait. Not safe from threads: the pool has a lock."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, T]] = []
        self._numbers = itertools.count()

    def __len__(self) -> int:
        return len(self._heap)

    def push(self, task: T, submitted_s: float, deadline_s: float) -> None:
        """Add a task."""
        heapq.heappush(self._heap, (submitted_s + deadline_s, next(self._numbers), task))

    def push_first(self, task: T) -> None:
        """Give a task back whose turn it was."""
        heapq.heappush(self._heap, (-math.inf, next(self._numbers), task))

    def first(self) -> T:
        """The first task, which stays; IndexError when there is none."""
        return self._heap[0][2]

    def pop(self) -> T:
        """Take the first task; IndexError when there is none."""
        return heapq.heappop(self._heap)[2]

    def remove(self, task: T) -> bool:
        """Take a task out; False when it does not wait."""
        left = [entry for entry in self._heap if entry[2] is not task]
        if len(left) == len(self._heap):
            return False
        heapq.heapify(left)
        self._heap = left
        return True

    def clear(self) -> list[T]:
        """Take all tasks out, in their order."""
        tasks = [task for _, _, task in sorted(self._heap, key=lambda entry: entry[:2])]
        self._heap.clear()
        return tasks
