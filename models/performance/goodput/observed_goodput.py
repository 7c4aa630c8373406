r"""What Sia needs of a data-parallel job, from the steps of its running plans.

A launch without pipeline and tensor parallelism on GPUs of one type is one observation. N_b micro-batches make a step,
the last of which is followed by the gradient reduction, so

    sync = reduction,   T_grad = (step - sync) / N_b,   step of the observation = T_grad + sync

with which the throughput model (N_b - 1 accumulation steps, then one with synchronisation) gives the measured step
back; data loading and optimiser are in T_grad. The reduction is the least over the ranks: the others wait. The share of
the bandwidth is that of the nodes on which the launch ran, so that one across a slow tier is read as such.

Gradient noise (McCandlish et al. 2018, appendix A.1). With g_b the gradient over b sequences, E|g_b|^2 = |G|^2 + S / b;
from the mean squared norms at the batch b of one replica and the global batch B

    |G|^2 = (B |g_B|^2 - b |g_b|^2) / (B - b),   S = (|g_b|^2 - |g_B|^2) / (1/b - 1/B)

both unbiased, and 0 where noise makes them negative. Sia's variance at the initial batch B0 is S / B0. The newest
launch with replicas tells, or with one replica whose b is that of a micro-batch: so it is where the two norms differ.
Without such a launch, nothing is known of the noise.
"""

from collections.abc import Iterable
from operator import attrgetter

import numpy as np

from models.performance.goodput.spec import BatchRange, GoodputObservations, GradientStatistics, Observation
from models.performance.iteration.calibration import same_costs
from models.performance.iteration.fabric import fabric_of
from models.performance.iteration.step_table import MeasuredRun, StepTable

# Norms of one gradient that were computed in two ways are this near.
_SAME = 1e-3


def goodput_observations(runs: Iterable[MeasuredRun]) -> GoodputObservations | None:
    """What the launches say together; None without a data-parallel launch, or without any that tells the noise.

    The batch range is the batch that the job runs with: what larger batches are good for is the user's to say.
    """
    newest_first = sorted(runs, key=attrgetter("launch"), reverse=True)
    usable = [
        (run, steps)
        for run in newest_first
        if is_observable(run) and same_costs(run.job, newest_first[0].job) and (steps := run.settled()) is not None
    ]
    if not usable:
        return None
    batch = usable[0][0].plan.global_batch
    told = (gradient_statistics(run, steps, batch) for run, steps in usable)
    noise = next((found for found in told if found is not None), None)
    if noise is None:
        return None
    return GoodputObservations(
        batch=BatchRange(initial=batch, maximum=batch),
        gradient=noise,
        observations=tuple(observation_of(run, steps) for run, steps in usable),
    )


def is_data_parallel(run: MeasuredRun) -> bool:
    """Whether the plan is replicas of single GPUs of one type with equal batches."""
    (stage, *others) = run.plan.stages
    types = {replica.gpu_type for replica in stage.replicas}
    return not others and stage.tp == 1 and len(types) == 1 and run.plan.is_symmetric


def is_observable(run: MeasuredRun) -> bool:
    """Whether the run is data-parallel, and what its steps are made of is known."""
    return is_data_parallel(run) and not run.whole_steps


def gradient_statistics(run: MeasuredRun, steps: StepTable, batch: int) -> GradientStatistics | None:
    """Gradient noise at a batch; None where one gradient a step, or gradients of zero, say nothing about it."""
    (replicas,) = {stage.dp for stage in run.plan.stages}
    large = run.plan.global_batch
    small = run.plan.micro_batch if replicas == 1 else large // replicas
    if small == large or (replicas == 1 and np.allclose(steps.small_square, steps.large_square, rtol=_SAME)):
        return None
    # Means, not medians: the estimators are unbiased in the mean only.
    small_square, large_square = float(steps.small_square.mean()), float(steps.large_square.mean())
    squared_norm = max(0.0, (large * large_square - small * small_square) / (large - small))
    noise = max(0.0, (small_square - large_square) / (1.0 / small - 1.0 / large))
    if squared_norm == noise == 0.0:
        return None
    return GradientStatistics(squared_norm=squared_norm, variance=noise / batch)


def observation_of(run: MeasuredRun, steps: StepTable) -> Observation:
    """What a data-parallel launch shows in its settled steps."""
    (stage,) = run.plan.stages
    step_s = steps.step_s.mean(axis=1)
    sync_s = steps.reduction_s.min(axis=1) if stage.dp > 1 else np.zeros_like(step_s)
    gradient_s = float(np.median(step_s - sync_s)) / run.plan.num_micro_batches
    synchronisation_s = float(np.median(sync_s))
    nodes = {replica.node for replica in stage.replicas}
    return Observation(
        gpu_type=stage.replicas[0].gpu_type,
        num_nodes=len(nodes),
        num_replicas=stage.dp,
        local_batch=stage.replicas[0].local_batch,
        step_time_s=gradient_s + synchronisation_s,
        sync_time_s=synchronisation_s,
        bandwidth_fraction=fabric_of(run.cluster).group_fraction(nodes),
    )
