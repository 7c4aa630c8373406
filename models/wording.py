"""Counts and sizes in words, the same in messages, in pictures and on terminals."""

from collections.abc import Sequence

_UNITS = ((1e9, "GB"), (1e6, "MB"), (1e3, "kB"))


def size_of(num_bytes: float) -> str:
    """`72.0 GB`, `1.5 MB`, `81 bytes`: in decimal units, as memory is sold."""
    # What would be written as 1000.0 of a unit is 1.0 of the next one.
    factor, unit = next(((factor, unit) for factor, unit in _UNITS if num_bytes >= factor * 0.99995), (1.0, ""))
    return f"{num_bytes / factor:.1f} {unit}" if unit else counted(round(num_bytes), "byte")


def counted(count: int, noun: str) -> str:
    """`1 node`, `2 nodes`."""
    return listed((count,), noun)


def listed(counts: Sequence[int], noun: str) -> str:
    """Counts of one thing in several places: `1 layer`, `20+20 layers`, `1+1 micro-batches`."""
    plural = f"{noun}es" if noun.endswith("ch") else f"{noun[:-1]}ies" if noun.endswith("ry") else f"{noun}s"
    return f"{'+'.join(map(str, counts))} {noun if tuple(counts) == (1,) else plural}"
