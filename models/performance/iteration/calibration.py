r"""Coefficients of a job from the steps of its running plans, and how well they predict (Suika A.4.2).

One launch. What its ranks show (`step_measurements`), inverted.

Several launches. Each coefficient is the median over the launches that show it best:

    k_comp, k_backward   those without tensor parallelism, if any: nothing is subtracted
    k_optim              those without replicas, if any: with ZeRO they gather the weights in the optimiser's time
    k_overlap            those with replicas; 1 (none) if there are none
    sizes                those that measured the memory of tensors; white-box sizes if there are none

Launches of which only whole steps are known (programs of users) cannot be inverted. The median times of their steps are
iteration times of their plans, and give factors on times beside the coefficients (`plan_calibration`). Likewise
of those whose replicas share experts: within their passes they exchange tokens, for times that nobody has measured.

Launches of another model than the newest one's are not used; neither are those that cannot be inverted, or whose times
are of something else than the model.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from functools import partial
from operator import attrgetter

import numpy as np

from models.parallel_plan import ParallelPlan
from models.performance.iteration.adjustment import Adjustment
from models.performance.iteration.architecture import profile_of
from models.performance.iteration.coefficients import Calibration, GpuCoefficients, SizeCoefficients
from models.performance.iteration.model import PerformanceModel
from models.performance.iteration.modelling import performance_model
from models.performance.iteration.plan_calibration import MeasuredTime, calibrate_plans, measurement_faults
from models.performance.iteration.profile import ModelProfile
from models.performance.iteration.step_measurements import measurements_of, step_time_s
from models.performance.iteration.step_table import MIN_STEPS, WARM_UP_STEPS, MeasuredRun, StepTable
from models.transformer import JobModel
from stowplan.errors import InputError


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


def calibrate(runs: Sequence[MeasuredRun], said: Calibration | None = None) -> JobCalibration:
    """Combine launches into one calibration; their order does not matter.

    Parameters
    ----------
    said
        What was known before, which iteration times set right where no launch shows the coefficients themselves.
    """
    newest_first = sorted(runs, key=attrgetter("launch"), reverse=True)
    inverted: list[_Inverted] = []
    whole: list[tuple[MeasuredRun, StepTable]] = []
    faults: dict[int, str] = {}
    for run in newest_first:
        steps = run.settled()
        if not same_costs(run.job, newest_first[0].job):
            faults[run.launch] = "trains another model than the newest launch"
        elif steps is None:
            faults[run.launch] = f"has fewer than {MIN_STEPS} steps of all ranks behind the first {WARM_UP_STEPS}"
        elif run.whole_steps or run.plan.expert_parallel > 1:
            whole.append((run, steps))
        else:
            try:
                inverted.append(_inverted(run, steps))
            except InputError as error:
                faults[run.launch] = f"cannot be inverted: {error}"
    calibration = _combined(inverted) if inverted else None
    if whole:
        calibration = _with_whole_steps(calibration, said, whole, faults)
    reports = tuple(_report(run, calibration, faults.get(run.launch)) for run in newest_first)
    return JobCalibration(calibration=calibration, runs=reports)


def same_costs(a: JobModel, b: JobModel) -> bool:
    """Whether coefficients of one model hold for the other: equal costs layer by layer, whatever the batch."""
    return _costs(a) == _costs(b)


def _inverted(run: MeasuredRun, steps: StepTable) -> _Inverted:
    model = run.white_box
    last = steps.step_s[-1] + steps.started_at_s[-1]
    # What inverts loads scipy.optimize, also in the serving process, which may never see a measurement.
    from models.performance.iteration.inversion import invert

    calibration = invert(
        model.profile,
        run.plan,
        measurements_of(run, steps),
        model.fabric,
        measured_at_s=float(last.max()),
        curves=model.coefficients.curves,
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


def _with_whole_steps(
    inverted: Calibration | None,
    said: Calibration | None,
    whole: Sequence[tuple[MeasuredRun, StepTable]],
    faults: dict[int, str],
) -> Calibration | None:
    """Factors from iteration times, beside the coefficients that launches show, else those that were said; times that
    are of something else go into `faults`, by launch."""
    known, times = inverted or said or Calibration(), []
    ends_s = [(inverted or Calibration()).measured_at_s or 0.0]
    for run, steps in whole:
        model_of = partial(_adjusted_model, run, known)
        time = MeasuredTime(plan=run.plan, iteration_s=step_time_s(steps), model_of=model_of)
        if wrong := list(measurement_faults([time], known.adjustment)):
            faults[run.launch] = f"a step {wrong[0].detail}"
        else:
            times.append(time)
            ends_s.append(float((steps.started_at_s + steps.step_s).max()))
    if not times:
        return inverted
    adjustment = calibrate_plans(times, known.adjustment, known_gpus=inverted is not None)
    return replace(known, adjustment=adjustment, measured_at_s=max(ends_s))


def _adjusted_model(run: MeasuredRun, known: Calibration, adjustment: Adjustment) -> PerformanceModel:
    return performance_model(run.job, run.cluster, replace(known, adjustment=adjustment))


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
