"""What tables list, column by column: found once of each, since several ask, and snapshots hold tens of thousands of
entries.
"""

from dataclasses import dataclass
from functools import lru_cache

from models.performance.goodput.spec import GoodputTable, ThroughputTable
from stowplan.living import found_once

# Few tables differ in what they list.
_LAYOUTS = 64


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Layout:
    """What the E entries of a table speak about, in their order; nearly always one object for all tables that list the
    same.

    shapes: GPU type, GPUs and nodes of each. most_gpus: of any, 0 where there is none.
    """

    shapes: tuple[tuple[str, int, int | None], ...]
    most_gpus: int


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Listed:
    """The entries of a table: what they speak about, and their E values."""

    layout: Layout
    values: tuple[float, ...]


@found_once
def listed(table: ThroughputTable | GoodputTable) -> Listed:
    """The entries of a table, sound or not."""
    entries = table.entries
    return Listed(
        layout=_layout(
            # Three tuples of what is there are made sooner than one of tuples.
            tuple([entry.gpu_type for entry in entries]),
            tuple([entry.num_gpus for entry in entries]),
            tuple([entry.num_nodes for entry in entries]),
        ),
        values=tuple([entry.value for entry in entries]),
    )


@lru_cache(maxsize=_LAYOUTS)
def _layout(gpu_types: tuple[str, ...], num_gpus: tuple[int, ...], num_nodes: tuple[int | None, ...]) -> Layout:
    shapes = tuple(zip(gpu_types, num_gpus, num_nodes, strict=True))
    return Layout(shapes=shapes, most_gpus=max(num_gpus, default=0))
