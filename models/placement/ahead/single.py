"""One job at one start: which nodes at least cost, exactly where few groups do not straddle many minipods.

Minimise a Y + b T + sum_j f_j(x_j + r), where x_j nodes of minipod j hold groups, r are its spares, f_j(k) is what its
k cheapest nodes cost, Y counts the minipods used and T is the largest spread of a group (Eq. 4).

T = 1: every minipod holds whole groups, x_j = g n_j.
T >= 2: x_j is any number. By the theorem of `arnold.exact.packing`, minipods with exactly the nodes of G groups hold
them with spread T when there are at most (T - 1) G + 1 of them; so the least cost whatever the spread is a lower bound
with T = 2, and the optimum when it uses no more than G + 1 minipods. Where groups are few and wide, T >= Y / G holds,
too: the least cost where every minipod costs b / G more gives another bound, and another solution.
Both are splits of a number over the minipods at least cost (`paths`).
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from models.placement.ahead.instance import AheadInstance, AheadJob, Option, Placing, placing_cost
from models.placement.ahead.paths import least_split
from models.placement.arnold.exact.packing import pack_component
from models.placement.arnold.labels import counts_of
from stowplan.arrays import FloatMatrix, FloatVector, IntMatrix, IntVector


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SingleAnswer:
    """The best placing found, None when there is none, and a lower bound on all; infinity: there is none."""

    placing: Placing | None
    cost: float
    bound: float


def place_at_best(instance: AheadInstance, job: AheadJob, option: int, available: IntVector) -> SingleAnswer:
    """Place a job that runs by its option `option` on `available` nodes of each class (C,)."""
    chosen = job.options[option]
    room = np.where(np.isfinite(chosen.node_cost), available, 0)
    cheapest = _cheapest(instance, chosen, room, job.num_spares)
    bounds: list[float] = []
    best: Placing | None = None
    best_cost = np.inf
    for counts, bound in _candidates(cheapest, job, chosen):
        bounds.append(bound)
        if counts is None:
            continue
        nodes = cheapest_nodes(instance, chosen.node_cost, job.num_spares, room, counts)
        placing = Placing(option=option, nodes=nodes, counts=counts)
        cost = placing_cost(job, placing)
        if cost < best_cost:
            best, best_cost = placing, cost
    # Whole groups or not: one of them it is.
    whole, *split = bounds
    bound = chosen.cost + min([whole, max(split)] if chosen.shape.group_size > 1 else [whole])
    return SingleAnswer(placing=best, cost=best_cost, bound=min(bound, best_cost))


def least_cost(instance: AheadInstance, job: AheadJob, option: Option) -> float:
    """A lower bound that takes no search: the cheapest nodes wherever they are, on as few minipods as hold them."""
    usable = np.isfinite(option.node_cost)
    sizes = np.bincount(instance.class_minipod[usable], instance.class_size[usable], len(instance.minipods))
    largest = np.sort(sizes - job.num_spares)[::-1].clip(min=0).cumsum()
    num_nodes = option.shape.num_nodes
    fewest = int(np.searchsorted(largest, num_nodes)) + 1
    if fewest > largest.size:
        return np.inf
    order = np.argsort(option.node_cost[usable], kind="stable")
    taken = np.minimum(instance.class_size[usable][order].cumsum(), num_nodes + fewest * job.num_spares)
    nodes = float(np.diff(taken, prepend=0) @ option.node_cost[usable][order])
    spread = max(1, -(-fewest // option.shape.num_groups))
    return option.cost + nodes + job.minipod_weight * fewest + job.spread_weight * spread


def _candidates(cheapest: FloatMatrix, job: AheadJob, option: Option) -> Iterator[tuple[IntMatrix | None, float]]:
    """Nodes of groups by minipod (G, M), each with the bound that its path proves; first that of whole groups."""
    shape, a, b, r = option.shape, job.minipod_weight, job.spread_weight, job.num_spares
    size, num_groups = shape.group_size, shape.num_groups
    with_spares = cheapest[:, r:]
    whole, cost = least_split(with_spares[:, ::size], a, num_groups)
    yield None if whole is None else _whole_groups(whole, size), cost + b
    if size == 1:
        return
    for price, fixed in ((a, 2 * b), (a + b / num_groups, 0.0)):
        split, cost = least_split(with_spares, price, shape.num_nodes)
        yield None if split is None else _split_groups(split, size, num_groups), cost + fixed


def _cheapest(instance: AheadInstance, option: Option, room: IntVector, num_spares: int) -> FloatMatrix:
    """What the k cheapest nodes of each minipod cost, (M, K + 1), K at least the spares; infinity: it has fewer."""
    order = np.lexsort((option.node_cost, instance.class_minipod))
    order = order[room[order] > 0]
    minipods = np.repeat(instance.class_minipod[order], room[order])
    costs = np.repeat(option.node_cost[order], room[order])
    sizes = np.bincount(minipods, minlength=len(instance.minipods))
    first = np.cumsum(sizes) - sizes
    found = np.full((sizes.size, int(sizes.max(initial=num_spares)) + 1), np.inf)
    found[:, 0] = 0.0
    found[minipods, 1 + np.arange(minipods.size) - first[minipods]] = costs
    return np.cumsum(found, axis=1)


def _whole_groups(groups: IntVector, size: int) -> IntMatrix:
    """Nodes (G, M) of groups of which `groups` (M,) are in each minipod."""
    counts = np.zeros((int(groups.sum()), groups.size), dtype=np.int64)
    counts[np.arange(len(counts)), np.repeat(np.arange(groups.size), groups)] = size
    return counts


def _split_groups(nodes: IntVector, size: int, num_groups: int) -> IntMatrix:
    """Deal `nodes` (M,) of the minipods to groups, (G, M), none of which touches more minipods than some group must."""
    used = np.flatnonzero(nodes)
    spread = max(2, -(-(used.size - 1) // num_groups) + 1)
    return counts_of(used[pack_component(nodes[used], size, num_groups, spread)], nodes.size)


def cheapest_nodes(
    instance: AheadInstance, node_cost: FloatVector, num_spares: int, room: IntVector, counts: IntMatrix
) -> IntVector:
    """Of `room` nodes of each class (C,) the cheapest that make up those of groups, `counts` (G, M), and spares."""
    groups = counts.sum(axis=0)
    needed = groups + num_spares * (groups > 0)
    order = np.lexsort((node_cost, instance.class_minipod))
    minipod, here = instance.class_minipod[order], room[order]
    before = here.cumsum() - here
    first = np.searchsorted(minipod, minipod)
    taken = np.zeros_like(room)
    taken[order] = np.clip(needed[minipod] - (before - before[first]), 0, here)
    return taken


def free_at(
    instance: AheadInstance, taken: Iterable[tuple[float, float, IntVector]], start_s: float, end_s: float
) -> IntVector:
    """Nodes of each class (C,) that are left from `start_s` to `end_s` beside what others have `taken` (`stays`)."""
    left: FloatVector | IntVector = instance.class_size
    meeting = [(begin_s, until_s, nodes) for begin_s, until_s, nodes in taken if begin_s < end_s and start_s < until_s]
    # The most are taken at the beginning, or when another one begins meanwhile.
    for instant in {start_s, *(begin_s for begin_s, _, _ in meeting if begin_s > start_s)}:
        together = [nodes for begin_s, until_s, nodes in meeting if begin_s <= instant < until_s]
        if together:
            left = np.minimum(left, instance.class_size - np.sum(together, axis=0))
    return np.asarray(left, dtype=np.int64)
