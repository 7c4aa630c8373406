"""Suika's workload (section 5.1; section 5.5 for 1,024 GPUs): a busy time of a trace, with LLM trainings for its jobs.

Window     the busiest `window_s` of the trace (the paper: 8 h of Microsoft Philly, 24 h on 1,024 GPUs)
Sample     num_gpus / trace_gpus of its jobs with GPUs and a duration, each as likely as any other
Models     every job becomes a training of Table 1 on its default GPUs: a size by `shares` (S : M : L = 3 : 1 : 1),
           within a size every model as likely
Times      submissions stay. "scale training iterations by a global factor so that total GPU-time consumption is
           identical with that of the traced one": durations stay and are multiplied by one factor (`Scaling.GLOBAL`),
           or every job gets the GPU time of its traced one (`Scaling.PER_JOB`); in total both give the traced GPU time
Load       that is GPU time of `load` x num_gpus x window_s in place of the traced one, where a load is stated: what the
           82,247 jobs of Philly that are published as a table give is a load of 0.1 to 1.8 on 64 GPUs (median 0.3 of
           8 seeds) and 0.1 on 1,024, too little for jobs to wait
Iterations duration over the time of an iteration on the default plan, which whoever has a performance model gives

The paper says of XL only that it is included on 1,024 GPUs: its share is taken as in `benchmarks`, 12 : 4 : 4 : 1. The
cluster is not made here: 8 H100 a node, on 1,024 GPUs racks of 16 nodes with half the bandwidth between them.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum

import numpy as np

from stowplan.errors import InputError
from workloads.generators.sampling import Busiest, busiest_window, down_sampled
from workloads.generators.table_1 import GLOBAL_BATCH, TABLE_1, basic_demand
from workloads.trace import Trace, TraceJob

# Of the cluster in which Philly was taken, as far as we know: the number is in no source that we could look at.
PHILLY_GPUS = 2490
_S_PER_HOUR = 3600.0


class Scaling(StrEnum):
    """How the GPU time of the traced jobs is kept: by one factor for all durations, or job by job."""

    GLOBAL = "global"
    PER_JOB = "per_job"


@dataclass(frozen=True, slots=True, kw_only=True)
class SuikaSetting:
    """A cluster and a time. `trace_gpus`: GPUs of the cluster in which the trace was taken. `shares`: by size.

    `load`: GPU time of all jobs over that of the cluster in the window; None for that of the trace.
    """

    num_gpus: int
    window_s: float
    shares: Mapping[str, int] = field(default_factory=lambda: {"S": 3, "M": 1, "L": 1})
    trace_gpus: int = PHILLY_GPUS
    busiest: Busiest = Busiest.SUBMISSIONS
    scaling: Scaling = Scaling.GLOBAL
    load: float | None = None

    def __post_init__(self) -> None:
        if self.load is not None and not 0 < self.load < math.inf:
            raise InputError(f"load is {self.load}; must be a number above 0, or None")
        if not 0 < self.num_gpus <= self.trace_gpus:
            raise InputError(f"num_gpus is {self.num_gpus}; must be from 1 to the {self.trace_gpus} of the trace")
        if (
            not set(self.shares) <= set(TABLE_1)
            or min(self.shares.values(), default=0) < 0
            or not any(self.shares.values())
        ):
            raise InputError(
                f"shares are {dict(self.shares)}; must be numbers from 0 on, one above, of {list(TABLE_1)}"
            )


SUIKA_64 = SuikaSetting(num_gpus=64, window_s=8 * _S_PER_HOUR)
SUIKA_1024 = SuikaSetting(num_gpus=1024, window_s=24 * _S_PER_HOUR, shares={"S": 12, "M": 4, "L": 4, "XL": 1})


def suika_workload(
    trace: Trace, setting: SuikaSetting, seed: int, *, iteration_s: Mapping[str, float] | None = None
) -> Trace:
    """Make a workload; jobs are called as the traced ones.

    Parameters
    ----------
    trace
        With durations, such as Philly.
    setting
        Cluster and time.
    seed
        Decides which jobs are sampled, and what they train.
    iteration_s
        Time of an iteration of each model on its default plan; None leaves the iterations open.

    Raises
    ------
    InputError
        When no job of the trace has GPUs and a duration, or a model has no time of an iteration.
    """
    rng = np.random.default_rng(seed)
    usable = trace.where(lambda job: job.num_gpus > 0 and bool(job.duration_s))
    busy = busiest_window(usable, setting.window_s, setting.busiest)
    sample = down_sampled(busy, setting.num_gpus / setting.trace_gpus, rng)
    sizes = [size for size, share in setting.shares.items() if share > 0]
    weights = np.array([setting.shares[size] for size in sizes], dtype=np.float64)
    drawn = rng.choice(len(sizes), size=len(sample.jobs), p=weights / weights.sum())
    jobs = [_training(job, sizes[k], rng) for job, k in zip(sample.jobs, drawn.tolist(), strict=True)]
    if setting.scaling is Scaling.GLOBAL:
        jobs = _scaled(jobs, _gpu_s(sample.jobs))
    else:
        jobs = [
            replace(job, duration_s=(traced.gpu_s or 0.0) / job.num_gpus)
            for job, traced in zip(jobs, sample.jobs, strict=True)
        ]
    if setting.load is not None:
        jobs = _scaled(jobs, setting.load * setting.num_gpus * setting.window_s)
    if iteration_s is not None:
        jobs = [_with_iterations(job, iteration_s) for job in jobs]
    return replace(sample, name=f"suika-{setting.num_gpus}-{seed}", jobs=tuple(jobs))


def _training(traced: TraceJob, size: str, rng: np.random.Generator) -> TraceJob:
    """A training of this size, submitted as the traced job was, and as long."""
    models = list(TABLE_1[size])
    model = models[int(rng.integers(len(models)))]
    return TraceJob(
        id=traced.id,
        submit_s=traced.submit_s,
        num_gpus=basic_demand(TABLE_1[size][model]),
        duration_s=traced.duration_s,
        application=model,
        global_batch=GLOBAL_BATCH[size],
    )


def _scaled(jobs: list[TraceJob], gpu_s: float) -> list[TraceJob]:
    """The jobs with their durations multiplied by one factor, so that together they take this GPU time."""
    factor = gpu_s / _gpu_s(jobs)
    return [replace(job, duration_s=factor * (job.duration_s or 0.0)) for job in jobs]


def _gpu_s(jobs: tuple[TraceJob, ...] | list[TraceJob]) -> float:
    return sum(job.gpu_s or 0.0 for job in jobs)


def _with_iterations(job: TraceJob, iteration_s: Mapping[str, float]) -> TraceJob:
    model = job.application or ""
    if model not in iteration_s:
        raise InputError(f"there is no time of an iteration of {model}; it is needed of every model that is drawn")
    return replace(job, iterations=(job.duration_s or 0.0) / iteration_s[model])
