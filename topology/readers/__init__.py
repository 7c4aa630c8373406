"""Readers of foreign formats: each turns a file into a `Cluster`. `READERS` names them for the command line."""

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Protocol

from topology.cluster import Cluster
from topology.readers.base import NodeDefaults
from topology.readers.csv import read_csv
from topology.readers.slurm import read_slurm
from topology.readers.topograph import read_topograph

__all__ = ["READERS", "NodeDefaults", "Reader", "read_csv", "read_slurm", "read_topograph"]


class Reader(Protocol):
    """What every reader can do; some take further options by keyword."""

    def __call__(self, path: Path, defaults: NodeDefaults, *, minipod_tier: str | None = None) -> Cluster:
        """Read the file at `path`."""
        ...


READERS: Mapping[str, Reader] = MappingProxyType({"csv": read_csv, "slurm": read_slurm, "topograph": read_topograph})
