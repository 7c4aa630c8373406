"""Slurm's jobs as they are planned: where they run or how large they are, how urgent, and until when."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from models.cluster_state.base import Notes, StateJob, priority_ranks
from models.cluster_state.gpus import KnownGpus
from models.cluster_state.slurm.accounting import EarlierRuns
from models.cluster_state.slurm.gres import Gpus
from models.cluster_state.slurm.jobs import SlurmJob, time_limit_s
from models.cluster_state.slurm.nodes import SlurmNodes
from models.cluster_state.slurm.placing import Placing
from models.workload import Job, NodeGpus

_NAME_CHARS = 256
_NONE = EarlierRuns()


@dataclass(frozen=True, slots=True)
class _Access:
    """Nodes that partitions open to a job: GPU types (None: any node). is_exact: all nodes of these types are open."""

    gpu_types: tuple[str, ...] | None
    is_exact: bool
    num_nodes: int


class PlannedJobs:
    """Makes what is planned of Slurm's jobs, and notes what is not.

    Parameters
    ----------
    partition
        Only jobs that may use it are planned; None for all.
    earlier
        Job id -> runs that have ended, of jobs that were started again.
    ends
        `limit`: jobs are expected to last as long as their time limit. `forecast`: nobody says how long.
    """

    def __init__(
        self,
        *,
        nodes: SlurmNodes,
        gpus: KnownGpus,
        notes: Notes,
        at_s: float,
        partition: str | None,
        earlier: Mapping[str, EarlierRuns],
        ends: str,
    ) -> None:
        self._nodes = nodes
        self._gpus = gpus
        self._notes = notes
        self._at_s = at_s
        self._partition = partition
        self._earlier = earlier
        self._ends = ends
        self._ranks: dict[float, int] = {}
        self._access: dict[tuple[str, ...], _Access] = {}
        self._largest = max((node.num_gpus for node in nodes.planned.values()), default=0)

    def jobs(self, jobs: Sequence[SlurmJob]) -> tuple[tuple[StateJob, ...], dict[str, list[int]]]:
        """The jobs that are planned or held, in the order of the queue; and node -> GPUs of work that is neither.

        Raises
        ------
        FileFormatError
            When a running job is where it cannot be.
        """
        self._ranks = priority_ranks(job.record.number("priority") or 0.0 for job in jobs)
        placing = Placing(self._nodes, self._notes)
        current = placing.place([job for job in jobs if job.nodes is not None])
        made = []
        for job in _together(jobs, self._notes):
            if job.nodes is None:
                made.append(self._waiting(job))
            elif self._is_planned(job, current[job.id]):
                made.append(self._state_job(job, current[job.id], None))
            else:
                placing.leave_out(current[job.id])
        return tuple(job for job in made if job is not None), placing.in_use

    def _is_planned(self, job: SlurmJob, current: Sequence[NodeGpus]) -> bool:
        """Whether a running job is one of the snapshot; otherwise its GPUs are taken by other work."""
        types = {self._nodes.planned[part.node].gpu_type for part in current}
        if not self._is_asked_for(job):
            return False
        if not current:
            self._note(job, "runs_elsewhere", "runs on nodes that are left out")
        elif len(current) < len(job.nodes or ()):
            self._note(job, "runs_partly_elsewhere", "runs on nodes that are left out, too; its GPUs count as taken")
        elif len(types) > 1:
            self._note(job, "mixed_gpu_types", f"runs on GPUs of types {sorted(types)}; its GPUs count as taken")
        else:
            return True
        return False

    def _is_asked_for(self, job: SlurmJob) -> bool:
        if self._partition is None or self._partition in job.partitions:
            return True
        self._note(job, "other_partition_job", f"is not of partition {self._partition!r}; it is left out")
        return False

    def _waiting(self, job: SlurmJob) -> StateJob | None:
        """A job that waits; None where no planned node is for it."""
        if not self._is_asked_for(job):
            return None
        access = self._accessible(job.partitions)
        kind = job.asked.type
        if kind is not None and kind not in self._gpus.used:
            self._note(job, "gpu_type_absent", f"asks for {kind!r}, and no node that is planned has it; it is left out")
            return None
        if not access.num_nodes or (kind and access.gpu_types is not None and kind not in access.gpu_types):
            where = ",".join(job.partitions) or "of no name"
            self._note(job, "partition_without_gpus", f"has no node for it in partition {where}; it is left out")
            return None
        if not access.is_exact:
            of = f"{access.num_nodes} of {len(self._nodes.planned)} nodes (partition {','.join(job.partitions)})"
            self._note(
                job, "partition_not_planned", f"may use {of}, which plans do not know; import that partition alone"
            )
        if job.constraints:
            self._note(
                job, "constraints_not_planned", f"asks for {'; '.join(job.constraints)}, which plans do not know"
            )
        elif job.gpus_per_node and (job.num_nodes or 1) > 1 and job.gpus_per_node < self._largest:
            shape = f"{job.num_nodes} nodes with {job.gpus_per_node} GPUs each"
            self._note(job, "shape_not_planned", f"asks for {shape}; it is planned as {job.asked.num} GPUs")
        return self._state_job(job, (), (kind,) if kind else access.gpu_types)

    def _accessible(self, partitions: tuple[str, ...]) -> _Access:
        if partitions not in self._access:
            asked = (self._partition,) if self._partition else partitions
            nodes = self._nodes.planned.values()
            ours = [node for node in nodes if not asked or not node.partitions.isdisjoint(asked)]
            types = {node.gpu_type: None for node in ours}
            is_all = len(ours) == len(self._nodes.planned)
            num_of_types = sum(node.gpu_type in types for node in nodes)
            self._access[partitions] = _Access(
                gpu_types=None if is_all else tuple(types), is_exact=num_of_types == len(ours), num_nodes=len(ours)
            )
        return self._access[partitions]

    def _state_job(self, job: SlurmJob, current: tuple[NodeGpus, ...], gpu_types: tuple[str, ...] | None) -> StateJob:
        record = job.record
        limit_s = time_limit_s(record)
        submit_s, start_s, end_s = (record.time_s(key) for key in ("submit_time", "start_time", "end_time"))
        priority = record.number("priority") or 0.0
        num_gpus = sum(len(part.gpus) for part in current) if current else job.asked.num
        running_s = max(0.0, self._at_s - start_s) if current and start_s is not None else None
        remaining_s = limit_s
        if current:
            # Slurm writes an end for jobs without a limit, too: a year ahead.
            remaining_s = max(0.0, end_s - self._at_s) if end_s is not None and limit_s is not None else None
        earlier = self._earlier.get(job.id, _NONE)
        deadline_s = record.time_s("deadline")
        left_s = None if deadline_s is None else deadline_s - self._at_s
        planned = Job(
            id=job.id,
            min_gpus=num_gpus,
            gpu_types=gpu_types,
            current=current or None,
            preemptible=record.value.get("requeue") is True,
            priority=self._ranks[priority],
            age_s=0.0 if submit_s is None else max(0.0, self._at_s - submit_s),
            num_restarts=max(record.count("restart_cnt"), earlier.num),
            deadline_s=left_s if left_s is not None and left_s > 0 else None,
            remaining_s=remaining_s if self._ends == "limit" else None,
            queue=_name(job.partitions[0] if job.partitions else ""),
            attained_gpu_s=earlier.gpu_s + num_gpus * (running_s or 0.0),
            calendar_entry=_name(record.text("resv_name").partition(",")[0]),
            user=_name(record.text("user_name")),
            application=_name(record.text("name")),
            time_limit_s=limit_s or None,
            running_s=running_s,
        )
        return StateJob(
            job=planned,
            num_nodes=job.num_nodes,
            gpus_per_node=job.gpus_per_node,
            account=_name(record.text("account")),
            qos=_name(record.text("qos")),
            dependency=record.text("dependency") or None,
            priority_value=priority,
            held=job.held,
            on_hold=job.on_hold,
        )

    def _note(self, job: SlurmJob, code: str, detail: str) -> None:
        self._notes.add(code, job.record.document, job.record.pointer, f"job {job.id!r} {detail}")


def _together(jobs: Sequence[SlurmJob], notes: Notes) -> list[SlurmJob]:
    """The jobs, with one in place of the waiting components of a heterogeneous job, which start together."""
    components: dict[str, list[SlurmJob]] = {}
    for job in jobs:
        if job.het_id is not None and job.nodes is None:
            components.setdefault(job.het_id, []).append(job)
    merged = []
    for job in jobs:
        if job.het_id is None or job.nodes is not None:
            merged.append(job)
        elif components[job.het_id][0] is job:
            merged += _merged(job.het_id, components[job.het_id], notes)
    return merged


def _merged(het_id: str, parts: Sequence[SlurmJob], notes: Notes) -> list[SlurmJob]:
    first = parts[0]
    kinds = {part.asked.type for part in parts}
    if len(kinds) > 1 or len({part.partitions for part in parts}) > 1:
        detail = f"job {het_id!r} has components on different GPUs or partitions, which start together; it is left out"
        notes.add("mixed_components", first.record.document, first.record.pointer, detail)
        return []
    asked = Gpus(first.asked.type, sum(part.asked.num for part in parts))
    held = next((part.held for part in parts if part.held), None)
    num_nodes = sum(part.num_nodes or 1 for part in parts)
    return [replace(first, id=het_id, asked=asked, held=held, num_nodes=num_nodes, gpus_per_node=None)]


def _name(text: str) -> str | None:
    """A name as documents may have it; None for none."""
    return text[:_NAME_CHARS] or None
