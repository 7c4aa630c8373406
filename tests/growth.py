"""How much work a call is, counted instead of timed: the same on every machine, however busy."""

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

from stowplan.collection import without_collection


def work(call: Callable[[], object]) -> int:
    """Lines of Python that `call` executes, every turn of a loop or comprehension counted; none of those that a
    collection of garbage executes, which comes when it comes and calls what others have registered."""
    num_lines = 0

    def count(frame: FrameType, event: str, argument: Any) -> Any:  # noqa: ARG001 - the protocol of settrace
        nonlocal num_lines
        num_lines += event == "line"
        return count

    before = sys.gettrace()
    with without_collection():
        sys.settrace(count)
        try:
            call()
        finally:
            sys.settrace(before)
    return num_lines
