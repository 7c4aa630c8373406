"""Random choice problems: jobs with options over a few resources, the shape of Sia's Eq. 4."""

import numpy as np
from scipy import sparse

from solver.problem import MatrixProblem
from solver.sense import Sense


def choice_problem(
    seed: int,
    *,
    num_blocks: int = 6,
    num_options: int = 3,
    num_resources: int = 2,
    tightness: float = 0.5,
    num_clones: int = 1,
    required_share: float = 0.0,
    integral: bool = False,
    sense: Sense = Sense.MINIMIZE,
) -> MatrixProblem:
    """Blocks of options with negative costs, one resource and an amount each; every block `num_clones` times.

    `tightness`: limits as a share of what all options together would take. A share of the blocks must choose.
    """
    rng = np.random.default_rng(seed)
    cost = (
        -rng.integers(1, 40, (num_blocks, num_options)) / 4.0
        if integral
        else -rng.uniform(0.1, 9.0, (num_blocks, num_options))
    )
    resource = rng.integers(0, num_resources, (num_blocks, num_options))
    amount = 2.0 ** rng.integers(0, 4, (num_blocks, num_options))
    required = rng.random(num_blocks) < required_share
    cost, resource, amount = (np.repeat(a, num_clones, axis=0) for a in (cost, resource, amount))
    required = np.repeat(required, num_clones)
    blocks, n = len(cost), cost.size
    rows = np.concatenate([np.repeat(np.arange(blocks), num_options), blocks + resource.ravel()])
    matrix = sparse.csc_array(
        (np.concatenate([np.ones(n), amount.ravel()]), (rows, np.tile(np.arange(n), 2))),
        shape=(blocks + num_resources, n),
    )
    limit = np.floor(tightness * np.bincount(resource.ravel(), amount.ravel(), num_resources) / num_options) + 1
    return MatrixProblem(
        name="choices",
        sense=sense,
        objective=sense.sign * cost.ravel(),
        offset=3.5,
        matrix=matrix,
        row_lower=np.concatenate([np.where(required, 1.0, -np.inf), np.full(num_resources, -np.inf)]),
        row_upper=np.concatenate([np.ones(blocks), limit]),
        lower=np.zeros(n),
        upper=np.ones(n),
        integrality=np.ones(n, dtype=np.bool_),
    )
