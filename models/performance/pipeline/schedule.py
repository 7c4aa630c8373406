"""Pipeline schedules: the order in which every device of a pipeline works on its passes.

p devices, v chunks of layers on each; virtual stage s of the V = p v, in the order of the layers, is chunk s // p on
device s mod p (zbv: see there). N micro-batches. F is a forward pass, B a backward pass.

gpipe        all F, then all B (Huang et al. 2019), both in the order of the micro-batches.
1f1b         w = min(p - 1 - d, N) times F, then F and B in turn, then the B that are left: PipeDream-Flush, and
             Megatron-LM without interleaving (Narayanan et al. 2021, section 2.2).
interleaved  the same on chunks with w = min(2 (p - 1 - d) + (v - 1) p, N v), and N a multiple of p: every p
             micro-batches pass through chunk 0, then through chunk 1, ...; backward from the last chunk to the first
             (Narayanan et al. 2021, Fig. 4; `get_pp_rank_microbatches` of Megatron Core).
zero-bubble  ZB-H1 (Qi et al. 2023, section 2.2): B is only the gradient of the inputs, W that of the weights. 1f1b, and
             behind B of micro-batch m comes W of m - d; what is left of W comes last. Every device holds as many
             micro-batches as the first one of 1f1b does. Where stages differ much it may take longer than 1f1b.
interleaved-zero-bubble  the same on chunks as PyTorch orders it (`ScheduleInterleavedZeroBubble`): interleaved with
             w = min(p - 1 - d + (v - 1) p, N v), and behind the k-th B comes the W of the (k - d)-th.
zbv          ZB-V (Qi et al. 2023, section 6) as PyTorch orders it (`ScheduleZBVZeroBubble`): two chunks, of which the
             second comes back from the last device to the first: virtual stage s >= p is on device 2 p - 1 - s. It has
             no bubble where F, B and W take as long as one another, but for what it takes to begin. Passes of at least
             2 p - 1 micro-batches are put in order, and those left out that do not exist.

Data: F of a virtual stage waits for F of the one before, B for B of the one behind (the last: for its own F), W for B.
"""

from collections import Counter
from dataclasses import dataclass
from enum import IntEnum, StrEnum
from functools import lru_cache
from itertools import chain

import numpy as np

from stowplan.arrays import IntArray
from stowplan.errors import InputError


class ScheduleKind(StrEnum):
    """Which schedule; see the head of the module."""

    GPIPE = "gpipe"
    ONE_F_ONE_B = "1f1b"
    INTERLEAVED = "interleaved"
    ZERO_BUBBLE = "zero-bubble"
    INTERLEAVED_ZERO_BUBBLE = "interleaved-zero-bubble"
    ZBV = "zbv"


# Several chunks a device; micro-batches go through them in groups of as many as there are devices.
_IN_GROUPS = (ScheduleKind.INTERLEAVED, ScheduleKind.INTERLEAVED_ZERO_BUBBLE)
_SPLIT = (ScheduleKind.ZERO_BUBBLE, ScheduleKind.INTERLEAVED_ZERO_BUBBLE, ScheduleKind.ZBV)


