"""Random choice problems of many shapes: jobs with options of a GPU type and a count each, as in Sia's Eq. 4.

Same seed, same problem. Drawn for each problem, one after the other:
  size          GPU types uniform 1..12, blocks log-uniform within what is asked for, options a block
                1..(1..8) x min(3, types), of a type uniform and a count 2^0..6
  gain          lognormal(0, 1) x count^(uniform 0.4..1) x (1 + 0.3 type) x uniform 0.9..1.1; in 3 of 10 problems less
                uniform 0..3, so that some options lose; in 3 of 10 rounded to halves, so that there are ties
  equal blocks  in groups of 1 (3 of 5 problems), 3 or 10
  forced        none (2 of 4 problems), a tenth, or all of the blocks must choose
  capacity      of a type 0.02, 0.1, 0.3, 0.6 or 1.5 times what its options take together over the options of a block,
                at least 1: with forced blocks some are infeasible
"""

import numpy as np
from scipy import sparse

from solver.problem import MatrixProblem
from solver.sense import Sense


def drawn_choice_problem(seed: int, least_blocks: int = 3, most_blocks: int = 40) -> MatrixProblem:
    """Problem number `seed`."""
    rng = np.random.default_rng(seed)
    num_types = int(rng.integers(1, 13))
    num_blocks = int(np.exp(rng.uniform(np.log(least_blocks), np.log(most_blocks))))
    clones = int(rng.choice([1, 1, 1, 3, 10]))
    ties, losses = rng.random() < 0.3, rng.random() < 0.3
    forced = float(rng.choice([0.0, 0.0, 0.1, 1.0]))
    tightness = float(rng.choice([0.02, 0.1, 0.3, 0.6, 1.5]))
    sense = Sense.MINIMIZE if rng.random() < 0.5 else Sense.MAXIMIZE
    most_options = int(rng.integers(1, 9))
    costs, types, amounts, blocks = [], [], [], []
    for k in range(max(1, num_blocks // clones)):
        count = int(rng.integers(1, most_options + 1)) * min(num_types, 3)
        options = np.unique(np.stack([rng.integers(num_types, size=count), 2 ** rng.integers(0, 7, count)]), axis=1)
        gain = rng.lognormal() * options[1] ** rng.uniform(0.4, 1.0) * (1 + 0.3 * options[0])
        gain = gain * rng.uniform(0.9, 1.1, gain.size) - (rng.uniform(0, 3, gain.size) if losses else 0.0)
        gain = np.round(gain * 2) / 2 if ties else gain
        costs.append(np.tile(-gain, clones))
        types.append(np.tile(options[0], clones))
        amounts.append(np.tile(options[1], clones).astype(np.float64))
        blocks.append(np.repeat(np.arange(clones), gain.size) + k * clones)
    cost, kind, amount, block = (np.concatenate(parts) for parts in (costs, types, amounts, blocks))
    rows = int(block[-1]) + 1
    required = rng.random(rows) < forced
    limit = np.maximum(1.0, np.floor(tightness * np.bincount(kind, amount, num_types) / most_options))
    n = cost.size
    return MatrixProblem(
        name=f"choices-{seed}",
        sense=sense,
        objective=sense.sign * cost,
        offset=float(rng.normal()),
        matrix=sparse.csc_array(
            (
                np.concatenate([np.ones(n), amount]),
                (np.concatenate([block, rows + kind]), np.tile(np.arange(n), 2)),
            ),
            shape=(rows + num_types, n),
        ),
        row_lower=np.concatenate([np.where(required, 1.0, -np.inf), np.full(num_types, -np.inf)]),
        row_upper=np.concatenate([np.ones(rows), limit]),
        lower=np.zeros(n),
        upper=np.ones(n),
        integrality=np.ones(n, dtype=np.bool_),
    )
