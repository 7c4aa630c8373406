r"""What the iteration of a symmetric plan takes at least, whatever its stages send, in closed form.

Stages i = 0 .. p - 1 with at least f_i, b_i per micro-batch and tau_i behind the last one, N micro-batches, v parts of
a stage. The formula of whole stages (`formulas.pipeline_s`) rises with all of these. With parts, stage d

- gets its first micro-batch after F_d / v, works N (f_d + b_d), and its last gradient has B_d / v to go back, with
  F_d = sum_{i<d} f_i, B_d = sum_{i<d} b_i;
- or has its first gradient after sum_i f_i + sum_{i>=d} b_i / v. By then it has made as many forward passes as the
  schedule puts before, w_d + 1 of N v, w_d = min(2 (p - 1 - d) + (v - 1) p, N v - 1), and one backward pass.

Both are passes that wait for one another: a schedule is never faster. `exact_makespan_s` may be below the makespan by
half of its tolerance, and so is the bound. Where weights have passes of their own, the bound is that of
`models.performance.pipeline.split`.
"""

import numpy as np

from models.performance.iteration.formulas import pipeline_s
from models.performance.iteration.times import MAKESPAN_TOLERANCE, of_parts
from models.performance.pipeline.schedule import Schedule
from models.performance.pipeline.split import split_lower_bound_s
from models.performance.pipeline.times import StageTimes
from stowplan.arrays import FloatArray, IntArray


def least_s(stages_s: FloatArray, num_micro_batches: int, virtual_stages: IntArray) -> FloatArray:
    """Least iteration times before stragglers, (K, T).

    Parameters
    ----------
    stages_s
        (3, K, T, p) forward and backward pass of a micro-batch, and what is left behind the last one.
    virtual_stages
        (K,)
    """
    forward_s, backward_s, extra_s = stages_s
    whole = sum(pipeline_s(forward_s, backward_s, extra_s, num_micro_batches))
    parts = virtual_stages[:, None, None]
    passes = _interleaved_s(forward_s, backward_s, num_micro_batches, parts).max(axis=-1)
    cut = (1.0 - 0.5 * MAKESPAN_TOLERANCE) * passes + extra_s[..., 0]
    return np.where(virtual_stages[:, None] > 1, cut, whole)


def least_split_s(schedule: Schedule, stages_s: FloatArray, parts: FloatArray) -> FloatArray:
    """Least iteration times before stragglers (T,) of zero-bubble schedules.

    Parameters
    ----------
    stages_s
        (4, T, p) forward and backward pass of a micro-batch, the part of the latter that is of weights, and what is
        left behind the last one.
    parts
        Which part of these each part of a stage takes (v, p).
    """
    passes = (1.0 - 0.5 * MAKESPAN_TOLERANCE) * split_s(schedule, stages_s[:3], parts)
    return np.asarray(passes + stages_s[3].max(axis=-1))


def split_s(schedule: Schedule, passes_s: FloatArray, parts: FloatArray) -> FloatArray:
    """Least time of all passes of zero-bubble schedules (T,); `passes_s`: the first three of `least_split_s`."""
    forward, backward, weight = of_parts(schedule, passes_s, parts)
    return split_lower_bound_s(schedule, StageTimes(forward_s=forward, backward_s=backward, weight_s=weight))


def _interleaved_s(forward_s: FloatArray, backward_s: FloatArray, count: int, parts: IntArray) -> FloatArray:
    """Of every stage (K, T, p)."""
    num_stages = forward_s.shape[-1]
    before, back = (np.cumsum(values, axis=-1) - values for values in (forward_s, backward_s))
    straight = before / parts + count * (forward_s + backward_s) + back / parts
    ahead = 2 * (num_stages - 1 - np.arange(num_stages)) + (parts - 1) * num_stages
    left = np.maximum(count * parts - ahead - 1, 0) * forward_s + (count * parts - 1) * backward_s
    every = forward_s.sum(axis=-1, keepdims=True) + backward_s.sum(axis=-1, keepdims=True) / parts
    return np.asarray(np.maximum(straight, every + left / parts))
