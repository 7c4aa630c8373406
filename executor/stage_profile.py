"""What profiling the stages of a plan on one device gives: the document that planners read."""

from dataclasses import dataclass

from models.parallel_plan import ParallelPlan
from models.performance.iteration.coefficients import Calibration
from models.performance.iteration.measurement import Measurement
from models.transformer import Transformer


@dataclass(frozen=True, slots=True, kw_only=True)
class StageProfile:
    """Times of every stage of a plan, measured one after another on one device (Arena section 3.4).

    `machine`: what it was measured on. `repeats`: timed micro-batches per stage, of which the medians are kept.
    `calibration` goes into the `calibration` of a job of a snapshot, or of a request for parallel plans.
    """

    machine: str
    torch_version: str
    repeats: int
    model: Transformer
    plan: ParallelPlan
    measurements: tuple[Measurement, ...]
    calibration: Calibration
