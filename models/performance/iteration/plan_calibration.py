r"""Factors of a site from iteration times of some of its plans, and intervals of the times of others.

Maximum a posteriori by Gauss-Newton, with priors theta ~ N(theta_0, S_0) of `adjustment`:

    min_theta  sum_k (log t_k - log model_k(theta))^2 / r_k^2  +  (theta - theta_0)' S_0^-1 (theta - theta_0)
    S = (S_0^-1 + sum_k g_k g_k' / r_k^2)^-1,      g_k: gradient of log model_k

r_k^2: residual^2 + measurement^2. A plan of a job that was measured several times counts once, with the mean of the
logarithms: its own residual is in all of them. Stage times of a plan count as one more measurement together. A time is
within exp(+-q sqrt(g' S g + residual^2)) of what is predicted, 9 times of 10 (q: of `deviations`). With one time of a
usual plan, most of which is computation, mostly the factor of computation moves: it is known the least of what matters.
"""

import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from models.parallel_plan import ParallelPlan
from models.performance.iteration.adjustment import NAMES, Adjustment
from models.performance.iteration.interval import TimeInterval, interval_of
from models.performance.iteration.model import PerformanceModel
from stowplan.arrays import FloatArray
from stowplan.errors import Issue, pointer_of, raise_for_errors

# Of the logarithm of a measured time.
MEASUREMENT = 0.02
# Times beyond as many times the predicted ones, and below as many parts of them, are of something else.
MOST_OFF = 3.0
# Step of the differences that stand for derivatives, and how often the model is made linear anew.
_STEP = 0.02
_ROUNDS = 4

ModelOf = Callable[[Adjustment], PerformanceModel]


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredTime:
    """A measured plan: seconds of an iteration; where known, of both passes of a micro-batch by stage.

    `model_of`: the model of its job and GPUs with given factors.
    """

    plan: ParallelPlan
    iteration_s: float
    model_of: ModelOf
    stage_s: tuple[float, ...] | None = None


def calibrate_plans(
    measured: Sequence[MeasuredTime], start: Adjustment | None = None, *, known_gpus: bool = False
) -> Adjustment:
    """Factors that measured times suggest.

    Parameters
    ----------
    start
        What is known before.
    known_gpus
        Whether the coefficients of the GPUs were measured.

    Raises
    ------
    InputError
        When a time is not above 0 and finite, has not the stages of its plan, or is far from what is predicted (another
        model, another unit); pointers are `/<index>/<field>`.
    """
    before = start or Adjustment()
    raise_for_errors(list(measurement_faults(measured, before)), "set of measured plans")
    if not measured:
        return before
    spread, origin = before.spread(measured=known_gpus), before.logs
    precision, logs, residual = np.linalg.inv(spread), origin, before.residual_deviation
    rows = _distinct(measured, before)
    for _ in range(_ROUNDS):
        gradients, off, weights = _linear(rows, before, logs, residual)
        known = precision + (gradients * weights[:, None]).T @ gradients
        pull = gradients.T @ (weights * off) - precision @ (logs - origin)
        logs = logs + np.linalg.solve(known, pull)
    found = np.linalg.inv(known)
    return replace(
        before.at(logs),
        covariance=tuple(tuple(row) for row in ((found + found.T) / 2.0).tolist()),
        num_points=before.num_points + len(rows),
    )


def measurement_faults(measured: Sequence[MeasuredTime], before: Adjustment | None = None) -> Iterator[Issue]:
    """Times that are none, or not of this model; pointers as in `calibrate_plans`."""
    for k, found in enumerate(measured):
        pointer = pointer_of(k, "iteration_s")
        if not (math.isfinite(found.iteration_s) and found.iteration_s > 0):
            yield _fault("out_of_range", pointer, f"is {found.iteration_s}; seconds of an iteration, above 0")
            continue
        if found.stage_s is not None:
            if len(found.stage_s) != found.plan.pp:
                detail = f"has {len(found.stage_s)} times; the plan has {found.plan.pp} stages"
                yield _fault("other_plan", pointer_of(k, "stage_s"), detail)
            elif not all(math.isfinite(time) and time > 0 for time in found.stage_s):
                yield _fault("out_of_range", pointer_of(k, "stage_s"), "has times that are not above 0 and finite")
        expected = found.model_of(before or Adjustment()).iteration(found.plan).total_s
        if not expected / MOST_OFF <= found.iteration_s <= expected * MOST_OFF:
            detail = (
                f"is {found.iteration_s:.4g} s, where the model says {expected:.4g} s of {found.plan.notation()}: too "
                "far for a calibration. Is it in seconds, of a whole iteration (all micro-batches), and of this model, "
                "sequence length, precision and GPU type?"
            )
            yield _fault("other_model", pointer, detail)


