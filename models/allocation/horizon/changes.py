"""What a change loses, with those that follow it. Pure NumPy.

A job that takes other GPUs is not left with them until it ends, or until the horizon: others come, and it is moved
again, as often as it was so far. So one change stands for as many as there will be: how long it would be there, over
how long it held GPUs on average, at least three times what a change loses, however young it is, as in Sia's objective
of completion times (`models.allocation.sia.completion`).
"""

from collections.abc import Sequence

import numpy as np

from models.allocation.horizon.schedules import NOTHING
from models.workload import Job
from stowplan.arrays import FloatMatrix, FloatVector, IntVector, Mask

LEAST_HELD = 3.0


def first_start_seconds(
    jobs: Sequence[Job], price: float, seconds: FloatMatrix, current: IntVector, runs: Mask
) -> FloatVector:
    """(J,) what a job pays before it works at all: its restart cost, and `price` times that if it runs and cannot go on
    as it is. Changes that follow are left out: there are as many as the horizon has room for. See `change_seconds`.

    Parameters
    ----------
    runs
        (J,) whether the job runs.
    """
    cost_s = np.array([job.restart_cost_s for job in jobs], dtype=np.float64)
    moves = runs.copy()
    stays = np.flatnonzero(current != NOTHING)
    moves[stays] &= ~np.isfinite(seconds[stays, current[stays]])
    return np.where(moves, price * cost_s, cost_s)


def change_seconds(
    jobs: Sequence[Job], price: float, seconds: FloatMatrix, current: IntVector, horizon_s: float
) -> FloatVector:
    """(J,) what a change loses of each job.

    Parameters
    ----------
    price
        How many times its restart cost a job loses with a single one.
    seconds
        (J, C) what is left, infinity where it cannot run.
    current
        (J,) where a job may stay, -1 for nowhere: such a one is taken to go on where it is fastest.
    """
    once_s = price * np.array([job.restart_cost_s for job in jobs], dtype=np.float64)
    held_s = np.array([job.age_s / (1 + job.num_restarts) for job in jobs], dtype=np.float64)
    held_s = np.maximum(held_s, LEAST_HELD * once_s)
    left_s = seconds.min(axis=1, initial=np.inf)
    stays = np.flatnonzero(current != NOTHING)
    left_s[stays] = seconds[stays, current[stays]]
    there_s = np.minimum(left_s, horizon_s)
    often = np.divide(there_s, held_s, out=np.ones_like(held_s), where=once_s > 0)
    return np.asarray(once_s * np.maximum(often, 1.0))
