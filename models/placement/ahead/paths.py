"""How many nodes of each minipod: least of sum_j [price where x_j > 0, costs_j(x_j)] with sum_j x_j = total.

Exactly as a shortest path over the minipods; where that is too much work, by a price on nodes (Lagrange): minipods then
choose by themselves, the dual is a bound, and what is missing at the best price is filled up by the cheapest nodes.
"""

import numpy as np

from stowplan.arrays import FloatMatrix, FloatVector, IntVector

# Of the shortest path: minipods x nodes x nodes of a minipod.
_MOST_WORK = 100_000
# Halvings of the interval of prices.
_NUM_HALVINGS = 40


def least_split(costs: FloatMatrix, price: float, total: int) -> tuple[IntVector | None, float]:
    """Nodes x (M,) of the minipods, None when there are too few, and a lower bound on the cost; infinity then.

    costs: (M, K + 1), ascending with growing steps from the second column on; infinity where a minipod has fewer. The
    first column stands for nothing taken, whatever it says.
    """
    num_minipods, width = costs.shape
    if num_minipods * (total + 1) * min(width, total + 1) <= _MOST_WORK:
        return shortest_path(costs, price, total)
    return split_by_price(costs, price, total)


def shortest_path(costs: FloatMatrix, price: float, total: int) -> tuple[IntVector | None, float]:
    """The same exactly, of any costs."""
    num_minipods, width = costs.shape
    width = min(width, total + 1)
    least = np.full(total + 1, np.inf)
    least[0] = 0.0
    choices = np.zeros((num_minipods, total + 1), dtype=np.int32)
    padded = np.full(total + width, np.inf)
    prices = costs[:, :width] + price
    prices[:, 0] = 0.0
    usable = np.isfinite(prices).sum(axis=1).tolist()
    rows = np.arange(total + 1)
    # Where the least cost of k - x before a minipod is in `padded`, [k, x].
    windows = rows[:, None] - np.arange(width)[None, :] + width - 1
    for j in range(num_minipods):
        padded[width - 1 :] = least
        sums = padded[windows[:, : usable[j]]] + prices[j, : usable[j]]
        choices[j] = sums.argmin(axis=1)
        least = sums[rows, choices[j]]
    if not np.isfinite(least[total]):
        return None, np.inf
    taken, left = np.zeros(num_minipods, dtype=np.int64), total
    for j in range(num_minipods - 1, -1, -1):
        taken[j] = choices[j, left]
        left -= taken[j]
    return taken, float(least[total])


def split_by_price(costs: FloatMatrix, price: float, total: int) -> tuple[IntVector | None, float]:
    """The same by a price on nodes, as good as the bound says."""
    taking = costs[:, 1 : total + 1]
    room = np.isfinite(taking).sum(axis=1)
    if room.sum() < total:
        return None, np.inf
    # Of the second node on; a minipod that is used takes at least one.
    with np.errstate(invalid="ignore"):
        steps = np.nan_to_num(np.diff(taking, axis=1), nan=np.inf)
    finite = taking[np.isfinite(taking)]
    low, high = 0.0, float(finite.max(initial=0.0)) + price + 1.0
    best, few = -np.inf, np.zeros(len(costs), dtype=np.int64)
    for _ in range(_NUM_HALVINGS):
        node_price = (low + high) / 2
        taken, net = _choices(taking, steps, room, price, node_price)
        best = max(best, float(np.minimum(net, 0.0).sum()) + node_price * total)
        if taken.sum() > total:
            high = node_price
        else:
            low, few = node_price, taken
    return _filled(taking, few, total), best


def _choices(
    taking: FloatMatrix, steps: FloatMatrix, room: IntVector, price: float, node_price: float
) -> tuple[IntVector, FloatVector]:
    """Nodes (M,) that each minipod takes when a node is worth `node_price`, and what that costs on balance."""
    num = np.minimum(1 + (steps <= node_price).sum(axis=1), room)
    rows = np.arange(len(taking))
    net = np.where(room > 0, taking[rows, np.maximum(num, 1) - 1] + price - node_price * num, np.inf)
    return np.where(net < 0.0, num, 0), net


def _filled(taking: FloatMatrix, taken: IntVector, total: int) -> IntVector:
    """Add the cheapest nodes to those `taken` (M,), of minipods in use first, until there are `total`."""
    filled = taken.copy()
    width = taking.shape[1]
    with np.errstate(invalid="ignore"):
        steps = np.diff(taking, axis=1, prepend=0.0)
    usable = np.isfinite(taking) & (np.arange(width) >= taken[:, None])
    opened = np.where(taken[:, None] > 0, 0, 1)
    minipods = np.nonzero(usable)[0]
    order = np.lexsort((steps[usable], np.broadcast_to(opened, usable.shape)[usable]))
    np.add.at(filled, minipods[order][: total - int(taken.sum())], 1)
    return filled
