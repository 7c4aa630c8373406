"""Which running jobs make way for one that comes before them: the last first, and no more than it takes.

For whole nodes, node by node: those first that hold nothing but jobs that come late, among them those with the fewest
busy GPUs. For GPUs of one node, job by job: the latest, then the youngest. Of those that are found so, whoever turns
out not to be needed stays. Only preemptible jobs make way that come strictly later by `queue_order.lateness`.
"""

from collections.abc import Mapping, Sequence
from itertools import takewhile

from models.allocation.gang.groups import GroupedPacking, Groups, Items
from models.allocation.gang.parameters import GangParameters
from models.allocation.gang.queue_order import lateness
from models.allocation.gang.shapes import Shape
from models.placement.occupancy import Slices
from models.workload import Job, Snapshot

_Candidates = Sequence[tuple[float, str]]


class Preemption:
    """The running jobs that may make way; `free`: masks of all nodes, to which the GPUs of those who do are added."""

    def __init__(
        self,
        snapshot: Snapshot,
        parameters: GangParameters,
        running: Mapping[str, Slices],
        free: list[int],
        usable: list[int],
        groups: Groups,
    ) -> None:
        self._lateness = {job.id: lateness(job, parameters) for job in snapshot.jobs}
        self._free = free
        self._usable = usable
        self._groups = groups
        self._nodes = snapshot.cluster.nodes
        self._jobs = {job.id: job for job in snapshot.jobs if job.id in running}
        self._running = running
        self._index = {kind.name: k for k, kind in enumerate(snapshot.cluster.gpu_types)}
        self._candidates: dict[tuple[int, bool], _Candidates] = {}
        self.preempted: set[str] = set()

    def make_room(
        self, job: Job, shape: Shape, packing: GroupedPacking
    ) -> tuple[GroupedPacking, Mapping[int, Items], list[str]] | None:
        """Let others make way, and put the job into the packing of its type: the packing, its items by group, and who
        made way; None where that is not enough."""
        groups = self._groups.open_to(job, shape.gpu_type)
        trial, chosen, own = packing.copy(), list[str](), self._lateness[job.id]
        for _, victim in takewhile(lambda other: other[0] > own, self._candidates_for(shape)):
            if victim in self.preempted or not self._is_on(victim, groups):
                continue
            if not trial.change(self._changes(victim, gives=True)):
                continue
            self._move(victim, gives=True)
            chosen.append(victim)
            if trial.fits(shape, groups):
                self._spare(chosen, trial, shape, groups)
                self.preempted.update(chosen)
                items = trial.put(shape, groups)
                return None if items is None else (trial, items, chosen)
        for victim in chosen:
            self._move(victim, gives=False)
        return None

    def take_back(self, victim: str) -> bool:
        """Let a preempted job stay where all its GPUs are free; whether they are."""
        slices = self._running[victim]
        if any(mask & self._usable[node] & ~self._free[node] for node, mask in slices):
            return False
        self._move(victim, gives=False)
        self.preempted.discard(victim)
        return True

    def _is_on(self, victim: str, groups: Sequence[int]) -> bool:
        """Whether a job runs on nodes of these groups."""
        return any(self._groups.of_node[node] in groups for node, _ in self._running[victim])

    def _spare(self, chosen: list[str], trial: GroupedPacking, shape: Shape, groups: Sequence[int]) -> None:
        """Let those stay without whom the job fits, too."""
        for victim in chosen[-2::-1]:
            without = trial.copy()
            if without.change(self._changes(victim, gives=False)) and without.fits(shape, groups):
                trial.change(self._changes(victim, gives=False))
                self._move(victim, gives=False)
                chosen.remove(victim)

    def _changes(self, victim: str, *, gives: bool) -> list[tuple[int, int, int]]:
        """Groups, and free GPUs before and after, of the nodes of a job that makes way, or stays after all."""
        changes = []
        for node, mask in self._running[victim]:
            own = mask & self._usable[node]
            after = self._free[node] | own if gives else self._free[node] & ~own
            if own:
                changes.append((self._groups.of_node[node], self._free[node].bit_count(), after.bit_count()))
        return changes

    def _move(self, victim: str, *, gives: bool) -> None:
        for node, mask in self._running[victim]:
            own = mask & self._usable[node]
            self._free[node] = self._free[node] | own if gives else self._free[node] & ~own

    def _candidates_for(self, shape: Shape) -> _Candidates:
        """Jobs of the type with the lateness down to which they are candidates, in the order in which they make way."""
        key = shape.gpu_type, shape.num_whole > 0
        if key not in self._candidates:
            self._candidates[key] = (
                self._by_node(shape.gpu_type, shape.node_size) if shape.num_whole else self._by_job(shape.gpu_type)
            )
        return self._candidates[key]

    def _by_job(self, gpu_type: int) -> _Candidates:
        jobs = [job for job in self._jobs.values() if job.preemptible and self._type(job) == gpu_type]
        jobs.sort(key=self._latest_first)
        return [(self._lateness[job.id], job.id) for job in jobs]

    def _by_node(self, gpu_type: int, node_size: int) -> _Candidates:
        """Jobs node by node, of nodes that are whole without them; the lateness is the least there."""
        on_node: dict[int, list[Job]] = {}
        for job in self._jobs.values():
            for node, _ in self._running[job.id] if self._type(job) == gpu_type else ():
                on_node.setdefault(node, []).append(job)
        for jobs in on_node.values():
            jobs.sort(key=self._latest_first)
        clearable = [
            (min(self._lateness[job.id] for job in jobs), -self._free[node].bit_count(), node)
            for node, jobs in on_node.items()
            if all(job.preemptible for job in jobs) and self._usable[node].bit_count() == node_size
        ]
        clearable.sort(key=lambda found: (-found[0], *found[1:]))
        found: dict[str, float] = {}
        for latest, _, node in clearable:
            for job in on_node[node]:
                found.setdefault(job.id, latest)
        return [(latest, job_id) for job_id, latest in found.items()]

    def _latest_first(self, job: Job) -> tuple[float, float]:
        return -self._lateness[job.id], job.age_s

    def _type(self, job: Job) -> int:
        return self._index[self._nodes[self._running[job.id][0][0]].gpu_type]
