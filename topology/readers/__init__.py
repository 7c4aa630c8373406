"""Readers of foreign formats: each turns a file into a `Cluster`. `READERS` names them, and loads one when it reads."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from pkgutil import resolve_name
from types import MappingProxyType
from typing import Any

from topology.cluster import Cluster
from topology.readers.base import NodeDefaults

__all__ = ["READERS", "NodeDefaults", "Reader"]


@dataclass(frozen=True, slots=True)
class Reader:
    """A format. `function` is `module:function`, (path, NodeDefaults, *, minipod_tier) -> Cluster.

    has_columns: the function also takes `id_column` and `tier_columns`, which say what the columns of a table are.
    """

    function: str
    has_columns: bool = False

    def __call__(
        self, path: Path, defaults: NodeDefaults, *, minipod_tier: str | None = None, **columns: Any
    ) -> Cluster:
        """Read the file at `path`."""
        cluster: Cluster = resolve_name(self.function)(path, defaults, minipod_tier=minipod_tier, **columns)
        return cluster


READERS: Mapping[str, Reader] = MappingProxyType(
    {
        "csv": Reader("topology.readers.csv:read_csv", has_columns=True),
        "ibnetdiscover": Reader("topology.readers.ibnetdiscover:read_ibnetdiscover"),
        "slurm": Reader("topology.readers.slurm:read_slurm"),
        "topograph": Reader("topology.readers.topograph:read_topograph"),
    }
)
