"""Concrete GPUs for chosen configurations, by the three rules of Sia section 3.1.

(a) A partial-node allocation is not split over nodes. (b) A whole-node allocation takes whole nodes. (c) Where the
cluster is too fragmented, jobs that keep their configuration are moved, as few as possible, and then as few GPUs.

Per GPU type, on the choice that `models.placement.placeability` admits (with jobs that are wanted within a unit:
`models.allocation.horizon.rooms`; these are placed first, beside whole-node jobs that stay):
1. Jobs that keep their configuration keep their GPUs: all of them when the rest then still fits (an exact test by the
   placeability rows), else the largest set found by `models.placement.moves`.
2. Rescaled single-node jobs stay on a node they have, where the rest still fits.
3. Whole-node jobs, largest first, take whole nodes: their own first, then within the smallest topology unit with room;
   others than their own where these would leave them a smaller share of the bandwidth between nodes.
4. The other partial jobs, by decreasing size, go where they leave the least free (best fit), and break into whole nodes
   of the units that have the fewest.
On a node, GPUs are taken as aligned blocks (0-1, 2-3, ...; 0-3, 4-7, ...), so that pairs share fast links.

Steps 3 and 4 cannot fail: see the proof in `placeability`. Nodes that are drained or down and GPUs in use are never
handed out. Ties go to the node whose units have the fewest whole free ones, then to the first in the cluster.
"""

import heapq
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import islice

import numpy as np

from models.configurations import ConfigurationSet
from models.placement.moves import few_moves, fewest_moves
from models.placement.occupancy import Occupancy, Slices, mask_of
from models.placement.placeability import takes_whole_nodes, whole_node_sizes
from models.placement.pool import Demand, Pool
from models.placement.units import Homes
from models.roll import roll_of, row_of
from models.workload import Snapshot
from stowplan.arrays import IntMatrix, IntVector
from stowplan.living import found_once
from topology.arrays import cluster_arrays
from topology.bandwidth import fractions_of, group_fraction
from topology.cluster import Cluster

_MOVES_TIME_LIMIT_S = 1.0

_Share = Callable[[Sequence[int]], float]
"""Share of the inter-node bandwidth that nodes have between them."""


def assign_gpus(
    snapshot: Snapshot,
    configurations: ConfigurationSet,
    choice: Mapping[str, int],
    taken: Occupancy,
    time_limit_s: float = _MOVES_TIME_LIMIT_S,
    homes: Homes | None = None,
) -> dict[str, Slices]:
    """Place every chosen configuration.

    Parameters
    ----------
    snapshot
        The cluster, and the jobs that `choice` is about.
    configurations
        The set that `choice` points into.
    choice
        Job id -> configuration index; pinned jobs are not in it.
    taken
        What is free, and where jobs run.
    time_limit_s
        Limit of the search for the fewest moves, per GPU type; after it, more jobs than needed may move.
    homes
        Where some of the jobs of whole nodes are wanted; None: nowhere in particular.

    Raises
    ------
    ValueError
        When the choice breaks the placeability rows, so that no placement exists.
    """
    cluster, node_sizes = snapshot.cluster, whole_node_sizes(configurations)

    def share(chosen: Sequence[int]) -> float:
        return group_fraction(fractions_of(cluster), [cluster.nodes[node].path for node in chosen])

    homes = homes or Homes()
    demands = _demands(snapshot, configurations, choice, taken, homes.moved)
    members = _members(cluster)
    placed: dict[str, Slices] = {}
    for t, name in enumerate(configurations.gpu_types):
        if not homes.within and all(demand.stays for demand in demands[t]):
            # They have all that they need, each its own: there is nothing to place.
            placed |= {demand.job_id: demand.now for demand in demands[t]}
        else:
            units = cluster_arrays(cluster).units
            pool = Pool(
                node_size=int(node_sizes[t]),
                sizes=members[name],
                free={i: taken.free_masks[i] for i in members[name]},
                demands=demands[t],
            )
            if not pool.fits():
                raise ValueError(f"the configurations chosen on GPU type {name!r} cannot be placed")
            inside = _place_within(pool, demands[t], homes.within, units)
            rest = demands[t]
            if inside:
                rest = [_where_left(pool, demand) for demand in rest if demand.job_id not in inside]
            placed |= inside | _place(pool, rest, units, share, time_limit_s)
    return placed


@found_once
def _members(cluster: Cluster) -> Mapping[str, Mapping[int, int]]:
    """The nodes of each GPU type, and how many GPUs they have."""
    members: dict[str, dict[int, int]] = {kind.name: {} for kind in cluster.gpu_types}
    for i, node in enumerate(cluster.nodes):
        members[node.gpu_type][i] = node.num_gpus
    return members


