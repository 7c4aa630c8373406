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
- Deadlines (Eq. 6). A job that could meet its deadline and is held back by another is what admission first must not
  have. So jobs with a deadline come before all queues, those with the most points first, among equals those that need
  the fewest GPUs to be in time; none of them holds anybody back. A launched job that is late and could be in time is
  an event among them: it chooses its block again, with room made as for a launch, if that gains.
- Finish-time fairness (Eq. 7). What decides is the job that is worst off, and what waiting costs is part of the
  objective, priorities included. So the jobs whose waiting costs most come first, none holds anybody back, and a job
  is launched only if the objective gets better: else the last to come, who need it least, would squeeze all others to
  their smallest blocks. When no idle GPU helps anymore, the job that is worst off chooses its block again, with room
  made as for a launch, as long as that gains.
- What must run but cannot stay as it is (reservations, drained nodes, shapes that are no buddy block) is launched
  first, at any depth.

Buddy allocation and defragmentation: blocks are taken by the placeability rows, under which every choice can be
placed, if need be by moving jobs that keep their block; `models.placement.nodes` moves the fewest.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from models.allocation.arena.assignment import Assignment, Moves, Way
from models.allocation.arena.instance import ArenaInstance
from models.allocation.arena.room import Room
from stowplan.arrays import FloatVector, IntVector, Mask

# A change must gain more than rounding.
_LEAST_GAIN = 1e-9


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Schedule:
    """What Algorithm 1 decides: configuration (J,) of every job, -1 for none, and how it got there.

    num_launched: waiting jobs that start; num_scaled_down: changes of launched jobs to make room for another;
    num_scaled_up: changes for their own gain. untried: bool (J,), jobs that it came to no more. complete: it ran to
    its end.
    """

    chosen: IntVector
    num_launched: int
    num_scaled_down: int
    num_scaled_up: int
    untried: Mask
    complete: bool


def schedule(instance: ArenaInstance, must_stop: Callable[[], bool]) -> Schedule | None:
    """Run Algorithm 1; None when something that must run finds no place.

    `must_stop` ends it early, with what it has by then; it is asked before every step of a search for room.
    """
    return _Scheduler(instance, must_stop).run()


