"""Placement classes: configurations of several nodes once for each share of the bandwidth that these may have between
them, and those in which jobs stay on their nodes. Pure NumPy.

A class of a GPU type is a share: nodes that have it lie within one unit of a tier (a leaf, a minipod), or anywhere
where it is the least one. A running job of whole nodes that stays has these nodes; in the same configuration elsewhere
it is moved, and pays for that. Which nodes others have is settled when all are chosen.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np

from models.allocation.sia.instance import SiaInstance
from models.configurations import ConfigurationSet
from models.placement.placeability import takes_whole_nodes
from models.placement.units import Level, levels_of
from stowplan.arrays import IntVector, Mask
from topology.cluster import Cluster

# Goodputs that differ by less are equal.
_EQUAL = 1e-9


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Classes:
    """levels: of each GPU type, the coarsest first. rank: int64 (C,), the level within one unit of which a
    configuration lies, 0 where it may lie anywhere. stays: bool (C,), where jobs stay on their nodes."""

    levels: Sequence[Sequence[Level]]
    rank: IntVector
    stays: Mask


def with_classes(cluster: Cluster, known: ConfigurationSet) -> tuple[ConfigurationSet, Classes] | None:
    """Configurations once for each class, the laxest first; None where there are no others than are known."""
    levels = [levels_of(cluster, name) for name in known.gpu_types]
    positions: list[int] = []
    rank: list[int] = []
    fraction: list[float] = []
    rows = zip(known.type_index.tolist(), known.num_nodes.tolist(), known.bandwidth_fraction.tolist(), strict=True)
    for c, (t, num_nodes, best) in enumerate(rows):
        if num_nodes == 1 or len(levels[t]) < 2:
            found = [(0, best)]
        else:
            found = [(r, level.fraction) for r, level in enumerate(levels[t]) if level.most_nodes >= num_nodes]
        positions += [c] * len(found)
        rank += [r for r, _ in found]
        fraction += [share for _, share in found]
    if not any(rank):
        return None
    configurations = replace(known.taken(np.array(positions)), bandwidth_fraction=np.array(fraction))
    stays = np.zeros(len(rank), dtype=np.bool_)
    return configurations, Classes(levels=levels, rank=np.array(rank, dtype=np.int64), stays=stays)


def classes_pay(base: SiaInstance, classes: Classes) -> bool:
    """Whether any job is faster in a stricter class than in a laxer one."""
    strict = np.flatnonzero(classes.rank > 0)
    # The next laxer class of as many nodes stands before it.
    slower = base.matrix.goodput[:, strict - 1] * (1.0 + _EQUAL)
    return bool((base.matrix.goodput[:, strict] > slower).any())


def without_classes(base: SiaInstance) -> SiaInstance:
    """Each configuration once, with the largest share of the bandwidth that so many nodes can have."""
    it = base.configurations
    shape = np.stack([it.type_index, it.num_nodes, it.num_gpus])
    is_last = np.append((shape[:, 1:] != shape[:, :-1]).any(axis=0), True) if len(it) else np.zeros(0, dtype=np.bool_)
    new = np.cumsum(is_last) - is_last
    current = base.utility.current
    found = _taken(base, np.flatnonzero(is_last), np.where(current >= 0, np.append(new, -1)[current], -1))
    # A job that stays beyond its bounds can run with the share that it has alone.
    stays = np.flatnonzero(current >= 0)
    runnable = found.utility.runnable.copy()
    runnable[stays, found.utility.current[stays]] |= base.utility.runnable[stays, current[stays]]
    return replace(found, utility=replace(found.utility, runnable=runnable))


def with_stays(base: SiaInstance, classes: Classes) -> tuple[SiaInstance, Classes]:
    """Beside every configuration of whole nodes in which a job runs that may be moved one for those that stay."""
    it, current = base.configurations, base.utility.current
    holders = base.planned[current[base.planned] >= 0]
    holders = holders[takes_whole_nodes(it)[current[holders]]]
    held = np.unique(current[holders])
    positions = np.concatenate([np.arange(len(it)), held])
    twin = np.arange(positions.size) >= len(it)
    order = np.lexsort([twin, positions])
    positions, twin = positions[order], twin[order]
    new = np.flatnonzero(~twin)
    stays = np.full(len(it), -1, dtype=np.int64)
    stays[held] = np.flatnonzero(twin)
    moved_to = np.where(current >= 0, np.append(new, -1)[current], -1)
    moved_to[holders] = stays[current[holders]]
    found = _taken(base, positions, moved_to)
    of_holder: Mask = np.zeros(found.utility.runnable.shape, dtype=np.bool_)
    of_holder[:, ~twin] = True
    of_holder[holders, moved_to[holders]] = True
    utility = replace(
        found.utility, runnable=found.utility.runnable & of_holder, offered=found.utility.offered & of_holder
    )
    changed = replace(classes, rank=classes.rank[positions], stays=twin)
    return _offering(replace(found, utility=utility), utility.offered), changed


def only_offered(base: SiaInstance, fits: Mask) -> SiaInstance:
    """The instance with offers of the configurations `fits` (C,), or (J, C), alone."""
    return _offering(base, base.utility.offered & fits)


def _offering(base: SiaInstance, offered: Mask) -> SiaInstance:
    pair_jobs, pair_configurations = np.nonzero(offered)
    utility = replace(base.utility, offered=offered)
    return replace(base, utility=utility, pair_jobs=pair_jobs, pair_configurations=pair_configurations)


def _taken(base: SiaInstance, positions: IntVector, current: IntVector) -> SiaInstance:
    """The instance over the configurations at these positions; `current` (J,): where jobs may stay among these."""
    columns: dict[str, Any] = {
        field.name: getattr(base.matrix, field.name)[:, positions]
        for field in fields(base.matrix)
        if field.name != "models"
    }
    utility = replace(
        base.utility,
        runnable=base.utility.runnable[:, positions],
        offered=base.utility.offered[:, positions],
        value=base.utility.value[:, positions],
        current=current,
    )
    taken, with_plan = positions.tolist(), _jobs_with_plan(base)
    found = replace(
        base,
        configurations=base.configurations.taken(positions),
        matrix=replace(base.matrix, **columns),
        rows=replace(base.rows, coefficients=base.rows.coefficients[:, positions]),
        utility=utility,
        plans={(i, c): base.plans[i, known] for c, known in enumerate(taken) for i in with_plan.get(known, ())},
    )
    return _offering(found, utility.offered)


def _jobs_with_plan(base: SiaInstance) -> dict[int, list[int]]:
    """Jobs with a 3D plan by configuration."""
    found: dict[int, list[int]] = {}
    for i, c in base.plans:
        found.setdefault(c, []).append(i)
    return found