@found_once
def _shapes(configurations: ConfigurationSet) -> Sequence[tuple[int, int, int, bool]]:
    """Type, nodes and GPUs of each configuration, and whether it takes whole nodes."""
    whole = takes_whole_nodes(configurations)
    parts = (configurations.type_index, configurations.num_nodes, configurations.num_gpus, whole)
    return list(zip(*(part.tolist() for part in parts), strict=True))


def _demands(
    snapshot: Snapshot,
    configurations: ConfigurationSet,
    choice: Mapping[str, int],
    taken: Occupancy,
    moved: Collection[str],
) -> list[list[Demand]]:
    """Demands per GPU type, in the order of the choice; jobs that are `moved` do not stay."""
    nodes, shapes = snapshot.cluster.nodes, _shapes(configurations)
    free = taken.free_masks

    def demand(job_id: str, c: int) -> Demand:
        t, num_nodes, num_gpus, whole = shapes[c]
        running = taken.running.get(job_id)
        if running is None:
            return Demand(job_id=job_id, num_nodes=num_nodes, num_gpus=num_gpus, whole=whole)
        kind = configurations.gpu_types[t]
        # Lists, which are made faster than generators run.
        held = [(node, mask) for node, mask in running if free[node] & mask == mask]
        now = tuple([(node, mask) for node, mask in held if nodes[node].gpu_type == kind])
        same = len(now) == len(running) == num_nodes and sum([mask.bit_count() for _, mask in now]) == num_gpus
        per_node = num_gpus // num_nodes
        # Rule (b): a job of a whole configuration that shares a node, or sits on one of another size, has to move.
        legal = not whole or all(mask.bit_count() == nodes[node].num_gpus == per_node for node, mask in now)
        return Demand(
            job_id=job_id,
            num_nodes=num_nodes,
            num_gpus=num_gpus,
            whole=whole,
            now=running if now == running else now,
            stays=same and legal and job_id not in moved,
        )

    row = row_of(snapshot)
    ids = list(row)
    asked = np.fromiter(map(row.__getitem__, choice), np.int64, len(choice))
    chosen = np.full(len(ids), -1, dtype=np.int64)
    chosen[asked] = list(choice.values())
    known = roll_of(snapshot).each(
        "demand",
        np.object_,
        lambda rows: (demand(ids[k], int(chosen[k])) if chosen[k] >= 0 else None for k in rows),
        same=(snapshot.cluster, configurations),
        equal=(free, frozenset(moved)),
        beside=(chosen, taken.held),
    )[asked]
    kind = configurations.type_index[chosen[asked]]
    return [known[kind == t].tolist() for t in range(len(configurations.gpu_types))]


def _place_within(
    pool: Pool, demands: Sequence[Demand], within: Mapping[str, IntVector], units: IntMatrix
) -> dict[str, Slices]:
    """Step 0: jobs that are wanted within some nodes, those with the fewest of these first, since units lie within one
    another; beside jobs of whole nodes that stay. Of these nodes their own, then those that no partial job may keep."""
    wanted = sorted((d for d in demands if d.job_id in within), key=lambda d: within[d.job_id].size) if within else []
    if not wanted:
        return {}
    placed = {demand.job_id: demand.now for demand in demands if demand.stays and demand.whole}
    for demand in demands:
        if demand.job_id in placed:
            pool.take(demand, demand.now)
    kept = np.zeros(len(units), dtype=np.bool_)
    kept[[node for demand in demands if demand.stays and not demand.whole for node, _ in demand.now]] = True
    for demand in wanted:
        free = np.array([node for node in within[demand.job_id].tolist() if pool.is_whole(node)], dtype=np.int64)
        own = [node for node, _ in demand.now if node in free][: demand.num_nodes]
        others = free[~np.isin(free, own)]
        is_kept = kept[others]
        missing = demand.num_nodes - len(own)
        chosen = [*own, *nearest_nodes(others[~is_kept], min(missing, int((~is_kept).sum())), units, own)]
        chosen += others[is_kept][: demand.num_nodes - len(chosen)].tolist()
        placed[demand.job_id] = _whole(pool, chosen)
        pool.take(demand, placed[demand.job_id])
    return placed


def _where_left(pool: Pool, demand: Demand) -> Demand:
    """The demand without GPUs of its own that others have taken."""
    now = tuple((node, mask) for node, mask in demand.now if mask & ~pool.free[node] == 0)
    return demand if len(now) == len(demand.now) else replace(demand, now=now, stays=False)


