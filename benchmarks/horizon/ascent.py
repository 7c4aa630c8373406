"""Prices at which a Lagrangian bound is high: Adam, with a rate that falls to 0."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from stowplan.arrays import FloatArray, IntArray

_TINY = 1e-9
# What is kept of the means of gradients and of their squares.
_KEPT, _KEPT_SQUARES = 0.9, 0.99


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Priced:
    """value: of the bound at prices (K, T). use: (K, T) GPUs of each type that are used then."""

    value: float
    use: FloatArray


def good_prices_of(
    priced: Callable[[FloatArray], Priced], first: FloatArray, num_gpus: IntArray, num_steps: int, rate: float
) -> FloatArray:
    """The best of the prices (K, T) on the way up from the `first`; `rate`: how far a price moves in the first step.

    The value is concave in the prices, or nearly so, and rises with those of types of which more is used than there
    is, `num_gpus` (T,), which are above 0.
    """
    prices, mean, squares = first, np.zeros_like(first), np.zeros_like(first)
    best: tuple[float, FloatArray] = (-np.inf, first)
    for k in range(num_steps):
        found = priced(prices)
        best = max(best, (found.value, prices), key=lambda pair: pair[0])
        gradient = found.use / num_gpus - 1.0
        mean += (1.0 - _KEPT) * (gradient - mean)
        squares += (1.0 - _KEPT_SQUARES) * (gradient**2 - squares)
        spread = np.sqrt(squares / (1.0 - _KEPT_SQUARES ** (k + 1))) + _TINY
        step = mean / (1.0 - _KEPT ** (k + 1)) / spread
        prices = np.maximum(0.0, prices + rate * (1.0 - k / num_steps) * step)
    return best[1]