class Prediction:
    """Iteration times of plans with their uncertainty; `known_gpus`: see `calibrate_plans`."""

    def __init__(self, model_of: ModelOf, adjustment: Adjustment | None = None, *, known_gpus: bool = False) -> None:
        self._adjustment = adjustment or Adjustment()
        self._spread = self._adjustment.spread(measured=known_gpus)
        self._models = _models(model_of, self._adjustment, self._adjustment.logs)

    def covariance(self, plans: Sequence[ParallelPlan]) -> tuple[FloatArray, FloatArray]:
        """Logarithms of the times of plans, (N,), and their covariance, (N, N), each with its own residual."""
        rows = [_with_gradient(self._models, plan) for plan in plans]
        logs, gradients = np.array([row[0][0] for row in rows]), np.array([row[1][0] for row in rows])
        return logs, gradients @ self._spread @ gradients.T + self._adjustment.residual_deviation**2 * np.eye(len(rows))

    def interval(self, plan: ParallelPlan) -> TimeInterval:
        """Interval of one plan."""
        logs, covariance = self.covariance([plan])
        return interval_of(math.exp(logs[0]), math.sqrt(covariance[0, 0]))


def time_and_gradient(
    model_of: ModelOf, plan: ParallelPlan, adjustment: Adjustment | None = None
) -> tuple[float, FloatArray]:
    """Logarithm of a plan's time, and its gradient by the logarithms of the factors, (P,)."""
    found = adjustment or Adjustment()
    logs, gradients = _with_gradient(_models(model_of, found, found.logs), plan)
    return float(logs[0]), gradients[0]


def _distinct(measured: Sequence[MeasuredTime], before: Adjustment) -> list[MeasuredTime]:
    """One for each plan of a job: of another job (model, batch, precision) the same plan is predicted another time."""
    groups: dict[tuple[ParallelPlan, float], list[MeasuredTime]] = defaultdict(list)
    for found in measured:
        groups[found.plan, found.model_of(before).iteration(found.plan).total_s].append(found)
    return [
        replace(
            of_plan[-1],
            iteration_s=math.exp(sum(math.log(found.iteration_s) for found in of_plan) / len(of_plan)),
            stage_s=next((found.stage_s for found in reversed(of_plan) if found.stage_s is not None), None),
        )
        for of_plan in groups.values()
    ]


def _linear(
    measured: Sequence[MeasuredTime], before: Adjustment, logs: FloatArray, residual: float
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Gradients (N, P), measured less predicted logarithms (N,) and weights (N,) of all times."""
    gradients, off, weights = [], [], []
    made: dict[ModelOf, tuple[PerformanceModel, ...]] = {}
    for found in measured:
        models = made.get(found.model_of) or _models(found.model_of, before, logs)
        made[found.model_of] = models
        stages = found.stage_s is not None
        expected, gradient = _with_gradient(models, found.plan, stages=stages)
        times = np.log([found.iteration_s, *(found.stage_s or ())])
        gradients.append(gradient)
        off.append(times - expected)
        count = np.array([1.0, *([float(found.plan.pp)] * (len(times) - 1))])
        weights.append(1.0 / (count * (residual**2 + MEASUREMENT**2)))
    return np.concatenate(gradients), np.concatenate(off), np.concatenate(weights)


def _models(model_of: ModelOf, before: Adjustment, logs: FloatArray) -> tuple[PerformanceModel, ...]:
    """The model with these factors, and with each of them a step above and below."""
    steps = [sign * _STEP * row for row in np.eye(len(NAMES)) for sign in (1.0, -1.0)]
    return tuple(model_of(before.at(logs + step)) for step in [np.zeros(len(NAMES)), *steps])


def _with_gradient(
    models: Sequence[PerformanceModel], plan: ParallelPlan, *, stages: bool = False
) -> tuple[FloatArray, FloatArray]:
    """Logarithms of the times of a plan, (N,), and their gradients (N, P)."""
    times = []
    for model in models:
        found = model.iteration(plan)
        parts = [stage.forward_s + stage.backward_s for stage in found.stages] if stages else []
        times.append([found.total_s, *parts])
    logs = np.log(times)
    return logs[0], ((logs[1::2] - logs[2::2]) / (2.0 * _STEP)).T


def _fault(code: str, pointer: str, detail: str) -> Issue:
    return Issue(code=code, pointer=pointer, detail=detail)
