"""Ports for what listens in tests: below those of outgoing connections, and other ones in every process that tests."""

import os
import socket
from collections.abc import Iterator
from itertools import count

# A deployment's runs take turns on this many ports.
_BLOCK = 16
_FIRST, _NUM_BLOCKS = 20_000, 768


def free_port() -> int:
    """First of a block of ports on which nobody listens; the block is not given again for a long time."""
    for block in _BLOCKS:
        first = _FIRST + _BLOCK * block
        if all(_is_free(port) for port in range(first, first + _BLOCK)):
            return first
    raise AssertionError("blocks go round for ever")


def _blocks() -> Iterator[int]:
    """Every worker of a run has its own ones; another run begins somewhere else."""
    worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
    step = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    first = os.getppid() * 7 % _NUM_BLOCKS
    return ((first + worker + step * k) % _NUM_BLOCKS for k in count())


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("", port))
        except OSError:
            return False
    return True


_BLOCKS = _blocks()
