"""On which GPUs the running jobs are: those that Slurm names; of those that it only counts, the lowest free ones."""

from collections.abc import Sequence

from models.cluster_state.base import Notes
from models.cluster_state.slurm.jobs import SlurmJob
from models.cluster_state.slurm.nodes import SlurmNodes
from models.workload import NodeGpus
from stowplan.errors import FileFormatError


class Placing:
    """Who has which GPU of the planned nodes. in_use: node -> GPUs of work that is not planned."""

    def __init__(self, nodes: SlurmNodes, notes: Notes) -> None:
        self._nodes = nodes
        self._notes = notes
        self._taken: dict[str, dict[int, str]] = {name: {} for name in nodes.planned}
        self.in_use: dict[str, list[int]] = {}

    def place(self, jobs: Sequence[SlurmJob]) -> dict[str, tuple[NodeGpus, ...]]:
        """GPUs of each job, by its id, on the nodes that are planned.

        Raises
        ------
        FileFormatError
            When a job is on a node that there is not, on a GPU that there is not, or on one of another job.
        """
        placed: dict[str, dict[str, tuple[int, ...]]] = {job.id: {} for job in jobs}
        uncounted = []
        for job in jobs:
            for name, gpus in (job.nodes or {}).items():
                if name not in self._nodes.planned:
                    self._refuse_unknown(job, name)
                elif gpus.indices is None or len(gpus.indices) != gpus.num:
                    uncounted.append((job, name, gpus.num))
                else:
                    placed[job.id][name] = self._take(job, name, sorted(gpus.indices))
        for job, name, num in uncounted:
            taken = self._taken[name]
            free = [k for k in range(self._nodes.planned[name].num_gpus) if k not in taken]
            if num > len(free):
                raise self._fault(job, f"has {num} GPUs of node {name!r}, where {len(free)} are left by other jobs")
            detail = f"nothing says which GPUs of node {name!r} job {job.id!r} has; taken are the lowest free ones"
            self._notes.add("gpu_indices_assumed", job.record.document, job.record.pointer, detail)
            placed[job.id][name] = self._take(job, name, free[:num])
        return {
            job_id: tuple(NodeGpus(node=name, gpus=gpus) for name, gpus in held.items())
            for job_id, held in placed.items()
        }

    def leave_out(self, current: Sequence[NodeGpus]) -> None:
        """Count GPUs as taken by work that is not planned."""
        for part in current:
            self.in_use.setdefault(part.node, []).extend(part.gpus)

    def _take(self, job: SlurmJob, name: str, gpus: Sequence[int]) -> tuple[int, ...]:
        taken, num_gpus = self._taken[name], self._nodes.planned[name].num_gpus
        for gpu in gpus:
            if gpu >= num_gpus:
                raise self._fault(job, f"has GPU {gpu} of node {name!r}, which has GPUs 0 to {num_gpus - 1}")
            if gpu in taken:
                why = "the documents may be of different moments"
                raise self._fault(job, f"has GPU {gpu} of node {name!r}, which job {taken[gpu]!r} has, too: {why}")
            taken[gpu] = job.id
        return tuple(gpus)

    def _refuse_unknown(self, job: SlurmJob, name: str) -> None:
        if name not in self._nodes.left_out:
            raise self._fault(job, f"runs on node {name!r}, which {self._nodes.document.name} does not have")

    def _fault(self, job: SlurmJob, detail: str) -> FileFormatError:
        return job.record.fault("nodes", f"job {job.id!r} {detail}")
