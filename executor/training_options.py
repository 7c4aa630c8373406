"""Settings of a training that are none of its layout: device, engine, compiler, learning rate."""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from executor.progress import ScalingRule
from stowplan.errors import Issue


class Device(StrEnum):
    """What the ranks compute on: CPU with gloo, CUDA with NCCL."""

    CPU = "cpu"
    CUDA = "cuda"


class EngineName(StrEnum):
    """What runs the pipeline: DeepSpeed, for symmetric plans, or stages on torch's own schedules, for any plan."""

    DEEPSPEED = "deepspeed"
    NATIVE = "native"


class Compiler(StrEnum):
    """Backends of `torch.compile`: kernels that are made for the layers, which takes a compiler of C++ on every host;
    or the passes as they are traced ahead of time, made of the usual kernels.
    """

    INDUCTOR = "inductor"
    AOT_EAGER = "aot_eager"


class Decay(StrEnum):
    """How the learning rate falls: along a cosine, along a line, or not before a line at the end (WSD: warm-up, stable,
    decay; Hu et al. 2024)."""

    COSINE = "cosine"
    LINEAR = "linear"
    WSD = "wsd"


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """Learning rate and the other settings of AdamW, or of SGD with the momentum `beta1`.

    Linear warm-up over `warmup_steps`, then `decay` down to `final_ratio` x `learning_rate` at `decay_steps` (None: the
    steps of the job), constant after that. `cooldown_steps`: over which WSD falls (None: the last tenth). Each may be
    said in samples (sequences) instead. `scaling`: how the learning rate follows a batch other than `initial_batch`, of
    which all lengths in steps are, those of the job too (None: the batch of the model); unless it is none, samples
    count by what they are worth (`executor.progress`). Weight decay applies to all parameters but norms and biases.
    Gradients are clipped to the norm `gradient_clipping`, 0 for not at all.
    """

    learning_rate: float = 3e-4
    decay: Decay = Decay.COSINE
    warmup_steps: int = 0
    warmup_samples: int | None = None
    decay_steps: int | None = None
    decay_samples: int | None = None
    cooldown_steps: int | None = None
    cooldown_samples: int | None = None
    scaling: ScalingRule = ScalingRule.NONE
    initial_batch: int | None = None
    final_ratio: float = 0.1
    weight_decay: float = 0.01
    beta1: float = 0.9
    beta2: float = 0.95
    epsilon: float = 1e-8
    gradient_clipping: float = 1.0


def schedule_faults(schedule: Schedule) -> Iterator[Issue]:
    """What is wrong with a schedule; pointers below `/schedule`."""
    for name in ("learning_rate", "weight_decay", "gradient_clipping", "final_ratio"):
        if getattr(schedule, name) < 0:
            yield fault("negative", f"schedule/{name}", f"is {getattr(schedule, name)}; at least 0")
    for part in ("warmup", "decay", "cooldown"):
        steps, samples = (getattr(schedule, f"{part}_{unit}") for unit in ("steps", "samples"))
        if steps and samples is not None:
            yield fault("schedule", f"schedule/{part}_samples", f"is given beside {part}_steps; say it in one of both")
        for unit, value in (("steps", steps), ("samples", samples)):
            if value is not None and value < 0:
                yield fault("negative", f"schedule/{part}_{unit}", f"is {value}; at least 0")
        if part == "cooldown" and (steps or samples) and schedule.decay is not Decay.WSD:
            unit = "steps" if steps else "samples"
            yield fault("schedule", f"schedule/cooldown_{unit}", f"is given; {schedule.decay} has none, wsd has")


def fault(code: str, pointer: str, detail: str) -> Issue:
    """Say what is wrong at a pointer, which is given without its first slash."""
    return Issue(code=code, pointer=f"/{pointer}", detail=detail)
