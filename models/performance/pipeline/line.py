"""Terms of the closed forms of `formulas`, whose notation they have: paths through stages in a line."""

from dataclasses import dataclass
from functools import cached_property
from types import EllipsisType

import numpy as np

from models.performance.pipeline.schedule import ScheduleKind
from models.performance.pipeline.times import StageTimes
from stowplan.arrays import FloatArray, IntArray, Mask

Counts = IntArray | FloatArray | int


@dataclass(frozen=True, kw_only=True, eq=False)
class Line:
    """Stages in a line; arrays broadcast to (..., S).

    forward_start, forward_end: F_{i-1} and F_i, backward likewise; ahead: a; rounds: N - 2 - w; turning: rounds >= 0.
    weight: v of ZB-H1, None for others.
    """

    forward: FloatArray
    backward: FloatArray
    weight: FloatArray | None
    forward_start: FloatArray
    forward_end: FloatArray
    backward_start: FloatArray
    backward_end: FloatArray
    exists: Mask
    count: IntArray
    num_stages: IntArray
    ahead: IntArray
    rounds: IntArray
    turning: Mask
    beside: bool

    @classmethod
    def of(cls, kind: ScheduleKind, times: StageTimes, num_micro_batches: Counts) -> "Line":
        """Terms of stages under a schedule without interleaving."""
        forward, backward = times.forward_s, times.backward_s
        exists = (forward + backward) > 0
        num_stages = exists.sum(axis=-1, keepdims=True)
        count = np.asarray(num_micro_batches, dtype=np.int64)[..., None]
        behind = np.maximum(num_stages - 1 - np.arange(forward.shape[-1]), 0)
        weight = None
        if kind is ScheduleKind.ZERO_BUBBLE:
            weight = np.broadcast_to(times.weight_s, backward.shape)
            backward = backward - weight
        there, back = (np.where(behind > 0, part, 0.0) for part in (times.there_s, times.back_s))
        beside = not times.blocking and bool(there.any() or back.any())
        there_before, back_before = (
            np.concatenate([np.zeros_like(part[..., :1]), part[..., :-1]], axis=-1) for part in (there, back)
        )
        if times.blocking:
            forward, backward = forward + there, backward + back_before
            there_before = back_before = np.zeros(1)
        forward_end = np.cumsum(forward + there_before, axis=-1)
        backward_end = np.cumsum(backward + back_before, axis=-1)
        ahead = count - 1 + 0 * behind if kind is ScheduleKind.GPIPE else behind
        rounds = count - 2 - ahead
        return cls(
            forward=forward,
            backward=backward,
            weight=weight,
            forward_start=forward_end - forward,
            forward_end=forward_end,
            backward_start=backward_end - backward,
            backward_end=backward_end,
            exists=exists,
            count=count,
            num_stages=num_stages,
            ahead=np.minimum(ahead, count - 1),
            rounds=np.maximum(rounds, 0),
            turning=exists & (rounds >= 0),
            beside=beside,
        )

    @property
    def turn(self) -> FloatArray:
        """A turn of a stage, weights left aside."""
        return self.forward + self.backward

    @cached_property
    def slowest_forward(self) -> FloatArray:
        """The slowest forward pass up to a stage."""
        return np.maximum.accumulate(self.forward, axis=-1)

    def entry(self) -> FloatArray:
        """E."""
        via = self.forward_end + self.ahead * self.slowest_forward + self.backward_end
        return _from_behind(via) - self.backward_start

    def tail(self, extra_s: FloatArray | None) -> FloatArray | None:
        """max_{i<=q} (tau_i - B_{i-1}), None where it is 0."""
        extra = extra_s
        if self.weight is not None:
            late = np.minimum(np.arange(1, self.weight.shape[-1] + 1), self.count) * self.weight
            extra = late if extra is None else extra + late
        return None if extra is None else np.maximum.accumulate(extra - self.backward_start, axis=-1)

    def leave(self, tail: FloatArray | None) -> FloatArray:
        """X."""
        wait = self._waiting(self.ahead, tail)
        return _from_behind(self.forward_end + self.backward_end + wait) - self.forward_start

    def late_backward(self, tail: FloatArray | None) -> FloatArray:
        """From the first gradient of M on, N - 1 backward passes at a stage before it, and back from there."""
        return self.backward_start + self._waiting(self.count - 1, tail)

    @cached_property
    def full_turns(self) -> IntArray:
        """Turns of M that are neither in E nor in X, with weights."""
        if self.weight is None:
            return self.rounds
        return np.broadcast_to(np.maximum(self.count - self.num_stages - 1, 0), self.rounds.shape)

    @cached_property
    def stay(self) -> FloatArray:
        """What M does in the turns that are neither in E nor in X."""
        stay = self.rounds * self.turn
        if self.weight is not None:
            stay = stay + np.maximum(self.count - self.num_stages, 0) * self.weight
        return np.asarray(stay)

    def rounds_between(self) -> FloatArray:
        """The same with rounds from M forward to M + k and back, each for k + 1 turns."""
        best, through = self.stay.copy(), self.forward_end + self.backward_end
        weight = np.zeros_like(self.turn) if self.weight is None else self.weight
        for k in range(1, best.shape[-1]):
            left, right = (..., slice(0, -k)), (..., slice(k, None))
            cycle = through[right] - (self.forward_start + self.backward_start)[left] + weight[left]
            gain = cycle - (k + 1) * (self.turn + weight)[left]
            more = np.where(self.exists[right], self.full_turns[left] // (k + 1) * gain, 0.0)
            best[left] = np.maximum(best[left], self.stay[left] + more)
        return best

    def first_turns(self, entry: FloatArray, *, later: bool) -> FloatArray:
        """E, or the most that other stages add to it while turns of M have no weights yet, and `later` too."""
        if self.weight is None:
            return entry
        best, position = entry.copy(), np.arange(entry.shape[-1])
        early, full = np.minimum(self.rounds, position), self.turn + self.weight
        for k in range(entry.shape[-1]):
            here, left, right = (..., slice(k, k + 1)), (..., slice(0, k)), (..., slice(k + 1, None))
            come = entry[here] + self.backward_start[here] - self.backward_start[left]
            come += early[left] * (self.turn[here] - self.turn[left])
            if later:
                turns = np.minimum(k, self.rounds[left]) - early[left]
                come += np.maximum(turns * (self.turn[here] - full[left]), 0.0)
            best[left] = np.maximum(best[left], np.where(self.exists[here], come, 0.0))
            # From k on with a forward pass: after the first ones, or after k - 1 turns.
            ahead, turns = position[k + 1 :] - k, position[k + 1 :]
            last = self.backward[right] + self.forward_end[right]
            come = last + self.ahead[here] * self.slowest_forward[here] - ahead * self.turn[right]
            best[right] = np.maximum(best[right], np.where(early[right] >= ahead, come, 0.0))
            if k:
                come = entry[here] + (k - 1) * self.turn[here] + last - self.forward_start[here]
                come -= turns * self.turn[right]
                best[right] = np.maximum(best[right], np.where(early[right] == turns, come, 0.0))
        return best

    def returning(self, entry: FloatArray, tail: FloatArray | None) -> FloatArray:
        """ZB-H1 with N <= S: n turns at k, then back to q <= k, where the other backward passes wait."""
        assert self.weight is not None and tail is not None  # noqa: S101, PT018 - its weights are a tail
        best, position = np.zeros_like(entry), np.arange(entry.shape[-1])
        for k in range(1, entry.shape[-1]):
            here, left = (..., slice(k, k + 1)), (..., slice(0, k + 1))
            q = position[: k + 1]
            most = np.where(self.exists[here], self.count - 1 - self.ahead[here], -1)
            for turns in (np.maximum(q + self.count - self.num_stages, 0), np.minimum(q, most)):
                wait = self._wait(self.count - 1 - turns, left, np.maximum(q, turns), self.weight)
                path = entry[here] + turns * self.turn[here] + self.backward_start[here] + wait + tail[left]
                possible = (turns >= 0) & (turns <= most) & (self.count <= self.num_stages)
                best[left] = np.maximum(best[left], np.where(possible, path, 0.0))
        return best

    def _waiting(self, passes: IntArray, tail: FloatArray | None) -> FloatArray:
        """max_{q<=j} (passes_j b_q + tail_q) by j."""
        if tail is not None and self.weight is not None:
            return self._waiting_with_weights(np.broadcast_to(passes, tail.shape), tail, self.weight)
        slowest = np.maximum.accumulate(self.backward, axis=-1) * passes.astype(np.float64)
        if tail is None:
            return slowest
        # Mostly what follows the gradients ends last at the first stage: then tails are equal.
        waiting: FloatArray = slowest + tail[..., :1]
        rows = np.broadcast_to(tail[..., -1] > tail[..., 0], waiting.shape[:-1])
        if rows.any():
            # Stages first: rows of them are looked at together.
            num, backward, end = (
                np.broadcast_to(part, waiting.shape)[rows].T.copy() for part in (passes * 1.0, self.backward, tail)
            )
            each = [(num[j] * backward[: j + 1] + end[: j + 1]).max(axis=0) for j in range(len(end))]
            waiting[rows] = np.array(each).T
        return waiting

    def _waiting_with_weights(self, passes: IntArray, tail: FloatArray, weight: FloatArray) -> FloatArray:
        waiting = np.empty(tail.shape)
        for j in range(tail.shape[-1]):
            upto = (..., slice(0, j + 1))
            wait = self._wait(passes[..., j : j + 1], upto, np.arange(j + 1), weight)
            waiting[..., j] = (wait + tail[upto]).max(axis=-1)
        return waiting

    def _wait(
        self, passes: IntArray, which: tuple[EllipsisType, slice], first: IntArray, weight: FloatArray
    ) -> FloatArray:
        """So many last backward passes in a row; from the micro-batch `first` on each has weights behind it."""
        weights = np.minimum(np.maximum(self.count - 1 - first, 0), passes)
        return np.asarray(passes * self.backward[which] + weights * weight[which])


def _from_behind(values: FloatArray) -> FloatArray:
    """The maximum of every entry and those behind it."""
    return np.maximum.accumulate(values[..., ::-1], axis=-1)[..., ::-1]
