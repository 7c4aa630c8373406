"""A training whose GPUs and batch change, beside one whose do not: `python -m benchmarks adaptive-batches` (CPU ranks).

A small GPT learns sequences of a Markov chain of 64 tokens (each has 4 successors), by Adam with the square root rule,
on one rank at a batch of 8; validation loss by samples read, and what was measured, become known. Then it is trained
anew on 1, 2, 4 and again 1 rank, a quarter of the work on each, with the batch up to 64 that Sia chooses by what has
been measured until then (step times and gradient noise); every change is a stop with a checkpoint and a deployment of
Sia's allocation. `excess` is how many more samples it has read at the higher of the two last validation losses than its
efficiency predicts: than it had read when their worth was that of the samples of the training at 8. Goodput, predicted
by Sia before a part of the training and measured in it, is worth of samples by second, of the median step; `predicted
then`: by Sia for the same GPUs, after that.
"""

import math
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

import numpy as np
import typer

from benchmarks.paths import ROOT
from benchmarks.placement.placement_runs import versions_of
from benchmarks.rows import Row, median, show, write
from executor.data.sources import Data, Source, TokenType
from executor.deployed.learning import Learning
from executor.deployed.measured_runs import MeasuredRuns
from executor.deployed.submission import Submission, deployment_of
from executor.deployment import DEFAULT_PORT, Deployment, LaunchOptions, TrainingOptions
from executor.launch.local import LocalBackend
from executor.learning_rate import after_step
from executor.lifecycle import Phase
from executor.metrics import metrics_path, read_metrics
from executor.progress import Progress, ScalingRule
from executor.supervision import Supervisor
from executor.training_job import TrainingJob
from executor.training_options import Device, EngineName, Schedule
from models.allocation.sia.parameters import SiaParameters
from models.parallel_plan import symmetric_plan
from models.performance.goodput.observed_goodput import goodput_observations
from models.performance.goodput.spec import BatchRange, GoodputObservations
from models.plan import JobAllocation, PlanRequest
from models.planning import plan
from models.transformer import Precision, Transformer
from models.workload import Job, Snapshot
from topology.cluster import Cluster, GpuType, Node

_INITIAL, _MAXIMUM, _LOCAL = 8, 64, 16
_RANKS = (1, 2, 4, 1)
_WARM_UP = 3
_POLL_S, _LIMIT_S = 0.02, 900.0
_VOCABULARY, _LENGTH, _SUCCESSORS = 64, 32, 4
_MODEL = Transformer(
    num_layers=2,
    hidden_size=64,
    vocabulary_size=_VOCABULARY,
    sequence_length=_LENGTH,
    global_batch=_INITIAL,
    num_heads=4,
    precision=Precision.FP32,
)
_CPU = GpuType(
    name="cpu",
    memory_bytes=16 * 10**9,
    peak_flops_per_s=1e11,
    intra_node_bandwidth_bytes_per_s=1e10,
    inter_node_bandwidth_bytes_per_s=1e9,
)
_CLUSTER = Cluster(gpu_types=(_CPU,), nodes=(Node(id="a", gpu_type="cpu", num_gpus=max(_RANKS)),))


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """Behind a step."""

    samples: int
    work: float
    step_s: float
    validation_loss: float | None


def main(
    seeds: Annotated[int, typer.Option(min=1, help="Trainings of each kind.")] = 3,
    steps: Annotated[int, typer.Option(min=100, help="Of a training at the initial batch.")] = 1200,
    python: Annotated[str, typer.Option(help="Interpreter of the ranks.")] = sys.executable,
) -> None:
    """Train with the batches that Sia chooses, on 1, 2, 4 and 1 ranks: samples to the same loss, and goodput."""
    versions = versions_of(python)
    if versions is None:
        print(f"skipped: {python} has no torch and deepspeed; name one that has: --python")
        return
    rows: list[Row] = []
    parts: list[Row] = []
    for seed in range(seeds):
        with tempfile.TemporaryDirectory() as folder:
            row, found = _compared(Path(folder), seed, steps, python)
        print(f"seed {seed}: {row}", flush=True)
        rows.append(row)
        parts += found
    show("Samples to the same validation loss", rows)
    show("Parts of the training", parts)
    protocol = f"{seeds} seeds, {steps} steps at a batch of {_INITIAL}; {versions}; {__doc__}"
    print(write("adaptive_batches", protocol, [*rows, *parts]))


