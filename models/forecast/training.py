"""How long a training job takes on a plan: work left, predicted steps, failures.

  work        W = iterations x step time of the performance model; tokens / (sequences of a batch x their length),
              rounded up, where a budget is in tokens
  failures    n nodes that fail every M_n seconds each fail together every M = M_n / n. A checkpoint takes C and is
              written every tau of work: Young's sqrt(2 C M) where nothing is said (J. W. Young 1974, "A first order
              approximation to the optimum checkpoint interval"). A failure loses half an interval on average, and R
              until it works again. In the wall clock T that this takes there are T / M failures:

                  T = W (1 + C / tau) + T / M (R + tau / 2)   =>   T = W (1 + C / tau) / (1 - (R + tau / 2) / M)

              which is the first order of Daly's M e^(R/M) (e^((tau + C)/M) - 1) W / tau (J. T. Daly 2006), and holds
              for R and tau far below M. Goodput over time is W / T of that without failures.
  spread      log of time over prediction is normal around 0, with sigma^2 = spread^2 + log(1 + variance of T / T^2):
              the error of the model, which is the same for all steps of a job and does not average out; and that of
              the number of failures, Poisson, each losing R + U(0, tau): T / M (R^2 + R tau + tau^2 / 3).
  MFU         3 times the FLOPs of the forward pass, without what is repeated, over step time and peak of all GPUs

The model's error is known from 485 published steps of real training: the median of |predicted / measured - 1| is
16.9 %, hence SPREAD = log(1.169) / 0.674. A job that was measured has less: give what its calibration leaves.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from statistics import NormalDist

from models.forecast.lasting import Lasting
from models.parallel_plan import ParallelPlan
from models.performance.iteration.model import PerformanceModel
from models.performance.iteration.profile import ModelProfile
from models.transformer import JobModel, Transformer
from stowplan.errors import InputError, Issue

SPREAD = 0.23
_LEVELS = (0.01, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.975, 0.99)
# The first order is good for failures that are far apart: beyond it, most of the time is lost.
_MOST_LOST = 0.5
# Backward is twice forward.
_PASSES = 3.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Reliability:
    """How often a node fails, and what that costs. Seconds.

    `mtbf_s`: of one node. `restart_s`: from a failure until the job works again. `checkpoint_s`: for how long a
    checkpoint stops the work. `checkpoint_every_s`: of work; None for Young's interval.
    """

    mtbf_s: float
    restart_s: float
    checkpoint_s: float
    checkpoint_every_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingForecast:
    """How long a training takes, and what that follows from.

    `step_s`: predicted, one step. `mfu`: of the peak of its GPUs. `goodput`: work over wall clock, 1 where nothing
    fails and no checkpoints are written. `mtbf_s`: of the job, and `checkpoint_every_s`; None where nothing fails.
    """

    lasting: Lasting
    iterations: float
    step_s: float
    mfu: float
    goodput: float
    mtbf_s: float | None
    checkpoint_every_s: float | None


def iterations_of(model: JobModel, num_tokens: float) -> int:
    """Iterations that work through so many tokens.

    Raises
    ------
    InputError
        When the model has no sequences of tokens, or the budget is none.
    """
    if not isinstance(model, Transformer):
        raise _refused("/num_tokens", "is given for a list of operators, which has no tokens; give iterations")
    if not 0 < num_tokens < math.inf:
        raise _refused("/num_tokens", f"is {num_tokens}; must be finite and above 0")
    return math.ceil(num_tokens / (model.global_batch * model.sequence_length))


def forecast_training(
    performance: PerformanceModel,
    plan: ParallelPlan,
    iterations: float,
    peak_flops_per_s: Mapping[str, float],
    reliability: Reliability | None = None,
    spread: float = SPREAD,
) -> TrainingForecast:
    """Say how long the iterations that are left take.

    Parameters
    ----------
    peak_flops_per_s
        Of each GPU type of the plan, at the precision of the job.
    spread
        Standard deviation of the logarithm of true over predicted step time.

    Raises
    ------
    InputError
        When a figure is out of range, or failures take most of the time.
    """
    if not 0 < iterations < math.inf:
        raise _refused("/iterations", f"is {iterations}; must be finite and above 0")
    if not 0 <= spread < math.inf:
        raise _refused("/spread", f"is {spread}; must be finite and at least 0")
    step_s = performance.iteration(plan).total_s
    work_s, num_nodes = iterations * step_s, len({node for node, _ in plan.gpus})
    wall_s, variance, mtbf_s, every_s = work_s, 0.0, None, None
    if reliability is not None:
        mtbf_s, every_s = _intervals(reliability, num_nodes)
        wall_s, variance = _with_failures(work_s, reliability, mtbf_s, every_s)
    sigma = math.sqrt(spread**2 + math.log1p(variance / wall_s**2))
    return TrainingForecast(
        lasting=_lognormal(wall_s, sigma),
        iterations=iterations,
        step_s=step_s,
        mfu=_PASSES * forward_flops(performance.profile) / (step_s * _peak(plan, peak_flops_per_s)),
        goodput=work_s / wall_s,
        mtbf_s=mtbf_s,
        checkpoint_every_s=every_s,
    )


def forward_flops(profile: ModelProfile) -> float:
    """FLOPs of the forward pass of one iteration."""
    parts = (profile.embedding, *profile.layers, profile.head)
    return profile.global_batch * math.fsum(part.forward_flops for part in parts)


def _intervals(reliability: Reliability, num_nodes: int) -> tuple[float, float]:
    """Time between failures of a job, and of work between its checkpoints."""
    for name in ("mtbf_s", "restart_s", "checkpoint_s", "checkpoint_every_s"):
        value = getattr(reliability, name)
        least = name in ("restart_s", "checkpoint_s")
        if value is not None and not (0 < value < math.inf or (least and value == 0)):
            words = "at least 0" if least else "above 0"
            raise _refused(f"/reliability/{name}", f"is {value}; must be finite and {words}")
    mtbf_s = reliability.mtbf_s / num_nodes
    every_s = reliability.checkpoint_every_s
    if every_s is None:
        if reliability.checkpoint_s == 0:
            detail = "is missing; checkpoints that take no time might as well be written all the time: say how often"
            raise _refused("/reliability/checkpoint_every_s", detail)
        every_s = math.sqrt(2.0 * reliability.checkpoint_s * mtbf_s)
    lost = (reliability.restart_s + every_s / 2.0) / mtbf_s
    if lost > _MOST_LOST:
        detail = (
            f"is {reliability.mtbf_s:g} s of a node: one of {num_nodes} nodes fails every {mtbf_s:g} s, and each time "
            f"{reliability.restart_s + every_s / 2.0:g} s are lost, {lost:.0%} of the time; at most {_MOST_LOST:.0%}"
        )
        raise _refused("/reliability/mtbf_s", detail)
    return mtbf_s, every_s


def _with_failures(work_s: float, reliability: Reliability, mtbf_s: float, every_s: float) -> tuple[float, float]:
    """Wall clock expected for the work, and its variance; see the module."""
    restart_s = reliability.restart_s
    busy_s = work_s * (1.0 + reliability.checkpoint_s / every_s)
    wall_s = busy_s / (1.0 - (restart_s + every_s / 2.0) / mtbf_s)
    return wall_s, wall_s / mtbf_s * (restart_s**2 + restart_s * every_s + every_s**2 / 3.0)


def _lognormal(median_s: float, sigma: float) -> Lasting:
    if sigma == 0:
        return Lasting(probabilities=(1.0,), seconds=(median_s,))
    normal = NormalDist(math.log(median_s), sigma)
    return Lasting(probabilities=_LEVELS, seconds=tuple(math.exp(normal.inv_cdf(level)) for level in _LEVELS))


def _peak(plan: ParallelPlan, peak_flops_per_s: Mapping[str, float]) -> float:
    """Peak of all GPUs together."""
    replicas = [replica for stage in plan.stages for replica in stage.replicas]
    for gpu_type in sorted({replica.gpu_type for replica in replicas} - set(peak_flops_per_s)):
        raise _refused("/peak_flops_per_s", f"has no peak of {gpu_type!r}, of which the plan has GPUs")
    return math.fsum(len(replica.gpus) * peak_flops_per_s[replica.gpu_type] for replica in replicas)


def _refused(pointer: str, detail: str) -> InputError:
    return InputError("the training cannot be forecast", [Issue(code="out_of_range", pointer=pointer, detail=detail)])
