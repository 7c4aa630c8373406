"""Calibrations of the native engine on one kind of GPU each, from what `gpu-steps` has measured.

    python -m benchmarks gpu-systems [--write]      needs no GPU; --write: into `api/calibrations`

They are factors on what priors say (`plan_calibration`), told by all steps of a GPU; shown are the errors of these, of
models that had no part in them, and of the other GPUs. They are no priors: those of `torch-eager`, as which plans for
the native engine are made, are fitted to published steps of other trainings that are not compiled, which would be
predicted worse by more than these are predicted better.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated

import numpy as np
import typer

from api.convert.job_model import calibration_to_document
from benchmarks.paths import RESULTS
from benchmarks.performance.gpu_steps import Measured, measured_time, model_of
from benchmarks.performance.published_steps.systems import FOLDER
from benchmarks.rows import Row, show
from executor.training_options import EngineName
from models.performance.iteration.adjustment import Adjustment
from models.performance.iteration.coefficients import Calibration
from models.performance.iteration.plan_calibration import Prediction, calibrate_plans
from models.transformer import Checkpointing
from stowplan.records import from_document


def main(
    write: Annotated[bool, typer.Option("--write", help="Write the calibrations that come along.")] = False,
) -> None:
    """Fit calibrations of the native engine to steps of one GPU."""
    by_gpu = steps_by_gpu()
    show("predicted over measured steps of one GPU", [row for gpu_type in by_gpu for row in figures(gpu_type, by_gpu)])
    if write:
        for gpu_type, measured in by_gpu.items():
            write_calibration(gpu_type, measured)


def figures(gpu_type: str, by_gpu: Mapping[str, Sequence[Measured]]) -> Iterator[Row]:
    """Errors of the steps of a GPU without and with its calibration, and of those that had no part in it."""
    own = by_gpu[gpu_type]
    yield _row(gpu_type, "priors alone", _errors(own, gpu_type, Adjustment()))
    found = _fitted(own, gpu_type)
    yield _row(gpu_type, "its own steps", _errors(own, gpu_type, found))
    yield _row(gpu_type, "models that are left out", _left_out(own, gpu_type))
    for other, measured in by_gpu.items():
        if other != gpu_type:
            yield _row(gpu_type, f"steps of {other}", _errors(measured, other, found))


def write_calibration(gpu_type: str, measured: Sequence[Measured]) -> None:
    """Write the file that comes along."""
    before, after = _errors(measured, gpu_type, Adjustment()), _left_out(measured, gpu_type)
    source = (
        f"Fitted to {len(measured)} iteration times of one GPU by python -m benchmarks gpu-systems --write. Median "
        f"error {_median(before):.1f} %; of models that are left out, calibrated by the others, {_median(after):.1f} %."
    )
    document = calibration_to_document(Calibration(adjustment=_fitted(measured, gpu_type)))
    text = document.model_copy(update={"source": source}).model_dump_json(indent=2)
    (FOLDER / f"{gpu_type}-{EngineName.NATIVE}.json").write_text(text + "\n", encoding="utf-8")


def steps_by_gpu() -> dict[str, list[Measured]]:
    """Steps of all results that count, by GPU type."""
    found = {}
    for file in sorted(RESULTS.glob("gpu_steps*.json")):
        document = json.loads(file.read_text(encoding="utf-8"))
        measured = [from_document(Measured, row, str(file)) for row in document["measured"]]
        found[str(document["gpu_type"])] = _counted(measured)
    return found


def _fitted(measured: Sequence[Measured], gpu_type: str) -> Adjustment:
    return calibrate_plans([measured_time(one, gpu_type) for one in measured])


def _counted(measured: Sequence[Measured]) -> list[Measured]:
    """Steps of the native engine. Those with selective checkpointing were measured when it repeated attention."""
    return [
        one
        for one in measured
        if one.case.engine is EngineName.NATIVE
        and one.step_s is not None
        and one.case.checkpointing is not Checkpointing.SELECTIVE
    ]


def _errors(measured: Sequence[Measured], gpu_type: str, factors: Adjustment) -> list[float]:
    """Predicted over measured, less one, in percent."""
    found = []
    for one in measured:
        interval = Prediction(model_of(one.case, gpu_type), factors).interval(one.case.plan(gpu_type))
        found.append(100 * (interval.iteration_s / (one.step_s or 0.0) - 1))
    return found


def _left_out(measured: Sequence[Measured], gpu_type: str) -> list[float]:
    """Of every model, by factors that the other models told."""
    found = []
    for model in dict.fromkeys(one.case.model for one in measured):
        others = [one for one in measured if one.case.model != model]
        own = [one for one in measured if one.case.model == model]
        found += _errors(own, gpu_type, _fitted(others, gpu_type))
    return found


def _row(gpu_type: str, of: str, errors: Sequence[float]) -> Row:
    worst = max(errors, key=abs)
    return {"calibration": gpu_type, "of": of, "rows": len(errors), "median %": _median(errors), "worst %": worst}


def _median(errors: Sequence[float]) -> float:
    return float(np.median(np.abs(errors)))
