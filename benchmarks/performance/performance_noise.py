"""How noise on what a run shows of itself spreads to predictions for other plans.

A job with hidden coefficients runs one plan. Every time that a GPU reports is off by a normal error of relative size
sigma (at most three sigma); sizes are exact. The measurements are inverted, and the model predicts the iteration time
of all other symmetric plans on 8 to 64 GPUs. The error is relative to the time by the hidden coefficients.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from benchmarks.planners.symmetric_plans import symmetric_plans
from benchmarks.rows import Row
from models.catalogue import find_model
from models.parallel_plan import ParallelPlan, symmetric_plan
from models.performance.iteration.coefficients import GpuCoefficients, JobCoefficients
from models.performance.iteration.inversion import invert, observe
from models.performance.iteration.measurement import Measurement
from models.performance.iteration.model import PerformanceModel
from models.performance.iteration.modelling import virtual_model
from models.transformer import Checkpointing
from stowplan.arrays import FloatArray
from topology.gpu_catalogue import find_product, gpu_type_of

PROTOCOL = __doc__
_SIGMAS = (0.0, 0.01, 0.05, 0.10)
_TIMES = ("forward_s", "forward_communication_s", "backward_s", "optimizer_s", "exposed_reduction_s")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Run:
    """A job, the GPU type with its node, and the plan that is measured: degrees and micro-batches."""

    model: str
    gpu_type: str
    gpus_per_node: int
    pp: int
    dp: int
    tp: int
    num_micro_batches: int


_RUNS = (
    _Run(model="llama2-13b", gpu_type="h100", gpus_per_node=8, pp=2, dp=2, tp=4, num_micro_batches=32),
    _Run(model="gpt2-2.6b", gpu_type="a100-40gb", gpus_per_node=4, pp=2, dp=2, tp=2, num_micro_batches=16),
    _Run(model="gpt2-1.3b", gpu_type="a40", gpus_per_node=2, pp=1, dp=4, tp=2, num_micro_batches=8),
)


def rows(num_seeds: int) -> Iterator[Row]:
    """Errors by run, noise and number of GPUs that report."""
    for run in _RUNS:
        truth, plan, others = _scene(run)
        expected = np.array([truth.iteration(other).total_s for other in others])
        measurements = observe(truth, plan)
        for reporting in (1, len(measurements)):
            for sigma in _SIGMAS:
                errors = np.array(
                    [
                        _errors(truth, plan, others, expected, _noisy(measurements[:reporting], sigma, seed))
                        for seed in range(num_seeds if sigma > 0 else 1)
                    ]
                )
                yield {
                    "job": f"{run.model} on {run.gpu_type}",
                    "measured plan": plan.notation(),
                    "GPUs that report": reporting,
                    "noise": sigma,
                    "seeds": len(errors),
                    "other plans": len(others),
                    "median": float(np.median(errors)),
                    "p90": float(np.quantile(errors, 0.9)),
                    "worst": float(errors.max()),
                }


def _scene(run: _Run) -> tuple[PerformanceModel, ParallelPlan, list[ParallelPlan]]:
    """The job with its hidden coefficients, the plan that runs, and the others."""
    model = find_model(run.model, global_batch=128, checkpointing=Checkpointing.SELECTIVE, zero_stage=1)
    kind = gpu_type_of(find_product(run.gpu_type), model.precision.value)
    white = virtual_model(model, kind, run.gpus_per_node, 64 // run.gpus_per_node)
    guess = white.coefficients.gpus[kind.name]
    hidden = GpuCoefficients(
        compute_s=1.25 * guess.compute_s, backward_ratio=2.3, optimizer_s=1.5 * guess.optimizer_s, overlap=2.5
    )
    truth = replace(white, coefficients=JobCoefficients(gpus={kind.name: hidden}, sizes=white.coefficients.sizes))
    others = [
        plan
        for num_gpus in (8, 16, 32, 64)
        for plan in symmetric_plans(truth, kind.name, num_gpus // run.gpus_per_node, run.gpus_per_node)
    ]
    num_gpus = run.pp * run.dp * run.tp
    plan = symmetric_plan(
        num_layers=white.profile.num_layers,
        pp=run.pp,
        dp=run.dp,
        tp=run.tp,
        global_batch=128,
        num_micro_batches=run.num_micro_batches,
        gpu_type=kind.name,
        gpus=tuple((str(k // run.gpus_per_node), k % run.gpus_per_node) for k in range(num_gpus)),
    )
    return truth, plan, [other for other in others if other != plan]


def _noisy(measurements: Sequence[Measurement], sigma: float, seed: int) -> list[Measurement]:
    rng = np.random.default_rng(seed)
    noisy = []
    for measurement in measurements:
        factors = 1.0 + sigma * np.clip(rng.standard_normal(len(_TIMES)), -3.0, 3.0)
        values = {name: getattr(measurement, name) * factor for name, factor in zip(_TIMES, factors, strict=True)}
        noisy.append(replace(measurement, **values))
    return noisy


def _errors(
    truth: PerformanceModel,
    plan: ParallelPlan,
    others: Sequence[ParallelPlan],
    expected: FloatArray,
    measurements: Sequence[Measurement],
) -> FloatArray:
    """Relative errors for the other plans."""
    found = invert(truth.profile, plan, measurements, truth.fabric)
    sizes = found.sizes or truth.coefficients.sizes
    inverted = replace(truth, coefficients=JobCoefficients(gpus=found.gpus, sizes=sizes))
    predicted = np.array([inverted.iteration(other).total_s for other in others])
    return np.asarray(np.abs(predicted / expected - 1.0))
