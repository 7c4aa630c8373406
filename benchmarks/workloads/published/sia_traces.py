"""Reader of the measurements published with Sia: profiles, gradient statistics, workloads, and snapshots from them."""

import csv
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import chain
from pathlib import Path

import numpy as np

from benchmarks.paths import PUBLISHED
from benchmarks.workloads.published.sia_instances import simulated_cluster
from models.configurations import ConfigurationSet
from models.performance.goodput.fit import fit_models
from models.performance.goodput.matrix import evaluate
from models.performance.goodput.spec import BatchRange, GoodputObservations, GradientStatistics, Observation
from models.workload import Job, Snapshot
from topology.cluster import Cluster
from workloads.readers import read_trace
from workloads.trace import TraceJob

DATA = PUBLISHED / "sia"


@dataclass(frozen=True, slots=True, kw_only=True)
class Application:
    """A training job of the traces: its batch range, and how long a checkpoint and restore takes.

    The GPT of section 5.3 starts with the 48 samples of one replica.
    """

    batch: BatchRange
    restart_cost_s: float


APPLICATIONS = {
    "cifar10": Application(batch=BatchRange(initial=128, maximum=4096), restart_cost_s=50.0),
    "bert": Application(batch=BatchRange(initial=12, maximum=384), restart_cost_s=120.0),
    "deepspeech2": Application(batch=BatchRange(initial=20, maximum=640), restart_cost_s=25.0),
    "yolov3": Application(batch=BatchRange(initial=8, maximum=512), restart_cost_s=80.0),
    "imagenet": Application(batch=BatchRange(initial=200, maximum=12800), restart_cost_s=250.0),
    "ncf": Application(batch=BatchRange(initial=256, maximum=32768), restart_cost_s=15.0),
    "gpt_pmp": Application(batch=BatchRange(initial=48, maximum=384), restart_cost_s=30.0),
}

# Helios trace 1, scaled; a moment with many jobs; the most GPUs of a job in the released policy.
_SCALED = {64: "helios/workload-1", 512: "scale/helios-1-8x", 2048: "scale/helios-1-32x"}
_BUSY_S = 10_801.0
_MAX_GPUS = 64

GPT_GPUS_PER_REPLICA = {"rtx": 8, "dgx-ext": 2}


def sia_cluster(scale: int = 1) -> Cluster:
    """The heterogeneous cluster of the paper, 64 GPUs times `scale`: T4 x4, RTX 2080 Ti x8, A100 x8 (no tiers)."""
    return simulated_cluster({"aws": 24 * scale, "rtx": 24 * scale, "dgx-ext": 16 * scale})


def read_workload(name: str) -> tuple[TraceJob, ...]:
    """Submissions of one trace in order of time; `name` as in `helios/workload-1` or `scale/helios-1-32x`."""
    return read_trace(DATA / "workloads" / f"{name}.csv", format_="sia").jobs


@cache
def profiles(application: str, gpu_type: str, *, balanced_only: bool = False) -> tuple[Observation, ...]:
    """Measured steps of one application on one GPU type.

    The digits of a placement are the GPUs on each node; `balanced_only` keeps placements with equal digits, as Sia's
    configurations have. The pipeline-parallel GPT is listed by GPUs, and its step time excludes synchronisation: it
    is converted to replicas and to whole steps.
    """
    hybrid = application == "gpt_pmp"
    gpus_per_replica = GPT_GPUS_PER_REPLICA[gpu_type] if hybrid else 1
    return tuple(
        Observation(
            gpu_type=gpu_type,
            num_nodes=len(row["placement"]),
            num_replicas=sum(map(int, row["placement"])) // gpus_per_replica,
            local_batch=round(float(row["local_bsz"])),
            step_time_s=float(row["step_time"]) + (float(row["sync_time"]) if hybrid else 0.0),
            sync_time_s=float(row["sync_time"]),
        )
        for row in _rows(DATA / "profiles" / application / f"placements-{gpu_type}.csv")
        if not balanced_only or len(set(row["placement"])) == 1
    )


def gradient_statistics(application: str, progress: float) -> GradientStatistics:
    """Gradient noise at the initial batch, when the share `progress` in [0, 1] of the training is done."""
    epochs = _epochs(application)
    done = progress * epochs[-1][0]
    _, squared_norm, variance = next((epoch for epoch in epochs if epoch[0] >= done), epochs[-1])
    return GradientStatistics(squared_norm=squared_norm, variance=variance)


