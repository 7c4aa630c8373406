r"""What placement classes ask of units (leaves, minipods): rows of the program. Pure NumPy.

One GPU type; levels r = 0..R-1 of groups of its whole nodes, those of a level within those of the one before; level 0
is one group. V_r: units of level r. W_v: nodes of unit v that are free for the plan, but for jobs that may be moved.
A choice: items of classes r(c) > 0 with n_c nodes each; jobs that stay, with o_iv nodes of unit v; items of class 0.

Variables: g_cv integer, items of configuration c in unit v of V_r(c), where n_c <= W_v.

  class[c]   sum_i x_ic                                             <= sum_v g_cv
  unit[v]    sum_(stay) o_iv x_i + sum_(w in v) sum_c n_c g_cw      <= W_v         v in V_r, r > 0; w: v itself and all
                                                                                   units within it

With the rows of `models.placement.placeability` these are necessary and sufficient for a placement in which each item
lies within one unit of its class and each job that stays has its nodes. Necessary: count nodes. Sufficient: whole nodes
of partly used units are all alike, so that from the finest units up each takes its items, of the nodes that no job
stays on; what is left is at least as much as whole items of class 0 need, which may lie anywhere, and partial items go
where any of the whole nodes are taken, as is proven there.

Later intervals, and the linear relaxation, have in place of g what follows from it for any number k > 1 of nodes:

  rooms[type,tier,k]   sum_(r(c) >= r) floor(n_c / k) x_c + sum_(stay) sum_(v in V_r) floor(o_iv / k) x_i
                       <= sum_(v in V_r) floor(W_v / k)

since floor(a / k) + floor(b / k) <= floor((a + b) / k). Left out where k divides all W_v: the whole nodes say as much;
and where another row of the type does, for j <= k nodes of the same level or a coarser one, with m = floor(k / j):

  sum_(v in V_s) floor(W_v / j) <= m sum_(v in V_r) floor(W_v / k)                 s <= r

since m floor(a / k) <= floor(a / j): m times the row for k is at most that for j on the left, and as much on the right.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy import sparse

from models.allocation.horizon.classes import Classes
from models.allocation.sia.instance import SiaInstance
from models.placement.placeability import whole_node_sizes
from stowplan.arrays import FloatVector, IntMatrix, IntVector, Mask


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Units:
    """U units of the levels above 0 of all GPU types; type_index, rank: (U,); nodes: positions, each (n,)."""

    type_index: IntVector
    rank: IntVector
    names: Sequence[str]
    tiers: Sequence[str]
    nodes: Sequence[IntVector]

    @classmethod
    def of(cls, classes: Classes) -> "Units":
        """Units of the levels."""
        found = [
            (t, r, f"{level.tier} {name}", level.tier, unit)
            for t, levels in enumerate(classes.levels)
            for r, level in enumerate(levels)
            if r > 0
            for name, unit in zip(level.names, level.units, strict=True)
        ]
        return cls(
            type_index=np.array([item[0] for item in found], dtype=np.int64),
            rank=np.array([item[1] for item in found], dtype=np.int64),
            names=[item[2] for item in found],
            tiers=[item[3] for item in found],
            nodes=[item[4] for item in found],
        )

    def room(self, whole: Mask) -> IntVector:
        """(U,) how many of the nodes `whole` (N,) each has."""
        return np.array([np.count_nonzero(whole[unit]) for unit in self.nodes], dtype=np.int64)

    def of_nodes(self) -> Mapping[int, Sequence[int]]:
        """Units by the positions of the nodes in them, the coarsest first."""
        found: dict[int, list[int]] = {}
        for u, nodes in enumerate(self.nodes):
            for n in nodes.tolist():
                found.setdefault(n, []).append(u)
        return found

    def levels(self) -> Iterator[tuple[int, int, IntVector]]:
        """Type and rank of every level, and its units."""
        for t, r in sorted(set(zip(self.type_index.tolist(), self.rank.tolist(), strict=True))):
            yield t, r, np.flatnonzero((self.type_index == t) & (self.rank == r))

    def fits(self, base: SiaInstance, classes: Classes, room: IntVector) -> Mask:
        """Whether any unit of a configuration's class (C,) has room (U,) for it."""
        fits = np.ones(len(base.configurations), dtype=np.bool_)
        for t, r, units in self.levels():
            of_class = (base.configurations.type_index == t) & (classes.rank == r) & ~classes.stays
            fits[of_class] = base.configurations.num_nodes[of_class] <= room[units].max(initial=0)
        return fits


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RoomRows:
    """m rows `rooms` for type_index, rank and k nodes, (m,): coefficients (m, C) of configurations, limits (m,). Those
    who stay lie within one unit of their class, and in any number of smaller ones."""

    names: Sequence[str]
    type_index: IntVector
    rank: IntVector
    nodes: IntVector
    coefficients: IntMatrix
    limits: IntVector


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Rooms:
    """classes, units: see there. stays: CSR (P, U), nodes of each unit that pairs of jobs which stay have. now: rows of
    the first interval over pairs, CSR (m, P), limits and names; later: rows of all others. configuration, unit, most:
    int64 (Z,), the variables g and their upper bounds. room: (U,), W.
    """

    classes: Classes
    units: Units
    room: IntVector
    stays: "sparse.csr_array"
    now: "sparse.csr_array"
    now_limits: FloatVector
    now_names: Sequence[str]
    later: RoomRows
    configuration: IntVector
    unit: IntVector
    most: IntVector


