"""The course of a training: its learning rate, and how far every step brings it."""

import math

from executor.progress import Progress, ScalingRule, rate_factor
from executor.training_job import TrainingJob
from executor.training_options import Decay

# Part of the training over which WSD falls: one of so many.
_COOLDOWN = 10
# Of a step; sums of fractions of steps are this exact.
_ROUNDING = 1e-6


def learning_rate_at(job: TrainingJob, progress: Progress) -> float:
    """Learning rate of the next step: a function of what is behind it alone, so that a resumed run follows it."""
    gain, scale = worth_of_step(job, progress) / job.initial_batch, job.global_batch / job.initial_batch
    return _scheduled_rate(job, progress.work, gain) * rate_factor(job.schedule.scaling, scale, gain)


def worth_of_step(job: TrainingJob, progress: Progress) -> float:
    """What the samples of the next step are worth, in samples at the initial batch."""
    if job.schedule.scaling is ScalingRule.NONE:
        return job.global_batch
    return progress.noise.gain(job.global_batch, job.initial_batch) * job.initial_batch


def after_step(job: TrainingJob, progress: Progress, small_square: float, large_square: float) -> Progress:
    """Progress behind a step, with the squared norms of `StepResult`, summed over all ranks."""
    return Progress(
        samples=progress.samples + job.global_batch,
        work=progress.work + worth_of_step(job, progress),
        noise=progress.noise.after(job.small_batch, small_square, job.global_batch, large_square),
    )


def is_finished(job: TrainingJob, progress: Progress) -> bool:
    """Whether the training is at its end."""
    return steps_left(job, progress) == 0


def steps_left(job: TrainingJob, progress: Progress) -> int:
    """Steps until the end, if all bring as far as the next one does."""
    return max(0, math.ceil((job.num_samples - progress.work) / worth_of_step(job, progress) - _ROUNDING))


def _scheduled_rate(job: TrainingJob, done: float, gain: float) -> float:
    """That of the schedule, at the initial batch."""
    schedule, batch = job.schedule, job.initial_batch
    warmup = _samples(schedule.warmup_steps, schedule.warmup_samples, batch) or 0
    if done < warmup:
        return schedule.learning_rate * min(1.0, (done + gain * batch) / warmup)
    end = _samples(schedule.decay_steps, schedule.decay_samples, batch) or job.num_samples
    begin = warmup
    if schedule.decay is Decay.WSD:
        cooldown = _samples(schedule.cooldown_steps, schedule.cooldown_samples, batch) or end // _COOLDOWN
        begin = max(warmup, end - cooldown)
    passed = min(1.0, max(0.0, done - begin) / max(batch, end - begin))
    left = 0.5 * (1.0 + math.cos(math.pi * passed)) if schedule.decay is Decay.COSINE else 1.0 - passed
    return schedule.learning_rate * (schedule.final_ratio + (1.0 - schedule.final_ratio) * left)


def _samples(steps: int | None, samples: int | None, batch: int) -> int | None:
    """A length in samples that may be given in steps."""
    return samples if samples is not None or steps is None else steps * batch
