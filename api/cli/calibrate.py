"""`stowplan calibrate`: measurements of a site become a calibration of the performance model."""

import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from pydantic import TypeAdapter
from pydantic_core import to_json
from rich.markup import escape

from api.cli import console
from api.cli.busy import busy
from api.cli.commands import command
from api.cli.exit_codes import EPILOG
from api.cli.json_files import read_json
from api.cli.options import Output, given, named_calibration
from api.cli.parallel import degrees_of, request_document
from api.cli.paths import Catalogue, write
from api.convert.calibration import calibration_document
from api.convert.job_model import calibration_from_document
from api.convert.parallel_request import parallel_request
from api.convert.reading import read_document
from api.schemas.model import CalibrationDoc
from api.schemas.parallel import ParallelPlanBody
from models.measured import Bandwidth, Training, read_measured_file
from models.parallelism.measured_site import CalibratedSite, MeasuredSite, SiteMeasurement
from models.parallelism.site_calibration import calibrated_site
from models.parallelism.wanted import NamedTypes
from models.performance.iteration.adjustment import NAMES, Adjustment
from models.performance.iteration.coefficients import Calibration
from models.transformer import JobModel
from stowplan.errors import InputError

_BODY = TypeAdapter(ParallelPlanBody)
_CALIBRATION = TypeAdapter(CalibrationDoc)


@command("calibrate", epilog=EPILOG)
def calibrate_command(
    files: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="FILE...",
            help="Logs of Megatron-LM, NeMo or torchtitan (one plan: --degrees); output of nccl-tests and ib_write_bw.",
        ),
    ] = None,
    gpu_type: Annotated[str | None, typer.Option(help="GPU of the catalogue, such as h100.")] = None,
    model: Annotated[str | None, typer.Option(help="Model that was trained: see `stowplan parallel`.")] = None,
    degrees: Annotated[str | None, typer.Option(help="Plan of the logs: pp2,dp2,tp4,mb32 (micro-batches).")] = None,
    iteration_time: Annotated[
        list[str] | None,
        typer.Option(metavar="PLAN=SECONDS", help="A measured plan: pp2,dp2,tp4,mb32=3.41; repeatable."),
    ] = None,
    gpus_per_node: Annotated[int | None, typer.Option(min=1, help="GPUs of a node, if unusual.")] = None,
    nodes: Annotated[int | None, typer.Option(min=1, help="Nodes of a bandwidth test that does not say it.")] = None,
    ports: Annotated[
        int | None, typer.Option(min=1, help="Network ports of a node, for ib_write_bw.", show_default="one a GPU")
    ] = None,
    global_batch: Annotated[int | None, typer.Option(min=1, help="Sequences per step.")] = None,
    sequence_length: Annotated[int | None, typer.Option(min=1, help="Tokens of a sequence.")] = None,
    precision: Annotated[str | None, typer.Option(help="bf16, fp16, fp32, fp8 or mxfp8.")] = None,
    checkpointing: Annotated[str | None, typer.Option(help="none, selective or full.")] = None,
    zero_stage: Annotated[int | None, typer.Option(min=0, max=3, help="What ZeRO shards.")] = None,
    software: Annotated[str | None, typer.Option(help="What trained; see `stowplan parallel`.")] = None,
    calibration: Annotated[Path | None, typer.Option(metavar="FILE", help="Go on from this one.")] = None,
    output: Output = None,
    _catalogue: Catalogue = None,
) -> None:
    """Turn measurements of a site (logs of trainings, iteration times, bandwidth tests) into a calibration."""
    if gpu_type is None:
        raise InputError("--gpu-type is missing; name a GPU of the catalogue such as h100")
    if not files and not iteration_time:
        raise InputError("nothing was measured; give FILEs, or --iteration-time pp2,dp2,tp4,mb32=3.41")
    found = [(path, read_measured_file(path)) for path in files or []]
    start = Calibration() if calibration is None else _read_calibration(calibration)
    fields = {
        "model": model,
        "global_batch": global_batch,
        "sequence_length": sequence_length,
        "precision": precision,
        "checkpointing": checkpointing,
        "zero_stage": zero_stage,
        "software": software,
    }
    kind, usual = NamedTypes(own={}, precision=precision or "bf16", is_cluster=False).find(gpu_type)
    measured = [
        SiteMeasurement(name=str(path), found=one, num_nodes=nodes, num_ports=ports)
        for path, one in found
        if isinstance(one, Bandwidth)
    ]
    job: JobModel | None = None
    for name, plan, one in _trainings(found, degrees, iteration_time or []):
        document = request_document(given(fields), [], [gpu_type], gpus_per_node, plan)
        request = parallel_request(read_document(_BODY, to_json(document)))
        job = request.model
        measured.append(SiteMeasurement(name=name, found=one, degrees=request.degrees))
    site = MeasuredSite(
        gpu_type=kind,
        gpus_per_node=gpus_per_node or usual,
        measurements=tuple(measured),
        model=job,
        start=start,
    )
    with busy("calibrating"):
        calibrated = calibrated_site(site)
    console.print_warnings(calibrated.warnings)
    _write(calibrated, output)


def _trainings(
    found: Sequence[tuple[Path, Any]], degrees: str | None, texts: Sequence[str]
) -> list[tuple[str, str, Training]]:
    """Name, plan and figures of every training."""
    trainings = [(str(path), degrees, one) for path, one in found if isinstance(one, Training)]
    if trainings and degrees is None:
        raise InputError(f"{trainings[0][0]}: is a log of one plan; say which in --degrees pp2,dp2,tp4,mb32")
    given_times = []
    for text in texts:
        plan, _, seconds = text.partition("=")
        try:
            value = float(seconds)
        except ValueError as error:
            raise InputError(f"--iteration-time is {text!r}; write pp2,dp2,tp4,mb32=3.41 (seconds)") from error
        degrees_of(plan)
        given_times.append((f"--iteration-time {text}", plan, Training(num_iterations=1, iteration_s=value)))
    return [*((name, plan or "", one) for name, plan, one in trainings), *given_times]


def _read_calibration(path: Path) -> Calibration:
    named = named_calibration(path)
    if isinstance(named, str):
        return calibration_from_document(named)
    try:
        return calibration_from_document(read_document(_CALIBRATION, to_json(read_json(named)), "calibration"))
    except InputError as error:
        raise InputError(f"{path}: {error.detail}", error.issues) from error


def _write(calibrated: CalibratedSite, output: Path | None) -> None:
    adjustment = calibrated.calibration.adjustment or Adjustment()
    deviations = adjustment.spread().diagonal() ** 0.5
    for name, deviation in zip(NAMES, deviations.tolist(), strict=True):
        line = f"{name:12} {getattr(adjustment, name):.3f} times the usual time, known to {100 * deviation:.0f} %"
        if getattr(adjustment, name) != 1.0:
            console.errors().print(escape(line), soft_wrap=True)
    text = calibration_document(calibrated, time.time()).model_dump_json(indent=2) + "\n"
    if output is None:
        sys.stdout.write(text)
    else:
        write(output, text.encode())
