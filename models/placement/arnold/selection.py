"""What a snapshot asks Arnold to plan: the job, the minipods, the GPU type with its nodes, and the affinity.

One job is planned: the one with `parallelism` that does not run. GPU type: the reservation's, else the job's own
list in its order, else every type of the cluster in its order. The first type whose nodes suit the parallelism and
of which enough are wholly free is taken; when none has enough, the first that suits (the model is then infeasible).
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from models.placement.arnold.affinity import AffinityMatch, look_up
from models.placement.arnold.matrix import CommunicationMatrix, communication_matrix, matrix_faults
from models.placement.arnold.parameters import ArnoldParameters
from models.placement.arnold.pool import NodePool, node_pool
from models.placement.arnold.volumes import communication_volumes
from models.placement.occupancy import running_jobs
from models.workload import Job, Parallelism, Snapshot
from stowplan.arrays import IntVector
from stowplan.errors import InputError, Issue, pointer_of, raise_for_errors


@dataclass(frozen=True, slots=True, kw_only=True)
class Affinity:
    """Affinity alpha of DP groups, beta = 1 - alpha of PP groups, and where they come from."""

    alpha: float
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """The job at `position` of the snapshot, its matrix and the nodes that it may take.

    `num_spares` nodes stay free in every minipod used. `other_types` would have suited the job too.
    """

    position: int
    job: Job
    parallelism: Parallelism
    matrix: CommunicationMatrix
    pool: NodePool
    num_spares: int = 0
    other_types: tuple[str, ...] = ()

    @property
    def room(self) -> IntVector:
        """Wholly free nodes per minipod (M,) that the job may take when it uses the minipod."""
        return np.maximum(self.pool.free_nodes - self.num_spares, 0)

    @property
    def num_free(self) -> int:
        """Wholly free nodes that the job may take."""
        return int(self.room.sum())

    def match(self, parameters: ArnoldParameters) -> AffinityMatch | None:
        """Nearest characterisation record; None when the job has no `transformer` to compare."""
        transformer = self.job.transformer
        if transformer is None:
            return None
        volumes = communication_volumes(transformer, self.parallelism)
        return look_up(self.pool.gpu_type, volumes.ratios(transformer.micro_batch_or_one), parameters.records)

    def affinity(self, parameters: ArnoldParameters) -> Affinity:
        """Affinity given by the user, else that of the nearest record.

        Raises
        ------
        InputError
            When there is neither an alpha nor a `transformer`.
        """
        if parameters.alpha is not None:
            return Affinity(alpha=parameters.alpha, source="given")
        match = self.match(parameters)
        if match is None:
            raise InputError(f"job {self.job.id!r} has no transformer and the parameters no alpha")
        return Affinity(alpha=match.record.alpha, source=match.describe())


def select(snapshot: Snapshot, parameters: ArnoldParameters) -> Selection:
    """Choose job, minipods, GPU type and nodes.

    Raises
    ------
    InputError
        With issues whose pointers are relative to the snapshot, or start with `/parameters`.
    """
    position, job, parallelism = _planned_job(snapshot)
    tier = minipod_tier(snapshot, parameters)
    raise_for_errors(list(_tier_weight_faults(snapshot, parameters)), "parameters")
    suitable: list[Selection] = []
    faults: list[Issue] = []
    for gpu_type in candidate_types(snapshot, job):
        pool = node_pool(snapshot, gpu_type, tier)
        found = list(_type_faults(position, parallelism, gpu_type, pool))
        faults += found
        if pool is not None and not found:
            matrix = communication_matrix(parallelism, pool.gpus_per_node)
            suitable.append(
                Selection(
                    position=position,
                    job=job,
                    parallelism=parallelism,
                    matrix=matrix,
                    pool=pool,
                    num_spares=parameters.spare_nodes_per_minipod,
                )
            )
    if not suitable:
        raise InputError(f"no GPU type suits job {job.id!r}", faults)
    chosen = next((choice for choice in suitable if choice.num_free >= choice.matrix.num_nodes), suitable[0])
    others = tuple(choice.pool.gpu_type for choice in suitable if choice is not chosen)
    return replace(chosen, other_types=others)


def minipod_tier(snapshot: Snapshot, parameters: ArnoldParameters) -> str:
    """Tier whose units act as minipods: the parameter's, else the cluster's.

    Raises
    ------
    InputError
        When neither names a tier of the cluster.
    """
    tiers = [tier.name for tier in snapshot.cluster.tiers]
    named = parameters.minipod_tier
    if named is not None and named not in tiers:
        issue = Issue(
            code="unknown_tier",
            pointer="/parameters/minipod_tier",
            detail=f"no tier is called {named!r}; the tiers are {tiers}",
        )
        raise InputError("the minipod tier is unknown", [issue])
    tier = named or snapshot.cluster.minipod_tier
    if tier is None:
        issue = Issue(
            code="no_minipod_tier",
            pointer="/cluster/minipod_tier",
            detail=f"Arnold needs minipods: name one of the tiers {tiers} here or as parameter minipod_tier"
            if tiers
            else "Arnold needs minipods: give the cluster at least one tier and mark it as minipod_tier",
        )
        raise InputError("the cluster has no minipods", [issue])
    return tier


def _tier_weight_faults(snapshot: Snapshot, parameters: ArnoldParameters) -> Iterator[Issue]:
    tiers = [tier.name for tier in snapshot.cluster.tiers]
    for name in parameters.tier_weights or {}:
        if name not in tiers:
            yield Issue(
                code="unknown_tier",
                pointer=pointer_of("parameters", "tier_weights", name),
                detail=f"no tier is called {name!r}; the tiers are {tiers}",
            )


def _planned_job(snapshot: Snapshot) -> tuple[int, Job, Parallelism]:
    """Find the one pre-training job that waits."""
    running = running_jobs(snapshot)
    waiting = [
        (k, job, job.parallelism)
        for k, job in enumerate(snapshot.jobs)
        if job.parallelism is not None and job.id not in running
    ]
    if len(waiting) == 1:
        return waiting[0]
    if not waiting:
        issue = Issue(
            code="no_pretraining_job",
            pointer="/jobs",
            detail="Arnold plans one job that has parallelism (tp, pp, dp) and no current placement; there is none",
        )
        raise InputError("there is no pre-training job to plan", [issue])
    names = [job.id for _, job, _ in waiting]
    issues = [
        Issue(
            code="several_pretraining_jobs",
            pointer=f"/jobs/{k}/parallelism",
            detail=f"Arnold plans one job at a time, but {names} have parallelism and wait; leave one of them",
        )
        for k, _, _ in waiting
    ]
    raise InputError(f"{len(waiting)} pre-training jobs wait", issues)


def candidate_types(snapshot: Snapshot, job: Job) -> tuple[str, ...]:
    """GPU types that the job may use, in the order in which they are tried."""
    if job.reservation is not None:
        return (job.reservation.gpu_type,)
    used = {node.gpu_type for node in snapshot.cluster.nodes}
    return job.gpu_types or tuple(kind.name for kind in snapshot.cluster.gpu_types if kind.name in used)


def _type_faults(position: int, parallelism: Parallelism, gpu_type: str, pool: NodePool | None) -> Iterator[Issue]:
    """Why the nodes of the type do not suit the job, however many are free."""
    if pool is None:
        yield Issue(
            code="no_nodes_of_type",
            pointer=f"/jobs/{position}/gpu_types",
            detail=f"the cluster has no node of GPU type {gpu_type!r}; name a type that nodes have",
        )
        return
    for fault in matrix_faults(parallelism, pool.gpus_per_node):
        pointer = f"/jobs/{position}{fault.pointer}"
        yield replace(fault, pointer=pointer, detail=f"on GPU type {gpu_type!r}: {fault.detail}")
