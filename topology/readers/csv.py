"""Hosts and tier columns as CSV.

The first row names the columns. Without further word the first column is the host and all others are tiers, coarsest
first, except columns called `gpu_type`, `num_gpus` and `state`, which say what a node is (an empty cell means the
default). Units of a tier are told apart by their whole path, so names may repeat under different parents.
"""

import csv
import re
from collections.abc import Sequence
from dataclasses import dataclass
from io import StringIO
from pathlib import Path

from stowplan.errors import FileFormatError
from stowplan.files import read_text
from topology.cluster import Cluster, Node, NodeState
from topology.readers.base import NodeDefaults, build_cluster

_NODE_COLUMNS = ("gpu_type", "num_gpus", "state")


def read_csv(
    path: Path,
    defaults: NodeDefaults,
    *,
    minipod_tier: str | None = None,
    id_column: str | None = None,
    tier_columns: Sequence[str] | None = None,
) -> Cluster:
    """Read a cluster from a CSV file; tiers are called as their columns.

    Parameters
    ----------
    path
        The file.
    defaults
        What nodes are where the file does not say.
    minipod_tier
        Name of the minipod tier; None for `default_minipod_tier`.
    id_column
        Column of the host names; None for the first.
    tier_columns
        Columns of the tiers, coarsest first; None for all that are left. Columns not named are ignored.

    Raises
    ------
    FileFormatError
        Names file, line and what is wrong.
    InputError
        When no tier is called `minipod_tier`.
    """
    source = str(path)
    # newline translation is csv's business, hence no splitlines here.
    rows = csv.reader(StringIO(read_text(path), newline=""), strict=True)
    seen: dict[str, int] = {}
    nodes: list[Node] = []
    try:
        header = [name.strip() for name in next(rows, [])]
        columns = _columns(source, header, id_column, tier_columns)
        for row in rows:
            if not row:
                continue
            if len(row) != len(header):
                raise FileFormatError.at(
                    source, rows.line_num, f"has {len(row)} cells; the header names {len(header)} columns"
                )
            node = _node(
                columns, dict(zip(header, (cell.strip() for cell in row), strict=True)), rows.line_num, defaults
            )
            if node.id in seen:
                raise FileFormatError.at(
                    source, rows.line_num, f"host {node.id!r} is already listed in line {seen[node.id]}"
                )
            seen[node.id] = rows.line_num
            nodes.append(node)
    except csv.Error as error:
        raise FileFormatError.at(source, rows.line_num, f"no CSV: {error}") from error
    if not nodes:
        raise FileFormatError.at(source, None, "there are no hosts in the file")
    return build_cluster(nodes, columns.tiers, defaults, minipod_tier)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Columns:
    source: str
    host: str
    tiers: tuple[str, ...]


def _columns(source: str, header: list[str], id_column: str | None, tier_columns: Sequence[str] | None) -> _Columns:
    if not header:
        raise FileFormatError.at(source, 1, "has no header; the first row must name the columns")
    for k, name in enumerate(header):
        if not name or name in header[:k]:
            raise FileFormatError.at(
                source, 1, f"column {k + 1} is called {name!r}; give each column a name of its own"
            )
    host = header[0] if id_column is None else id_column
    tiers = (
        tuple(name for name in header if name != host and name not in _NODE_COLUMNS)
        if tier_columns is None
        else tuple(tier_columns)
    )
    for name in (host, *tiers):
        if name not in header:
            raise FileFormatError.at(source, 1, f"there is no column {name!r}; the columns are {header}")
    if len({host, *tiers}) <= len(tiers):
        raise FileFormatError.at(source, 1, f"one column is named twice among host {host!r} and tiers {list(tiers)}")
    return _Columns(source=source, host=host, tiers=tiers)


def _node(columns: _Columns, cells: dict[str, str], line: int, defaults: NodeDefaults) -> Node:
    for name in (columns.host, *columns.tiers):
        if not cells[name]:
            raise FileFormatError.at(columns.source, line, f"column {name!r} is empty")
    gpu_type = cells.get("gpu_type") or defaults.gpu_type.name
    known = [kind.name for kind in defaults.gpu_types]
    if gpu_type not in known:
        raise FileFormatError.at(columns.source, line, f"unknown GPU type {gpu_type!r}; the types given are {known}")
    num_gpus = cells.get("num_gpus") or str(defaults.num_gpus)
    if not re.fullmatch(r"[1-9]\d{0,8}", num_gpus, re.ASCII):
        raise FileFormatError.at(columns.source, line, f"num_gpus is {num_gpus!r}; must be a whole number above 0")
    state = cells.get("state") or NodeState.UP
    if state not in set(NodeState):
        names = [known_state.value for known_state in NodeState]
        raise FileFormatError.at(columns.source, line, f"state is {state!r}; must be one of {names}")
    return Node(
        id=cells[columns.host],
        gpu_type=gpu_type,
        num_gpus=int(num_gpus),
        state=NodeState(state),
        path=tuple(cells[name] for name in columns.tiers),
    )
