r"""What configurations are worth under the objective `completion_time`: the mean weighted time until jobs end.

  g_i    goodput of job i on one of its slowest GPUs: min_j G_ij / N_i over its runnable row, N_i its smallest count
  s_ij   speed G_ij / g_i
  x_i    what is left of it, in seconds on such a GPU: B_i n_i / g_i, from n_i iterations of B_i samples (where goodput
         is modelled the initial batch, at efficiency 1)
  k_i    the share of weight that ends no sooner than job i when the shortest goes first:
         sum of w_l over all l with x_l / w_l >= x_i / w_i, over the sum of all w
  u_ij = k_i r_ij s_ij, maximised

k_i is what a second of work on job i saves. Were speed in proportion to GPUs, jobs would end soonest on average one
after another, the least x_i / w_i first (SRPT), and a second taken off one is taken off all that come after it. Speed
is not: the greatest sum of k_i s_ij then shares GPUs out, the more evenly the sooner more of them stop helping, as does
the optimum for speedups n^p, whose weights become these for p -> 1 (heSRPT: Berg, Vesilo, Harchol-Balter 2020).

A change costs the time P_i = `restart_price` S_i of what the job will hold its GPUs for:
  H_ij = min(P_i + x_i / s_ij, max(T_i / (N_i + 1), 3 P_i))    until it ends, or as long as it held others on average
  r_ij = max(0.01, 1 - P_i / H_ij)                             1 for a waiting job, and where a job can stay as it is

Waiting costs nothing but what it keeps from running, until job i is as old as `longest_wait_s`:
  lambda_i = 1 + sum_l max_j u_lj      more than all else is worth, so that it runs if it can at all

A job of which it is not known how much is left is taken to have as much left, by weight, as the median of the others.
"""

from collections.abc import Sequence

import numpy as np

from models.allocation.work_left import remaining_samples
from models.workload import Job
from stowplan.arrays import FloatMatrix, FloatVector, Mask

# A job is taken to hold its next GPUs for so many times what the change costs, however young it is.
_LEAST_HELD = 3.0
_FLOOR = 0.01


def completion_values(
    jobs: Sequence[Job], speed: FloatMatrix, per_gpu: FloatVector, stays: Mask, runs: Mask, restart_price: float
) -> FloatMatrix:
    """u_ij, float64 (J, C).

    Parameters
    ----------
    jobs
        J jobs.
    speed
        s_ij (J, C), 0 where not runnable.
    per_gpu
        g_i (J,), inf where nothing is runnable.
    stays
        Where a job stays as it is, bool (J, C).
    runs
        Jobs that run now, bool (J,).
    restart_price
        How many times its restart cost a change costs a job.
    """
    weight = _floats([job.weight for job in jobs])
    # By weight, which is what jobs are ordered by: those that are taken to have as much left are equal.
    ratio = _left_by_weight_s(jobs, weight, per_gpu)
    cost_s = restart_price * _floats([job.restart_cost_s for job in jobs])
    held_s = _floats([job.age_s / (job.num_restarts + 1) for job in jobs])
    ends_s = np.divide((weight * ratio)[:, None], speed, out=np.full_like(speed, np.inf), where=speed > 0)
    holds_s = np.minimum(cost_s[:, None] + ends_s, np.maximum(held_s, _LEAST_HELD * cost_s)[:, None])
    lost = np.divide(cost_s[:, None], holds_s, out=np.zeros_like(speed), where=holds_s > 0)
    factor = np.where(runs[:, None] & ~stays, np.maximum(_FLOOR, 1.0 - lost), 1.0)
    share = _shares_that_wait(ratio, np.where(np.isfinite(per_gpu), weight, 0.0))
    return np.asarray(share[:, None] * factor * speed)


def _left_by_weight_s(jobs: Sequence[Job], weight: FloatVector, per_gpu: FloatVector) -> FloatVector:
    """x_i / w_i (J,)."""
    samples = _floats([np.nan if (left := remaining_samples(job)) is None else left for job in jobs])
    ratio = np.where(np.isfinite(per_gpu), samples / per_gpu / weight, np.nan)
    known = ratio[np.isfinite(ratio)]
    return np.where(np.isfinite(ratio), ratio, np.median(known) if known.size else 0.0)


def _shares_that_wait(ratio: FloatVector, weight: FloatVector) -> FloatVector:
    """k_i (J,), where jobs of weight 0 do not count; their share has no meaning."""
    order = np.argsort(ratio, kind="stable")
    before = np.concatenate([[0.0], np.cumsum(weight[order])])
    # Equal ones wait for each other.
    first = np.searchsorted(ratio[order], ratio, side="left")
    return np.asarray((before[-1] - before[first]) / max(before[-1], np.finfo(np.float64).tiny))


def _floats(values: Sequence[float]) -> FloatVector:
    return np.array(values, dtype=np.float64)
