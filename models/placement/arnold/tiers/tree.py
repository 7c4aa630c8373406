"""Units of all weighted tiers as a tree: one root above the coarsest tier, bins at the bottom."""

from collections.abc import Iterator, Sequence

import numpy as np

from models.placement.arnold.tiers.instance import TierInstance


class UnitTree:
    """`children[t][u]`: the units of tier t in unit u of the tier above, which is the root, 0, for the coarsest;
    `free[t][u]`: the free nodes of a unit. Units without any are left out; those with most come first.
    """

    def __init__(self, instance: TierInstance) -> None:
        self.num_tiers = len(instance.tiers)
        self.free: list[list[int]] = []
        self.children: list[dict[int, list[int]]] = []
        above = np.zeros(instance.num_bins, dtype=np.int64)
        for tier in instance.tiers:
            free = np.bincount(tier.unit, weights=instance.free_nodes, minlength=tier.num_units).astype(np.int64)
            children: dict[int, list[int]] = {}
            pairs = set(zip(above.tolist(), tier.unit.tolist(), strict=True))
            for parent, unit in sorted(pairs, key=lambda pair: (-int(free[pair[1]]), pair)):
                if free[unit]:
                    children.setdefault(parent, []).append(unit)
            self.free.append(free.tolist())
            self.children.append(children)
            above = tier.unit

    def inside(self, tier: int, parent: int) -> Iterator[Sequence[int]]:
        """Units of `tier` and of each finer tier inside a unit of the tier above."""
        units: Sequence[int] = [parent]
        for t in range(tier, self.num_tiers):
            units = [unit for above in units for unit in self.children[t].get(above, ())]
            yield units

    def sizes(self, tier: int, units: Sequence[int]) -> tuple[int, ...]:
        """Free nodes of units of a tier, the most first."""
        return tuple(sorted((self.free[tier][unit] for unit in units), reverse=True))
