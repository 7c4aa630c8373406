r"""GPUs that jobs will need which are still to come: fluid demand. Pure NumPy.

At a rate of lambda jobs come a second, each like the median of those that are there (of which long ones are more than
among those that come); a part p_t of them, that of all GPUs, goes to type t, where a whole job takes D_t GPU seconds
where it takes the fewest, and S_t seconds where it is fastest. Served at once, they have lambda p_t D_t min(1, x / S_t)
GPUs x seconds from now; of what there is in an interval they get half at most, since jobs that are there have a claim,
too. The first interval is theirs who are there. To what is planned, without GPUs of pinned jobs and those that a
calendar has planned by themselves, jobs come by its part of all GPUs.
"""

import numpy as np

from models.allocation.horizon.intervals import Intervals
from models.allocation.horizon.schedules import Shapes
from stowplan.arrays import FloatMatrix, FloatVector

_MOST = 0.5


def expected_gpus(
    rate_per_s: float,
    intervals: Intervals,
    shapes: Shapes,
    seconds: FloatMatrix,
    attained_gpu_s: FloatVector,
    most: FloatVector,
    there: FloatMatrix,
) -> FloatMatrix:
    """GPUs (T, K) of each type that jobs which are still to come have on average over each interval.

    Parameters
    ----------
    seconds
        (J, C) what is left of the jobs that are there, infinity where they cannot run.
    attained_gpu_s
        (J,) what they have had.
    most, there
        (T,) GPUs of each type that are ever there, and (T, K) on average over each interval.
    """
    found = np.zeros_like(there)
    demand, length_s = np.zeros(shapes.num_types), np.zeros(shapes.num_types)
    for t in range(shapes.num_types):
        of_type = shapes.type_index == t
        least_s = seconds[:, of_type].min(axis=1, initial=np.inf)
        least_gpu_s = (seconds[:, of_type] * shapes.num_gpus[of_type]).min(axis=1, initial=np.inf)
        able = np.isfinite(least_s) & (least_gpu_s > 0)
        if able.any():
            whole = 1.0 + attained_gpu_s[able] / least_gpu_s[able]
            demand[t] = np.median(whole * least_gpu_s[able])
            length_s[t] = np.median(whole * least_s[able])
    takes = demand > 0
    part = np.where(takes, most, 0.0) / max(1.0, float(most[takes].sum()))
    bounds_s = intervals.bounds_s
    for t in np.flatnonzero(takes).tolist():
        within_s = np.minimum(bounds_s, length_s[t])
        # The integral of min(1, x / S).
        until = within_s**2 / (2.0 * length_s[t]) + np.maximum(bounds_s - length_s[t], 0.0)
        used = rate_per_s * part[t] * demand[t] * np.diff(until) / intervals.lengths_s
        found[t, 1:] = np.minimum(used, _MOST * there[t])[1:]
    return found
