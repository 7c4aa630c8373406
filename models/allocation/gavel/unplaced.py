"""Why a job gets nothing in a round, with the numbers behind it and what would make it run.

Reasons, in the order in which they are tried:
  gpu_type          none of the GPU types that the job allows has nodes
  no_configuration  it has more GPUs than all nodes of any type that it allows
  no_performance    its table has no throughput for its size on any type that it allows
  capacity          even alone it does not fit the GPUs that are free for the plan
  outcompeted       it would fit alone; others are due first in this round
  within_gap        GPUs are left for it; the solve ended, within its gap or at a limit, before using them
"""

from collections import Counter

import numpy as np

from models.allocation.explanation import Explainer
from models.allocation.gavel.instance import GavelInstance
from models.allocation.gavel.shares import Shares
from models.plan import UnplacedJob
from models.wording import counted
from stowplan.arrays import IntVector, Mask
from topology.cluster import NodeState


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
        nodes = Counter(
            (node.gpu_type, node.num_gpus)
            for node in instance.snapshot.cluster.nodes
            if node.state is not NodeState.DOWN
        )
        # By size: the last of a type are its largest nodes.
        self._largest = {name: num_gpus * count for (name, num_gpus), count in sorted(nodes.items())}

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
        if not self.of_types(job).any():
            return self.no_nodes(job, "allow a GPU type that has nodes, or bring nodes back up")
        types = self._instance.configurations.gpu_types if job.gpu_types is None else job.gpu_types
        largest = max(self._largest.get(name, 0) for name in types)
        return self.unplaced(
            job,
            reason="no_configuration",
            detail=f"whole nodes of a type that it allows have {counted(largest, 'GPU')} at most",
            counts={"min_gpus": job.min_gpus, "max_configuration_gpus": largest},
            remedy=f"give it at most {counted(largest, 'GPU')}, or allow a type with more",
        )