def _place(
    pool: Pool, demands: Sequence[Demand], units: IntMatrix, share: _Share, time_limit_s: float
) -> dict[str, Slices]:
    """Place the demands of one type on the pool."""
    placed = _keep(pool, demands, time_limit_s)
    largest_first = sorted((d for d in demands if d.job_id not in placed), key=lambda d: -d.num_gpus)
    for demand in largest_first:
        slices = _where_it_is(pool, demand)
        if slices is not None and pool.try_take(demand, slices):
            placed[demand.job_id] = slices
    rest = [demand for demand in largest_first if demand.job_id not in placed]
    placed |= _place_whole(pool, [demand for demand in rest if demand.whole], units, share)
    placed |= _place_partial(pool, [demand for demand in rest if not demand.whole], units)
    return placed


def _keep(pool: Pool, demands: Sequence[Demand], time_limit_s: float) -> dict[str, Slices]:
    """Step 1: let as many jobs as possible keep their GPUs."""
    partial = [demand for demand in demands if demand.stays and not demand.whole]
    kept = [demand for demand in demands if demand.stays and demand.whole] + partial
    pool.take_own(kept)
    if not pool.fits():
        moved = few_moves(pool, partial)
        if moved is None:
            for demand in partial:
                pool.give_back(demand, demand.now)
            keep = fewest_moves(pool, partial, time_limit_s)
            for demand in partial:
                if demand.job_id in keep:
                    pool.take(demand, demand.now)
        else:
            for demand in moved:
                pool.give_back(demand, demand.now)
            keep = frozenset(demand.job_id for demand in partial) - {demand.job_id for demand in moved}
        kept = [demand for demand in kept if demand.whole or demand.job_id in keep]
    return {demand.job_id: demand.now for demand in kept}


def _where_it_is(pool: Pool, demand: Demand) -> Slices | None:
    """Step 2: GPUs for a partial job on the node where it has most of its GPUs; None where there is no room."""
    if demand.whole or not demand.now:
        return None
    if demand.stays:
        return demand.now
    room = [(node, mask) for node, mask in demand.now if pool.free[node].bit_count() >= demand.num_gpus]
    if not room:
        return None
    node, mask = max(room, key=lambda part: part[1].bit_count())
    return ((node, aligned_block(pool.free[node], demand.num_gpus, mask)),)


def _place_whole(pool: Pool, demands: Sequence[Demand], units: IntMatrix, share: _Share) -> dict[str, Slices]:
    """Step 3: whole nodes, own ones first, then close to those."""
    if not demands:
        return {}
    available = np.zeros(len(units), dtype=np.bool_)
    available[[node for node in pool.free if pool.is_whole(node)]] = True
    owned: list[list[int]] = []
    for demand in demands:
        own = [node for node, _ in demand.now if available[node]][: demand.num_nodes]
        if own:
            available[own] = False
        owned.append(own)
    placed: dict[str, Slices] = {}
    if not units.shape[1]:
        # All nodes are equally near: one after the other, without a look at all of them for every demand.
        rest = iter(np.flatnonzero(available).tolist())
        for demand, own in zip(demands, owned, strict=True):
            chosen = [*own, *islice(rest, demand.num_nodes - len(own))]
            placed[demand.job_id] = pool.hand_out(_whole(pool, chosen))
        return placed
    for demand, own in zip(demands, owned, strict=True):
        chosen = [*own, *nearest_nodes(np.flatnonzero(available), demand.num_nodes - len(own), units, own)]
        if own and share(chosen) < 1.0:
            # It is placed anew anyway: better among nodes with more bandwidth between them.
            available[own] = True
            others = nearest_nodes(np.flatnonzero(available), demand.num_nodes, units, ())
            chosen = max(chosen, others, key=share)
        available[chosen] = False
        placed[demand.job_id] = pool.hand_out(_whole(pool, chosen))
    return placed


def _whole(pool: Pool, nodes: Sequence[int]) -> Slices:
    return tuple([(node, pool.free[node]) for node in nodes])


