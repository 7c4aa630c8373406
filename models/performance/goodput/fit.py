"""Parameters of the throughput model from measurements (Pollux section 4.1, as used by Sia section 3.2).

Over the observations k of one job on one GPU type, with T_grad and T_iter of `throughput` at s = 0 and the share of the
bandwidth that the nodes of k had (so that steps across a slow tier do not make alpha_n and beta_n those of that tier):

    min  RMSE_k(log T_iter - log step_k) + RMSE_k(log T_grad - log(step_k - sync_k))
         + 1e-3 (gamma - 1)^2 + 1e-2 [(beta_n / alpha_n)^2 + (beta_r / alpha_r)^2]
    over alpha_c, beta_c, alpha_r, beta_r, alpha_n, beta_n >= 1e-8 and gamma in [1, 10]

in the logarithms of the alphas and betas, where the problem is well scaled, by truncated Newton (TNC). Pollux uses
L-BFGS-B, which ends in the same place; but SciPy's calls LAPACK in every iteration, and on a busy machine the threads
of the BLAS behind it wait on each other for dozens of times the length of the fit.

What has not been seen is not fitted but gets a prior that invites exploration:

- one local batch only: alpha_c is half the mean accumulation step;
- no replicas beyond two inside a node (across nodes): beta_r (beta_n) at the floor;
- no two replicas inside a node: alpha_r at the floor; across nodes: alpha_n at the floor;
- then alpha_n and beta_n, where they were not seen, are at least 1.1 alpha_r and 1.1 beta_r.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
from scipy.optimize import Bounds, minimize, nnls

from models.performance.goodput.spec import (
    GoodputModel,
    GoodputObservations,
    Observation,
    ThroughputParameters,
    TypeProfile,
)
from stowplan.arrays import FloatArray, Mask
from stowplan.errors import InputError

_FLOOR_S = 1e-8
_CEILING_S = 1e4
_GAMMA_START, _GAMMA_MAX = 1.5, 10.0
_ACROSS_OVER_INSIDE = 1.1
_MAX_EVALUATIONS = 500
# Keeps the root of a mean square smooth where the fit is exact.
_SMOOTHING = 1e-12


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Measured:
    """K observations as arrays (K,); `beyond_two` is max(R-2, 0), `inside` and `across` tell where replicas sync.

    `slowness`: by how much their links make that longer, 1 / bandwidth fraction.
    """

    local_batch: FloatArray
    beyond_two: FloatArray
    inside: Mask
    across: Mask
    slowness: FloatArray
    gradient_s: FloatArray
    log_step: FloatArray

    @classmethod
    def of(cls, observations: Sequence[Observation]) -> Self:
        nodes = np.array([o.num_nodes for o in observations])
        replicas = np.array([o.num_replicas for o in observations])
        step_s = np.array([o.step_time_s for o in observations], dtype=np.float64)
        sync_s = np.array([o.sync_time_s for o in observations], dtype=np.float64)
        if not (step_s.size and np.all((sync_s >= 0) & (sync_s < step_s) & np.isfinite(step_s))):
            raise InputError("a fit needs at least one observation, each with 0 <= sync_time_s < step_time_s")
        return cls(
            local_batch=np.array([o.local_batch for o in observations], dtype=np.float64),
            beyond_two=np.maximum(replicas - 2, 0).astype(np.float64),
            inside=(replicas > 1) & (nodes == 1),
            across=(replicas > 1) & (nodes > 1),
            slowness=1.0 / np.where(nodes > 1, [o.bandwidth_fraction for o in observations], 1.0),
            gradient_s=step_s - sync_s,
            log_step=np.log(step_s),
        )


def fit_parameters(observations: Sequence[Observation]) -> ThroughputParameters:
    """Fit the throughput model of one job on one GPU type; the result does not depend on their order.

    Raises
    ------
    InputError
        Without observations, or with times that `performance_issues` refuses.
    """
    data = _Measured.of(sorted(observations, key=_sort_key))
    start, lower, upper = _start(data)
    found = minimize(
        _objective,
        np.clip(start, lower, upper),
        args=(data,),
        jac=True,
        method="TNC",
        bounds=Bounds(lower, upper),
        options={"maxfun": _MAX_EVALUATIONS, "ftol": 1e-9},
    )
    alpha_c, beta_c, alpha_r, beta_r, alpha_n, beta_n = (float(value) for value in np.exp(found.x[:6]))
    if not data.across.any():
        alpha_n = max(alpha_n, _ACROSS_OVER_INSIDE * alpha_r)
    if not (data.across & (data.beyond_two > 0)).any():
        beta_n = max(beta_n, _ACROSS_OVER_INSIDE * beta_r)
    return ThroughputParameters(
        alpha_c=alpha_c,
        beta_c=beta_c,
        alpha_r=alpha_r,
        beta_r=beta_r,
        alpha_n=alpha_n,
        beta_n=beta_n,
        gamma=float(found.x[6]),
    )


def fit_models(jobs: Sequence[GoodputObservations]) -> list[GoodputModel]:
    """Fit every GPU type that was observed for each job; a type without multi-replica data is marked `single_gpu_only`.

    Observations that are equal by value are fitted once.
    """
    fitted: dict[tuple[Observation, ...], Mapping[str, _Fitted]] = {}
    # By identity: where many jobs share many observations, looking at all of them for each would cost their product.
    known: dict[int, Mapping[str, _Fitted]] = {}
    for job in jobs:
        if id(job.observations) not in known:
            if job.observations not in fitted:
                fitted[job.observations] = _fit(job.observations)
            known[id(job.observations)] = fitted[job.observations]
    return [_model(job, known[id(job.observations)]) for job in jobs]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Fitted:
    """What observations on one GPU type say."""

    parameters: ThroughputParameters
    max_local_batch: int
    single_gpu_only: bool


def _fit(observations: Sequence[Observation]) -> Mapping[str, _Fitted]:
    """By GPU type."""
    by_type: dict[str, list[Observation]] = {}
    for observation in observations:
        by_type.setdefault(observation.gpu_type, []).append(observation)
    return {
        name: _Fitted(
            parameters=fit_parameters(seen),
            max_local_batch=max(o.local_batch for o in seen),
            single_gpu_only=all(o.num_replicas == 1 for o in seen),
        )
        for name, seen in by_type.items()
    }


def _model(job: GoodputObservations, fitted: Mapping[str, _Fitted]) -> GoodputModel:
    profiles = {
        name: TypeProfile(
            parameters=known.parameters,
            max_local_batch=job.max_local_batch.get(name, known.max_local_batch),
            single_gpu_only=known.single_gpu_only,
            gpus_per_replica=job.gpus_per_replica.get(name, 1),
        )
        for name, known in fitted.items()
    }
    return GoodputModel(batch=job.batch, gradient=job.gradient, profiles=profiles)


def _sort_key(o: Observation) -> tuple[float, ...]:
    return (o.num_nodes, o.num_replicas, o.local_batch, o.step_time_s, o.sync_time_s, o.bandwidth_fraction)


def _start(data: _Measured) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Start, lower and upper bounds (7,) of (log alpha_c, ..., log beta_n, gamma); equal bounds fix a prior."""
    lower = np.array([math.log(_FLOOR_S)] * 6 + [1.0])
    upper = np.array([math.log(_CEILING_S)] * 6 + [_GAMMA_MAX])
    mean_s, mean_batch = data.gradient_s.mean(), data.local_batch.mean()
    # Least squares of the relative error; a start near zero would be a flat place in the logarithm.
    columns = np.stack([np.ones_like(data.local_batch), data.local_batch / mean_batch], axis=1)
    shares, _ = nnls(columns / data.gradient_s[:, None], np.ones_like(data.local_batch))
    alpha_c, beta_c = np.maximum(shares, 1e-2 * mean_s) / np.array([1.0, mean_batch])
    start = np.array([math.log(alpha_c), math.log(beta_c), *([math.log(_FLOOR_S)] * 4), _GAMMA_START])
    if np.ptp(data.local_batch) == 0:
        start[0] = lower[0] = upper[0] = math.log(mean_s / 2)
    # T_sync as it would be at the starting gamma (overlap hides a part of it), but not so small that the objective is
    # flat in its logarithm.
    powers = np.exp(_GAMMA_START * data.log_step) - data.gradient_s**_GAMMA_START
    whole_sync_s = np.maximum(np.maximum(powers, 0.0) ** (1.0 / _GAMMA_START), 0.1 * data.gradient_s)
    for k, seen in ((2, data.inside), (4, data.across)):
        if not seen.any():
            upper[k] = lower[k]
        else:
            start[k] = math.log(float(np.median((whole_sync_s / data.slowness)[seen])))
        if not (seen & (data.beyond_two > 0)).any():
            upper[k + 1] = lower[k + 1]
        else:
            start[k + 1] = start[k] + math.log(0.1)
    return start, lower, upper


