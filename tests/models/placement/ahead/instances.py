"""Small instances of planning ahead, and what is best by trying everything."""

import math
from collections.abc import Iterator
from itertools import product

import numpy as np
from hypothesis import strategies as st

from models.placement.ahead.instance import AheadInstance, AheadJob, Option, Placing, Shape, placing_cost

_COSTS = (0.0, 0.25, 1.0, math.inf)


@st.composite
def instances(draw: st.DrawFn, most_jobs: int = 2) -> AheadInstance:
    """Up to three minipods with up to two classes each, a few options over three instants."""
    class_minipod = sorted(draw(st.lists(st.integers(0, 2), min_size=1, max_size=4)))
    class_minipod = [sorted(set(class_minipod)).index(j) for j in class_minipod]
    sizes = draw(st.lists(st.integers(1, 3), min_size=len(class_minipod), max_size=len(class_minipod)))
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
                    node_cost=np.array(
                        draw(st.lists(st.sampled_from(_COSTS), min_size=len(sizes), max_size=len(sizes)))
                    ),
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
        ranges = [
            range(n + 1 if math.isfinite(c) else 1) for n, c in zip(instance.class_size, option.node_cost, strict=True)
        ]
        for nodes in product(*ranges):
            held = np.bincount(instance.class_minipod, nodes, len(instance.minipods)).astype(np.int64)
            for_groups = held - job.num_spares * (held > 0)
            if (held > 0).any() and (for_groups[held > 0] < 1).any():
                continue
            if for_groups.sum() == option.shape.num_nodes:
                yield from (
                    Placing(option=o, nodes=np.array(nodes), counts=counts)
                    for counts in _splits(for_groups, option.shape.num_groups, option.shape.group_size)
                )


def _splits(held: np.ndarray, num_groups: int, size: int) -> Iterator[np.ndarray]:
    """Every way to deal nodes (M,) to groups."""
    rows = [row for row in product(*(range(size + 1) for _ in held)) if sum(row) == size]
    for counts in product(rows, repeat=num_groups):
        if (np.sum(counts, axis=0) == held).all():
            yield np.array(counts)


def _fit(instance: AheadInstance, together: tuple[Placing, ...]) -> bool:
    for instant in instance.change_points:
        taken = sum(
            (
                placing.nodes
                for job, placing in zip(instance.jobs, together, strict=True)
                if job.options[placing.option].start_s <= instant < job.options[placing.option].end_s
            ),
            np.zeros_like(instance.class_size),
        )
        if (taken > instance.class_size).any():
            return False
    return True