def _compared(folder: Path, seed: int, steps: int, python: str) -> tuple[Row, list[Row]]:
    tokens = folder / "tokens.bin"
    _markov_tokens(seed, 2 * steps * _INITIAL * _LENGTH).tofile(tokens)
    job = Job(id="j", transformer=_MODEL)
    submission = _submission(job, seed, steps, tokens, python)
    fixed, observed = _trained_at_initial_batch(folder / "fixed", submission)
    job = replace(job, performance=replace(observed, batch=BatchRange(initial=_INITIAL, maximum=_MAXIMUM)))
    adaptive, parts = _adapted(folder / "adaptive", replace(submission, job=job), seed)
    end, fixed_end = adaptive[-1], fixed[-1]
    target = max(_loss(end), _loss(fixed_end))
    predicted = _at(adaptive, "work", _reached(fixed, target).work).samples
    reached = _reached(adaptive, target).samples
    row: Row = {
        "seed": seed,
        "loss at 8": _loss(fixed_end),
        "samples at 8": fixed_end.samples,
        "loss": _loss(end),
        "samples": end.samples,
        "target loss": target,
        "samples predicted": predicted,
        "samples read": reached,
        "excess": reached / predicted - 1.0,
    }
    return row, parts


def _markov_tokens(seed: int, count: int) -> "np.ndarray[tuple[int], np.dtype[np.uint16]]":
    """Each token has successors of its own, of which one follows with probabilities 0.4, 0.3, 0.2, 0.1."""
    random = np.random.default_rng(seed)
    follows = np.array([random.choice(_VOCABULARY, size=_SUCCESSORS, replace=False) for _ in range(_VOCABULARY)])
    chosen = random.choice(_SUCCESSORS, size=count, p=[0.4, 0.3, 0.2, 0.1])
    tokens, token = np.empty(count, dtype=np.uint16), 0
    for k, successor in enumerate(chosen):
        tokens[k] = token = int(follows[token, successor])
    return tokens


def _submission(job: Job, seed: int, steps: int, tokens: Path, python: str) -> Submission:
    schedule = Schedule(
        learning_rate=1e-3,
        warmup_steps=40,
        scaling=ScalingRule.SQUARE_ROOT,
        initial_batch=_INITIAL,
    )
    data = Data(
        sources=(Source(path=str(tokens), token_type=TokenType.UINT16),),
        validation_share=0.02,
        evaluation_interval=20,
        evaluation_batches=32,
    )
    training = TrainingOptions(
        num_steps=steps,
        seed=seed,
        engine=EngineName.NATIVE,
        device=Device.CPU,
        schedule=schedule,
        data=data,
        checkpoint_interval=0,
    )
    environment = {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT), "CUDA_VISIBLE_DEVICES": ""}
    launch = LaunchOptions(master_port=DEFAULT_PORT + 400, python=python, environment=environment)
    return Submission(job=job, training=training, launch=launch)


def _trained_at_initial_batch(root: Path, submission: Submission) -> tuple[list[Point], GoodputObservations]:
    """On one rank, in two micro-batches, which tell the noise."""
    alone = symmetric_plan(
        num_layers=_MODEL.num_layers,
        pp=1,
        dp=1,
        tp=1,
        global_batch=_INITIAL,
        num_micro_batches=2,
        gpu_type=_CPU.name,
        gpus=(("a", 0),),
    )
    supervisor = Supervisor(root, LocalBackend())
    supervisor.deploy(submission.with_plan(alone))
    _until(supervisor, lambda: supervisor.state().phase is Phase.FINISHED)
    observed = goodput_observations(MeasuredRuns(supervisor).so_far(_CLUSTER))
    if observed is None:
        raise RuntimeError("the training at the initial batch has not told its noise")
    return _points(supervisor), replace(observed, max_local_batch={_CPU.name: _LOCAL})


