"""A second simulator, written another way: devices that count what they have done, and a heap of events."""

import heapq
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from models.performance.pipeline.schedule import Schedule, ScheduleKind

Key = tuple[str, int, int]


@dataclass
class Device:
    """What a device has done, and when it is free."""

    number: int
    done: dict[str, int] = field(default_factory=lambda: {"F": 0, "B": 0, "W": 0})
    free_s: float = 0.0
    held: int = 0
    most_held: int = 0


@dataclass
class EventLoop:
    """One candidate; times per virtual stage, transfers to the next one and back from there."""

    schedule: Schedule
    forward_s: Sequence[float]
    backward_s: Sequence[float]
    weight_s: Sequence[float]
    there_s: Sequence[float]
    back_s: Sequence[float]
    blocking: bool = False

    def run(self) -> dict[Key, float]:
        """When passes end, without a transfer that they wait for."""
        schedule = self.schedule
        self.ends: dict[Key, float] = {}
        self.ready: dict[Key, float] = {("F", 0, m): 0.0 for m in range(schedule.num_micro_batches)}
        self.link_free: dict[tuple[str, int], float] = {}
        self.devices = [Device(number=d) for d in range(schedule.num_devices)]
        events = [(0.0, d) for d in range(schedule.num_devices)]
        while events:
            now_s, d = heapq.heappop(events)
            device = self.devices[d]
            key = self._next(device)
            if key is None or device.free_s > now_s or self.ready.get(key, float("inf")) > now_s:
                continue
            for at_s, whom in self._do(device, key, now_s):
                heapq.heappush(events, (at_s, whom))
        assert all(self._next(device) is None for device in self.devices)
        return self.ends

    def _next(self, device: Device) -> Key | None:
        schedule, done, d = self.schedule, device.done, device.number
        p, v, total = schedule.num_devices, schedule.num_chunks, schedule.num_micro_batches * schedule.num_chunks
        if schedule.kind is ScheduleKind.ZBV:
            order, count = schedule.order(d).tolist(), sum(done.values())
            return None if count == len(order) else ("FBW"[order[count][0]], *order[count][1:])
        ahead = {
            ScheduleKind.GPIPE: total,
            ScheduleKind.INTERLEAVED: 2 * (p - 1 - d) + (v - 1) * p,
        }.get(schedule.kind, p - 1 - d + (v - 1) * p)
        kind = "F" if done["F"] < min(total, ahead + done["B"] + 1) else "B"
        if schedule.splits_backward and (done["B"] - done["W"] > d or total == done["B"] > done["W"]):
            kind = "W"
        if done[kind] == total:
            return None
        group, inside = divmod(done[kind], p * v)
        chunk, member = divmod(inside, p) if v > 1 else (0, inside)
        chunk = chunk if kind == "F" else v - 1 - chunk
        return kind, chunk * p + d, group * p + member if v > 1 else done[kind]

    def _do(self, device: Device, key: Key, now_s: float) -> list[tuple[float, int]]:
        kind, stage, m = key
        last, p = self.schedule.num_virtual - 1, self.schedule.num_devices
        splits = self.schedule.splits_backward
        seconds = {
            "F": self.forward_s[stage],
            "B": self.backward_s[stage] - (self.weight_s[stage] if splits else 0.0),
            "W": self.weight_s[stage],
        }[kind]
        device.done[kind] += 1
        device.held += {"F": 1, "B": 0 if splits else -1, "W": -1}[kind]
        device.most_held = max(device.most_held, device.held)
        end_s = self.ends[key] = device.free_s = now_s + seconds
        sent = p > 1
        if kind == "F" and stage < last:
            whom, transfer_s = ("F", stage + 1, m), self.there_s[stage]
        elif kind == "B" and stage > 0:
            whom, transfer_s = ("B", stage - 1, m), self.back_s[stage - 1]
        else:
            whom, transfer_s, sent = ("B" if kind == "F" else "W", stage, m), 0.0, False
        there = int(self.schedule.device_of(np.array(whom[1])))
        sent = sent and there != device.number
        if not sent:
            arrival_s = end_s
        elif self.blocking:
            arrival_s = device.free_s = end_s + transfer_s
        else:
            link = (kind, device.number)
            if self.schedule.kind is ScheduleKind.ZBV:
                # Forward passes of one chunk go the way of backward passes of the other.
                link = ("FB"[(kind == "B") != (stage >= p)], device.number)
            arrival_s = max(end_s, self.link_free.get(link, 0.0)) + transfer_s
            self.link_free[link] = arrival_s
        self.ready[whom] = arrival_s
        if kind == "B":
            self.ready["W", stage, m] = end_s
        # Who may have something to do then: this device, and the one that gets the output.
        return [(device.free_s, device.number), (arrival_s, there)]

    @property
    def makespan_s(self) -> float:
        """When the last device is free."""
        return max(device.free_s for device in self.devices)