class PassKind(IntEnum):
    """What a pass computes; `BACKWARD` is all of it but in zero-bubble schedules, which leave weights to `WEIGHT`."""

    FORWARD = 0
    BACKWARD = 1
    WEIGHT = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """A schedule on `num_devices` pipeline stages with `num_chunks` virtual stages each.

    Raises
    ------
    InputError
        When a number is below 1, there are several chunks without interleaving or one with it, not two of zbv, or
        micro-batches of an interleaved schedule are no multiple of the devices.
    """

    kind: ScheduleKind
    num_devices: int
    num_micro_batches: int
    num_chunks: int = 1

    def __post_init__(self) -> None:
        if min(self.num_devices, self.num_micro_batches, self.num_chunks) < 1:
            raise InputError("a schedule needs a device, a micro-batch and a chunk at least")
        in_groups = self.kind in _IN_GROUPS
        if not (self.num_chunks > 1 if in_groups else self.num_chunks == 1 + (self.kind is ScheduleKind.ZBV)):
            raise InputError(
                f"{self.kind} with {self.num_chunks} virtual stages per device; interleaved ones need 2 at least, zbv "
                "2, others 1"
            )
        if in_groups and self.num_micro_batches % self.num_devices:
            raise InputError(
                f"{self.num_micro_batches} micro-batches on {self.num_devices} interleaved stages; must be a multiple"
            )

    @property
    def num_virtual(self) -> int:
        """V: virtual stages."""
        return self.num_devices * self.num_chunks

    @property
    def splits_backward(self) -> bool:
        """Whether weights have passes of their own."""
        return self.kind in _SPLIT

    @property
    def num_kinds(self) -> int:
        """Kinds of passes."""
        return 3 if self.splits_backward else 2

    @property
    def period(self) -> int:
        """Micro-batches after which the steady order repeats."""
        return self.num_devices if self.kind in _IN_GROUPS else 1

    def device_of(self, stage: IntArray) -> IntArray:
        """Devices of virtual stages."""
        p = self.num_devices
        return np.where(stage < p, stage, 2 * p - 1 - stage) if self.kind is ScheduleKind.ZBV else stage % p

    def warm_up(self, device: int) -> int:
        """Forward passes before the steady phase of a device."""
        num_passes, behind = self.num_micro_batches * self.num_chunks, self.num_devices - 1 - device
        match self.kind:
            case ScheduleKind.GPIPE:
                return num_passes
            case ScheduleKind.INTERLEAVED:
                return min(2 * behind + (self.num_chunks - 1) * self.num_devices, num_passes)
            case ScheduleKind.INTERLEAVED_ZERO_BUBBLE:
                return min(behind + (self.num_chunks - 1) * self.num_devices, num_passes)
            case ScheduleKind.ZBV:
                return min(2 * self.num_devices - device, num_passes)
            case _:
                return min(behind, num_passes)

    def with_micro_batches(self, num_micro_batches: int) -> "Schedule":
        """The same schedule with another number of micro-batches."""
        return Schedule(
            kind=self.kind,
            num_devices=self.num_devices,
            num_micro_batches=num_micro_batches,
            num_chunks=self.num_chunks,
        )

    def order(self, device: int) -> IntArray:
        """Passes of a device in their order, (n, 3): kind, virtual stage, micro-batch."""
        if self.kind is ScheduleKind.ZBV:
            return self._v_order(device)
        forward, backward = self._sequence(device, last_first=False), self._sequence(device, last_first=True)
        ahead, num_passes = self.warm_up(device), len(forward)
        if self.splits_backward:
            # W comes `device` passes late.
            weight = [(PassKind.WEIGHT, stage, m) for _, stage, m in backward]
            groups = (
                [*forward[ahead + k : ahead + k + 1], backward[k], *weight[max(k - device, 0) : max(k - device + 1, 0)]]
                for k in range(num_passes)
            )
            steady = [*chain.from_iterable(groups), *weight[max(num_passes - device, 0) :]]
        else:
            steady = [
                *chain.from_iterable(zip(forward[ahead:], backward, strict=False)),
                *backward[num_passes - ahead :],
            ]
        return np.array([*forward[:ahead], *steady], dtype=np.int64)

    def _v_order(self, device: int) -> IntArray:
        """`order` of zbv: every kind of pass of either chunk takes the micro-batches in their order."""
        p, n = self.num_devices, max(self.num_micro_batches, 2 * self.num_devices - 1)
        down, up = device, 2 * p - 1 - device
        f, b, w = PassKind.FORWARD, PassKind.BACKWARD, PassKind.WEIGHT
        turn = [(b, down), (w, down), (f, up), (b, up), (w, up)]
        kinds = [
            *[(f, down)] * (2 * (p - device) - 1),
            *[(f, up), (f, down)] * device,
            *[(f, up), (b, up), (w, up)] * (p - device),
            *[(f, down), *turn] * (n - 2 * p + 1 + device),
            *turn * (p - 1 - device),
            *[(b, down), (b, up)] * device,
            *[(b, down), (w, down)] * (p - device),
            *[(w, up)] * device,
            *[(w, down)] * device,
        ]
        done: Counter[tuple[PassKind, int]] = Counter()
        passes = []
        for kind, stage in kinds:
            if done[kind, stage] < self.num_micro_batches:
                passes.append((kind, stage, done[kind, stage]))
            done[kind, stage] += 1
        return np.array(passes, dtype=np.int64)

    def _sequence(self, device: int, *, last_first: bool) -> list[tuple[int, int, int]]:
        """Forward passes of a device in their order, or backward passes."""
        p, v = self.num_devices, self.num_chunks
        kind = PassKind.BACKWARD if last_first else PassKind.FORWARD
        chunks = range(v - 1, -1, -1) if last_first else range(v)
        # Without interleaving there is one chunk, and groups do not matter.
        return [
            (kind, chunk * p + device, m)
            for first in range(0, self.num_micro_batches, p)
            for chunk in chunks
            for m in range(first, min(first + p, self.num_micro_batches))
        ]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PassGraph:
    """What waits for what, for passes in an order in which none waits for a later one; `P` stands for nothing.

    Attributes
    ----------
    kind, stage, micro_batch
        (P,) of every pass; stage is the virtual one.
    before
        (P,) the pass before on the same device.
    needs
        (P,) the pass whose output it takes.
    sent_before
        (P,) the pass whose output went over the same link, in the same direction, before its own.
    levels
        (L + 1,) bounds of passes of which none waits for another.
    index
        (K, V, N) position of a pass among them.
    """

    kind: IntArray
    stage: IntArray
    micro_batch: IntArray
    before: IntArray
    needs: IntArray
    sent_before: IntArray
    levels: tuple[int, ...]
    index: IntArray


