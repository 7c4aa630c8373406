"""Arnold over several weighted tiers, such as minipods, leaves and NVLink domains (see `tiers`)."""

import numpy as np
import pyomo.environ as pyo

from models.clock import PhaseClock
from models.placement.arnold.arrangement import arrange_groups
from models.placement.arnold.assignment import pick_nodes
from models.placement.arnold.budget import Budget
from models.placement.arnold.instance import affinity_weights
from models.placement.arnold.labels import labels_of
from models.placement.arnold.parameters import ArnoldParameters, SchedulingUnit
from models.placement.arnold.pool import NodePool, node_pool
from models.placement.arnold.search_answer import Report, SearchAnswer
from models.placement.arnold.search_formulation import SearchFormulation
from models.placement.arnold.selection import Affinity, Selection
from models.placement.arnold.tiers.instance import TierInstance, WeightedTier
from models.placement.arnold.tiers.model import tier_model, tier_point
from models.placement.arnold.tiers.search import solve_tiers, tree_order, whole_counts
from models.plan import Plan
from models.workload import Snapshot
from stowplan.arrays import FloatVector, IntMatrix, IntVector


class TierFormulation(SearchFormulation):
    """Weighted tiers for one job: bounds per tier and candidates of our own, or `tier_model` for general solvers."""

    def __init__(
        self, *, snapshot: Snapshot, parameters: ArnoldParameters, selection: Selection, affinity: Affinity
    ) -> None:
        super().__init__(snapshot=snapshot, parameters=parameters, selection=selection, affinity=affinity)
        weights = {name: weight for name, weight in (parameters.tier_weights or {}).items() if weight > 0}
        tiers = [tier.name for tier in snapshot.cluster.tiers]
        finest = max((*weights, self.tier), key=tiers.index)
        self.pool, paths = _bins(snapshot, selection, finest)
        num_groups, group_size = selection.matrix.groups(parameters.scheduling_unit)
        minipod_weight, spread_weight = affinity_weights(affinity.alpha, parameters.scheduling_unit)
        self.instance = TierInstance(
            num_groups=num_groups,
            group_size=group_size,
            free_nodes=self.pool.free_nodes,
            tiers=tuple(
                WeightedTier(name=name, weight=weights[name], unit=_units(paths, tiers.index(name)))
                for name in sorted(weights, key=tiers.index)
            ),
            minipod_weight=minipod_weight,
            spread_weight=spread_weight,
        )
        depth = tiers.index(self.tier) + 1
        number = {label: j for j, label in enumerate(selection.pool.minipods)}
        self.minipod_of_bin = np.array([number["/".join(path[:depth])] for path in paths], dtype=np.int64)

    def declare(self) -> pyo.ConcreteModel:
        """Declare Eqs. 4-10 over all weighted tiers."""
        return tier_model(self.instance)

    @property
    def valued(self) -> TierInstance:
        """The instance."""
        return self.instance

    def search(self, budget: Budget, report: Report) -> SearchAnswer:
        """Bounds per tier and candidates, then the model for what stays open."""
        return solve_tiers(self.instance, budget, report)

    def point(self, solution: IntMatrix) -> FloatVector:
        """The point (n,) of `tier_model` for whole nodes (G, B)."""
        return tier_point(self.instance, solution)

    def conflicts(self, time_limit_s: float) -> tuple[str, ...]:  # noqa: ARG002 - known without a search
        """The capacities of all bins and one group more than fits into them: no row of these can be left out."""
        if self.instance.has_room:
            return ()
        num_that_fit = int(self.instance.free_nodes.sum()) // self.instance.group_size
        groups = [self.model.allocation[i] for i in self.model.i if i <= num_that_fit]
        return tuple(row.name for row in [*self.model.capacity.values(), *groups])

    def extract(self, incumbent: FloatVector, clock: PhaseClock) -> Plan:
        """Nodes for every cell; minipods, and the bins inside them, follow one another in every group."""
        with clock.phase("place"):
            counts = whole_counts(self.instance, incumbent)
            used = np.bincount(self.minipod_of_bin, weights=counts.sum(axis=0)).astype(np.int64)[self.minipod_of_bin]
            along = tree_order(self.instance)
            order = along[np.lexsort((self.minipod_of_bin[along], -used[along]))]
            groups = arrange_groups(labels_of(counts), order)
            bins = groups if self.unit is SchedulingUnit.PP else groups.T
            return self.plan(self.minipod_of_bin[bins], pick_nodes(bins, self.pool.nodes, self.unit))


def _bins(snapshot: Snapshot, selection: Selection, tier: str) -> tuple[NodePool, list[tuple[str, ...]]]:
    """Pool by the units of `tier`, and the path of each."""
    pool = node_pool(snapshot, selection.pool.gpu_type, tier)
    if pool is None:
        raise ValueError(f"no nodes of type {selection.pool.gpu_type!r}, which was selected")
    depth = [known.name for known in snapshot.cluster.tiers].index(tier) + 1
    paths = {"/".join(node.path[:depth]): node.path[:depth] for node in snapshot.cluster.nodes}
    return pool, [paths[label] for label in pool.minipods]


def _units(paths: list[tuple[str, ...]], tier: int) -> IntVector:
    """Number of the unit that each bin belongs to at the position `tier`."""
    prefixes = [path[: tier + 1] for path in paths]
    number = {prefix: k for k, prefix in enumerate(sorted(set(prefixes)))}
    return np.array([number[prefix] for prefix in prefixes], dtype=np.int64)
