"""When nodes are expected to be free: of what runs on them, until when with which probability."""

from collections.abc import Sequence

import numpy as np

from models.forecast.lasting import Lasting
from stowplan.arrays import FloatVector


def probabilities_within(lasting: Lasting | None, times_s: FloatVector) -> FloatVector:
    """Probability (T,) that it is over within each of the times (T,); see `Lasting.probability_within`."""
    if lasting is None:
        return np.zeros_like(times_s)
    seconds = np.array([*lasting.seconds, np.inf])
    known = np.array([0.0, *lasting.probabilities])
    after = np.searchsorted(seconds[:-1], times_s, side="right")
    before_s = np.array([0.0, *lasting.seconds])[after]
    between = (after > 0) & (after < len(lasting.seconds))
    share = np.zeros_like(times_s)
    share[between] = ((times_s - before_s) / (seconds[after] - before_s))[between]
    following = np.array([*known[1:], known[-1]])[after]
    return known[after] + share * np.where(between, following - known[after], 0.0)


def free_within(occupants: Sequence[Lasting | None], times_s: FloatVector) -> FloatVector:
    """Probability (T,) that all occupants, which know nothing of each other, are over within each of the times (T,)."""
    free = np.ones_like(times_s)
    for lasting in occupants:
        free *= probabilities_within(lasting, times_s)
    return free


def idle_between(occupants: Sequence[Lasting | None], opened_s: FloatVector, times_s: FloatVector) -> FloatVector:
    """Expected seconds (T,) for which a node is free until each of the times (T,), from when it was opened, (T,).

    The integral of `free_within`: between two quantiles it is a polynomial, of which Gauss's points give it exactly.
    """
    if not occupants:
        return times_s - opened_s
    if any(lasting is None for lasting in occupants):
        return np.zeros_like(times_s)
    last_s = float(times_s.max())
    quantiles = [s for lasting in occupants if lasting is not None for s in lasting.seconds if s < last_s]
    knots = np.unique(np.concatenate([[0.0], opened_s, times_s, quantiles]))
    points, weights = np.polynomial.legendre.leggauss(len(occupants) // 2 + 1)
    half = np.diff(knots) / 2
    inner = (knots[:-1] + half)[:, None] + half[:, None] * points[None, :]
    free = free_within(occupants, inner.ravel()).reshape(inner.shape)
    integral = np.concatenate([[0.0], np.cumsum(half * (free @ weights))])
    return np.asarray(integral[np.searchsorted(knots, times_s)] - integral[np.searchsorted(knots, opened_s)])