def _objective(theta: FloatArray, data: _Measured) -> tuple[float, FloatArray]:
    """Value of the objective at `theta` (7,) and its gradient (7,)."""
    alpha_c, beta_c, alpha_r, beta_r, alpha_n, beta_n = np.exp(theta[:6])
    gamma = float(theta[6])
    multi = data.inside | data.across
    gradient_s = alpha_c + beta_c * data.local_batch
    sync_s = np.where(data.across, alpha_n + beta_n * data.beyond_two, alpha_r + beta_r * data.beyond_two)
    sync_s = sync_s * data.slowness
    log_gradient, log_sync = np.log(gradient_s), np.log(sync_s)
    # log T_iter by its excess over log T_grad; its slopes in log T_grad and log T_sync are `share` and 1 - share.
    excess = np.where(multi, np.logaddexp(0.0, gamma * (log_sync - log_gradient)) / gamma, 0.0)
    log_iteration = log_gradient + excess
    share = np.exp(-gamma * excess)

    step_rmse, step_slope = _rmse(log_iteration - data.log_step)
    gradient_rmse, gradient_slope = _rmse(log_gradient - np.log(data.gradient_s))
    along_gradient = (step_slope * share + gradient_slope) / gradient_s
    along_sync = step_slope * (1.0 - share) / sync_s * data.slowness
    along_gamma = step_slope * (share * log_gradient + (1.0 - share) * log_sync - log_iteration) / gamma
    slope = np.array(
        [
            along_gradient.sum() * alpha_c,
            along_gradient @ data.local_batch * beta_c,
            along_sync[data.inside].sum() * alpha_r,
            (along_sync * data.beyond_two)[data.inside].sum() * beta_r,
            along_sync[data.across].sum() * alpha_n,
            (along_sync * data.beyond_two)[data.across].sum() * beta_n,
            along_gamma.sum() + 2e-3 * (gamma - 1.0),
        ]
    )
    value = step_rmse + gradient_rmse + 1e-3 * (gamma - 1.0) ** 2
    for k, alpha, beta in ((2, alpha_r, beta_r), (4, alpha_n, beta_n)):
        retrogression = 1e-2 * (beta / alpha) ** 2
        value += retrogression
        slope[k] -= 2.0 * retrogression
        slope[k + 1] += 2.0 * retrogression
    return float(value), slope


def _rmse(error: FloatArray) -> tuple[float, FloatArray]:
    """Root of the mean square and its slope in every error (K,)."""
    rmse = math.sqrt(float(error @ error) / error.size + _SMOOTHING)
    return rmse, error / (error.size * rmse)
