"""Algorithm 1 of Arena: launch the waiting jobs queue by queue, scale down to make room, scale up what gains.

Our reading, on one snapshot whose waiting jobs are the pending events:

- Queues (lines 6-9). Jobs are tried by queue, then oldest first. When one cannot be launched, later ones of its queue
  may still be ("a subsequent job in lambda-queue is allowed to preempt resources"), those of lower queues may not ("a
  privilege not for jobs in (lambda+1)-queue"). Line 9 as printed would try and launch them before it stops; the text
  rules.
- Launch (lines 12-16). For every block of the job, room is made where it is missing by changing at most D launched
  jobs: fewer GPUs or another type, never none. Each step takes the change that gives up least objective per GPU of the
  shortage, or closes it alone at the least loss. Of all blocks and ways the best for the objective is taken, as Crius
  does (its Algorithm 1, line 18). The job is launched even if the objective falls: the queue decides who runs.
- Scale-up (lines 17-20). While GPUs are idle, the launched job is changed whose change gains most.
- What must run but cannot stay as it is (reservations, drained nodes, shapes that are no buddy block) is launched
  first, at any depth.

Buddy allocation and defragmentation: blocks are taken by the placeability rows, under which every choice can be
placed, if need be by moving jobs that keep their block; `models.placement.nodes` moves the fewest.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from models.allocation.arena.instance import ArenaInstance
from models.allocation.arena.standing import Moves, Standing
from models.allocation.arena.worth import FloatVector
from models.configurations import IntVector
from models.placement.placeability import IntMatrix

# A change must gain more than rounding.
_LEAST_GAIN = 1e-9


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Schedule:
    """What Algorithm 1 decides: configuration (J,) of every job, -1 for none, and how it got there.

    num_launched: waiting jobs that start; num_scaled_down: changes of launched jobs to make room for them;
    num_scaled_up: changes that only gain. complete: it ran to its end.
    """

    chosen: IntVector
    num_launched: int
    num_scaled_down: int
    num_scaled_up: int
    complete: bool


def schedule(instance: ArenaInstance, must_stop: Callable[[], bool]) -> Schedule | None:
    """Run Algorithm 1; None when something that must run finds no place. `must_stop` ends it early."""
    return _Scheduler(instance, must_stop).run()


class _Scheduler:
    def __init__(self, instance: ArenaInstance, must_stop: Callable[[], bool]) -> None:
        self._instance = instance
        self._must_stop = must_stop
        self._standing = Standing(instance)
        self._depth = instance.parameters.search_depth
        bounds = np.searchsorted(instance.pair_jobs, np.arange(len(instance.jobs) + 1))
        self._pairs = [np.arange(first, last) for first, last in pairwise(bounds)]
        self._rooms: dict[int, list[Moves]] = {}
        self._changes: _Changes | None = None
        self._num_scaled_down = 0

    def run(self) -> Schedule | None:
        forced = self._keep_running()
        for i in forced:
            if not self._launch(i, depth=len(self._instance.jobs)):
                return None
        self._num_scaled_down = 0
        num_launched = self._launch_queues()
        num_scaled_up = self._scale_up()
        return Schedule(
            chosen=self._standing.chosen,
            num_launched=num_launched,
            num_scaled_down=self._num_scaled_down,
            num_scaled_up=num_scaled_up,
            complete=not self._must_stop(),
        )

    def _keep_running(self) -> list[int]:
        """Let launched jobs have what they have; returns those that must run and do not yet, largest first."""
        it = self._instance
        stays = it.launched & (it.worth.current >= 0)
        stays[stays] = it.worth.offered[stays, it.worth.current[stays]]
        self._standing.apply({int(i): int(it.worth.current[i]) for i in np.flatnonzero(stays)})
        forced = [int(i) for i in np.flatnonzero(it.required & ~stays)]
        smallest = {i: it.configurations.num_gpus[it.worth.offered[i]].min(initial=0) for i in forced}
        return sorted(forced, key=lambda i: (not it.reserved[i], -smallest[i]))

    def _launch_queues(self) -> int:
        it = self._instance
        queue = it.worth.queue
        waiting = [int(i) for i in np.flatnonzero(it.counted & ~it.required)]
        blocked = it.parameters.num_queues + 1
        num_launched = 0
        for i in sorted(waiting, key=lambda i: (queue[i], -it.jobs[i].age_s)):
            if queue[i] > blocked or self._must_stop():
                break
            if self._launch(i, self._depth):
                num_launched += 1
            else:
                blocked = int(queue[i])
        return num_launched

    def _launch(self, i: int, depth: int) -> bool:
        """Give job i the block, and change the launched jobs in the way, that are best for the objective."""
        blocks = self._instance.pair_configurations[self._pairs[i]].tolist()
        ways = [{**room, i: c} for c in blocks for room in self._room(c, depth)]
        if not ways:
            return False
        best = max(ways, key=self._standing.gain)
        self._num_scaled_down += len(best) - 1
        self._apply(best)
        return True

    def _apply(self, moves: Moves) -> None:
        self._standing.apply(moves)
        self._rooms.clear()
        self._changes = None

    def _room(self, c: int, depth: int) -> list[Moves]:
        """Ways to make room for configuration `c`; they do not depend on who wants it."""
        if c not in self._rooms:
            self._rooms[c] = list(_ways(self._standing, self._possible_changes(), c, depth))
        return self._rooms[c]

    def _possible_changes(self) -> "_Changes":
        if self._changes is None:
            self._changes = _Changes(self._standing)
        return self._changes

    def _scale_up(self) -> int:
        """InFlightHandler."""
        most = self._instance.parameters.max_scale_ups
        num_changed = 0
        while (most is None or num_changed < most) and not self._must_stop():
            changes = self._possible_changes()
            fitting, _ = changes.possible(self._standing.slack, ())
            gain = changes.gain[fitting]
            if gain.max(initial=0.0) <= _LEAST_GAIN:
                break
            self._apply(changes.move(int(fitting[gain.argmax()])))
            num_changed += 1
        return num_changed


class _Changes:
    """Changes of launched jobs at one standing, (n,) each: the job, its configuration before and after, and the gain.

    Sorted by kind (before and after), the best first.
    """

    def __init__(self, standing: Standing) -> None:
        instance = standing.instance
        own = standing.chosen[instance.pair_jobs]
        pairs = np.flatnonzero((own >= 0) & (own != instance.pair_configurations))
        gain = standing.gains(pairs)
        before, after = own[pairs], instance.pair_configurations[pairs]
        kind = before * len(instance.configurations) + after
        order = np.lexsort((-gain, kind))
        self._kind: IntVector = kind[order]
        self._demand = standing.demand
        self.jobs: IntVector = instance.pair_jobs[pairs[order]]
        self.before: IntVector = before[order]
        self.after: IntVector = after[order]
        self.gain: FloatVector = gain[order]

    def possible(self, slack: IntVector, moved: Iterable[int]) -> tuple[IntVector, IntMatrix]:
        """Positions (k,) of the best change of each kind that fits, jobs `moved` left out, and slack (m, k) after it.

        `slack` (m,) is what is free before it.
        """
        left = np.arange(self._kind.size)
        for job in moved:
            left = left[self.jobs[left] != job]
        first = np.append(True, np.diff(self._kind[left]) > 0)[: left.size]
        best = left[first]
        after = slack[:, None] + self._demand[:, self.before[best]] - self._demand[:, self.after[best]]
        fits = (after >= 0).all(axis=0)
        return best[fits], after[:, fits]

    def move(self, k: int) -> Moves:
        """The change at position `k`."""
        return {int(self.jobs[k]): int(self.after[k])}


def _ways(standing: Standing, changes: _Changes, c: int, depth: int) -> Iterator[Moves]:
    """Room for configuration `c` by at most `depth` changes: none where it fits, else, after every number of cheap
    steps, one that closes the rest of the shortage alone."""
    slack = standing.slack
    short = int(standing.shortage(c, slack[:, None])[0])
    moves: dict[int, int] = {}
    if not short:
        yield moves
    for step in range(depth if short else 0):
        best, after = changes.possible(slack, moves)
        relief = short - standing.shortage(c, after)
        gain = changes.gain[best]
        closing = np.flatnonzero(relief == short)
        if closing.size:
            yield {**moves, **changes.move(int(best[closing[gain[closing].argmax()]]))}
        useful = np.flatnonzero((relief > 0) & (relief < short))
        if step == depth - 1 or not useful.size:
            return
        k = useful[(gain[useful] / relief[useful]).argmax()]
        moves |= changes.move(int(best[k]))
        slack, short = after[:, k], short - int(relief[k])