def _adapted(root: Path, submission: Submission, seed: int) -> tuple[list[Point], list[Row]]:
    """A part of the training on every number of ranks."""
    supervisor, learning = Supervisor(root, LocalBackend()), Learning(submission.job, None)
    runs, rows = MeasuredRuns(supervisor), list[Row]()
    whole = submission.training.num_steps * _INITIAL
    for number, num_gpus in enumerate(_RANKS, start=1):
        allocation = _planned(submission.job, learning, num_gpus)
        deployment = deployment_of(submission, allocation, _CLUSTER)
        begin = _points(supervisor)[-1].work if number > 1 else 0.0
        _start(supervisor, deployment, is_first=number == 1)
        if number == len(_RANKS):
            _until(supervisor, lambda: supervisor.state().phase is Phase.FINISHED)
        else:
            end = whole * number / len(_RANKS)
            _until(supervisor, lambda end=end: _work(supervisor) >= end)  # type: ignore[misc]
            supervisor.stop()
            _until(supervisor, lambda: supervisor.state().phase.final)
        for run in runs.so_far(_CLUSTER):
            learning.take(run)
        part = [point for point in _points(supervisor) if point.work > begin][_WARM_UP:]
        step_s = median([point.step_s for point in part]) or math.nan
        rows.append(
            {
                "seed": seed,
                "ranks": num_gpus,
                "batch": deployment.plan.global_batch,
                "micro-batches": deployment.plan.num_micro_batches,
                "steps": len(part) + _WARM_UP,
                "worth of a sample": (part[-1].work - part[0].work) / (part[-1].samples - part[0].samples),
                "goodput predicted": allocation.expected_goodput,
                "goodput measured": (part[-1].work - part[0].work) / (len(part) - 1) / step_s,
                "predicted then": _planned(submission.job, learning, num_gpus).expected_goodput,
            }
        )
    return _points(supervisor), rows


def _planned(job: Job, learning: Learning, num_gpus: int) -> JobAllocation:
    """What Sia gives the job, by what is known of it."""
    job = replace(
        job, performance=learning.learned.performance or job.performance, min_gpus=num_gpus, max_gpus=num_gpus
    )
    outcome = plan(PlanRequest(snapshot=Snapshot(cluster=_CLUSTER, jobs=(job,)), parameters=SiaParameters()))
    if outcome.plan is None or not outcome.plan.allocations:
        raise RuntimeError(f"Sia has no plan for {job.min_gpus} GPUs")
    return outcome.plan.allocations[0]


def _start(supervisor: Supervisor, deployment: Deployment, *, is_first: bool) -> None:
    if is_first:
        supervisor.deploy(deployment)
    else:
        supervisor.reconfigure(deployment)


def _until(supervisor: Supervisor, holds: Callable[[], bool]) -> None:
    end_s = time.monotonic() + _LIMIT_S
    while not holds():
        state = supervisor.advance()
        if state.phase is Phase.FAILED or time.monotonic() > end_s:
            raise RuntimeError(f"the training is {state.phase}: {state.detail}")
        time.sleep(_POLL_S)


def _work(supervisor: Supervisor) -> float:
    points = _points(supervisor)
    return points[-1].work if points else 0.0


def _points(supervisor: Supervisor) -> list[Point]:
    """Of all runs, in turn: what `Progress` says behind every step, from what rank 0 has measured."""
    points: list[Point] = []
    progress = Progress()
    for run in supervisor.state().runs:
        path = metrics_path(supervisor.folder(run.number) / "metrics", 0)
        job: TrainingJob = supervisor.deployment(run.number).training_job(Path(), Path())
        for step in read_metrics(path) if path.exists() else ():
            progress = after_step(job, progress, step.small_gradient_square, step.large_gradient_square)
            points.append(
                Point(
                    samples=progress.samples,
                    work=progress.work,
                    step_s=step.step_s,
                    validation_loss=step.validation_loss,
                )
            )
    return points


def _loss(point: Point) -> float:
    if point.validation_loss is None:
        raise RuntimeError("there was no evaluation behind the last step")
    return point.validation_loss


def _reached(points: Sequence[Point], target: float) -> Point:
    """Where a loss is first reached, between two evaluations along a line."""
    before: Point | None = None
    for point in points:
        if point.validation_loss is None:
            continue
        if point.validation_loss <= target:
            if before is None:
                return point
            share = (_loss(before) - target) / (_loss(before) - _loss(point))
            return _at(points, "samples", before.samples + share * (point.samples - before.samples))
        before = point
    raise RuntimeError(f"no evaluation has come down to a loss of {target}")


def _at(points: Sequence[Point], name: str, value: float) -> Point:
    """Between two steps along a line."""
    known = [getattr(point, name) for point in points]
    samples, work = ([float(getattr(point, other)) for point in points] for other in ("samples", "work"))
    return Point(
        samples=round(float(np.interp(value, known, samples))),
        work=float(np.interp(value, known, work)),
        step_s=0.0,
        validation_loss=None,
    )
