"""Instances, budgets and reference searches that the tests of this folder share."""

import threading
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from itertools import combinations_with_replacement, product

import numpy as np

from models.placement.arnold.budget import Budget
from models.placement.arnold.instance import ArnoldInstance
from models.placement.arnold.tiers.instance import TierInstance
from models.placement.arnold.true_spread.instance import TrueSpreadInstance
from solver.monitor import SolveMonitor
from solver.options import SolveOptions
from stowplan.arrays import IntMatrix

ALPHAS = (0.0, 0.1, 0.3, 0.5, 0.9, 1.0)


def budget(time_limit_s: float = 20.0, *, may_solve: bool = True, canceled: bool = False) -> Budget:
    event = threading.Event()
    if canceled:
        event.set()
    options = SolveOptions(time_limit_s=time_limit_s)
    return Budget(options=options, monitor=SolveMonitor(canceled=event), may_solve=may_solve)


def ignore(*_: object) -> None:
    """Report to nobody."""


def fits(free: Sequence[int], size: int, num_groups: int, spread: int) -> bool:
    """Whether the groups fit with that spread, by trying every split. Shares no code with what it judges."""
    ways = [
        way
        for way in product(*(range(min(size, nodes) + 1) for nodes in free))
        if sum(way) == size and sum(part > 0 for part in way) <= spread
    ]

    @cache
    def extend(left: tuple[int, ...], groups: int, first: int) -> bool:
        if groups == 0:
            return True
        return any(
            all(have >= part for have, part in zip(left, way, strict=True))
            and extend(tuple(have - part for have, part in zip(left, way, strict=True)), groups - 1, k)
            for k, way in enumerate(ways[first:], start=first)
        )

    return extend(tuple(free), num_groups, 0)


def best_eq4(data: ArnoldInstance) -> float:
    """Optimum of Eq. 4 by `fits`; inf when there is no room. The largest minipods are the best for any number."""
    free = sorted(data.free_nodes.tolist(), reverse=True)
    values = (
        data.minipod_weight * used + data.spread_weight * spread
        for spread in range(1, len(free) + 1)
        for used in range(1, len(free) + 1)
        if sum(free[:used]) >= data.num_nodes and fits(free[:used], data.group_size, data.num_groups, spread)
    )
    return min(values, default=np.inf)


def assert_legal(data: ArnoldInstance, labels: IntMatrix) -> None:
    assert labels.shape == (data.num_groups, data.group_size)
    assert (np.bincount(labels.ravel(), minlength=data.num_minipods) <= data.free_nodes).all()


def matrix_instance(num_rows: int, num_columns: int, free: Sequence[int], alpha: float) -> TrueSpreadInstance:
    return TrueSpreadInstance(
        num_rows=num_rows,
        num_columns=num_columns,
        minipods=tuple(f"m{k}" for k in range(len(free))),
        free_nodes=np.array(free, dtype=np.int64),
        alpha=alpha,
    )


def best_eq2(data: TrueSpreadInstance) -> float:
    """Optimum of Eq. 2 by trying a minipod for every cell; inf when there is no room."""
    free = data.free_nodes.tolist()
    values = (
        by_definition(data, labels)
        for labels in product(range(len(free)), repeat=data.num_cells)
        if all(labels.count(j) <= nodes for j, nodes in enumerate(free))
    )
    return min(values, default=np.inf)


def by_definition(data: TrueSpreadInstance, labels: Sequence[int]) -> float:
    """Eqs. 2 and 3 as printed, on one-hot vectors; alpha on the DP groups."""
    rows = [list(labels[r * data.num_columns : (r + 1) * data.num_columns]) for r in range(data.num_rows)]

    def distance(group: Sequence[int]) -> int:
        vectors = [[int(j == label) for j in range(data.num_minipods)] for label in group]
        return sum(any(one[j] != two[j] for one in vectors for two in vectors) for j in range(data.num_minipods))

    columns = [list(column) for column in zip(*rows, strict=True)]
    return data.alpha * max(map(distance, columns)) + (1 - data.alpha) * max(map(distance, rows))


def assert_placed(data: TrueSpreadInstance, labels: IntMatrix) -> None:
    assert labels.shape == (data.num_rows, data.num_columns)
    assert (np.bincount(labels.ravel(), minlength=data.num_minipods) <= data.free_nodes).all()


def best_tiers(data: TierInstance) -> float:
    """Optimum over several tiers by trying every split into bins."""
    ways = [way for way in product(range(data.group_size + 1), repeat=data.num_bins) if sum(way) == data.group_size]
    splits = (np.array(split) for split in combinations_with_replacement(ways, data.num_groups))
    legal = (counts for counts in splits if (counts.sum(axis=0) <= data.free_nodes).all())
    return min(map(_by_units(data), legal), default=np.inf)


def _by_units(data: TierInstance) -> Callable[[IntMatrix], float]:
    def value(counts: IntMatrix) -> float:
        total = 0.0
        for tier in data.tiers:
            touched = [{int(tier.unit[k]) for k in np.flatnonzero(group)} for group in counts]
            used, most = len(set().union(*touched)), max(map(len, touched))
            total += tier.weight * (data.minipod_weight * used + data.spread_weight * most)
        return total

    return value


def dirichlet(num_minipods: int, total: int, seed: int) -> list[int]:
    """`total` free nodes over minipods with Dirichlet shares of weight 6."""
    rng = np.random.default_rng(seed)
    return [int(nodes) for nodes in rng.multinomial(total, rng.dirichlet(np.full(num_minipods, 6.0)))]


def seeded(seed: int, num: int) -> Iterator[np.random.Generator]:
    """`num` generators, one per instance."""
    yield from (np.random.default_rng((seed, k)) for k in range(num))
