"""Steps and memory of whole models on one GPU, measured against the performance model.

    python -m benchmarks gpu-steps [--engines native --engines deepspeed] [--only '*/selective']
    python -m benchmarks gpu-steps --again          predicts the measured steps of a result anew; needs no GPU

With `--only` the other cases of the result stay as they are.

Models of the catalogue, the large ones with fewer of their layers, are trained for some steps in bf16, over widths,
lengths of sequences, micro-batches and checkpointing, by the executor's engines. Measured are the median step and the
peak of allocated memory behind the first steps. Predicted are both from data sheets and priors, which were fitted to
other steps; then by factors that the other half of the steps of that engine told (`plan_calibration`), and by
coefficients of a step of the same model with another micro-batch (`inversion`), as deployments calibrate themselves.
Needs the executor extra and a GPU.
"""

import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from fnmatch import fnmatch
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from benchmarks.paths import FAULT, RESULTS
from benchmarks.rows import Row, command_line, show
from benchmarks.suite.machine import environment
from executor.extra import missing_extra
from executor.launch.local import free_port
from executor.metrics import metrics_path, read_metrics
from executor.training_job import TrainingJob, write_training_job
from executor.training_layout import StageLayout
from executor.training_options import EngineName
from models.catalogue import find_model
from models.parallel_plan import ParallelPlan, symmetric_plan
from models.performance.iteration.adjustment import Adjustment
from models.performance.iteration.coefficients import Calibration
from models.performance.iteration.inversion import invert
from models.performance.iteration.measurement import Measurement
from models.performance.iteration.model import PerformanceModel
from models.performance.iteration.modelling import virtual_model
from models.performance.iteration.plan_calibration import MeasuredTime, Prediction, calibrate_plans
from models.software import Software
from models.transformer import Checkpointing, Precision, Transformer
from stowplan.errors import InputError
from stowplan.records import from_document
from topology.gpu_catalogue import find_product, gpu_type_of

