"""Samples/s of every job on every buddy block, and where a planner of 3D plans found them, the plan behind each.

A throughput table says what was measured, and rules. A job without one that says what it trains gets the throughput of
the best plan for each block.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from models.allocation.adaptive import adaptive_rows
from models.configurations import ConfigurationSet
from models.parallelism.results import PlanEstimate, Rejection
from models.performance.goodput.matrix import evaluate
from models.performance.goodput.spec import ThroughputTable
from models.workload import Snapshot
from stowplan.arrays import FloatArray, IntVector
from stowplan.errors import Issue


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Throughputs:
    """samples_per_s: float64 (J, C), 0 where the job cannot run. plans: (job, configuration) -> plan, where known.

    unfit: job without any plan -> the candidate that comes closest. warnings: of running plans, see `AdaptiveRows`.
    """

    samples_per_s: FloatArray
    plans: Mapping[tuple[int, int], PlanEstimate]
    unfit: Mapping[int, Rejection]
    warnings: tuple[Issue, ...] = ()


def throughputs(snapshot: Snapshot, configurations: ConfigurationSet, current: IntVector) -> Throughputs:
    """Look up tables, and plan models, for all jobs; `current` (J,): where running jobs may stay, -1 for none."""
    jobs = snapshot.jobs
    tables = [job if isinstance(job.performance, ThroughputTable) else replace(job, performance=None) for job in jobs]
    planned = adaptive_rows(snapshot, configurations, current, as_given=False)
    has_table = np.array([job.performance is not None for job in jobs], dtype=np.bool_)
    samples_per_s = np.where(has_table[:, None], evaluate(tables, configurations).goodput, planned.samples_per_s)
    unfit = {i: closest for i, closest in planned.unfit.items() if not has_table[i]}
    warnings = tuple(issue for i, issue in planned.warnings.items() if not has_table[i])
    return Throughputs(samples_per_s=samples_per_s, plans=planned.plans, unfit=unfit, warnings=warnings)
