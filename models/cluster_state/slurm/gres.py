"""GPUs in Slurm's generic resources (GRES) and trackable resources (TRES).

gpu:h100:8(S:0-1),shard:32        what a node has: type and count, sockets behind it
gpu:h100:4(IDX:0-3)               what a job has of a node, or what is used of it, with the indices of devices
gpu:h100(CNT:4)                   the same where devices have no files, and so no indices
gres/gpu:h100:4   gres:gpu:4      what a job asks for per job, node, socket or task
cpu=8,gres/gpu=4,gres/gpu:h100=4  the same as trackable resources, once in all and once by type
"""

import re
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import NamedTuple

_ITEM = re.compile(r"((?:[^,()]|\([^()]*\))+)(?:,|$)")
_BRACKET = re.compile(r"\((?:(\w+):)?([^()]*)\)")
_INDICES = re.compile(r"\d+(?:-\d+)?(?:,\d+(?:-\d+)?)*", re.ASCII)
_COUNT = re.compile(r"(\d+)([KMG]?)", re.ASCII)
_UNIT = {"": 1, "K": 1024, "M": 1024**2, "G": 1024**3}
# Slices of a GPU by MIG, as NVIDIA names their profiles: 1g.5gb, a100_3g.20gb, 1g.10gb+me.
_SLICE = re.compile(r"(?:^|[_.-])\d+g\.\d+gb", re.IGNORECASE)
# More than any node has; keeps a slip of the pen from filling the memory.
_MAX_INDEX = 4096
# Thousands of nodes and jobs say the same few texts.
_NUM_TEXTS = 4096


class Gpus(NamedTuple):
    """Some GPUs: type (None: not said), how many, and which (None: not said)."""

    type: str | None
    num: int
    indices: tuple[int, ...] | None = None

    @property
    def are_slices(self) -> bool:
        """Whether the type is a slice of a GPU (MIG)."""
        return self.type is not None and _SLICE.search(self.type) is not None


class Gres(NamedTuple):
    """What a text says of GPUs: whole ones or slices by type, and whether shards or MPS of GPUs are among it."""

    gpus: Sequence[Gpus]
    num_shared: int


@lru_cache(maxsize=_NUM_TEXTS)
def parse_gres(text: str) -> Gres:
    """Read generic resources of a node or job.

    Raises
    ------
    ValueError
        Says what cannot be read.
    """
    gpus: list[Gpus] = []
    num_shared = 0
    for name, words, bracket in _items(text):
        if name not in ("gpu", "shard", "mps"):
            continue
        *kind, last = [word for word in words if word != "no_consume"] or ["1"]
        count = _COUNT.fullmatch(last)
        if count is None:
            kind, count = [*kind, last], _COUNT.fullmatch("1")
        assert count is not None  # noqa: S101 - "1" is a count
        number = int(count[1]) * _UNIT[count[2]]
        tag, inside = bracket
        if tag == "CNT":
            number = int(inside)
        if name != "gpu":
            num_shared += number
        else:
            # A job that ends has given its indices back, not its number.
            indices = _indices(inside) if tag == "IDX" and inside else None
            gpus.append(Gpus(":".join(kind) or None, number, indices))
    return Gres(tuple(gpus), num_shared)


@lru_cache(maxsize=_NUM_TEXTS)
def requested_gpus(text: str) -> Gpus | None:
    """GPUs that a text asks for, in all; None where it asks for none. Types are joined by "|" where there are several.

    Raises
    ------
    ValueError
        Says what cannot be read.
    """
    total, types = 0, dict[str, int]()
    for item in _split(text):
        name, _, rest = item.removeprefix("gres/").removeprefix("gres:").replace("=", ":").partition(":")
        if name != "gpu":
            continue
        kind, _, number = rest.rpartition(":")
        count = _COUNT.fullmatch(number)
        if count is None:
            kind, count = rest, _COUNT.fullmatch("1")
        assert count is not None  # noqa: S101 - "1" is a count
        if kind:
            types[kind] = types.get(kind, 0) + int(count[1]) * _UNIT[count[2]]
        else:
            total += int(count[1]) * _UNIT[count[2]]
    count_all = max(total, sum(types.values()))
    return Gpus("|".join(types) or None, count_all) if count_all else None


def asks_for_shards(text: str) -> bool:
    """Whether a text asks for shards or MPS of GPUs."""
    return any(re.match(r"(?:gres[/:])?(?:shard|mps)\b", item) for item in _split(text))


def _split(text: str) -> list[str]:
    return [item.strip() for item in text.split(",") if item.strip()]


def _items(text: str) -> Iterator[tuple[str, list[str], tuple[str, str]]]:
    """Name, words behind it and bracket of each resource."""
    position = 0
    while position < len(text):
        match = _ITEM.match(text, position)
        if match is None:
            raise ValueError(f"{text!r} cannot be read as generic resources, such as gpu:h100:8(S:0-1)")
        position = match.end()
        found = _BRACKET.search(match[1])
        name, *words = _BRACKET.sub("", match[1]).strip().split(":")
        yield name.removeprefix("gres/"), words, (found[1] or "", found[2]) if found else ("", "")


def _indices(text: str) -> tuple[int, ...] | None:
    """Indices in `0-3,7`; none for `N/A`."""
    if text == "N/A":
        return ()
    if not _INDICES.fullmatch(text):
        raise ValueError(f"IDX:{text} are no indices of GPUs, such as 0-3,7")
    indices: list[int] = []
    for part in text.split(","):
        low, _, high = part.partition("-")
        if int(high or low) >= _MAX_INDEX:
            raise ValueError(f"IDX:{text} has an index above {_MAX_INDEX - 1}")
        indices += range(int(low), int(high or low) + 1)
    return tuple(indices)
