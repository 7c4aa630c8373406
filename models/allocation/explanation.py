"""Why a job gets nothing: what the allocation policies explain in the same words."""

from collections.abc import Container, Mapping

import numpy as np

from models.configurations import ConfigurationSet
from models.placement.placeability import takes_whole_nodes
from models.plan import UnplacedJob
from models.wording import counted
from models.workload import Job
from stowplan.arrays import IntVector, Mask


class Explainer:
    """Explains one job at a time; `running`: ids of the jobs that run now, so that they are preempted."""

    def __init__(self, configurations: ConfigurationSet, running: Container[str]) -> None:
        self._configurations = configurations
        self._running = running

    def unplaced(self, job: Job, *, reason: str, detail: str, counts: Mapping[str, int], remedy: str) -> UnplacedJob:
        """An explanation of the policy's own."""
        return UnplacedJob(
            job_id=job.id,
            reason=reason,
            detail=detail,
            counts=counts,
            remedy=remedy,
            preempted=job.id in self._running,
        )

    def short(self, job: Job, reason: str, among: Mask, missing: IntVector, detail: str) -> UnplacedJob:
        """A job that lacks `missing` (C,) GPUs on each configuration `among` (C,): name the smallest lack per type,
        and the least."""
        counts, remedy = _shortage(self._configurations, among, missing)
        return self.unplaced(job, reason=reason, detail=detail, counts=counts, remedy=remedy)

    def within_gap(self, job: Job, num_fitting: int) -> UnplacedJob:
        """A job that could run in so many configurations beside the plan."""
        return self.unplaced(
            job,
            reason="within_gap",
            detail="GPUs are left for it, but the solve ended before using them",
            counts={"fitting_configurations": num_fitting},
            remedy="solve with a smaller relative_gap or a longer time limit",
        )

    def no_nodes(self, job: Job, remedy: str) -> UnplacedJob:
        """A job whose GPU types have no nodes."""
        types = list(self._configurations.gpu_types if job.gpu_types is None else job.gpu_types)
        return self.unplaced(
            job,
            reason="gpu_type",
            detail=f"all nodes of the GPU types that it allows ({types}) are missing or down",
            counts={f"nodes.{name}": 0 for name in types},
            remedy=remedy,
        )

    def of_types(self, job: Job) -> Mask:
        """Configurations (C,) of the GPU types that the job allows."""
        names = [job.gpu_types is None or name in job.gpu_types for name in self._configurations.gpu_types]
        return np.asarray(np.array(names, dtype=np.bool_)[self._configurations.type_index])


def _shortage(configurations: ConfigurationSet, among: Mask, missing: IntVector) -> tuple[dict[str, int], str]:
    """The smallest lack per GPU type, and what would help: the least of all.

    Parameters
    ----------
    among
        (C,) configurations in question, at least one.
    missing
        (C,) GPUs that each of them lacks.
    """
    counts: dict[str, int] = {"min_gpus": int(configurations.num_gpus[among].min())}
    for t, name in enumerate(configurations.gpu_types):
        of_type = among & (configurations.type_index == t)
        if of_type.any():
            counts[f"short_gpus.{name}"] = int(missing[of_type].min())
    candidates = np.flatnonzero(among)
    best = int(candidates[missing[candidates].argmin()])
    kind = configurations.gpu_types[configurations.type_index[best]]
    where = "as whole nodes" if takes_whole_nodes(configurations)[best] else "on one node"
    remedy = (
        f"{counted(int(missing[best]), 'more free GPU')} of type {kind}, {where}, would let it run as "
        f"{configurations.label(best)}"
    )
    return counts, remedy