def total_samples(application: str) -> float:
    """Samples at efficiency 1 until the last epoch ends."""
    return _epochs(application)[-1][0] * APPLICATIONS[application].batch.initial


def observations(
    application: str, gpu_types: Sequence[str], progress: float, synchronised: Collection[str] | None = None
) -> GoodputObservations:
    """Everything measured of an application on these GPU types, on balanced placements.

    On types that are not `synchronised` (None: all are) only one replica has been seen, as after Sia's first
    profiling. Types without a profile are left out. The largest local batch is the largest profiled, for the GPT one
    sample (section 5.3).
    """
    known = [name for name in gpu_types if (DATA / "profiles" / application / f"placements-{name}.csv").is_file()]
    seen = tuple(
        observation
        for observation in chain.from_iterable(profiles(application, name, balanced_only=True) for name in known)
        if synchronised is None or observation.gpu_type in synchronised or observation.num_replicas == 1
    )
    hybrid = application == "gpt_pmp"
    return GoodputObservations(
        batch=APPLICATIONS[application].batch,
        gradient=gradient_statistics(application, progress),
        observations=seen,
        max_local_batch={
            name: 1 if hybrid else max(o.local_batch for o in profiles(application, name)) for name in known
        },
        gpus_per_replica={name: GPT_GPUS_PER_REPLICA[name] for name in known} if hybrid else {},
    )


def fitted_snapshot(num_gpus: int, max_jobs: int | None = None) -> Snapshot:
    """The busy moment of Helios trace 1 on 64, 512 or 2,048 GPUs, with the models fitted to the measurements.

    Every job is submitted `num_gpus` / 64 times, as the authors scale the trace; no job gets more than 64 GPUs, as in
    their policy. `max_jobs` keeps the first ones.
    """
    snapshot = busy_snapshot(read_workload(_SCALED[num_gpus]), _BUSY_S, sia_cluster(num_gpus // 64))
    jobs = snapshot.jobs[:max_jobs]
    observed = [job.performance for job in jobs if isinstance(job.performance, GoodputObservations)]
    fitted = tuple(
        replace(job, performance=model, max_gpus=_MAX_GPUS)
        for job, model in zip(jobs, fit_models(observed), strict=True)
    )
    return replace(snapshot, jobs=fitted)


def busy_snapshot(
    workload: Sequence[TraceJob],
    time_s: float,
    cluster: Cluster,
    synchronised: Collection[str] | None = None,
) -> Snapshot:
    """Jobs of a workload that are active at `time_s`, all waiting, with their measurements as performance.

    A job is active from its submission for as long as it would take alone on two RTX GPUs. On Helios trace 1 this
    gives nearly the jobs that the published simulator has at the same time.
    """
    gpu_types = [kind.name for kind in cluster.gpu_types]
    jobs = []
    for submission in workload:
        application = submission.application or ""
        age_s = time_s - submission.submit_s
        progress = age_s / _alone_s(application)
        if 0 <= progress < 1:
            jobs.append(
                Job(
                    id=submission.id,
                    age_s=age_s,
                    restart_cost_s=APPLICATIONS[application].restart_cost_s,
                    performance=observations(application, gpu_types, progress, synchronised),
                )
            )
    return Snapshot(cluster=cluster, jobs=tuple(jobs))


@cache
def _alone_s(application: str) -> float:
    """Time of a whole training on two RTX GPUs, with the gradient noise of its middle."""
    two_gpus = ConfigurationSet(
        gpu_types=("rtx",),
        type_index=np.array([0]),
        num_nodes=np.array([1]),
        num_gpus=np.array([2]),
        bandwidth_fraction=np.ones(1),
    )
    job = Job(id=application, performance=observations(application, ("rtx",), progress=0.5))
    return total_samples(application) / float(evaluate([job], two_gpus).goodput[0, 0])


@cache
def _epochs(application: str) -> tuple[tuple[float, float, float], ...]:
    """Per epoch: progress in steps of the initial batch, squared norm and variance of the gradient."""
    batch = APPLICATIONS[application].batch.initial
    return tuple(
        (float(row["progress"]), float(row["grad_sqr"]), float(row["grad_var"]))
        for row in _rows(DATA / "profiles" / application / f"validation-{batch}.csv")
    )


def _rows(path: Path) -> list[dict[str, str]]:
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))
