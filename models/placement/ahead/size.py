"""How large the declared program would be, without declaring it."""

import numpy as np

from models.placement.ahead.instance import AheadInstance


def num_terms(instance: AheadInstance) -> int:
    """Terms of the rows of `declaration.ahead_model` that grow with options, classes, groups and minipods."""
    points = np.array(instance.change_points)
    total = 0
    for job in instance.jobs:
        for option in job.options:
            begin, end = np.searchsorted(points, (option.start_s, option.end_s)).tolist()
            # In the objective, under `taken`, `held` and `groups`, and in every `room` while the option lasts.
            own = int(np.isfinite(option.node_cost).sum())
            if option.moves is not None:
                costs = option.moves.cleared_cost, option.moves.move_cost, option.moves.target_cost
                cleared, movers, targets = (int(np.isfinite(part).sum()) for part in costs)
                levels = np.unique(option.moves.open_until_s).size
                # Under `cleared`; in the objective, `cleared`, `moved`, `moved_once` and `places`; there and in `room`.
                own += cleared
                total += 2 * cleared + movers * (3 + levels) + targets * (1 + levels + points.size - begin)
            total += own * (5 + end - begin)
        # x, s and y of every plan, in `held`, `groups`, `used`, `allocation`, `selection` and `max_spread`.
        groups = sum(shape.num_groups for shape in {option.shape for option in job.options})
        total += 8 * groups * len(instance.minipods)
    return total