def whole_free(base: SiaInstance, num_gpus: IntVector) -> Mask:
    """Nodes (N,) of which a whole-node configuration may take all, where so many GPUs (N,) of each are for the plan."""
    sizes = dict(zip(base.configurations.gpu_types, whole_node_sizes(base.configurations).tolist(), strict=True))
    nodes = base.snapshot.cluster.nodes
    size = np.array([sizes[node.gpu_type] for node in nodes], dtype=np.int64)
    declared = np.array([node.num_gpus for node in nodes], dtype=np.int64)
    return np.asarray((num_gpus == size) & (declared == size))


def rooms_of(
    base: SiaInstance,
    classes: Classes,
    units: Units,
    pair_jobs: IntVector,
    pair_configurations: IntVector,
    room: IntVector,
    room_later: IntVector,
) -> Rooms:
    """The rows for these pairs, where units have room (U,) now and later."""
    stays = _stays(base, classes, units, pair_jobs, pair_configurations)
    of_now = room_rows(base, classes, units, room)
    coefficients = np.where(classes.stays, 0, of_now.coefficients)
    now = sparse.csr_array(coefficients[:, pair_configurations].astype(np.float64))
    if of_now.limits.size:
        now = sparse.csr_array(now + _of_stays(units, of_now, stays))
    num_nodes = base.configurations.num_nodes
    placed = (classes.rank > 0) & ~classes.stays
    chosen = np.unique(pair_configurations[placed[pair_configurations]])
    columns = [
        (c, v, int(room[v] // num_nodes[c]))
        for c in chosen.tolist()
        for v in np.flatnonzero(
            (units.type_index == base.configurations.type_index[c])
            & (units.rank == classes.rank[c])
            & (room >= num_nodes[c])
        ).tolist()
    ]
    configuration, unit, most = np.array(columns, dtype=np.int64).reshape(-1, 3).T
    return Rooms(
        classes=classes,
        units=units,
        room=room,
        stays=stays,
        now=now,
        now_limits=of_now.limits.astype(np.float64),
        now_names=of_now.names,
        later=room_rows(base, classes, units, room_later),
        configuration=configuration,
        unit=unit,
        most=most,
    )


def room_rows(base: SiaInstance, classes: Classes, units: Units, room: IntVector) -> RoomRows:
    """Rows `rooms` of units with so much room (U,), but for those that others imply."""
    it = base.configurations
    found: list[tuple[str, int, int, int, IntVector, int]] = []
    # Coarser levels come first, and in a level smaller k.
    for t, r, of_level in units.levels():
        inside = (it.type_index == t) & (classes.rank >= r)
        for k in np.unique(it.num_nodes[inside]).tolist():
            limit = int((room[of_level] // k).sum())
            implied = any(s == t and j <= k and most <= k // j * limit for _, s, _, j, _, most in found)
            if (room[of_level] % k).any() and not implied:
                name = f"rooms[{it.gpu_types[t]},{units.tiers[of_level[0]]},{k}]"
                coefficients = np.where(inside, it.num_nodes // k, 0)
                found.append((name, t, r, k, coefficients, limit))
    return RoomRows(
        names=[item[0] for item in found],
        type_index=np.array([item[1] for item in found], dtype=np.int64),
        rank=np.array([item[2] for item in found], dtype=np.int64),
        nodes=np.array([item[3] for item in found], dtype=np.int64),
        coefficients=np.array([item[4] for item in found], dtype=np.int64).reshape(len(found), len(it)),
        limits=np.array([item[5] for item in found], dtype=np.int64),
    )


def unit_rows(rooms: Rooms, num_nodes: IntVector) -> tuple["sparse.csr_array", "sparse.csr_array", IntVector]:
    """Rows `unit` over pairs (m, P) and over the variables g (m, Z), and the units that they are of; `num_nodes` (C,).
    Units that no item may be put into are left out: jobs that stay are there already."""
    units = rooms.units
    of_node = units.of_nodes()
    rows: list[int] = []
    columns: list[int] = []
    for g, v in enumerate(rooms.unit.tolist()):
        # The unit itself is the one of its rank; finer ones are within it.
        inside = of_node[int(units.nodes[v][0])][: int(units.rank[v])]
        rows += inside
        columns += [g] * len(inside)
    items = sparse.csr_array(
        (num_nodes[rooms.configuration[columns]].astype(np.float64), (rows, columns)),
        shape=(len(units.nodes), rooms.unit.size),
    )
    used = np.flatnonzero(np.diff(items.indptr))
    return sparse.csr_array(sparse.csr_array(rooms.stays.T)[used]), items[used], used


def _stays(
    base: SiaInstance, classes: Classes, units: Units, pair_jobs: IntVector, pair_configurations: IntVector
) -> "sparse.csr_array":
    """See `Rooms`."""
    of_node = units.of_nodes()
    rows: list[int] = []
    columns: list[int] = []
    for p in np.flatnonzero(classes.stays[pair_configurations]).tolist():
        for n, _ in base.taken.running[base.jobs[int(pair_jobs[p])].id]:
            columns += (inside := of_node.get(n, []))
            rows += [p] * len(inside)
    # Entries of one place are added up.
    return sparse.csr_array((np.ones(len(rows)), (rows, columns)), shape=(pair_jobs.size, len(units.nodes)))


def _of_stays(units: Units, rows: RoomRows, stays: "sparse.csr_array") -> "sparse.csr_array":
    """What jobs that stay take of rows `rooms`: (m, P)."""
    parts = []
    for t, r, k in zip(rows.type_index.tolist(), rows.rank.tolist(), rows.nodes.tolist(), strict=True):
        of_level = ((units.type_index == t) & (units.rank == r)).astype(np.float64)
        whole = sparse.csr_array((stays.data // k, stays.indices, stays.indptr), shape=stays.shape)
        parts.append(sparse.csr_array((whole @ of_level)[None, :]))
    return sparse.csr_array(sparse.vstack(parts, format="csr"))
