r"""Linear rows under which every choice of configurations can be placed on nodes (Sia sections 3.1 and 3.3).

The paper guarantees a placement when R, the GPUs of a node, is a power of two and every node is whole and free.
These rows extend the guarantee to any R, to nodes of one type that differ in size, and to nodes that are partly
taken. They are necessary and sufficient, so they cost no optimality.

Sets, one GPU type:
  i         nodes; f_i free GPUs of node i for this plan
  R         GPUs of a whole node: the largest single-node configuration
  W         nodes that are R GPUs large and free (f_i = R)
Configurations: partial (1, 2^k) with 2^k < R; whole (1, R) and (n, nR).
A choice: w = nodes that the chosen whole configurations take; partial items of sizes 2^k.

Rules: (a) an item of a partial configuration sits on one node, (b) a whole configuration takes whole nodes of R GPUs.

Rows, in GPUs (`whole_nodes` in nodes):
  capacity[type]     GPUs of all chosen configurations                      <= sum_i f_i
  blocks[type,2^k]   GPUs of chosen partial configurations of size >= 2^k
                     + w floor(R/2^k) 2^k                                   <= sum_i floor(f_i/2^k) 2^k,   1 < 2^k < R
  whole_nodes[type]  w                                                      <= W

Necessary: cut every node into blocks of 2^k. An item of size 2^j >= 2^k is a multiple of 2^k, so a node carries at
most floor(f_i/2^k) 2^k GPUs of such items, and a whole node that is taken carries none.

Sufficient: give w of the W whole nodes to the whole configurations; the remaining nodes keep
sum_i floor(f_i/2^k) 2^k - w floor(R/2^k) 2^k GPUs in blocks of 2^k. Place the items by decreasing size. When the turn
comes to size 2^k, all that was placed are multiples of 2^k, so each took exactly its size off that sum; by row 2^k at
least one block of 2^k is left, that is a node with f_i >= 2^k: any such node will do. (For R no power of two the
blocks are the paper's virtual nodes: 6 = 4 + 2.)

A row that another row implies, also for fractional points, is left out. On a type whose nodes are all free and of
the same power of two only `capacity` remains, which is the paper's model.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from models.configurations import ConfigurationSet
from stowplan.arrays import IntMatrix, IntVector, Mask
from stowplan.living import Living, OfUnchanged, found_once
from topology.cluster import Cluster, Node


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PlaceabilityRows(Living):
    """m rows over C configurations: coefficients int64 (m, C); limits, gpus_per_unit int64 (m,).

    A choice that takes configuration c `counts[c]` times can be placed exactly when `coefficients @ counts <= limits`.
    `gpus_per_unit` turns a row's unit into GPUs: R for `whole_nodes`, else 1.
    """

    names: tuple[str, ...]
    coefficients: IntMatrix
    limits: IntVector
    gpus_per_unit: IntVector

    def fits_alone(self) -> Mask:
        """Whether each configuration (C,) can be placed when nothing else is chosen; read-only."""
        return _fits_alone(self)

    def needs(self, c: int) -> list[tuple[int, int]]:
        """Rows, and how much of each configuration `c` takes."""
        column = self.coefficients[:, c]
        rows = np.flatnonzero(column)
        return list(zip(rows.tolist(), column[rows].tolist(), strict=True))

    def missing_gpus(self, counts: IntVector) -> IntVector:
        """GPUs (C,) that are missing to place each configuration once more on top of `counts` (C,); 0 where it fits."""
        slack = self.limits - self.coefficients @ counts
        over = np.where(self.coefficients > 0, self.coefficients - slack[:, None], 0) * self.gpus_per_unit[:, None]
        return np.asarray(np.maximum(over, 0).max(axis=0, initial=0), dtype=np.int64)


@found_once
def _fits_alone(rows: PlaceabilityRows) -> Mask:
    fits = np.asarray((rows.coefficients <= rows.limits[:, None]).all(axis=0), dtype=np.bool_)
    fits.setflags(write=False)
    return fits


@found_once
def whole_node_sizes(configurations: ConfigurationSet) -> IntVector:
    """R of each GPU type (T,): its largest single-node configuration, 0 where it has none. Read-only."""
    sizes = np.zeros(len(configurations.gpu_types), dtype=np.int64)
    single = configurations.num_nodes == 1
    np.maximum.at(sizes, configurations.type_index[single], configurations.num_gpus[single])
    sizes.setflags(write=False)
    return sizes


@found_once
def takes_whole_nodes(configurations: ConfigurationSet) -> Mask:
    """Whether each configuration (C,) is (1, R) or (n, nR). Read-only."""
    takes = np.asarray(configurations.num_gpus >= whole_node_sizes(configurations)[configurations.type_index])
    takes.setflags(write=False)
    return takes


def placeability_rows(nodes: Sequence[Node], num_free: IntVector, configurations: ConfigurationSet) -> PlaceabilityRows:
    """Build the rows for nodes with `num_free` (N,) GPUs that a plan may hand out.

    Raises
    ------
    ValueError
        When a partial configuration is no power of two: the guarantee would not hold.
    """
    sizes = whole_node_sizes(configurations)
    whole = takes_whole_nodes(configurations)
    partial_sizes = configurations.num_gpus[~whole]
    if (partial_sizes & (partial_sizes - 1)).any():
        raise ValueError(f"partial configurations must be powers of two, not {sorted(set(partial_sizes.tolist()))}")
    node_type = np.array([node.gpu_type for node in nodes])
    node_size = np.array([node.num_gpus for node in nodes], dtype=np.int64)
    rows: list[_Row] = []
    for t, name in enumerate(configurations.gpu_types):
        members = node_type == name
        of_type = configurations.type_index == t
        rows += _type_rows(
            name=name,
            node_size=int(sizes[t]),
            free=num_free[members],
            num_whole_free=int(((num_free == node_size) & (node_size == sizes[t]) & members).sum()),
            partial=np.where(of_type & ~whole, configurations.num_gpus, 0),
            whole_nodes=np.where(of_type & whole, configurations.num_nodes, 0),
        )
    coefficients = np.array([row.coefficients for row in rows], dtype=np.int64)
    return PlaceabilityRows(
        names=tuple(row.name for row in rows),
        coefficients=coefficients.reshape(len(rows), len(configurations)),
        limits=np.array([row.limit for row in rows], dtype=np.int64),
        gpus_per_unit=np.array([row.gpus_per_unit for row in rows], dtype=np.int64),
    )


_rows: OfUnchanged[Cluster, PlaceabilityRows] = OfUnchanged()


def free_rows(cluster: Cluster, free_masks: tuple[int, ...], configurations: ConfigurationSet) -> PlaceabilityRows:
    """The rows for what a plan may hand out of each node, `Occupancy.free_masks`; those of the round before where
    nothing of that has changed."""
    known = _rows.get(cluster, (configurations,), free_masks)
    if known is None:
        num_free = np.array([mask.bit_count() for mask in free_masks], dtype=np.int64)
        known = placeability_rows(cluster.nodes, num_free, configurations)
        _rows.put(cluster, (configurations,), free_masks, known)
    return known


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Row:
    name: str
    coefficients: IntVector
    limit: int
    gpus_per_unit: int = 1

    def implies(self, other: "_Row") -> bool:
        """Whether every x >= 0 that satisfies this row satisfies the other one."""
        used = other.coefficients > 0
        scale = float((self.coefficients[used] / other.coefficients[used]).min())
        return scale > 0 and scale * other.limit >= self.limit


def _type_rows(
    *,
    name: str,
    node_size: int,
    free: IntVector,
    num_whole_free: int,
    partial: IntVector,
    whole_nodes: IntVector,
) -> list[_Row]:
    """Rows of one type; `partial` GPUs (C,) and `whole_nodes` (C,) that each configuration takes."""
    candidates = [_Row(name=f"capacity[{name}]", coefficients=partial + whole_nodes * node_size, limit=int(free.sum()))]
    block = 2
    while block < node_size:
        coefficients = np.where(partial >= block, partial, 0) + whole_nodes * (node_size // block * block)
        limit = int((free // block * block).sum())
        candidates.append(_Row(name=f"blocks[{name},{block}]", coefficients=coefficients, limit=limit))
        block *= 2
    candidates.append(
        _Row(name=f"whole_nodes[{name}]", coefficients=whole_nodes, limit=num_whole_free, gpus_per_unit=node_size)
    )
    kept: list[_Row] = []
    for row in candidates:
        if row.coefficients.any() and not any(other.implies(row) for other in kept):
            kept.append(row)
    return kept
