"""Placement over several weighted tiers: bounds per tier, constructive solutions, and the model for what is open.

- Every solution solves Eq. 4 on each tier alone. So sum_t w_t o_t is a lower bound, where o_t is the optimum on the
  units of tier t, certified by `exact`. A solution that reaches it is proven optimal.
- Candidates use the fewest coarsest units that suffice, largest first, and more as long as that can pay. On these, the
  bins are filled along the tree, larger units first: node after node; or whole groups first, in each bin, then from
  the rest of the bins of one unit, then from the rest of its parent; or by the exact solution for the bins alone.
  Further candidates place the pieces of the exact solution of each tier into bins.
- Where these do not meet, the spreads of all tiers together are gone through, best first (`by_spreads`).
- What stays open goes to `tier_model` with the bounds as rows, from the best candidate.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from models.placement.arnold.assignment import own_split, whole_nodes
from models.placement.arnold.budget import Budget
from models.placement.arnold.exact.search import solve_exactly
from models.placement.arnold.instance import ArnoldInstance
from models.placement.arnold.labels import counts_of
from models.placement.arnold.search_answer import Report, SearchAnswer
from models.placement.arnold.tiers.by_spreads import search_by_spreads
from models.placement.arnold.tiers.instance import TierInstance, WeightedTier
from models.placement.arnold.tiers.model import num_tier_columns, read_supports, tier_model, tier_point
from solver.result import TerminationReason
from stowplan.arrays import FloatVector, IntMatrix, IntVector

_TOLERANCE = 1e-9
_MAX_COLUMNS = 15_000


@dataclass(frozen=True, slots=True, eq=False)
class _Candidate:
    """A solution (G, B) with its objective, and the pieces that its groups are cut into."""

    counts: IntMatrix
    objective: float
    pieces: int

    @property
    def preference(self) -> tuple[float, int]:
        """Sort key."""
        return round(self.objective, 9), self.pieces


def solve_tiers(instance: TierInstance, budget: Budget, report: Report) -> SearchAnswer:
    """Find the optimum, or the best within the budget; `report` gets every better solution with the bound."""
    if not instance.has_room:
        text = f"{int(instance.free_nodes.sum())} of {instance.num_nodes} nodes are free"
        return SearchAnswer(solution=None, objective=None, bound=None, certificate=text, proven=True)
    alone = [solve_exactly(instance.alone(tier), budget, lambda *_: None) for tier in instance.tiers]
    bounds = [answer.bound or 0.0 for answer in alone]
    bound = float(sum(tier.weight * low for tier, low in zip(instance.tiers, bounds, strict=True)))
    best = _constructed(instance, alone, bound - instance.tiers[0].weight * bounds[0], budget)
    texts = [
        f"{tier.name} alone: {low:g} ({answer.certificate})"
        for tier, low, answer in zip(instance.tiers, bounds, alone, strict=True)
    ]
    report(best.counts, bound)
    if bound < best.objective - _TOLERANCE and budget.ended_by is None:
        better = search_by_spreads(instance, best.objective, lambda: budget.ended_by is not None)
        if better.bound > bound + _TOLERANCE:
            bound = better.bound
            texts.append("raised by the spreads of all tiers together")
        best = _better_of(instance, best, better.counts)
        report(best.counts, bound)
    if bound < best.objective - _TOLERANCE and num_tier_columns(instance) <= _MAX_COLUMNS:
        solved = budget.solve(tier_model(instance, bounds, bound), start=tier_point(instance, best.counts))
        if solved is not None:
            result = solved[1]
            if result.incumbent is not None:
                best = _better_of(instance, best, whole_counts(instance, result.incumbent))
            if result.bound is not None and result.bound > bound:
                bound = result.bound
                texts.append("raised by the model over all tiers")
            if result.termination is TerminationReason.OPTIMAL:
                bound = max(bound, best.objective - _TOLERANCE)
    proven = bound >= best.objective - _TOLERANCE
    return SearchAnswer(
        solution=best.counts,
        objective=best.objective,
        bound=best.objective if proven else bound,
        certificate="; ".join(texts),
        proven=proven,
    )


def _better_of(instance: TierInstance, known: _Candidate, counts: IntMatrix | None) -> _Candidate:
    """`counts` where they are a solution with a lower objective."""
    if counts is None or not instance.holds(counts):
        return known
    found = _valued(instance, counts)
    return found if found.objective < known.objective else known


def whole_counts(instance: TierInstance, point: FloatVector) -> IntMatrix:
    """Whole nodes (G, B) that are at least as good as the `point` (n,) of `tier_model`."""
    bins = _bins(instance)
    shape = (instance.num_groups, instance.num_bins)
    last = point.size - len(instance.tiers)
    shares = point[last - shape[0] * shape[1] : last].reshape(shape)
    selected, used = read_supports(instance, point)
    own = own_split(bins, shares, used)
    return whole_nodes(bins, selected, used) if own is None else own


def _bins(instance: TierInstance) -> ArnoldInstance:
    """Bins as minipods."""
    return ArnoldInstance(
        num_groups=instance.num_groups,
        group_size=instance.group_size,
        minipods=tuple(str(k) for k in range(instance.num_bins)),
        free_nodes=instance.free_nodes,
        minipod_weight=instance.minipod_weight,
        spread_weight=instance.spread_weight,
    )


def _valued(instance: TierInstance, counts: IntMatrix) -> _Candidate:
    return _Candidate(counts, instance.objective(counts), int(np.count_nonzero(counts)))


def _constructed(instance: TierInstance, alone: list[SearchAnswer], others: float, budget: Budget) -> _Candidate:
    """Best candidate, of one at least; `others` bounds what all tiers but the coarsest cost."""
    order = tree_order(instance)
    best: _Candidate | None = None
    for tier, answer in zip(instance.tiers, alone, strict=True):
        if answer.solution is None or budget.ended_by is not None:
            continue
        counts = _carried_down(instance, tier, counts_of(answer.solution, tier.num_units), order, budget)
        if counts is not None:
            found = _valued(instance, counts)
            best = found if best is None or found.objective < best.objective else best
    if best is None:
        best = _valued(instance, _in_sequence(instance, order))
    top = instance.tiers[0]
    units = list(dict.fromkeys(top.unit[order].tolist()))
    for num in range(1, len(units) + 1):
        least = others + top.weight * (instance.minipod_weight * num + instance.spread_weight)
        if least > best.objective or budget.ended_by is not None:
            break
        inside = order[np.isin(top.unit[order], units[:num])]
        if instance.free_nodes[inside].sum() >= instance.num_nodes:
            for counts in _on(instance, inside, budget):
                best = min(best, _valued(instance, counts), key=lambda candidate: candidate.preference)
    return best


def _on(instance: TierInstance, order: IntVector, budget: Budget) -> Iterator[IntMatrix]:
    """Candidates on the bins `order` only, until the budget ends."""
    for filled in (_in_sequence, _from_the_leaves):
        if budget.ended_by is not None:
            return
        yield filled(instance, order)
    if budget.ended_by is not None:
        return
    free = np.zeros_like(instance.free_nodes)
    free[order] = instance.free_nodes[order]
    bins = replace(_bins(instance), free_nodes=free)
    answer = solve_exactly(bins, replace(budget, may_solve=False), lambda *_: None)
    if answer.solution is not None:
        yield counts_of(answer.solution, instance.num_bins)


def tree_order(instance: TierInstance) -> IntVector:
    """Bins so that every unit is in one stretch, larger units first at each tier."""
    keys: list[IntVector] = []
    for tier in instance.tiers:
        free = np.bincount(tier.unit, weights=instance.free_nodes, minlength=tier.num_units).astype(np.int64)
        keys += [-free[tier.unit], tier.unit]
    order: IntVector = np.lexsort(keys[::-1])
    return order[instance.free_nodes[order] > 0]


def _in_sequence(instance: TierInstance, order: IntVector) -> IntMatrix:
    """Deal the nodes of the bins, in `order`, to one group after the other."""
    slots = np.repeat(order, instance.free_nodes[order])[: instance.num_nodes]
    counts = np.zeros((instance.num_groups, instance.num_bins), dtype=np.int64)
    np.add.at(counts, (np.arange(slots.size) // instance.group_size, slots), 1)
    return counts


def _from_the_leaves(instance: TierInstance, order: IntVector) -> IntMatrix:
    """Whole groups in each bin, then from what is left in each unit, tier by tier upwards, then from anywhere."""
    left = np.zeros_like(instance.free_nodes)
    left[order] = instance.free_nodes[order]
    counts = np.zeros((instance.num_groups, instance.num_bins), dtype=np.int64)
    placed = 0
    everywhere = np.zeros_like(left)
    for unit in (*(tier.unit for tier in reversed(instance.tiers)), everywhere):
        for members in (order[unit[order] == k] for k in dict.fromkeys(unit[order].tolist())):
            num = min(int(left[members].sum()) // instance.group_size, instance.num_groups - placed)
            slots = np.repeat(members, left[members])[: num * instance.group_size]
            np.add.at(counts, (placed + np.arange(slots.size) // instance.group_size, slots), 1)
            left -= np.bincount(slots, minlength=left.size)
            placed += num
    return counts


def _carried_down(
    instance: TierInstance, tier: WeightedTier, units: IntMatrix, order: IntVector, budget: Budget
) -> IntMatrix | None:
    """Put the pieces (G, U) of a solution on one tier into bins: each into the bin that it fits best, if one does.

    None when the budget ends before all are there.
    """
    counts = np.zeros((instance.num_groups, instance.num_bins), dtype=np.int64)
    left = instance.free_nodes.copy()
    pieces = sorted(((-int(units[i, u]), i, u) for i, u in np.argwhere(units).tolist()), key=lambda piece: piece)
    unit_of = tier.unit[order]
    along = order[np.argsort(unit_of, kind="stable")]
    bins_of = np.split(along, np.cumsum(np.bincount(unit_of, minlength=tier.num_units))[:-1])
    for size, i, u in pieces:
        if budget.ended_by is not None:
            return None
        need, members = -size, bins_of[u]
        while need:
            enough = members[left[members] >= need]
            k = int(enough[np.argmin(left[enough])] if enough.size else members[np.argmax(left[members])])
            taken = min(need, int(left[k]))
            counts[i, k] += taken
            left[k] -= taken
            need -= taken
    return counts