_STAYS = 0

# Of a schedule that is simulated.
_MOST_PASSES = 1 << 21


@lru_cache(maxsize=64)
def pass_graph(schedule: Schedule) -> PassGraph:
    """The graph of a schedule.

    Raises
    ------
    InputError
        When there are more than 2^21 passes.
    """
    shape = (schedule.num_kinds, schedule.num_virtual, schedule.num_micro_batches)
    size = int(np.prod(shape))
    if size > _MOST_PASSES:
        raise InputError(
            f"{schedule.num_micro_batches} micro-batches on {schedule.num_virtual} stages make {size:,} passes; "
            f"at most {_MOST_PASSES:,} are simulated: take fewer micro-batches, or a closed form"
        )
    orders = [np.ravel_multi_index(tuple(schedule.order(d).T), shape) for d in range(schedule.num_devices)]
    before, sent_before = np.full(size, size), np.full(size, size)
    for order in orders:
        before[order[1:]] = order[:-1]
        kind, stage, _ = np.unravel_index(order, shape)
        link = _links(schedule, kind, stage)
        for one in set(link.tolist()) - {_STAYS}:
            sent = order[link == one]
            sent_before[sent[1:]] = sent[:-1]
    needs = _needs(shape)
    level = _levels(orders, before, needs)
    in_order = np.argsort(level, kind="stable")
    position = np.append(np.argsort(in_order, kind="stable"), size)
    kind, stage, micro_batch = np.unravel_index(in_order, shape)
    return PassGraph(
        kind=kind,
        stage=stage,
        micro_batch=micro_batch,
        before=position[before[in_order]],
        needs=position[needs[in_order]],
        sent_before=position[sent_before[in_order]],
        levels=(0, *np.cumsum(np.bincount(level)).tolist()),
        index=position[:-1].reshape(shape),
    )


def _links(schedule: Schedule, kind: IntArray, stage: IntArray) -> IntArray:
    """Over which link of its device the output of a pass goes, by direction; the last one of either stays."""
    step = np.where(kind == PassKind.FORWARD, 1, np.where(kind == PassKind.BACKWARD, -1, _STAYS))
    if schedule.kind is ScheduleKind.ZBV:
        # The second chunk goes the other way; from the last device to itself nothing is sent.
        turned = np.minimum(stage, stage + step) == schedule.num_devices - 1
        step = np.where(turned, _STAYS, np.where(stage < schedule.num_devices, step, -step))
    leaves = (stage + np.where(kind == PassKind.FORWARD, 1, -1)) % (schedule.num_virtual + 1) == schedule.num_virtual
    return np.where(leaves, _STAYS, step)


def _needs(shape: tuple[int, ...]) -> IntArray:
    """The pass whose output every pass takes, by kind, virtual stage, micro-batch."""
    size = int(np.prod(shape))
    number = np.arange(size).reshape(shape)
    needs = np.full(shape, size)
    needs[PassKind.FORWARD, 1:] = number[PassKind.FORWARD, :-1]
    needs[PassKind.BACKWARD, :-1] = number[PassKind.BACKWARD, 1:]
    needs[PassKind.BACKWARD, -1] = number[PassKind.FORWARD, -1]
    # W needs nothing that is sent: its B comes before it on the same device.
    return needs.reshape(-1)


def _levels(orders: list[IntArray], before: IntArray, needs: IntArray) -> IntArray:
    """The longest chain of passes that a pass waits for."""
    level = [-1] * (len(before) + 1)
    first, second, at = before.tolist(), needs.tolist(), [0] * len(orders)
    lists, nothing, left = [order.tolist() for order in orders], len(before), len(before)
    while left:
        was_left = left
        for d, order in enumerate(lists):
            k = at[d]
            while k < len(order):
                one = order[k]
                if second[one] != nothing and level[second[one]] < 0:
                    break
                level[one] = 1 + max(level[first[one]], level[second[one]])
                k += 1
            left -= k - at[d]
            at[d] = k
        assert left < was_left, "the order of a schedule never waits for itself"  # noqa: S101 - a bug of ours
    return np.array(level[:-1])
