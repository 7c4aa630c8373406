"""Statistical efficiency: progress per sample at a batch size, against the initial one (Pollux section 3.1).

With the gradient's squared norm `sqr` and variance `var`, both at the initial batch B0, and scale = B / B0:

    efficiency = (var + sqr) / (var/scale + sqr) / scale
               = 1 / (1 + share (scale - 1)),   share = sqr / (sqr + var)

It is 1 at B0 and falls with B: fast where the signal dominates (share near 1), not at all where all is noise.
"""

import numpy as np

from models.performance.goodput.throughput import Number
from stowplan.arrays import FloatArray


def signal_share(squared_norm: Number, variance: Number) -> FloatArray:
    """sqr / (sqr + var) in [0, 1]; not both are 0."""
    return np.asarray(squared_norm / np.add(squared_norm, variance), dtype=np.float64)


def efficiency(share: Number, scale: Number) -> FloatArray:
    """Efficiency in (0, 1] for scale >= 1; arrays of any shapes that broadcast."""
    return np.asarray(1.0 / (1.0 + share * np.subtract(scale, 1.0)), dtype=np.float64)
