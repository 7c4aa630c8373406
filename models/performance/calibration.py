r"""Coefficients of a job from the steps of its running plans, and how well they predict (Suika A.4.2).

One launch. Every rank gives one `Measurement`, medians over the settled steps, which `inversion` turns into
coefficients. Times are wall-clock, so a rank that waits for others sees the wait in the gradient reduction (slower
replicas) or in the optimiser (the norm for clipping goes over all ranks, and the first stage ends last). Waiting only
adds, hence

    reduction   of a stage: per step the least of its ranks, who all leave it at the same time
    optimiser   k_optim of a GPU type: the least over its ranks of time over what they update

Tensor-parallel all-reduces are not measured apart from the passes that they are in: the formula's time stands for
them, at most `MOST_COMMUNICATION` of the pass, since stated bandwidths may be wrong.

Several launches. Each coefficient is the median over the launches that show it best:

    k_comp, k_backward   those without tensor parallelism, if any: nothing is subtracted
    k_optim              those without replicas, if any: with ZeRO they gather the weights in the optimiser's time
    k_overlap            those with replicas; 1 (none) if there are none
    sizes                those that measured the memory of tensors; white-box sizes if there are none

Launches of another model than the newest one's are not used; neither are those that cannot be inverted.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, fields, replace
from operator import attrgetter

import numpy as np

from models.parallel_plan import ParallelPlan
from models.performance.architecture import profile_of
from models.performance.coefficients import Calibration, GpuCoefficients, SizeCoefficients
from models.performance.formulas import FloatArray
from models.performance.inversion import invert
from models.performance.iteration import PerformanceModel
from models.performance.measurement import Measurement
from models.performance.memory import optimizer_shard
from models.performance.modelling import performance_model
from models.performance.profile import ModelProfile
from models.performance.step_table import MIN_STEPS, WARM_UP_STEPS, MeasuredRun, StepTable
from models.transformer import JobModel
from stowplan.errors import InputError

MOST_COMMUNICATION = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class RunReport:
    """One launch: settled steps, their median time, and what the model says without and with the calibration.

    Times in seconds, None where there is nothing to tell. `used`: the calibration contains it; if not, `detail` says
    why.
    """

    launch: int
    plan: ParallelPlan
    num_steps: int
    measured_s: float | None
    white_box_s: float
    calibrated_s: float | None
    used: bool
    detail: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobCalibration:
    """What all launches of a job say together; `calibration` None when none of them can be used."""

    calibration: Calibration | None
    runs: tuple[RunReport, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Inverted:
    """Coefficients of one launch, and the largest degrees of its plan."""

    calibration: Calibration
    tp: int
    dp: int


def calibrate(runs: Sequence[MeasuredRun]) -> JobCalibration:
    """Combine launches into one calibration; their order does not matter."""
    newest_first = sorted(runs, key=attrgetter("launch"), reverse=True)
    inverted: list[_Inverted] = []
    faults: dict[int, str] = {}
    for run in newest_first:
        steps = run.settled()
        if not same_costs(run.job, newest_first[0].job):
            faults[run.launch] = "trains another model than the newest launch"
        elif steps is None:
            faults[run.launch] = f"has fewer than {MIN_STEPS} steps of all ranks behind the first {WARM_UP_STEPS}"
        else:
            try:
                inverted.append(_inverted(run, steps))
            except InputError as error:
                faults[run.launch] = f"cannot be inverted: {error}"
    calibration = _combined(inverted) if inverted else None
    reports = tuple(_report(run, calibration, faults.get(run.launch)) for run in newest_first)
    return JobCalibration(calibration=calibration, runs=reports)


def same_costs(a: JobModel, b: JobModel) -> bool:
    """Whether coefficients of one model hold for the other: equal costs layer by layer, whatever the batch."""
    return _costs(a) == _costs(b)


def measurements_of(run: MeasuredRun, steps: StepTable) -> tuple[Measurement, ...]:
    """What every rank shows in the settled steps (T, R)."""
    model, plan = run.white_box, run.plan
    places = rank_places(plan)
    communication = _communication_s(model, plan)
    reduction = _stage_reductions(plan, steps)
    held = _held(model, plan)
    optimizer = dict(zip(steps.rank.tolist(), _least_optimizer(plan, held, steps).tolist(), strict=True))
    medians = [
        np.median(values, axis=0).tolist() for values in (steps.forward_s, steps.backward_s, steps.peak_memory_bytes)
    ]
    found = []
    for rank, forward, backward, peak in zip(steps.rank.tolist(), *medians, strict=True):
        stage, replica, shard = places[rank]
        forward_s, backward_s = forward / plan.num_micro_batches, backward / plan.num_micro_batches
        most = MOST_COMMUNICATION * min(forward_s, backward_s / model.profile.backward_all_reduces)
        found.append(
            Measurement(
                stage=stage,
                replica=replica,
                shard=shard,
                forward_s=forward_s,
                forward_communication_s=min(communication[stage][replica], most),
                backward_s=backward_s,
                optimizer_s=optimizer[rank],
                exposed_reduction_s=reduction.get(stage),
                peak_bytes=peak if run.tensor_memory else None,
            )
        )
    return tuple(found)


def rank_places(plan: ParallelPlan) -> list[tuple[int, int, int]]:
    """Stage, replica and shard of every rank: pipe slowest, then data, tensor fastest."""
    return [(i, j, k) for i, stage in enumerate(plan.stages) for j in range(stage.dp) for k in range(stage.tp)]


def step_time_s(steps: StepTable) -> float:
    """Median time of a step; ranks move in step, so their mean is that of the job."""
    return float(np.median(steps.step_s.mean(axis=1)))


def _inverted(run: MeasuredRun, steps: StepTable) -> _Inverted:
    model = run.white_box
    last = steps.step_s[-1] + steps.started_at_s[-1]
    calibration = invert(
        model.profile, run.plan, measurements_of(run, steps), model.fabric, measured_at_s=float(last.max())
    )
    return _Inverted(
        calibration=calibration,
        tp=max(stage.tp for stage in run.plan.stages),
        dp=max(stage.dp for stage in run.plan.stages),
    )


def _combined(inverted: Sequence[_Inverted]) -> Calibration:
    types = sorted({name for one in inverted for name in one.calibration.gpus})
    sizes = [one.calibration.sizes for one in inverted if one.calibration.sizes is not None]
    return Calibration(
        gpus={name: _of_type([one for one in inverted if name in one.calibration.gpus], name) for name in types},
        sizes=_median_sizes(sizes) if sizes else None,
        measured_at_s=max(one.calibration.measured_at_s or 0.0 for one in inverted),
    )


def _of_type(inverted: Sequence[_Inverted], name: str) -> GpuCoefficients:
    def median(field: str, shows: Callable[[_Inverted], bool]) -> float:
        best = [one for one in inverted if shows(one)] or inverted
        return float(np.median([getattr(one.calibration.gpus[name], field) for one in best]))

    return GpuCoefficients(
        compute_s=median("compute_s", lambda one: one.tp == 1),
        backward_ratio=median("backward_ratio", lambda one: one.tp == 1),
        optimizer_s=median("optimizer_s", lambda one: one.dp == 1),
        overlap=median("overlap", lambda one: one.dp > 1),
    )


def _median_sizes(sizes: Sequence[SizeCoefficients]) -> SizeCoefficients:
    names = [field.name for field in fields(SizeCoefficients)]
    return SizeCoefficients(**{name: float(np.median([getattr(one, name) for one in sizes])) for name in names})


def _report(run: MeasuredRun, calibration: Calibration | None, fault: str | None) -> RunReport:
    steps = run.settled()
    after = performance_model(run.job, run.cluster, calibration) if calibration is not None else None
    return RunReport(
        launch=run.launch,
        plan=run.plan,
        num_steps=0 if steps is None else len(steps.step),
        measured_s=None if steps is None else step_time_s(steps),
        white_box_s=run.white_box.iteration(run.plan).total_s,
        calibrated_s=None if after is None else after.iteration(run.plan).total_s,
        used=fault is None,
        detail=fault or "",
    )


def _costs(job: JobModel) -> ModelProfile:
    return replace(profile_of(job), name="", global_batch=1, micro_batch=None, zero_stage=0)


def _communication_s(model: PerformanceModel, plan: ParallelPlan) -> list[list[float]]:
    """Tensor-parallel communication of one forward pass by the formula, per stage and replica."""
    groups = [
        (i, replica.gpu_type, model.fabric.intra_bytes_per_s(replica.node), replica.local_batch)
        for i, stage in enumerate(plan.stages)
        for replica in stage.replicas
    ]
    times = iter(model.group_times(plan, groups).communication_s.tolist())
    return [[next(times) for _ in stage.replicas] for stage in plan.stages]


def _stage_reductions(plan: ParallelPlan, steps: StepTable) -> dict[int, float]:
    """Exposed reduction of the stages that have replicas."""
    stage_of = _columns(plan, steps, lambda place: place[0])
    return {
        i: float(np.median(steps.reduction_s[:, stage_of == i].min(axis=1)))
        for i in set(stage_of.tolist())
        if plan.stages[i].dp > 1
    }


def _held(model: PerformanceModel, plan: ParallelPlan) -> FloatArray:
    """What a GPU of each stage updates, in mean layers, (S,)."""
    zero = model.profile.zero_stage
    return np.array(
        [
            float(optimizer_shard(shares.parameters, stage.tp, stage.dp, zero))
            for stage, shares in zip(plan.stages, model.shares(plan), strict=True)
        ]
    )


def _least_optimizer(plan: ParallelPlan, held: FloatArray, steps: StepTable) -> FloatArray:
    """Optimiser time of every rank (R,) without waiting: what it updates at the pace of the fastest of its type."""
    stage_of = _columns(plan, steps, lambda place: place[0])
    type_of = _columns(plan, steps, lambda place: plan.stages[place[0]].replicas[place[1]].gpu_type)
    measured, share = np.median(steps.optimizer_s, axis=0), held[stage_of]
    pace = np.divide(measured, share, out=np.full(len(share), np.inf), where=share > 0)
    least = {name: float(pace[type_of == name].min()) for name in set(type_of.tolist())}
    slowest_pace = np.array([least[name] for name in type_of.tolist()])
    return np.where(share > 0, share * np.where(np.isfinite(slowest_pace), slowest_pace, 0.0), measured)


def _columns(plan: ParallelPlan, steps: StepTable, key: Callable[[tuple[int, int, int]], object]) -> np.ndarray:
    places = rank_places(plan)
    return np.array([key(places[rank]) for rank in steps.rank.tolist()])