def nearest_nodes(free: IntVector, count: int, units: IntMatrix, own: Sequence[int]) -> list[int]:
    """Choose `count` of the nodes `free` inside the smallest topology unit that has room, around the nodes `own`.

    Among units of one tier the one with the least room is taken, then the one inside the larger unit with the least;
    inside it as few sub-units as there can be: those with the most room whole, and what is left in the smallest unit
    that has room for it. `units` (N, L) is coarsest tier first.
    """
    if count == 0:
        return []
    if not units.shape[1]:
        return list(map(int, free[:count]))
    inside, below = free, 0
    for tier in reversed(range(units.shape[1])):
        column = units[free, tier]
        unit = units[own[0], tier] if own else _tightest(free, tier, count, units)
        if unit is not None and np.count_nonzero(column == unit) >= count:
            inside, below = free[column == unit], tier + 1
            break
    if own:
        return _around(inside, count, units, own)
    if below == units.shape[1]:
        return list(map(int, inside[:count]))
    # No sub-unit has room for all.
    column = units[inside, below]
    room = np.bincount(column)
    largest_first = np.argsort(-room, kind="stable")
    num_whole = int(np.searchsorted(np.cumsum(room[largest_first]), count, side="right"))
    whole = largest_first[:num_whole]
    rank = np.full(room.size, num_whole)
    rank[whole] = np.arange(num_whole)
    is_taken = rank[column] < num_whole
    taken = inside[is_taken][np.argsort(rank[column[is_taken]], kind="stable")]
    rest = nearest_nodes(inside[~is_taken], count - taken.size, units, ())
    return [*(int(node) for node in taken), *rest]


def _tightest(free: IntVector, tier: int, count: int, units: IntMatrix) -> int | None:
    """The unit of a tier with the least room for `count` nodes, then that inside the units with the least."""
    room = np.bincount(units[free, tier])
    fitting = free[room[units[free, tier]] >= count]
    if not fitting.size:
        return None
    return int(units[fullest_units_first(fitting, free, units[:, : tier + 1])[0], tier])


def fullest_units_first(nodes: IntVector, free: IntVector, units: IntMatrix) -> IntVector:
    """The nodes, those first whose finest unit has the fewest of the nodes `free`, then whose next larger unit has.

    Whoever takes one after the other in this order breaks into as few units as can be.
    """
    keys: list[IntVector] = []
    for tier in reversed(range(units.shape[1])):
        column = units[nodes, tier]
        keys += [np.bincount(units[free, tier], minlength=int(column.max(initial=-1)) + 1)[column]]
    keys += [units[nodes, tier] for tier in range(units.shape[1])]
    return nodes[np.lexsort([nodes, *reversed(keys)])]


def _around(inside: IntVector, count: int, units: IntMatrix, own: Sequence[int]) -> list[int]:
    """The nodes of `inside` that are nearest to the first of the nodes `own`."""
    keys: list[IntVector] = []
    for tier in range(units.shape[1]):
        column = units[inside, tier]
        keys += [
            np.asarray(column != units[own[0], tier], dtype=np.int64),
            -np.bincount(column)[column],
            column,
        ]
    order = np.lexsort([inside, *reversed(keys)])
    return [int(node) for node in inside[order][:count]]


def _place_partial(pool: Pool, demands: Sequence[Demand], units: IntMatrix) -> dict[str, Slices]:
    """Step 4: largest first (the order of `demands`), each on the node that it fills best."""
    if not demands:
        return {}
    nodes = np.array(list(pool.free), dtype=np.int64)
    whole = np.array([node for node in pool.free if pool.is_whole(node)], dtype=np.int64)
    ordered = fullest_units_first(nodes, whole, units).tolist()
    buckets: list[list[tuple[int, int]]] = [[] for _ in range(1 + max(mask.bit_count() for mask in pool.free.values()))]
    for rank, node in enumerate(ordered):
        # In order, which is a heap.
        buckets[pool.free[node].bit_count()].append((rank, node))
    placed: dict[str, Slices] = {}
    for demand in demands:
        best = next(filter(None, buckets[demand.num_gpus :]))
        rank, node = heapq.heappop(best)
        placed[demand.job_id] = pool.hand_out(((node, aligned_block(pool.free[node], demand.num_gpus, 0)),))
        heapq.heappush(buckets[pool.free[node].bit_count()], (rank, node))
    return placed


@lru_cache(maxsize=4096)
def aligned_block(free: int, size: int, preferred: int) -> int:
    """Choose `size` of the GPUs `free` of a node: an aligned block if there is one, with most `preferred` GPUs.

    Among equals the block whose neighbourhood (the aligned block of twice the size) has least free is taken, so that
    larger blocks stay whole.
    """
    block = mask_of(range(size))
    starts = [start for start in range(0, free.bit_length(), size) if free >> start & block == block]
    if starts:

        def rank(start: int) -> tuple[int, int, int]:
            neighbourhood = mask_of(range(2 * size)) << (start // (2 * size) * 2 * size)
            return (-(preferred & (block << start)).bit_count(), (free & neighbourhood).bit_count(), start)

        return block << min(starts, key=rank)
    ranked = sorted(
        (gpu for gpu in range(free.bit_length()) if free >> gpu & 1), key=lambda gpu: (not preferred >> gpu & 1, gpu)
    )
    return mask_of(ranked[:size])
