"""Small instances of planning ahead, and what is best by trying everything."""

import math
from collections.abc import Iterator
from dataclasses import replace
from itertools import chain, combinations, product

import numpy as np
from hypothesis import strategies as st

from models.placement.ahead.instance import (
    AheadInstance,
    AheadJob,
    Mover,
    Moves,
    Option,
    Placing,
    Relocation,
    Shape,
    placing_cost,
    stays,
)

_COSTS = (0.0, 0.25, 1.0, math.inf)


@st.composite
def instances(draw: st.DrawFn, most_jobs: int = 2, moving: bool = False) -> AheadInstance:
    """Up to three minipods with up to two classes each, a few options over three instants; with `moving` up to two jobs
    that may be moved."""
    class_minipod = sorted(draw(st.lists(st.integers(0, 2), min_size=1, max_size=4)))
    class_minipod = [sorted(set(class_minipod)).index(j) for j in class_minipod]
    sizes = draw(st.lists(st.integers(1, 3), min_size=len(class_minipod), max_size=len(class_minipod)))
    class_movers: list[tuple[int, ...]] = [()] * len(sizes)
    if moving:
        # There is always something to clear, and nearly always somewhere to go.
        class_movers = [
            draw(st.sampled_from([(0,), (1,), (0, 1)])),
            *(draw(st.sampled_from([(), (), (0,), (1,)])) for _ in sizes[1:]),
        ]
    movers = tuple(
        Mover(
            id=f"mover-{i}",
            # Some of its nodes may be such that they cannot be cleared.
            num_nodes=max(
                1, draw(st.integers(0, 1)) + sum(n for n, on in zip(sizes, class_movers, strict=True) if i in on)
            ),
            until_s=draw(st.sampled_from([2.0, math.inf])),
        )
        for i in range(2 if moving else 0)
    )
    jobs = []
    for p in range(draw(st.integers(1, most_jobs))):
        shapes = draw(
            st.lists(
                st.builds(lambda g, s: Shape(num_groups=g, group_size=s), st.integers(1, 2), st.integers(1, 3)),
                min_size=1,
                max_size=2,
            )
        )
        options = []
        for _ in range(draw(st.integers(1, 3))):
            start_s = float(draw(st.integers(0, 2)))
            options.append(
                Option(
                    shape=draw(st.sampled_from(shapes)),
                    start_s=start_s,
                    end_s=start_s + draw(st.integers(1, 3)),
                    cost=draw(st.sampled_from([0.0, 0.5, 2.0])),
                    node_cost=np.array([draw(st.sampled_from(_COSTS[2:] if on else _COSTS)) for on in class_movers]),
                    moves=_moves(draw, class_movers) if moving else None,
                )
            )
        jobs.append(
            AheadJob(
                id=f"job-{p}",
                options=tuple(options),
                minipod_weight=draw(st.sampled_from([0.0, 0.3, 1.0])),
                spread_weight=draw(st.sampled_from([0.0, 0.7, 1.0])),
                num_spares=draw(st.integers(0, 1)),
            )
        )
    return AheadInstance(
        minipods=tuple(f"m{j}" for j in range(class_minipod[-1] + 1)),
        class_minipod=np.array(class_minipod),
        class_size=np.array(sizes),
        jobs=tuple(jobs),
        movers=movers,
        class_movers=tuple(class_movers) if moving else (),
    )


def _moves(draw: st.DrawFn, class_movers: list[tuple[int, ...]]) -> Moves:
    """Costs of moves: classes with movers may be cleared, to those without one may move."""

    def costs(*values: float) -> list[float]:
        return draw(st.lists(st.sampled_from(values), min_size=len(class_movers), max_size=len(class_movers)))

    return Moves(
        move_cost=np.array(draw(st.lists(st.sampled_from([0.0, 0.2]), min_size=2, max_size=2))),
        cleared_cost=np.where([bool(on) for on in class_movers], costs(0.0, 0.1), math.inf),
        target_cost=np.where([bool(on) for on in class_movers], math.inf, costs(0.0, 0.3)),
        open_until_s=np.array(costs(1.5, 4.0, math.inf)),
    )