_FILE = RESULTS / "gpu_steps.json"
_STEPS, _SETTLED, _MICRO_BATCHES = 8, 3, 4
_NONE, _SELECTIVE, _FULL = Checkpointing.NONE, Checkpointing.SELECTIVE, Checkpointing.FULL
# What plans for an engine are made for.
_SOFTWARE = {EngineName.NATIVE: Software.NATIVE, EngineName.DEEPSPEED: Software.DEEPSPEED}
# Measured with a trainer that repeated attention, which is fused and saved nothing.
_ANOTHER = ("h100", _SELECTIVE)
# Model, its layers, tokens of a sequence, sequences of a micro-batch, checkpointing.
_Shape = tuple[str, int, int, int, Checkpointing]
_SOME: tuple[_Shape, ...] = (
    ("gpt2-350m", 24, 1024, 2, _NONE),
    ("gpt2-350m", 24, 1024, 8, _NONE),
    ("gpt2-1.3b", 24, 1024, 1, _NONE),
    ("gpt2-1.3b", 24, 1024, 4, _NONE),
    ("gpt2-1.3b", 24, 1024, 8, _FULL),
    ("llama3.2-1b", 16, 2048, 2, _NONE),
    ("llama3.2-1b", 16, 8192, 1, _FULL),
    ("llama2-7b", 8, 4096, 1, _NONE),
    ("llama2-7b", 8, 4096, 2, _FULL),
    ("llama2-70b", 2, 4096, 1, _NONE),
)
_MORE: tuple[_Shape, ...] = (
    ("gpt2-350m", 24, 1024, 16, _FULL),
    ("gpt2-1.3b", 24, 1024, 2, _NONE),
    ("gpt2-1.3b", 24, 1024, 4, _SELECTIVE),
    ("llama3.2-1b", 16, 2048, 4, _SELECTIVE),
    ("llama3.2-1b", 16, 4096, 1, _NONE),
    ("llama3.2-1b", 16, 8192, 1, _SELECTIVE),
    ("llama2-7b", 8, 2048, 1, _NONE),
    ("llama2-7b", 8, 8192, 1, _FULL),
    ("llama3.1-8b", 4, 4096, 1, _NONE),
    ("llama3.1-8b", 4, 8192, 1, _SELECTIVE),
    ("llama2-70b", 2, 2048, 2, _NONE),
    ("llama2-70b", 2, 8192, 1, _FULL),
)
_SHAPES: Mapping[EngineName, tuple[_Shape, ...]] = {
    EngineName.NATIVE: (*_SOME, *_MORE),
    EngineName.DEEPSPEED: _SOME,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """What is trained by an engine."""

    engine: EngineName
    model: str
    num_layers: int
    sequence_length: int
    micro_batch: int
    checkpointing: Checkpointing

    @property
    def name(self) -> str:
        """Like `gpt2-1.3b/24/1024x4/none`: model, layers, tokens of a sequence and sequences, checkpointing."""
        return f"{self.model}/{self.num_layers}/{self.sequence_length}x{self.micro_batch}/{self.checkpointing}"

    @property
    def transformer(self) -> Transformer:
        """The model."""
        found = find_model(
            self.model,
            global_batch=_MICRO_BATCHES * self.micro_batch,
            micro_batch=self.micro_batch,
            sequence_length=self.sequence_length,
            precision=Precision.BF16,
            checkpointing=self.checkpointing,
        )
        if not isinstance(found, Transformer):
            raise InputError(f"{self.model} is no transformer")
        return replace(found, name=None, num_layers=self.num_layers, software=_SOFTWARE[self.engine])

    def job(self, metrics: Path) -> TrainingJob:
        """What the rank trains."""
        return TrainingJob(
            model=self.transformer,
            stages=(StageLayout(num_layers=self.num_layers, tp=1, batches=(self.micro_batch,)),),
            num_micro_batches=_MICRO_BATCHES,
            num_steps=_STEPS,
            engine=self.engine,
            metrics_folder=str(metrics),
        )

    def plan(self, gpu_type: str) -> ParallelPlan:
        """The plan of one GPU."""
        return symmetric_plan(
            num_layers=self.num_layers,
            pp=1,
            dp=1,
            tp=1,
            global_batch=_MICRO_BATCHES * self.micro_batch,
            num_micro_batches=_MICRO_BATCHES,
            gpu_type=gpu_type,
            gpus=(("0", 0),),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """A case as it was measured: seconds of a step and of its parts, medians; `spread`: of the steps, longest less
    shortest over the median. `peak_bytes`: allocated by tensors. `fault`: why there is nothing.
    """

    case: Case
    step_s: float | None = None
    spread: float | None = None
    forward_s: float | None = None
    backward_s: float | None = None
    optimizer_s: float | None = None
    peak_bytes: int | None = None
    fault: str | None = None


def measure(engine: EngineName, only: Sequence[str] = ("*",)) -> Iterator[Measured]:
    """Train the cases of an engine whose names match a pattern of `only`, one after another."""
    cases = [case for case in _cases(engine) if any(fnmatch(case.name, pattern) for pattern in only)]
    if not cases:
        return
    with tempfile.TemporaryDirectory() as name:
        folder, files = Path(name), []
        for k, case in enumerate(cases):
            files.append(folder / f"{k}.json")
            write_training_job(case.job(folder / str(k)), files[-1])
        place = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1"}
        variables = os.environ | place | {"MASTER_PORT": str(free_port()), "DS_ACCELERATOR": "cuda"}
        # To look whether there is a GPU must not begin to use it, which forked processes could not go on with.
        variables |= {"PYTORCH_NVML_BASED_CUDA_CHECK": "1"}
        command = [sys.executable, "-m", "benchmarks.performance.gpu_rank", *map(str, files)]
        subprocess.run(command, env=variables, check=False)
        for k, case in enumerate(cases):
            yield _measured(case, folder / str(k))


def _cases(engine: EngineName) -> list[Case]:
    return [
        Case(
            engine=engine,
            model=model,
            num_layers=num_layers,
            sequence_length=length,
            micro_batch=micro_batch,
            checkpointing=checkpointing,
        )
        for model, num_layers, length, micro_batch, checkpointing in _SHAPES[engine]
    ]


def _measured(case: Case, folder: Path) -> Measured:
    path = metrics_path(folder, 0)
    steps = list(read_metrics(path))[_SETTLED:] if path.exists() else []
    if len(steps) < _STEPS - _SETTLED:
        fault = folder / FAULT
        return Measured(case=case, fault=fault.read_text().strip() if fault.exists() else "not reached")

    def median(field: str) -> float:
        return float(statistics.median(getattr(step, field) for step in steps))

    times = [step.step_s for step in steps]
    return Measured(
        case=case,
        step_s=median("step_s"),
        spread=(max(times) - min(times)) / median("step_s"),
        forward_s=median("forward_s"),
        backward_s=median("backward_s"),
        optimizer_s=median("optimizer_s"),
        peak_bytes=max(step.peak_memory_bytes for step in steps),
    )


def predicted(found: Sequence[Measured], gpu_type: str) -> list[Row]:
    """A row for each case that was measured: what was, and what the model says before and after calibration."""
    return [
        row for engine in _SHAPES for row in _of_engine([one for one in found if one.case.engine == engine], gpu_type)
    ]


def _of_engine(found: Sequence[Measured], gpu_type: str) -> Iterator[Row]:
    """Rows of one engine: every second case calibrates the others."""
    known = [one for one in found if counts(one, gpu_type)]
    halves = [calibrate_plans([measured_time(one, gpu_type) for one in known[k::2]]) for k in (0, 1)]
    for k, one in enumerate(known):
        plan, (white, factors) = one.case.plan(gpu_type), (model_of(one.case, gpu_type), halves[1 - k % 2])
        interval = Prediction(white, factors).interval(plan)
        like = next((other for other in known if other is not one and _are_alike(one.case, other.case)), None)
        model = white(Adjustment())
        yield {
            **asdict(one.case),
            "measured_s": one.step_s,
            "predicted_s": model.iteration(plan).total_s,
            "calibrated_s": interval.iteration_s,
            "within": interval.low_s <= (one.step_s or 0.0) <= interval.high_s,
            "inverted_s": None if like is None else _inverted(one.case, like, gpu_type),
            "measured_bytes": one.peak_bytes,
            "predicted_bytes": None if one.peak_bytes is None else model.memory(plan)[0].total_bytes,
        }


def counts(one: Measured, gpu_type: str) -> bool:
    """Whether a case was measured, by the trainer as it is."""
    return one.step_s is not None and (gpu_type, one.case.checkpointing) != _ANOTHER


def _are_alike(a: Case, b: Case) -> bool:
    """Whether one differs from the other in its micro-batch alone."""
    return replace(a, micro_batch=b.micro_batch) == b


def model_of(case: Case, gpu_type: str) -> Callable[[Adjustment], PerformanceModel]:
    """What predicts the steps of a case, with factors on what priors say."""
    kind = gpu_type_of(find_product(gpu_type), Precision.BF16)
    return lambda factors: virtual_model(case.transformer, kind, 1, 1, Calibration(adjustment=factors))


def measured_time(one: Measured, gpu_type: str) -> MeasuredTime:
    """A step, to calibrate others."""
    return MeasuredTime(
        plan=one.case.plan(gpu_type), iteration_s=one.step_s or 0.0, model_of=model_of(one.case, gpu_type)
    )


def _inverted(case: Case, other: Measured, gpu_type: str) -> float:
    """Time of a case by the coefficients of another one."""
    white = model_of(other.case, gpu_type)(Adjustment())
    seen = Measurement(
        stage=0,
        replica=0,
        forward_s=(other.forward_s or 0.0) / _MICRO_BATCHES,
        forward_communication_s=0.0,
        backward_s=(other.backward_s or 0.0) / _MICRO_BATCHES,
        optimizer_s=other.optimizer_s or 0.0,
    )
    plan = other.case.plan(gpu_type)
    known = invert(white.profile, plan, (seen,), white.fabric, curves=white.coefficients.curves)
    kind = gpu_type_of(find_product(gpu_type), Precision.BF16)
    return virtual_model(case.transformer, kind, 1, 1, known).iteration(case.plan(gpu_type)).total_s


def summary(rows: Sequence[Row]) -> Iterator[Row]:
    """Errors by engine: median and largest, in percent, and how many times are within their intervals; not all rows
    have another one whose coefficients tell them.
    """
    for engine in dict.fromkeys(row["engine"] for row in rows):
        own = [row for row in rows if row["engine"] == engine]
        found: dict[str, object] = {"engine": engine, "rows": len(own)}
        for name, unit in (("predicted", "s"), ("calibrated", "s"), ("inverted", "s"), ("predicted", "bytes")):
            errors = [_error(row, name, unit) for row in own if row[f"{name}_{unit}"] is not None]
            label = "memory" if unit == "bytes" else name
            found |= {f"{label} median %": None, f"{label} worst %": None}
            if errors:
                worst = max(errors, key=abs)
                found |= {f"{label} median %": float(np.median(np.abs(errors))), f"{label} worst %": worst}
        inverted = sum(row["inverted_s"] is not None for row in own)
        yield found | {
            "inverted rows": inverted,
            "within %": 100 * statistics.mean(bool(row["within"]) for row in own),
        }


def _error(row: Row, name: str, unit: str) -> float:
    """Predicted over measured, less one, in percent."""
    expected, measured = (float(str(row[f"{key}_{unit}"])) for key in (name, "measured"))
    return 100 * (expected / measured - 1.0)


def _gpu() -> dict[str, str]:
    """Which GPU this machine has, and what drives it."""
    fields = "name", "driver_version", "memory.total"
    command = ["nvidia-smi", f"--query-gpu={','.join(fields)}", "--format=csv,noheader", "--id=0"]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split(", ")
    return dict(zip(fields, map(str.strip, said), strict=True)) | {"torch": version("torch")}


def _merged(document: Mapping[str, Any], before: Mapping[str, Any]) -> dict[str, Any]:
    """Cases that were measured anew in place of what they were, beside the others as they are; `before` says from which
    command and commit these are.
    """
    if document["gpu"] != before["gpu"]:
        sys.exit(f"the result is of {before['gpu']}, this machine has {document['gpu']}: give another --output")
    anew, known = document["measured"], [row["case"] for row in before["measured"]]
    rows = [next((new for new in anew if new["case"] == row["case"]), row) for row in before["measured"]]
    origin = {name: before[name] for name in ("command", "environment")}
    return {
        **document,
        "measured": rows + [new for new in anew if new["case"] not in known],
        "before": [origin, *before.get("before", [])],
    }


_ENGINES, _ALL = list(_SHAPES), ["*"]


def main(
    gpu_type: Annotated[str, typer.Option(help="Product of the catalogue that this machine has.")] = "h100",
    engines: Annotated[list[EngineName], typer.Option(help="May be repeated.")] = _ENGINES,
    only: Annotated[list[str], typer.Option(help="Cases of such a name, `*/selective`; may be repeated.")] = _ALL,
    again: Annotated[bool, typer.Option("--again", help="Predict what was measured anew.")] = False,
    output: Annotated[Path, typer.Option(help="Where the result goes, as JSON.")] = _FILE,
) -> None:
    """Measure steps of whole models on one GPU against the performance model."""
    if not again:
        if missing := missing_extra("a step on a GPU"):
            sys.exit(f"skipped: {missing}")
        if shutil.which("nvidia-smi") is None:
            sys.exit("skipped: this machine shows no GPU")
        document = {
            "command": command_line(),
            "gpu_type": gpu_type,
            "gpu": _gpu(),
            "environment": asdict(environment()),
            "steps": _STEPS,
            "settled": _SETTLED,
            "micro_batches": _MICRO_BATCHES,
            "measured": [asdict(one) for engine in engines for one in measure(engine, only)],
        }
        if only != _ALL and output.exists():
            document = _merged(document, json.loads(output.read_text(encoding="utf-8")))
        output.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    document = json.loads(output.read_text(encoding="utf-8"))
    measured = [from_document(Measured, row, str(output)) for row in document["measured"]]
    rows = predicted(measured, document["gpu_type"])
    show("steps on one GPU", rows)
    document |= {"summary": list(summary(rows)), "rows": rows}
    show("errors, predicted over measured", document["summary"])
    for one in measured:
        if one.fault:
            print(f"{one.case}: {one.fault}")
    output.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
