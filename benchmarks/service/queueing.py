"""Plans as a network of queues, event by event: a process that serves, workers, and commits to the database.

Stations have a number of servers and one queue, first come, first served. Work at stations of CPU shares the cores of a
machine with each other, and with processes that have nothing to do with it: each gets min(1, cores / processes that
run). Commits take wall time and no core. Times are drawn from a gamma distribution around the mean of a visit.
"""

import math
import random
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

# Rounding leaves less.
_OVER_S = 1e-12


@dataclass(frozen=True, slots=True, kw_only=True)
class Station:
    """Servers of one kind."""

    name: str
    num_servers: int
    uses_cpu: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Visit:
    """A stop on the way of every plan: its station, and seconds on average when nothing else runs."""

    station: str
    mean_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """Cores that stations of CPU share, and processes beside them that always run; infinite: a core for each server."""

    cores: float = math.inf
    num_beside: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """Clients that post again as soon as they are answered, or plans that come by chance, so many a second."""

    num_clients: int = 0
    plans_per_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Flow:
    """What was seen after the first tenth: plans a second, seconds from post to answer, how busy stations were.

    `num_left`: plans that are in there at the end.
    """

    plans_per_s: float
    median_s: float
    p95_s: float
    busy: dict[str, float]
    num_left: int


@dataclass(slots=True)
class _Plan:
    came_s: float
    visit: int = 0
    left_s: float = 0.0


@dataclass(slots=True)
class _Queue:
    station: Station
    waiting: deque[_Plan] = field(default_factory=deque)
    served: list[_Plan] = field(default_factory=list)
    busy_s: float = 0.0

    def fill(self) -> None:
        """Servers that are free begin with who waits longest."""
        while self.waiting and len(self.served) < self.station.num_servers:
            self.served.append(self.waiting.popleft())

    def work(self, step_s: float, pace: float, is_seen: bool) -> list[_Plan]:
        """Serve for so long; gives those that are over."""
        self.busy_s += len(self.served) * step_s * is_seen
        for plan in self.served:
            plan.left_s -= step_s * pace
        over = [plan for plan in self.served if plan.left_s <= _OVER_S]
        if over:
            self.served = [plan for plan in self.served if plan.left_s > _OVER_S]
        return over


def simulate(
    stations: Sequence[Station],
    way: Sequence[Visit],
    load: Load,
    *,
    machine: Machine | None = None,
    seconds: float = 60.0,
    variation: float = 0.3,
    seed: int = 0,
) -> Flow:
    """Let plans take their way for so long; `variation`: standard deviation of a visit over its mean."""
    simulation = _Simulation(stations, way, load, machine or Machine(), seconds, variation, seed)
    while simulation.now_s < seconds:
        simulation.step()
    return simulation.flow()


class _Simulation:
    """All that changes while time goes on."""

    def __init__(
        self,
        stations: Sequence[Station],
        way: Sequence[Visit],
        load: Load,
        machine: Machine,
        seconds: float,
        variation: float,
        seed: int,
    ) -> None:
        self.now_s = 0.0
        self._queues = {station.name: _Queue(station) for station in stations}
        self._way, self._load, self._machine = way, load, machine
        self._seconds, self._warm_s = seconds, seconds / 10
        self._shape = 1 / variation**2
        self._random = random.Random(seed)  # noqa: S311 - repeatable, no secret
        self._next_s = 0.0 if load.plans_per_s else math.inf
        self._took_s: list[float] = []
        for _ in range(load.num_clients):
            self._enter(_Plan(self.now_s))

    def step(self) -> None:
        """Go on to the next end of a visit, or to the next plan that comes."""
        for queue in self._queues.values():
            queue.fill()
        paces = self._paces()
        ends = (plan.left_s / paces[name] for name, queue in self._queues.items() for plan in queue.served)
        step_s = max(0.0, min(min(ends, default=math.inf), min(self._next_s, self._seconds) - self.now_s))
        self.now_s += step_s
        is_seen = self.now_s > self._warm_s
        for plan in [plan for name, queue in self._queues.items() for plan in queue.work(step_s, paces[name], is_seen)]:
            plan.visit += 1
            self._enter(plan)
        if self.now_s >= self._next_s:
            self._enter(_Plan(self.now_s))
            self._next_s = self.now_s + self._random.expovariate(self._load.plans_per_s)

    def flow(self) -> Flow:
        """What was seen."""
        seen_s, took_s, queues = self._seconds - self._warm_s, self._took_s, self._queues
        return Flow(
            plans_per_s=len(took_s) / seen_s,
            median_s=float(np.median(took_s)) if took_s else math.nan,
            p95_s=float(np.quantile(took_s, 0.95)) if took_s else math.nan,
            busy={name: queue.busy_s / seen_s / queue.station.num_servers for name, queue in queues.items()},
            num_left=sum(len(queue.waiting) + len(queue.served) for queue in queues.values()),
        )

    def _enter(self, plan: _Plan) -> None:
        """The plan comes to its next station, or is answered."""
        if plan.visit < len(self._way):
            visit = self._way[plan.visit]
            plan.left_s = self._random.gammavariate(self._shape, visit.mean_s / self._shape)
            self._queues[visit.station].waiting.append(plan)
            return
        if self.now_s >= self._warm_s:
            self._took_s.append(self.now_s - plan.came_s)
        if self._load.num_clients:
            self._enter(_Plan(self.now_s))

    def _paces(self) -> dict[str, float]:
        """How fast each station works: 1 when nothing keeps it."""
        running = sum(len(queue.served) for queue in self._queues.values() if queue.station.uses_cpu)
        pace = min(1.0, self._machine.cores / (running + self._machine.num_beside)) if running else 1.0
        return {name: pace if queue.station.uses_cpu else 1.0 for name, queue in self._queues.items()}
