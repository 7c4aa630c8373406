"""What a running plan shows of itself, and what makes such measurements useless."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields

from models.parallel_plan import ParallelPlan
from models.performance.iteration.profile import ModelProfile
from models.wording import counted
from stowplan.errors import Issue, pointer_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """One GPU of a running plan: `shard` of `replica` of `stage`; means over steps after warm-up.

    Times per micro-batch: `forward_s`, the part `forward_communication_s` of it that tensor-parallel all-reduces take,
    and `backward_s` without gradient reduction. Times per step: `optimizer_s`, and `exposed_reduction_s`, what the
    gradient reduction takes beyond the last backward pass. Waiting for other stages belongs to none of them.

    Bytes on this GPU, None where not measured: `output_bytes`, the activation of one micro-batch behind the last layer
    of the stage (what goes to the next stage); all parameters, gradients and optimiser states outside computation;
    `peak_bytes`, the largest amount that tensors took up in a step.
    """

    stage: int
    replica: int
    shard: int = 0
    forward_s: float
    forward_communication_s: float
    backward_s: float
    optimizer_s: float
    exposed_reduction_s: float | None = None
    output_bytes: float | None = None
    parameter_bytes: float | None = None
    gradient_bytes: float | None = None
    optimizer_bytes: float | None = None
    peak_bytes: float | None = None


_COORDINATES = ("stage", "replica", "shard")


def measurement_issues(
    profile: ModelProfile, plan: ParallelPlan, measurements: Sequence[Measurement]
) -> Iterator[Issue]:
    """Yield every reason why the measurements cannot be those of the plan; pointers below `/measurements`."""
    if not measurements:
        yield _issue("no_measurements", "", "there are no measurements; at least one GPU must report")
    if plan.num_layers != profile.num_layers:
        yield Issue(
            code="layers",
            pointer="/plan/stages",
            detail=f"the plan has {counted(plan.num_layers, 'layer')}; the model {profile.name!r} has "
            f"{profile.num_layers}",
        )
    for k, measurement in enumerate(measurements):
        faults = [*_value_faults(k, measurement), *_place_faults(k, measurement, plan)]
        yield from faults or _contradictions(k, measurement, plan, profile.backward_all_reduces)


def _value_faults(k: int, measurement: Measurement) -> Iterator[Issue]:
    for field in fields(measurement):
        value = getattr(measurement, field.name)
        if field.name in _COORDINATES or value is None:
            continue
        if not (math.isfinite(value) and value >= 0):
            yield _issue("out_of_range", pointer_of(k, field.name), f"is {value}; must be finite and at least 0")


def _place_faults(k: int, measurement: Measurement, plan: ParallelPlan) -> Iterator[Issue]:
    """Coordinates that the plan does not have: a measurement of another plan."""
    sizes = [plan.pp]
    if 0 <= measurement.stage < plan.pp:
        stage = plan.stages[measurement.stage]
        sizes += [stage.dp, stage.tp]
    for name, size in zip(_COORDINATES, sizes, strict=False):
        value = getattr(measurement, name)
        if not 0 <= value < size:
            detail = f"is {value}; the plan has 0 to {size - 1} there. Was this measured with another plan?"
            yield _issue("other_plan", pointer_of(k, name), detail)


def _contradictions(k: int, measurement: Measurement, plan: ParallelPlan, again: float) -> Iterator[Issue]:
    """Values that are possible each, but not together, or not in this plan."""
    stage = plan.stages[measurement.stage]
    communication_s = measurement.forward_communication_s
    if stage.tp == 1 and communication_s > 0:
        detail = f"is {communication_s}; the stage has no tensor parallelism, so it must be 0"
        yield _issue("other_plan", pointer_of(k, "forward_communication_s"), detail)
    if stage.dp == 1 and measurement.exposed_reduction_s:
        detail = f"is {measurement.exposed_reduction_s}; the stage has one replica, so it must be 0"
        yield _issue("other_plan", pointer_of(k, "exposed_reduction_s"), detail)
    for name, part in (("forward_s", communication_s), ("backward_s", again * communication_s)):
        value = getattr(measurement, name)
        if value <= part:
            detail = f"is {value}; must be above the {part} s of communication in it"
            yield _issue("no_computation", pointer_of(k, name), detail)


def _issue(code: str, pointer: str, detail: str) -> Issue:
    return Issue(code=code, pointer=f"/measurements{pointer}", detail=detail)