def least_by_trying(instance: AheadInstance) -> float:
    """The cheapest combination of placings that fit beside each other; infinity when there is none."""
    least = math.inf
    for together in product(*(list(_placings(instance, job)) for job in instance.jobs)):
        if _fit(instance, together):
            least = min(least, sum(placing_cost(job, each) for job, each in zip(instance.jobs, together, strict=True)))
    return least


def _placings(instance: AheadInstance, job: AheadJob) -> Iterator[Placing]:
    """Every placing of a job, with no more nodes than it needs."""
    for o, option in enumerate(job.options):
        least = option.node_cost if option.moves is None else np.minimum(option.node_cost, option.moves.cleared_cost)
        ranges = [range(n + 1 if math.isfinite(c) else 1) for n, c in zip(instance.class_size, least, strict=True)]
        for nodes in product(*ranges):
            held = np.bincount(instance.class_minipod, nodes, len(instance.minipods)).astype(np.int64)
            for_groups = held - job.num_spares * (held > 0)
            if (held > 0).any() and (for_groups[held > 0] < 1).any():
                continue
            if for_groups.sum() == option.shape.num_nodes:
                for counts in _splits(for_groups, option.shape.num_groups, option.shape.group_size):
                    plain = Placing(option=o, nodes=np.array(nodes), counts=counts)
                    moved = (replace(plain, relocation=each) for each in _relocations(instance, option))
                    yield from (each for each in (plain, *moved) if math.isfinite(placing_cost(job, each)))


def _relocations(instance: AheadInstance, option: Option) -> Iterator[Relocation]:
    """Every choice of movers, and of nodes for them."""
    moves = option.moves
    if moves is None:
        return
    numbers = range(len(instance.movers))
    for moved in chain.from_iterable(combinations(numbers, k) for k in range(1, len(numbers) + 1)):
        cleared = np.array([bool(on) and set(on) <= set(moved) for on in instance.class_movers])
        cleared &= moves.cleared_cost < option.node_cost
        ways = [list(_ways(instance, moves, i)) for i in moved]
        for together in product(*ways):
            yield Relocation(to=tuple(chain.from_iterable(together)), cleared=cleared)


def _ways(instance: AheadInstance, moves: Moves, i: int) -> Iterator[tuple[tuple[int, int, int], ...]]:
    """Every way to give a mover as many nodes as it needs."""
    mover = instance.movers[i]
    suits = np.isfinite(moves.target_cost) & (moves.open_until_s >= mover.until_s)
    ranges = [range(int(n) + 1 if fits else 1) for n, fits in zip(instance.class_size, suits, strict=True)]
    for counts in product(*ranges) if math.isfinite(moves.move_cost[i]) else ():
        if sum(counts) == mover.num_nodes:
            yield tuple((i, c, count) for c, count in enumerate(counts) if count)


def _splits(held: np.ndarray, num_groups: int, size: int) -> Iterator[np.ndarray]:
    """Every way to deal nodes (M,) to groups."""
    rows = [row for row in product(*(range(size + 1) for _ in held)) if sum(row) == size]
    for counts in product(rows, repeat=num_groups):
        if (np.sum(counts, axis=0) == held).all():
            yield np.array(counts)


def _fit(instance: AheadInstance, together: tuple[Placing, ...]) -> bool:
    pairs = list(zip(instance.jobs, together, strict=True))
    moved = [i for placing in together if placing.relocation for i in placing.relocation.movers]
    taking = [stay for job, placing in pairs for stay in stays(job.options[placing.option], placing)]
    for instant in instance.change_points:
        here = (nodes for start_s, end_s, nodes in taking if start_s <= instant < end_s)
        if (sum(here, np.zeros_like(instance.class_size)) > instance.class_size).any():
            return False
    return len(set(moved)) == len(moved)
