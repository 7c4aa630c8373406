"""Why a job gets nothing in a round, with the numbers behind it and what would make it run.

Reasons, in the order in which they are tried:
  gpu_type          none of the GPU types that the job allows has nodes
  no_configuration  its size is neither a power of two below the GPUs of a node nor a number of whole nodes
  no_performance    its table has no throughput for its size on any type that it allows
  capacity          even alone it does not fit the GPUs that are free for the plan
  outcompeted       it would fit alone; others are due first in this round
  within_gap        GPUs are left for it; the solve ended, within its gap or at a limit, before using them
"""

import numpy as np

from models.allocation.explanation import Explainer
from models.allocation.gavel.instance import GavelInstance
from models.allocation.gavel.shares import Shares
from models.plan import UnplacedJob
from models.wording import counted
from stowplan.arrays import IntVector, Mask


def unplaced_jobs(
    instance: GavelInstance, known: Shares, waiting: IntVector, counts: IntVector
) -> tuple[UnplacedJob, ...]:
    """Explain the jobs `waiting` (indices) beside a round that takes each configuration `counts` (C,) times."""
    explainer = _Explainer(instance, known, counts)
    return tuple(explainer.explain(i) for i in waiting.tolist())


class _Explainer(Explainer):
    def __init__(self, instance: GavelInstance, known: Shares, counts: IntVector) -> None:
        super().__init__(instance.configurations, instance.taken.running)
        self._instance = instance
        self._shares = known
        self._missing_alone = instance.rows.missing_gpus(np.zeros_like(counts))
        self._missing = instance.rows.missing_gpus(counts)

    def explain(self, i: int) -> UnplacedJob:
        it = self._instance
        job, row = it.jobs[i], it.configuration[i]
        if not (row >= 0).any():
            return self._no_configuration(i)
        runnable = self._among(row[it.speed[i] > 0])
        if not runnable.any():
            return self.unplaced(
                job,
                reason="no_performance",
                detail=f"its table has no throughput on {counted(job.min_gpus, 'GPU')} of a type that it allows",
                counts={"min_gpus": job.min_gpus},
                remedy="give its throughput on so many GPUs, or no performance where it is not known",
            )
        if not it.offered[i].any():
            detail = "does not fit what is free for this plan, even alone"
            return self.short(job, "capacity", runnable, self._missing_alone, detail)
        offered = self._among(row[it.offered[i]])
        if self._missing[offered].min() > 0:
            return self.short(job, "outcompeted", offered, self._missing, self._turn(i))
        return self.within_gap(job, int((offered & (self._missing == 0)).sum()))

    def _turn(self, i: int) -> str:
        it = self._instance
        received = it.jobs[i].attained_s or {}
        parts = [
            f"{self._shares.of_time[i, t]:.1%} of its time on {name}, where it had {received.get(name, 0.0):.0f} s"
            for t, name in enumerate(it.configurations.gpu_types)
            if it.offered[i, t]
        ]
        return f"others are due first in this round; it is due {', '.join(parts)}, of {it.jobs[i].age_s:.0f} s"

    def _among(self, chosen: IntVector) -> Mask:
        """Mask (C,) of configurations."""
        among = np.zeros(len(self._instance.configurations), dtype=np.bool_)
        among[chosen] = True
        return among

    def _no_configuration(self, i: int) -> UnplacedJob:
        job = self._instance.jobs[i]
        typed = self.of_types(job)
        if not typed.any():
            return self.no_nodes(job, "allow a GPU type that has nodes, or bring nodes back up")
        sizes = np.unique(
            self._instance.configurations.num_gpus[typed & (self._instance.configurations.num_nodes == 1)]
        )
        return self.unplaced(
            job,
            reason="no_configuration",
            detail=f"{counted(job.min_gpus, 'GPU')} are neither one of {sizes.tolist()} within a node nor a number of "
            "whole nodes",
            counts={"min_gpus": job.min_gpus, "max_gpus_of_a_node": int(sizes[-1])},
            remedy="give it a power of two of GPUs within a node, or whole nodes",
        )
