"""Slots of time: the present one, and later ones that end at deadlines. Pure NumPy."""

import numpy as np

from stowplan.arrays import FloatMatrix, FloatVector


def slot_ends(deadline_s: FloatVector, slot_s: float, max_slots: int) -> FloatVector:
    """Ends (K,) in seconds from now: of the present slot, then the deadlines (N,) behind it.

    Of more than `max_slots` those at even ranks are taken, the last one among them: how much is looked at does not grow
    with the jobs. Where slots end at deadlines, whoever has GPUs in one may have them in all of it.
    """
    later = np.unique(deadline_s[deadline_s > slot_s])
    room = max_slots - 1
    if later.size > room:
        later = later[np.linspace(later.size, 0, room, endpoint=False).astype(np.int64)[::-1] - 1]
    return np.concatenate([[slot_s], later])


def slot_lengths(ends: FloatVector) -> FloatVector:
    """Seconds (K,) of each slot."""
    return np.diff(ends, prepend=0.0)


def seconds_before(deadline_s: FloatVector, ends: FloatVector) -> FloatMatrix:
    """Seconds (N, K) of every slot that are before each deadline: work behind it does not help to meet it."""
    begins = ends - slot_lengths(ends)
    return np.asarray(np.clip(deadline_s[:, None] - begins, 0.0, slot_lengths(ends)))
