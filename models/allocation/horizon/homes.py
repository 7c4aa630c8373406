"""Units for the jobs of a choice that have a placement class, and which running jobs leave their nodes."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from models.allocation.horizon.instance import HorizonInstance
from models.allocation.horizon.rooms import Rooms
from models.placement.units import Homes
from stowplan.arrays import IntVector


def moved_jobs(instance: HorizonInstance, chosen: IntVector) -> Iterator[int]:
    """Jobs that leave their nodes for others of the same configuration, where `chosen` (J,) are had now."""
    if instance.rooms is not None:
        known, current, stays = instance.sia.configurations, instance.work.current, instance.rooms.classes.stays
        shape = np.stack([known.type_index, known.num_nodes, known.num_gpus])
        for i in np.flatnonzero((chosen >= 0) & (current >= 0)).tolist():
            leaves = stays[current[i]] and chosen[i] != current[i]
            if leaves and (shape[:, chosen[i]] == shape[:, current[i]]).all():
                yield i


def homes_of(instance: HorizonInstance, chosen: IntVector, packing: IntVector) -> Homes | None:
    """Where a choice (J,) wants jobs whose units take `packing` (G,); None without classes.

    Which of the jobs with the same configuration is in which unit makes no difference: those that have nodes of one
    are there if they can. Jobs that are moved although that costs nothing stay if all others find room beside them.
    """
    rooms = instance.rooms
    if rooms is None:
        return None
    taken = _Taken(instance, rooms, chosen, packing)
    moved = [*moved_jobs(instance, chosen)]
    stays = {i for i in moved if instance.work.start_s[i] == 0 and taken.stays(i, int(chosen[i]))}
    within: dict[str, IntVector] = {}
    for c, left in taken.left.items():
        waiting: list[str] = []
        for i in np.flatnonzero(chosen == c).tolist():
            name = instance.jobs[i].id
            held = Counter({u: num for u, num in taken.own(i).items() if left[u] > 0})
            if i in stays:
                continue
            if held:
                (best, _), *_ = held.most_common(1)
                left[best] -= 1
                within[name] = rooms.units.nodes[best]
            else:
                waiting.append(name)
        # Units may have been left more than there are jobs.
        within |= {name: rooms.units.nodes[u] for name, u in zip(waiting, left.elements(), strict=False)}
    return Homes(within=within, moved=frozenset(instance.jobs[i].id for i in moved if i not in stays))


class _Taken:
    """What units have of a choice. left: by configuration and unit, for how many jobs."""

    def __init__(self, instance: HorizonInstance, rooms: Rooms, chosen: IntVector, packing: IntVector) -> None:
        self._instance, self._rooms = instance, rooms
        self._units_of: Mapping[int, Sequence[int]] = rooms.units.of_nodes()
        self.left: dict[int, Counter[int]] = {}
        self._room = Counter(dict(enumerate(rooms.room.tolist())))
        for c, u, num in zip(rooms.configuration.tolist(), rooms.unit.tolist(), packing.tolist(), strict=True):
            self.left.setdefault(c, Counter())[u] = num
            self._room.subtract(self._item(c, u, num))
        for i in np.flatnonzero(chosen >= 0).tolist():
            if rooms.classes.stays[chosen[i]]:
                self._room.subtract(self.own(i))

    def own(self, job: int) -> Counter[int]:
        """Nodes that a running job has, by unit."""
        held = self._instance.sia.taken.running.get(self._instance.jobs[job].id, ())
        return Counter(u for node, _ in held for u in self._units_of.get(node, ()))

    def stays(self, job: int, configuration: int) -> bool:
        """Let a job that is moved stay, in a configuration of whose class its own nodes are, if there is room."""
        own, rank = self.own(job), int(self._rooms.classes.rank[configuration])
        given_back = Counter[int]()
        if rank:
            num_nodes = int(self._instance.sia.configurations.num_nodes[configuration])
            units, left = self._rooms.units, self.left[configuration]
            same = [u for u, num in own.items() if units.rank[u] == rank and num == num_nodes]
            slots = [*(u for u in same if left[u] > 0), *(u for u in left if left[u] > 0)]
            if not same or not slots:
                return False
            given_back = self._item(configuration, slots[0], 1)
        if any(self._room[u] + given_back[u] < num for u, num in own.items()):
            return False
        if rank:
            left[slots[0]] -= 1
        self._room.update(given_back)
        self._room.subtract(own)
        return True

    def _item(self, configuration: int, unit: int, num: int) -> Counter[int]:
        """Nodes of `num` items in a unit, and in those around it."""
        units = self._rooms.units
        inside = self._units_of[int(units.nodes[unit][0])][: int(units.rank[unit])]
        return Counter(dict.fromkeys(inside, num * int(self._instance.sia.configurations.num_nodes[configuration])))
