"""What a job has measured where it ran, and what policies are told because of it.

calibration    coefficients from the newest runs (`models.performance.iteration.calibration`), by GPU type in place of
               those that the job came with; of programs of users, which tell of whole steps only, factors on times
performance    a table of throughputs, observations or a fitted model, set right
               (`models.performance.goodput.corrected`), with the gradient noise of the newest run that tells it;
               goodputs in units of their own stay as they came
step_s         seconds of a step where it ran last, by which the time that is left is reckoned

What differs from what is told by a fiftieth at most is noise, and not told.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from models.parallel_plan import ParallelPlan
from models.performance.goodput.corrected import (
    MeasuredSteps,
    MeasuredThroughput,
    corrected_model,
    corrected_table,
    entry_of,
    step_s_of,
    with_observations,
)
from models.performance.goodput.efficiency import efficiency, signal_share
from models.performance.goodput.observed_goodput import (
    gradient_statistics,
    is_data_parallel,
    is_observable,
    observation_of,
)
from models.performance.goodput.spec import (
    BatchRange,
    GoodputModel,
    GoodputObservations,
    GradientStatistics,
    Performance,
    ThroughputTable,
)
from models.performance.iteration.calibration import calibrate
from models.performance.iteration.coefficients import Calibration
from models.performance.iteration.fabric import fabric_of
from models.performance.iteration.modelling import performance_model
from models.performance.iteration.step_measurements import step_time_s
from models.performance.iteration.step_table import MeasuredRun, StepTable
from models.workload import Job

# Runs that are looked at: enough for medians.
MAX_RUNS = 16
_KNOWN_WITHIN = 0.02


@dataclass(frozen=True, slots=True, kw_only=True)
class Learned:
    """What is told in place of what the job came with; None: nothing was measured that says otherwise."""

    step_s: float | None = None
    calibration: Calibration | None = None
    performance: Performance | None = None


class Learning:
    """Of one job, which was said to take `said_step_s` a step; None where nobody said so. `learned` is told of it."""

    def __init__(self, job: Job, said_step_s: float | None) -> None:
        self.learned = Learned()
        self._job = job
        self._said_step_s = said_step_s
        self._runs: dict[int, MeasuredRun] = {}

    def take(self, run: MeasuredRun) -> bool:
        """Learn from what a run has measured until now; says whether anything else is told of the job from now on."""
        if run.settled() is None:
            return False
        newest = sorted({*self._runs, run.launch})[-MAX_RUNS:]
        self._runs = {launch: run if launch == run.launch else self._runs[launch] for launch in newest}
        found = self._from_runs()
        before, after = self._steps_s(self.learned, run), self._steps_s(found, run)
        if all(map(_alike, before, after)):
            return False
        self.learned = found
        return True

    def _from_runs(self) -> Learned:
        newest_first = [self._runs[launch] for launch in sorted(self._runs, reverse=True)]
        settled = [(run, steps) for run in newest_first if (steps := run.settled()) is not None]
        return Learned(
            step_s=step_time_s(settled[0][1]),
            calibration=self._calibration(newest_first),
            performance=_performance(self._job.performance, settled),
        )

    def _calibration(self, runs: Sequence[MeasuredRun]) -> Calibration | None:
        """Measured coefficients, beside those of GPU types on which nothing was. They are of one way to train, and say
        nothing of a job that leaves that open."""
        if self._job.choices.are_open:
            return None
        said = self._job.calibration
        found = calibrate(runs, said).calibration
        if found is None or said is None:
            return found
        return replace(found, gpus={**said.gpus, **found.gpus}, sizes=found.sizes or said.sizes)

    def _steps_s(self, learned: Learned, run: MeasuredRun) -> Iterator[float | None]:
        """Seconds of a step of a run, by all that is told; and what a sample of the largest batch is worth."""
        yield learned.step_s or self._said_step_s
        model = performance_model(run.job, run.cluster, learned.calibration or self._job.calibration)
        yield model.iteration(run.plan).total_s
        yield _said_step_s(learned.performance or self._job.performance, run)
        yield _said_efficiency(learned.performance or self._job.performance)


def _performance(said: Performance | None, settled: Sequence[tuple[MeasuredRun, StepTable]]) -> Performance | None:
    """What the job said, set right by its runs, newest first; None where they say nothing about it."""
    if isinstance(said, ThroughputTable):
        found = corrected_table(said, [one for run, steps in settled for one in _throughput(run, steps)])
        return None if found is said else found
    if isinstance(said, GoodputObservations):
        observations = [observation_of(run, steps) for run, steps in settled if is_observable(run)]
        gradient = _gradient(said.batch, settled) or said.gradient
        return replace(with_observations(said, observations), gradient=gradient) if observations else None
    if isinstance(said, GoodputModel):
        corrected = corrected_model(
            said, [_steps(run, step_time_s(steps)) for run, steps in settled if is_data_parallel(run)]
        )
        corrected = replace(corrected, gradient=_gradient(said.batch, settled) or said.gradient)
        return None if corrected == said else corrected
    return None


def _gradient(batch: BatchRange, settled: Sequence[tuple[MeasuredRun, StepTable]]) -> GradientStatistics | None:
    """Noise at the initial batch, of the newest run that tells it."""
    told = (gradient_statistics(run, steps, batch.initial) for run, steps in settled if is_data_parallel(run))
    return next((found for found in told if found is not None), None)


def _said_efficiency(performance: Performance | None) -> float | None:
    """At the largest batch; None where nobody says that there are several."""
    if not isinstance(performance, GoodputModel | GoodputObservations):
        return None
    gradient, batch = performance.gradient, performance.batch
    return float(efficiency(signal_share(gradient.squared_norm, gradient.variance), batch.maximum / batch.initial))


def _throughput(run: MeasuredRun, steps: StepTable) -> Iterator[MeasuredThroughput]:
    """What a run on GPUs of one type says."""
    shape = _shape(run.plan)
    if shape is not None:
        gpu_type, num_gpus, num_nodes = shape
        value = run.plan.global_batch / step_time_s(steps)
        yield MeasuredThroughput(gpu_type=gpu_type, num_gpus=num_gpus, num_nodes=num_nodes, samples_per_s=value)


def _steps(run: MeasuredRun, step_s: float) -> MeasuredSteps:
    """Steps of a data-parallel run."""
    (stage,) = run.plan.stages
    nodes = {replica.node for replica in stage.replicas}
    return MeasuredSteps(
        gpu_type=stage.replicas[0].gpu_type,
        num_nodes=len(nodes),
        num_replicas=stage.dp,
        local_batch=stage.replicas[0].local_batch,
        accumulation_steps=run.plan.num_micro_batches - 1,
        bandwidth_fraction=fabric_of(run.cluster).group_fraction(nodes),
        step_s=step_s,
    )


def _said_step_s(performance: Performance | None, run: MeasuredRun) -> float | None:
    """Seconds of a step by a table or a fitted model; None where there is none, or it says nothing of such a run."""
    if isinstance(performance, GoodputModel) and is_data_parallel(run):
        return step_s_of(performance, _steps(run, 0.0))
    shape = _shape(run.plan)
    if shape is None or not isinstance(performance, ThroughputTable):
        return None
    entry = entry_of(performance, *shape)
    return None if entry is None else run.plan.global_batch / entry.value


def _shape(plan: ParallelPlan) -> tuple[str, int, int] | None:
    """GPU type, GPUs and nodes of a plan; None where it has several types."""
    gpu_type, *others = {replica.gpu_type for stage in plan.stages for replica in stage.replicas}
    return None if others else (gpu_type, len(plan.gpus), len({node for node, _ in plan.gpus}))


def _alike(before_s: float | None, after_s: float | None) -> bool:
    if before_s is None or after_s is None:
        return before_s is after_s
    return math.isclose(before_s, after_s, rel_tol=_KNOWN_WITHIN)
