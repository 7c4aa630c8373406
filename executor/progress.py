"""How far a training is whose batch may change: the samples that it has read, and what they were worth.

A step at batch B brings as far as `gain` steps at the initial batch B0 (Johnson et al. 2020, "AdaScale SGD"; Pollux
section 3.1). With the squared norm `sqr` of the mean gradient and its variance `var` at B0, and scale = B / B0:

    gain = (var + sqr) / (var / scale + sqr) = scale x efficiency,   between 1 and scale

so that its B samples are worth `gain` x B0 samples at the initial batch. That is what schedules and the end of a
training count. Until enough is known of the noise a larger batch is worth no more than the initial one.

Learning rates by rule, for a schedule that was chosen at B0:

    square_root    x sqrt(scale), for Adam: the noise of its updates stays the same (Krizhevsky 2014, section 5; Malladi
                   et al. 2022, "On the SDEs and scaling rules for adaptive gradient algorithms", whose other
                   coefficients stay as they are here; as in AdaptDL's `AdamScale`)
    adascale       x gain, for SGD (Johnson et al. 2020, algorithm 1)
    none           stays, and a sample is a sample whatever the batch
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import StrEnum

from models.performance.goodput.efficiency import efficiency, signal_share
from models.transformer import Optimizer
from stowplan.errors import Issue

# Steps over which noise is averaged, and before which nothing is made of it.
_MEMORY, _FEWEST = 200, 10


class ScalingRule(StrEnum):
    """How the learning rate follows the batch."""

    NONE = "none"
    SQUARE_ROOT = "square_root"
    ADASCALE = "adascale"


_OPTIMIZER_OF = {ScalingRule.SQUARE_ROOT: Optimizer.ADAM, ScalingRule.ADASCALE: Optimizer.SGD}


@dataclass(frozen=True, slots=True, kw_only=True)
class GradientNoise:
    """Means over steps of |G|^2, the squared norm of the gradient, and S, the variance of that of one sample.

    From squared norms over b and B samples, E|g_b|^2 = |G|^2 + S / b (McCandlish et al. 2018, appendix A.1): unbiased
    in every step, and good in the mean only. The mean of all steps at first, of about the last 200 then.
    """

    squared_norm: float = 0.0
    noise: float = 0.0
    num_steps: int = 0

    def after(self, small_batch: int, small_square: float, large_batch: int, large_square: float) -> "GradientNoise":
        """With another step; equal batches say nothing."""
        if small_batch == large_batch:
            return self
        squared_norm = (large_batch * large_square - small_batch * small_square) / (large_batch - small_batch)
        noise = (small_square - large_square) / (1.0 / small_batch - 1.0 / large_batch)
        share = 1.0 / min(self.num_steps + 1, _MEMORY)
        return GradientNoise(
            squared_norm=self.squared_norm + share * (squared_norm - self.squared_norm),
            noise=self.noise + share * (noise - self.noise),
            num_steps=self.num_steps + 1,
        )

    def gain(self, batch: int, initial_batch: int) -> float:
        """Steps at the initial batch that one at `batch` is worth."""
        scale, signal, variance = batch / initial_batch, max(0.0, self.squared_norm), max(0.0, self.noise)
        if self.num_steps < _FEWEST or signal == variance == 0.0:
            return min(1.0, scale)
        return scale * float(efficiency(signal_share(signal, variance / initial_batch), scale))


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """`samples` read, of which the next one is the number; `work`: what they are worth, in samples at the initial
    batch; what is known of the noise."""

    samples: int = 0
    work: float = 0.0
    noise: GradientNoise = field(default_factory=GradientNoise)

    @classmethod
    def plain(cls, samples: int) -> "Progress":
        """Of a training whose batch has never changed."""
        return cls(samples=samples, work=float(samples))


def rate_factor(rule: ScalingRule, scale: float, gain: float) -> float:
    """By how much the learning rate is larger than at the initial batch."""
    return {ScalingRule.SQUARE_ROOT: math.sqrt(scale), ScalingRule.ADASCALE: gain}.get(rule, 1.0)


def scaling_faults(rule: ScalingRule, initial_batch: int | None, optimizer: Optimizer) -> Iterator[Issue]:
    """What does not go together; pointers below the training job."""
    if initial_batch is not None and initial_batch < 1:
        yield _fault("not_positive", "initial_batch", f"is {initial_batch}; at least 1")
    if rule is ScalingRule.NONE:
        return
    if initial_batch is None:
        detail = f"is missing: {rule} scales the learning rate from the batch for which it was chosen"
        yield _fault("missing_field", "initial_batch", detail)
    if optimizer is not _OPTIMIZER_OF[rule]:
        right = next(name for name, known in _OPTIMIZER_OF.items() if known is optimizer)
        detail = f"is {rule}, which holds for {_OPTIMIZER_OF[rule]}; the model's optimizer is {optimizer}: {right}"
        yield _fault("scaling", "scaling", detail)


def _fault(code: str, field: str, detail: str) -> Issue:
    return Issue(code=code, pointer=f"/schedule/{field}", detail=detail)
