"""When the last interval ends where nobody says when. Pure NumPy.

With a backlog as soon as plans stop lasting: half an hour, or six times what the dearest start takes, since a plan that
ends with the starts that it makes sees none of the work that they are for. Without, when all GPUs have done what is
left, each job where it takes the fewest GPU seconds, and then the longest of all but the longest tenth as fast as it
goes.

One interval is as long as until the next plan; with a backlog six times the dearest start if that is more, since of
what a start that takes longer than the interval is for nothing would be seen.
"""

import numpy as np

from models.allocation.horizon.parameters import NEAR_S, STARTS, HorizonParameters
from models.allocation.horizon.schedules import Shapes
from stowplan.arrays import FloatMatrix, FloatVector

_MOST = 0.9


def horizon_end_s(
    parameters: HorizonParameters, shapes: Shapes, seconds: FloatMatrix, start_s: FloatVector, num_gpus: int
) -> float:
    """Seconds from now; `growing` ends later where so many intervals need more.

    Parameters
    ----------
    seconds
        (J, C) what is left of the planned jobs where they may run later, infinity elsewhere and of other jobs.
    start_s
        (J,) what each pays before it works at all, see `changes.first_start_seconds`.
    num_gpus
        That are free for the planned jobs.
    """
    if parameters.horizon_s is not None:
        return parameters.horizon_s
    least_s = seconds.min(axis=1, initial=np.inf)
    able = np.isfinite(least_s)
    if parameters.backlog_efficiency is not None:
        near_s = parameters.interval_s if parameters.num_intervals == 1 else NEAR_S
        return max(near_s, STARTS * float(start_s[able].max(initial=0.0)))
    if parameters.num_intervals == 1 or not able.any():
        return parameters.interval_s
    gpu_s = (seconds * shapes.num_gpus).min(axis=1, initial=np.inf)
    return float(gpu_s[able].sum()) / max(1, num_gpus) + float(np.quantile(least_s[able], _MOST))
