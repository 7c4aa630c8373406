"""Fewest bins for items as a flow, an item size after the other (see `bins`).

Sets
  v         sums of items of a bin, from the sum of all that are negative to the capacity
  k         sizes of items, negative ones first, then the largest, n_k of them; none is 0
  a         arcs: from a sum that items of earlier sizes, or fewer of this one, can reach, on by an item of size k(a)
Variables
  x_a       bins in which the item of a comes on top of its tail, integer in [0, n_k(a)]

  minimise    sum_{a out of 0} x_a - sum_{a into 0} x_a                             (bins that begin)
  s.t.        balance[v]:  sum_{a out of v} x_a <= sum_{a into v} x_a               for all v but 0
              items[k]:    sum_{a: k(a) = k} x_a  = n_k                             for all k with a negative size
                                                 >= n_k                             for all others

Flow on a cycle is a set of items that add up to 0, which go into any bin; where there are but such, a bin is needed.
"""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy import sparse

from models.placement.arnold.exact.bins import Bins
from solver.problem import MatrixProblem
from solver.sense import Sense
from stowplan.arrays import IntVector


@dataclass(frozen=True, slots=True, kw_only=True)
class Arc:
    """From the sum `tail` to the sum `head` by an item."""

    tail: int
    head: int

    @property
    def size(self) -> int:
        """Size of the item."""
        return self.head - self.tail


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class BinFlow:
    """The problem, and the arcs that its columns are."""

    problem: MatrixProblem
    arcs: list[Arc]

    def bins(self, weights: Sequence[int], flow: IntVector) -> Bins:
        """Items (positions into `weights`) of every bin of the `flow` (arcs,); an item in several bins stays in one.

        A walk goes on as far as it can, so that what is left when all have ended are cycles, as are walks back to 0.
        """
        waiting: defaultdict[int, list[int]] = defaultdict(list)
        for i, weight in enumerate(weights):
            waiting[weight].append(i)
        out: defaultdict[int, list[Arc]] = defaultdict(list)
        for arc, times in zip(self.arcs, flow.tolist(), strict=True):
            out[arc.tail] += [arc] * times
        found: Bins = []
        anywhere: list[int] = []
        while out[0]:
            at, members = 0, []
            while out[at]:
                arc = out[at].pop()
                if waiting[arc.size]:
                    members.append(waiting[arc.size].pop())
                at = arc.head
            if at == 0:
                anywhere += members
            else:
                found.append(members)
        found = found or [[]]
        found[0] += anywhere + [i for left in waiting.values() for i in left]
        return found


def bin_flow(weights: Sequence[int], capacity: int, max_arcs: int, *, integral: bool) -> BinFlow | None:
    """Declare the problem, or its relaxation; None when there are more than `max_arcs` arcs."""
    number = Counter(weights)
    order = sorted(number, key=lambda size: (size >= 0, -size))
    arcs = _arcs(number, order, capacity, max_arcs)
    if arcs is None:
        return None
    tails, heads = np.array([arc.tail for arc in arcs]), np.array([arc.head for arc in arcs])
    nodes, sizes = np.unique(np.concatenate([tails, heads])), np.array(sorted(number))
    row_of_size = nodes.size + np.searchsorted(sizes, heads - tails)
    columns = np.arange(len(arcs))
    rows = np.concatenate([np.searchsorted(nodes, tails), np.searchsorted(nodes, heads), row_of_size])
    values = np.concatenate([np.ones(columns.size), -np.ones(columns.size), np.ones(columns.size)])
    count = np.array([number[size] for size in sizes.tolist()], dtype=np.float64)
    begin = np.where(nodes == 0, np.inf, 0.0)
    problem = MatrixProblem(
        name="bins",
        sense=Sense.MINIMIZE,
        objective=(tails == 0) * 1.0 - (heads == 0),
        matrix=sparse.csc_array((values, (rows, np.tile(columns, 3))), shape=(nodes.size + sizes.size, columns.size)),
        row_lower=np.concatenate([np.full(nodes.size, -np.inf), count]),
        row_upper=np.concatenate([begin, np.where(sizes < 0, count, np.inf)]),
        lower=np.zeros(columns.size),
        upper=count[row_of_size - nodes.size],
        integrality=np.full(columns.size, integral),
    )
    return BinFlow(problem=problem, arcs=arcs)


def _arcs(number: Mapping[int, int], order: Sequence[int], capacity: int, max_arcs: int) -> list[Arc] | None:
    arcs: list[Arc] = []
    reached = {0}
    for size in order:
        layer, done = set(reached), set()
        for _ in range(number[size]):
            layer = {tail for tail in layer if tail not in done and tail + size <= capacity}
            arcs += [Arc(tail=tail, head=tail + size) for tail in sorted(layer, reverse=size < 0)]
            done |= layer
            layer = {tail + size for tail in layer}
            reached |= layer
        if len(arcs) > max_arcs:
            return None
    return arcs
