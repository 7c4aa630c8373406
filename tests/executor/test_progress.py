"""What samples are worth when the batch changes, and learning rates that follow it."""

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from executor.learning_rate import after_step, is_finished, learning_rate_at, steps_left
from executor.progress import GradientNoise, Progress, ScalingRule
from executor.training_job import TrainingJob
from executor.training_layout import StageLayout
from executor.training_options import Decay, EngineName, Schedule
from models.transformer import Optimizer
from stowplan.errors import InputError
from tests.executor.jobs import GPT, tiny_job

SGD = replace(GPT, optimizer=Optimizer.SGD)


def job_at(batch: int, rule: ScalingRule = ScalingRule.SQUARE_ROOT, **schedule: Any) -> TrainingJob:
    """20 steps at the initial batch of 8, on one rank."""
    model = replace(SGD if rule is ScalingRule.ADASCALE else GPT, global_batch=batch)
    given_: dict[str, Any] = {"learning_rate": 1.0, "final_ratio": 1.0, "scaling": rule, "initial_batch": 8}
    stages = (StageLayout(num_layers=4, tp=1, batches=(batch // 2,)),)
    return tiny_job(
        model, stages=stages, num_micro_batches=2, engine=EngineName.NATIVE, schedule=Schedule(**given_ | schedule)
    )


def known(squared_norm: float, noise: float) -> Progress:
    return Progress(noise=GradientNoise(squared_norm=squared_norm, noise=noise, num_steps=100))


@given(signal=st.floats(0.01, 10), noise=st.floats(0.01, 100), scale=st.integers(1, 16))
@settings(max_examples=30, deadline=None)
def test_gain_is_that_of_adascale(signal: float, noise: float, scale: int) -> None:
    """(var + sqr) / (var / scale + sqr), with the variance of the initial batch."""
    variance = noise / 8
    gain = known(signal, noise).noise.gain(8 * scale, 8)
    assert gain == pytest.approx((variance + signal) / (variance / scale + signal))
    assert 1.0 <= gain <= scale * (1 + 1e-9)


def test_without_noise_measured_a_larger_batch_brings_no_further() -> None:
    assert GradientNoise().gain(32, 8) == 1.0
    assert GradientNoise(squared_norm=1.0, noise=1e6, num_steps=9).gain(32, 8) == 1.0
    # Nor does a smaller one bring as far.
    assert GradientNoise().gain(4, 8) == 0.5


def test_noise_is_found_whatever_the_batches() -> None:
    """Gradients of one sample: G = (1, 0, ..., 0) in 40 dimensions of variance 0.5, so |G|^2 = 1 and S = 20."""
    random, noise = np.random.default_rng(5), GradientNoise()
    for step in range(4000):
        small, count = ((2, 4), (8, 2), (4, 4))[step % 3]
        gradients = random.normal(scale=math.sqrt(0.5 / small), size=(count, 40))
        gradients[:, 0] += 1.0
        parts, whole = np.square(gradients).sum(axis=1).mean(), np.square(gradients.mean(axis=0)).sum()
        noise = noise.after(small, float(parts), small * count, float(whole))
    assert noise.squared_norm == pytest.approx(1.0, rel=0.15)
    assert noise.noise == pytest.approx(20.0, rel=0.15)
    assert noise.after(8, 3.0, 8, 3.0) == noise


def test_adam_has_the_square_root_and_sgd_the_gain() -> None:
    # Half of the variance at 8 is signal: twice the batch is worth 4 / 3 steps.
    progress = known(1.0, 8.0)
    assert learning_rate_at(job_at(8), progress) == pytest.approx(1.0)
    assert learning_rate_at(job_at(32), progress) == pytest.approx(2.0)
    assert learning_rate_at(job_at(16, ScalingRule.ADASCALE), progress) == pytest.approx(4 / 3)
    assert learning_rate_at(job_at(32, ScalingRule.NONE), progress) == 1.0


def test_schedules_follow_what_samples_are_worth() -> None:
    """Half-way along a line that ends with the training, whatever the batch is now."""
    halfway = replace(known(1.0, 8.0), samples=117, work=80.0)
    line: dict[str, Any] = {"decay": Decay.LINEAR, "final_ratio": 0.0}
    assert learning_rate_at(job_at(8, **line), halfway) == pytest.approx(0.5)
    assert learning_rate_at(job_at(32, **line), halfway) == pytest.approx(1.0)
    # A step at 16 is worth 4 / 3 of the four steps of warm-up.
    warming = job_at(16, ScalingRule.ADASCALE, warmup_steps=4)
    assert learning_rate_at(warming, known(1.0, 8.0)) == pytest.approx(4 / 3 / 3)


def test_a_training_ends_when_its_samples_are_worth_its_steps() -> None:
    job, progress, num_steps = job_at(16), known(1.0, 8.0), 0
    assert steps_left(job, progress) == 15
    while not is_finished(job, progress):
        # As much again as is known: over 8 of the two micro-batches, and over 16.
        progress, num_steps = after_step(job, progress, 1.0 + 8.0 / 8, 1.0 + 8.0 / 16), num_steps + 1
        assert steps_left(job, progress) == 15 - num_steps
    assert (num_steps, progress.samples) == (15, 240)
    assert progress.work == pytest.approx(160.0)


def test_without_a_rule_a_sample_is_a_sample() -> None:
    job, progress = job_at(16, ScalingRule.NONE), Progress.plain(8)
    assert steps_left(job, progress) == 10
    assert after_step(job, progress, 2.0, 1.0).work == 24


@pytest.mark.parametrize(
    ("model", "engine", "schedule", "pointer", "detail"),
    [
        (GPT, "deepspeed", {"scaling": "adascale", "initial_batch": 8}, "/schedule/scaling", "adam: square_root"),
        (SGD, "native", {"scaling": "square_root", "initial_batch": 8}, "/schedule/scaling", "sgd: adascale"),
        (SGD, "deepspeed", {}, "/model/optimizer", "the native engine sgd, too"),
        (GPT, "deepspeed", {"scaling": "square_root"}, "/schedule/initial_batch", "is missing: square_root scales"),
        (GPT, "deepspeed", {"initial_batch": 0}, "/schedule/initial_batch", "is 0; at least 1"),
    ],
)
def test_what_does_not_go_together_is_refused(
    model: Any, engine: str, schedule: dict[str, Any], pointer: str, detail: str
) -> None:
    if "scaling" in schedule:
        schedule = schedule | {"scaling": ScalingRule(schedule["scaling"])}
    with pytest.raises(InputError) as refused:
        tiny_job(model, engine=EngineName(engine), schedule=Schedule(**schedule))
    (issue,) = refused.value.issues
    assert issue.pointer == pointer
    assert detail in issue.detail
