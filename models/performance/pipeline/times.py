"""How long the passes of virtual stages take, and what goes between them."""

from dataclasses import dataclass

import numpy as np

from models.performance.pipeline.schedule import Schedule, ScheduleKind
from stowplan.arrays import FloatArray, IntArray
from stowplan.errors import InputError


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class StageTimes:
    """Seconds per micro-batch of V virtual stages in the order of the layers; leading axes are candidates.

    Attributes
    ----------
    forward_s, backward_s
        (..., V) a pass; `backward_s` is all of it, gradients of inputs and weights.
    weight_s
        (..., V) the part of `backward_s` for the gradients of the weights; only zero-bubble schedules look at it.
    there_s, back_s
        (..., V) transfer of the output to the next virtual stage, and of its gradient back from there. The last one has
        no next: its entry is not looked at. Nothing is sent where there is one device.
    blocking
        Whether the sender's GPU waits until a transfer has ended (Megatron-LM without overlapped p2p). If not, the
        transfer goes beside computation, each link carrying one at a time in each direction.
    """

    forward_s: FloatArray
    backward_s: FloatArray
    weight_s: FloatArray | float = 0.0
    there_s: FloatArray | float = 0.0
    back_s: FloatArray | float = 0.0
    blocking: bool = False


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PassTimes:
    """Times of a schedule's passes: `duration_s` (K, V, C) on the GPU, by kind of pass; `transfer_s` (K, V, C) until
    the output has arrived, None where nothing takes time; `shape`: the candidates' axes, C in product."""

    duration_s: FloatArray
    transfer_s: FloatArray | None
    shape: tuple[int, ...]

    def at(self, candidates: IntArray) -> "PassTimes":
        """Those of some candidates, numbered over all axes."""
        transfer = None if self.transfer_s is None else self.transfer_s[..., candidates]
        return PassTimes(duration_s=self.duration_s[..., candidates], transfer_s=transfer, shape=(len(candidates),))


def pass_times(schedule: Schedule, times: StageTimes) -> PassTimes:
    """Durations and transfers of the passes of a schedule.

    Raises
    ------
    InputError
        When the last axis is not that of the schedule's virtual stages.
    """
    parts = np.broadcast_arrays(times.forward_s, times.backward_s, times.weight_s, times.there_s, times.back_s)
    shape = parts[0].shape
    if not shape or shape[-1] != schedule.num_virtual:
        raise InputError(f"times have the shape {shape}; their last axis must be the {schedule.num_virtual} stages")
    flat = np.array([np.moveaxis(part, -1, 0).reshape(shape[-1], -1) for part in parts], dtype=np.float64)
    forward, backward, weight, there, back = flat
    there[-1] = 0.0
    if schedule.kind is ScheduleKind.ZBV:
        there[schedule.num_devices - 1] = back[schedule.num_devices - 1] = 0.0
    # The gradient goes back from the stage that the activation came to.
    back = np.concatenate([np.zeros_like(back[:1]), back[:-1]])
    if schedule.splits_backward:
        duration, transfer = (
            np.array([forward, backward - weight, weight]),
            np.array([there, back, np.zeros_like(back)]),
        )
    else:
        duration, transfer = np.array([forward, backward]), np.array([there, back])
    if schedule.num_devices == 1 or not transfer.any():
        return PassTimes(duration_s=duration, transfer_s=None, shape=shape[:-1])
    if times.blocking:
        return PassTimes(duration_s=duration + transfer, transfer_s=None, shape=shape[:-1])
    return PassTimes(duration_s=duration, transfer_s=transfer, shape=shape[:-1])
