r"""The weighted min-max problem of Suika's appendix B, for many plans (rows) at a time: n items into m bins,

    min  max_i  o_i + a_i c_i     s.t.  sum_i a_i = n,   l_i <= a_i <= u_i,   a_i integer,   c_i > 0

generalised by offsets o_i (the head counts on the last stage before any layer) and bounds (a stage has a layer at
least; memory holds u_i at most).

Greedy. Start with a_i = l_i; as long as items are left, give one to a bin below its bound where o_i + (a_i + 1) c_i is
least. Proof. Say that the k-th item of bin i has the price o_i + k c_i. Prices rise with k, so the n - sum l_i cheapest
free items (l_i < k <= u_i) are, bin by bin, the next ones: greedy takes exactly these. Let p be the dearest price that
it takes. A solution whose maximum is below p has only free items cheaper than p, of which there are fewer than it
needs; and a maximum that comes from an l_i-th item is in every solution.

The greedy need not start at l: a set of free items that is, bin by bin, the one below some price is a state that greedy
passes, or that it is reached from by taking the dearest away. `split_rows` starts near the price that divisible items
would reach, so that few items are left to move.

Layers that differ form a chain, which is cut: f_s(b) = min_{a < b} max(f_{s-1}(a), cost_s(a, b)), f_s(b) the least
maximum over the first s stages when they have the first b layers. Any costs are allowed, infinite for what memory
forbids.
"""

from collections.abc import Iterable

import numpy as np

from stowplan.arrays import FloatArray, IntArray, Mask, in_order

# For rates of bins that are all full: no bin takes this long for an item.
_NO_RATE = 1e-30


def split_rows(total: int, cost: FloatArray, offset: FloatArray, upper: IntArray) -> tuple[IntArray, Mask]:
    """Distribute `total` items over the bins of every row, at least one to each.

    Parameters
    ----------
    cost, offset
        (R, S) c and o; bins that a row does not have cost infinity.
    upper
        (R, S) u.

    Returns
    -------
    (R, S) items, and (R,) whether the row has a solution; the items of others are 0.
    """
    real = np.isfinite(cost)
    lower = real.astype(np.int64)
    upper = np.where(real, np.minimum(upper, total), 0)
    solvable = (upper >= lower).all(axis=1) & (upper.sum(axis=1) >= total) & (lower.sum(axis=1) <= total)
    upper = np.maximum(upper, lower)
    items = np.clip(_below_level(total, cost, offset, upper), lower, upper)
    missing = np.where(solvable, total - items.sum(axis=1), 0)
    rows = np.arange(len(cost))
    while (missing > 0).any():
        following = np.where(items < upper, offset + (items + 1) * cost, np.inf)
        items[rows, following.argmin(axis=1)] += missing > 0
        missing -= missing > 0
    finite = np.where(real, cost, 0.0)
    while (missing < 0).any():
        current = np.where(items > lower, offset + items * finite, -np.inf)
        items[rows, current.argmax(axis=1)] -= missing < 0
        missing += missing < 0
    return np.where(solvable[:, None], items, 0), solvable


def _below_level(total: int, cost: FloatArray, offset: FloatArray, upper: IntArray) -> IntArray:
    """Whole items below the price that divisible items would reach (R, S)."""
    rate = 1.0 / cost
    lead = offset * rate
    full = np.zeros(cost.shape, dtype=bool)
    items = np.zeros(cost.shape)
    # Two rounds: bins that are full in the first leave their rest to the others.
    for _ in range(2):
        open_rate = in_order(np.where(full, 0.0, rate))
        left = total - in_order(np.where(full, upper, -lead))
        items = (left / np.maximum(open_rate, _NO_RATE))[:, None] * rate - lead
        full = items > upper
    return np.floor(np.clip(items, 0.0, upper)).astype(np.int64)


def split_chain(costs: Iterable[FloatArray], num_layers: int) -> tuple[IntArray, Mask]:
    """Cut a chain of L layers into the stages of every row.

    Parameters
    ----------
    costs
        Per stage (R, L + 1, L + 1): cost of layers [a, b), infinite where it may not have them; for a stage that a row
        does not have, 0 at a = b = L and infinite elsewhere.

    Returns
    -------
    (R, S) layers, and (R,) whether the row has a solution; the layers of others are 0.
    """
    best = np.where(np.arange(num_layers + 1) == 0, 0.0, np.inf)[None]
    came_from: list[IntArray] = []
    for cost in costs:
        dearest = np.maximum(best[..., None], cost)
        came_from.append(dearest.argmin(axis=1))
        best = dearest.min(axis=1)
    solvable = np.isfinite(best[:, -1])
    rows = np.arange(len(best))
    ends = [np.full(len(best), num_layers)]
    for starts in reversed(came_from):
        ends.append(starts[rows, ends[-1]])
    layers = np.diff(np.array(ends[::-1]), axis=0).T
    return np.where(solvable[:, None], layers, 0), solvable
