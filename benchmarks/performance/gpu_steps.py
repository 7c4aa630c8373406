"""Steps of whole models on one GPU, measured against the performance model.

    python -m benchmarks gpu-steps --gpu-type h200 [--models gpt2-350m --models gpt2-1.3b]

Each model is trained for some steps by `executor.trainer` on one GPU, in bf16 with fused Adam. Measured are the median
step time without the first steps and the peak of allocated memory; predicted are both from data sheets, and the step
time after inverting a run with another micro-batch. Needs the executor extra and a GPU.
"""

import json
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Annotated

import typer

from benchmarks.paths import RESULTS
from benchmarks.rows import command_line
from benchmarks.suite.machine import environment
from executor.bundle import write_bundle
from executor.deployment import Deployment, LaunchOptions, TrainingOptions
from executor.extra import missing_extra
from executor.launch.base import RunState
from executor.launch.local import LocalBackend, free_port
from executor.metrics import StepMetrics, metrics_path, read_metrics
from models.catalogue import find_model
from models.parallel_plan import ParallelPlan, symmetric_plan
from models.performance.iteration.coefficients import Calibration
from models.performance.iteration.inversion import invert
from models.performance.iteration.measurement import Measurement
from models.performance.iteration.model import PerformanceModel
from models.performance.iteration.modelling import virtual_model
from models.transformer import Precision, Transformer
from stowplan.errors import InputError
from topology.gpu_catalogue import find_product, gpu_type_of

_STEPS, _SETTLED = 25, 5
_LIMIT_S = 900.0
_GLOBAL_BATCH = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One model with one micro-batch; times in seconds, memory in bytes."""

    model: str
    micro_batch: int
    measured_s: float
    predicted_s: float
    calibrated_s: float
    tokens_per_s: float
    measured_peak_bytes: int
    predicted_peak_bytes: float


def measure(model: Transformer, micro_batch: int, gpu_type: str) -> tuple[ParallelPlan, list[StepMetrics]]:
    """Train on one GPU; the settled steps.

    Raises
    ------
    InputError
        When the run does not end well.
    """
    plan = one_gpu(model, micro_batch, gpu_type)
    deployment = Deployment(
        name="gpu-step",
        model=replace(model, micro_batch=micro_batch),
        plan=plan,
        training=TrainingOptions(num_steps=_STEPS, checkpoint_interval=0),
        launch=LaunchOptions(python=sys.executable, master_port=free_port() % 60_000 + 1_024),
    )
    backend = LocalBackend()
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder) / "run"
        write_bundle(deployment, run, Path(folder) / "checkpoints")
        backend.start(run)
        deadline = time.monotonic() + _LIMIT_S
        while not backend.status(run).state.final and time.monotonic() < deadline:
            time.sleep(0.5)
        status = backend.status(run)
        backend.stop(run)
        if status.state is not RunState.SUCCEEDED:
            said = " | ".join(line for rank in status.dead for line in rank.last_lines[-3:])
            raise InputError(f"{model.name} ended as {status.state}: {status.detail} {said}")
        return plan, list(read_metrics(metrics_path(run / "metrics", 0)))[_SETTLED:]


def one_gpu(model: Transformer, micro_batch: int, gpu_type: str) -> ParallelPlan:
    """The plan of one GPU."""
    return symmetric_plan(
        num_layers=model.num_layers,
        pp=1,
        dp=1,
        tp=1,
        global_batch=model.global_batch,
        num_micro_batches=model.global_batch // micro_batch,
        gpu_type=gpu_type,
        gpus=(("0", 0),),
    )


def calibration_of(model: PerformanceModel, plan: ParallelPlan, steps: list[StepMetrics]) -> Calibration:
    """Coefficients of a run."""
    forward, backward = (
        statistics.median(getattr(step, name) / step.num_micro_batches for step in steps)
        for name in ("forward_s", "backward_s")
    )
    seen = Measurement(
        stage=0,
        replica=0,
        forward_s=forward,
        forward_communication_s=0.0,
        backward_s=backward,
        optimizer_s=statistics.median(step.optimizer_s for step in steps),
    )
    return invert(model.profile, plan, (seen,), model.fabric)


def rows(name: str, gpu_type: str, micro_batches: tuple[int, ...]) -> Iterator[Row]:
    """Measure a model with several micro-batches; every one is predicted from the run of the one before."""
    model = find_model(name, global_batch=_GLOBAL_BATCH, precision=Precision.BF16)
    if not isinstance(model, Transformer):
        raise InputError(f"{name} is no transformer")
    kind = gpu_type_of(find_product(gpu_type), model.precision)
    white = virtual_model(model, kind, 1, 1)
    runs = {batch: measure(model, batch, kind.name) for batch in micro_batches}
    for k, (batch, (plan, steps)) in enumerate(runs.items()):
        other = runs[micro_batches[k - 1]]
        calibrated = virtual_model(model, kind, 1, 1, calibration_of(white, *other))
        yield Row(
            model=name,
            micro_batch=batch,
            measured_s=statistics.median(step.step_s for step in steps),
            predicted_s=white.iteration(plan).total_s,
            calibrated_s=calibrated.iteration(plan).total_s,
            tokens_per_s=statistics.median(step.tokens_per_s for step in steps),
            measured_peak_bytes=max(step.peak_memory_bytes for step in steps),
            predicted_peak_bytes=white.memory(plan)[0].total_bytes,
        )


_MODELS = ["gpt2-350m", "gpt2-1.3b"]
_MICRO_BATCHES = [2, 4]


def main(
    gpu_type: Annotated[str, typer.Option(help="Product of the catalogue that this machine has.")],
    models: Annotated[list[str], typer.Option(help="Of the catalogue; may be repeated.")] = _MODELS,
    micro_batches: Annotated[list[int], typer.Option(help="May be repeated.")] = _MICRO_BATCHES,
    output: Annotated[Path, typer.Option(help="Where the result goes, as JSON.")] = RESULTS / "gpu_steps.json",
) -> None:
    """Measure steps of whole models on one GPU against the performance model."""
    if missing := missing_extra("a step on a GPU"):
        sys.stderr.write(f"{missing}\n")
        raise typer.Exit(2)
    try:
        found = [row for name in models for row in rows(name, gpu_type, tuple(micro_batches))]
    except InputError as error:
        sys.stderr.write(f"{error}\n")
        raise typer.Exit(2) from error
    for row in found:
        print(
            f"{row.model} micro-batch {row.micro_batch}: {row.measured_s * 1e3:.0f} ms a step, predicted "
            f"{row.predicted_s * 1e3:.0f}, calibrated {row.calibrated_s * 1e3:.0f}; peak "
            f"{row.measured_peak_bytes / 1e9:.1f} GB, predicted {row.predicted_peak_bytes / 1e9:.1f}"
        )
    document = {
        "command": command_line(),
        "gpu": gpu_type,
        "environment": asdict(environment()),
        "steps": _STEPS,
        "global_batch": _GLOBAL_BATCH,
        "rows": [asdict(row) for row in found],
    }
    output.write_text(json.dumps(document, indent=1) + "\n")