class _Scheduler:
    def __init__(self, instance: ArenaInstance, must_stop: Callable[[], bool]) -> None:
        self._instance = instance
        self._must_stop = must_stop
        self._assignment = Assignment(instance)
        self._depth = instance.parameters.search_depth
        bounds = np.searchsorted(instance.pair_jobs, np.arange(len(instance.jobs) + 1))
        self._pairs = [np.arange(first, last) for first, last in pairwise(bounds)]
        self._room = Room(self._assignment, self._depth)
        self._num_scaled_down = 0
        self._num_scaled_up = 0
        self._untried: Mask = np.zeros(len(instance.jobs), dtype=np.bool_)

    def run(self) -> Schedule | None:
        it = self._instance
        for i in self._keep_running():
            if not self._launch(i, depth=len(it.jobs)):
                return None
        self._num_scaled_down = 0
        self._launch_queues()
        self._scale_up()
        chosen = self._assignment.chosen
        return Schedule(
            chosen=chosen,
            num_launched=int((chosen[it.counted & ~it.required] >= 0).sum()),
            num_scaled_down=self._num_scaled_down,
            num_scaled_up=self._num_scaled_up,
            untried=self._untried,
            complete=not self._must_stop(),
        )

    def _keep_running(self) -> list[int]:
        """Let launched jobs have what they have; returns those that must run and do not yet, largest first."""
        it = self._instance
        stays = it.launched & (it.utility.current >= 0)
        stays[stays] = it.utility.offered[stays, it.utility.current[stays]]
        self._apply({int(i): int(it.utility.current[i]) for i in np.flatnonzero(stays)})
        forced = [int(i) for i in np.flatnonzero(it.required & ~stays)]
        smallest = {i: it.configurations.num_gpus[it.utility.offered[i]].min(initial=0) for i in forced}
        return sorted(forced, key=lambda i: (not it.reserved[i], -smallest[i]))

    def _launch_queues(self) -> None:
        """Schedule, lines 6-9."""
        it = self._instance
        queue = it.launch_queue
        ranks = self._ranks()
        events = np.flatnonzero((it.counted & ~it.required) | self._late()).tolist()
        events.sort(key=lambda i: (queue[i], *ranks[i]))
        blocked = it.parameters.num_queues + 1
        for k, i in enumerate(events):
            if queue[i] > blocked:
                break
            is_served = not self._must_stop() and self._serve(i)
            if self._must_stop():
                # A search that was broken off has not tried all.
                self._untried[[j for j in events[k:] if self._assignment.chosen[j] < 0]] = True
                break
            if not is_served and queue[i] > 0:
                blocked = queue[i]

    def _serve(self, i: int) -> bool:
        return self._relieve(i) if self._assignment.chosen[i] >= 0 else self._launch(i, self._depth)

    def _late(self) -> Mask:
        """Launched jobs (J,) that miss a deadline that they could meet."""
        it, utility = self._instance, self._instance.utility
        late = (utility.reward > 0) & it.launched & (self._assignment.chosen >= 0) & utility.hopeful
        late[late] = ~utility.in_time[late, self._assignment.chosen[late]]
        return late

    def _ranks(self) -> list[tuple[float, float]]:
        """Who comes first in a queue, for every job: see the module."""
        it = self._instance
        if it.is_min_max:
            return [(-waiting, 0.0) for waiting in it.utility.waiting.tolist()]
        num_gpus = np.where(it.utility.offered & it.utility.in_time, it.configurations.num_gpus, np.iinfo(np.int64).max)
        fewest = num_gpus.min(axis=1, initial=np.iinfo(np.int64).max)
        return [
            (-reward, float(least)) if reward else (-job.age_s, 0.0)
            for reward, least, job in zip(it.utility.reward.tolist(), fewest, it.jobs, strict=True)
        ]

    def _launch(self, i: int, depth: int) -> bool:
        """Give job i the block, and change the launched jobs in the way, that are best for the objective."""
        blocks = self._instance.pair_configurations[self._pairs[i]]
        most = self._assignment.most_gained(i, blocks, self._room.most_saved(blocks, depth), depth)

        def ways(c: int) -> Iterable[Way]:
            return self._room.ways(c, depth, self._must_stop)

        return self._take_best(i, blocks, most, ways, must_gain=self._may_wait(i))

    def _may_wait(self, i: int) -> bool:
        """Whether the objective, not the queue, decides if the job runs."""
        return self._instance.is_min_max and not self._instance.required[i]

    def _apply(self, moves: Moves) -> None:
        self._room.moved(self._assignment.apply(moves))

    def _scale_up(self) -> None:
        """InFlightHandler."""
        is_min_max = self._instance.is_min_max and bool(self._instance.counted.any())
        while self._may_scale_up() and not self._must_stop():
            if not (self._use_idle() or (is_min_max and self._relieve(self._assignment.worst_off()))):
                break

    def _may_scale_up(self) -> bool:
        most = self._instance.parameters.max_scale_ups
        return most is None or self._num_scaled_up < most

    def _use_idle(self) -> bool:
        """Make the change that gains most and fits; False when none gains."""
        gain, change = self._room.best_fitting()
        if gain <= _LEAST_GAIN:
            return False
        self._apply(change)
        self._num_scaled_up += 1
        return True

    def _relieve(self, i: int) -> bool:
        """Let one job choose again, at the cost of others; False when that does not gain."""
        if not self._may_scale_up():
            return False
        own = int(self._assignment.chosen[i])
        blocks = self._instance.pair_configurations[self._pairs[i]]
        blocks = blocks[blocks != own]

        def ways(c: int) -> Iterable[Way]:
            return self._room.ways_for(i, c, self._depth, self._must_stop)

        if not self._take_best(i, blocks, np.full(blocks.size, np.inf), ways, must_gain=True):
            return False
        self._num_scaled_up += int(own >= 0)
        return True

    def _take_best(
        self,
        i: int,
        blocks: IntVector,
        most: FloatVector,
        ways: Callable[[int], Iterable[Way]],
        *,
        must_gain: bool,
    ) -> bool:
        """Give job i the block of `blocks` (b,), by the way, that is best for the objective; of equal ones the first.
        False where there is none, or none gains that must.

        `most` (b,): no way to a block gains more. Blocks that cannot be the best are not looked at.
        """
        best, place, found = -np.inf, blocks.size, None
        for k in (-most).argsort(kind="stable").tolist():
            if most[k] < best or (must_gain and most[k] <= _LEAST_GAIN):
                break
            c = int(blocks[k])
            for way in ways(c):
                gain = self._assignment.gain(way, i, c)
                if gain > best or (gain == best and k < place):
                    best, place, found = gain, k, way
        if found is None or (must_gain and best <= _LEAST_GAIN):
            return False
        self._num_scaled_down += len(found.moves)
        self._apply({**found.moves, i: int(blocks[place])})
        return True
