"""What it is worth that a job meets its deadline, or waits no longer: more than any throughput. Pure NumPy.

a_i, points of a job that earns some: integers in the proportion of the weights w_i. With r_i = w_i / min w, over the
jobs that earn points, they are k r_i for the least k that makes all of them integers, else for the largest k, rounded;
k is at most 100, and so small that no job has more than 10,000 points.
M, worth of a point: 1 + sum_i w_i max_j Thr_ij / Z_i, over all jobs that can run. All throughput terms of a plan
together are at least 0 and at most M - 1, and sums of points differ by at least 1: so between two plans that differ in
points, M sum a_i decides, whatever their throughputs; between plans with equal points throughput does.
"""

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from models.workload import Job
from stowplan.arrays import FloatVector, Mask
from stowplan.errors import Issue

# Weights of jobs that earn points which are further apart than this cannot be told from throughput.
MOST_RATIO = 1_000
_MOST_MULTIPLES, _MOST_POINTS = 100, 10_000
_TOLERANCE = 1e-6


def rewards(earns: Mask, weight: FloatVector, most_throughput: float) -> FloatVector:
    """M a_i (J,), 0 for jobs that earn nothing.

    Parameters
    ----------
    earns
        Jobs (J,) that earn points.
    weight
        w_i (J,).
    most_throughput
        M - 1: what all throughput terms together cannot exceed.
    """
    reward = np.zeros(earns.size)
    if earns.any():
        reward[earns] = (1.0 + most_throughput) * _points(weight[earns])
    return reward


def weight_issues(jobs: Sequence[Job], weights: Mapping[int, float], what: str, how: str = "") -> Iterator[Issue]:
    """Weights that are too far apart to be told from throughput.

    Parameters
    ----------
    weights
        Job (index) -> w_i, above 0, of those that may earn points.
    what
        What a job earns points for; `how` its weight was found, behind it.
    """
    if not weights:
        return
    heaviest = max(weights, key=lambda k: weights[k])
    ratio = weights[heaviest] / min(weights.values())
    if ratio > MOST_RATIO:
        yield Issue(
            code="weights_too_far_apart",
            pointer=f"/jobs/{heaviest}/weight",
            detail=f"the {what} of job {jobs[heaviest].id!r} weighs {ratio:.3g} times as much as another{how}; "
            f"at most {MOST_RATIO:,} times can be told from throughput",
        )


def _points(weight: FloatVector) -> FloatVector:
    ratio = weight / weight.min()
    most = int(max(1, min(_MOST_MULTIPLES, _MOST_POINTS // ratio.max())))
    multiples = np.arange(1, most + 1)[:, None] * ratio
    is_whole = (np.abs(multiples - multiples.round()) <= _TOLERANCE * multiples).all(axis=1)
    k = is_whole.argmax() if is_whole.any() else -1
    return np.asarray(multiples[k].round())
